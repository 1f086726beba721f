//! Sockets of frontends: binding, accepting up to a limit, and limits on stalled clients.

mod accept;
mod activity;
mod bind;
mod http;
mod kept;
mod listeners;
mod pace;
mod secret;
mod service;
mod spread;
mod stall;
mod tls;
mod upload;

pub(crate) use accept::{Acceptor, Peer, Places, Shutdown, accept, next_connection};
pub(crate) use activity::{Activity, Busy};
pub(crate) use bind::{BACKLOG, UnixSocket, bind_tcp};
pub(crate) use http::{HttpLimits, Pages, serve_http};
pub(crate) use kept::{Part, SendKept, send_kept};
pub(crate) use listeners::{Listeners, ThreadListeners};
pub(crate) use pace::{Pace, PacedBody};
pub(crate) use secret::has_secret;
pub(crate) use service::Service;
pub(crate) use stall::StallGuard;
pub(crate) use tls::{Greeting, Tls, greet};
pub(crate) use upload::{STALLED_UPLOAD, TimedBody, UploadPace};

pub use bind::BindError;
pub use listeners::Address;
