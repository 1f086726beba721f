//! The faces of Floe: how clients reach the cache.
//!
//! * [`s3`]: any S3 client, read-through.
//! * [`oxcache`]: OxCache's protocol on a Unix socket.
//! * [`memcached`]: memcached's text protocol, classic and meta.
//! * [`admin`]: metrics, health and statistics.
//!
//! A face turns a protocol request into a key and a range, and an answer of
//! the cache into the protocol's bytes. What the crate refuses to know: how
//! caching works.

#![forbid(unsafe_code)]

pub mod admin;
pub mod config;
pub mod memcached;
mod metrics;
mod net;
pub mod oxcache;
mod reload;
pub mod s3;
mod server;

pub use config::{
    AccessKey, AdminConfig, Anonymous, Exposed, MemcachedConfig, OxCacheConfig, S3Config,
    ServerConfig, ServerConfigError,
};
pub use net::BindError;
pub use server::{Addresses, Drained, Server, StartError};
