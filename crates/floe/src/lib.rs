//! Floe: a flash cache.

pub mod cache;
mod chunk;
pub mod config;
pub mod error;
pub mod inspect;
pub mod object;
pub mod origin;
pub mod store;

pub use bytes::Bytes;
pub use cache::{Cache, CacheConfig, FetchError};
pub use chunk::{ChunkCounts, EngineStats, OpenError, RecoveryReport, ZoneStats};
pub use error::CacheError;
pub use floe_core::ByteSize;
pub use floe_core::chunk::{ChunkConfig, Durability, Eviction};
pub use floe_device as device;
pub use object::{ObjectCache, ObjectConfig, ObjectKey};
pub use origin::{Origin, OriginConfig};
pub use store::{
    Admission, PutOptions, RamConfig, ReadFault, Store, StoreConfig, StoreStats, Tier, Value,
    ValueReader, ValueWriter,
};
