//! Floe: a flash cache.

pub mod config;
pub mod error;
pub mod store;

pub use bytes::Bytes;
pub use error::CacheError;
pub use store::{Admission, PutOptions, Store, Tier, Value, ValueReader, ValueWriter};
