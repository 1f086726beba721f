//! What every face needs of a socket: binding with an error that helps,
//! accepting no more connections than agreed, and noticing clients that stall.

mod accept;
mod activity;
mod bind;
mod http;
mod pace;
mod stall;

pub(crate) use accept::{Shutdown, accept};
pub(crate) use activity::{Activity, Busy};
pub(crate) use bind::{UnixSocket, bind_tcp};
pub(crate) use http::{HttpLimits, serve_http};
pub(crate) use pace::{Pace, PacedBody};
pub(crate) use stall::StallGuard;

pub use bind::BindError;
