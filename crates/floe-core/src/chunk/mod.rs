//! The chunk engine's core: it decides which zone takes the next bytes, where a
//! key's value lies, and what is reclaimed next.
//!
//! [`Plan`] is the validated configuration; [`ShardIndex`] maps key hashes to
//! places on flash; [`ZoneTable`] is the state of every zone. Nothing here does
//! I/O: the driver in the `floe` crate carries the decisions out.

mod clru;
mod index;
mod plan;
mod streams;
mod zones;

pub use clru::{RECOVERED_AGES, Recency};
pub use index::{Entry, Found, IndexFull, Place, ShardIndex, UseBounds};
pub use plan::{
    ChunkConfig, ClruLayout, ConfigError, Durability, Eviction, LargeReads, METADATA_ZONES, Plan,
    WaterMarks,
};
pub use streams::{Backoff, StreamId, Streams};
pub use zones::{Placed, ZoneInfo, ZonePhase, ZoneTable};
