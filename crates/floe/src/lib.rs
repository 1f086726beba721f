//! Floe: a flash cache.

pub mod error;
pub mod object;
pub mod origin;
pub mod store;

pub use bytes::Bytes;
pub use error::CacheError;
pub use object::{ObjectCache, ObjectConfig, ObjectKey};
pub use origin::{Origin, OriginConfig};
pub use store::{Admission, PutOptions, Store, Tier, Value, ValueReader, ValueWriter};
