//! Floe: a flash cache.

mod chunk;
pub mod error;
pub mod store;

pub use bytes::Bytes;
pub use error::CacheError;
pub use chunk::{ChunkCounts, EngineStats, OpenError, RecoveryReport, ZoneStats};
pub use store::{
    Admission, PutOptions, RamConfig, ReadFault, Store, StoreConfig, StoreStats, Tier, Value, ValueReader, ValueWriter,
};
