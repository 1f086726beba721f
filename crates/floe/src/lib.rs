//! Floe: a flash cache.

mod chunk;
pub mod config;
pub mod error;
pub mod inspect;
pub mod object;
pub mod origin;
pub mod store;

pub use bytes::Bytes;
pub use chunk::{ChunkCounts, EngineStats, OpenError, RecoveryReport, ZoneStats};
pub use error::CacheError;
pub use object::{ObjectCache, ObjectConfig, ObjectKey};
pub use origin::{Origin, OriginConfig};
pub use store::{
    Admission, PutOptions, RamConfig, ReadFault, Store, StoreConfig, StoreStats, Tier, Value,
    ValueReader, ValueWriter,
};
