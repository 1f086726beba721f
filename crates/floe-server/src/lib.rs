//! The frontends of Floe: the protocols of its clients.
//!
//! * [`s3`]: any S3 client, read-through.
//! * [`oxcache`]: OxCache's protocol on a Unix socket.
//! * [`memcached`]: memcached's text protocol, classic and meta.
//! * [`nbd`]: block devices over the NBD protocol.
//! * `peers`: other nodes, which fill from each other.
//! * `events`: notifications of changes at the origin.
//! * [`control`]: commands of operators to the running server.
//! * `admin`: metrics, health and statistics.
//!
//! A frontend turns a protocol's request into a key and a range, and the
//! cache's result into the protocol's response. `frontend.rs` is its contract,
//! `frontends/` has a folder for each. The crate must not depend on how the
//! cache works.

#![forbid(unsafe_code)]

mod commands;
mod config;
mod frontend;
pub mod frontends;
mod metrics;
mod net;
mod node;
mod reload;
mod server;

pub use config::{Anonymous, Exposed, ServerConfigError};
pub use frontend::{Address, Addresses, OpenBacking, StartError};
pub use frontends::ServerConfig;
pub use frontends::admin::{AdminConfig, resident_bytes};
pub use frontends::control::{self, ControlConfig};
pub use frontends::events::EventsConfig;
pub use frontends::memcached::{self, MemcachedConfig};
pub use frontends::nbd::{self, NbdConfig};
pub use frontends::oxcache::{self, OxCacheConfig};
pub use frontends::peers::PeersConfig;
pub use frontends::s3::{self, AccessKey, KeyAccess, KeyPolicy, S3Config, SignedBy};
pub use net::BindError;
pub use node::{NodeConfig, NodeStatus, Rejoin, VolumeLocks};
pub use server::{Caches, Drained, Server};
