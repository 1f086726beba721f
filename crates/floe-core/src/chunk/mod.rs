//! The chunk engine's core. It decides which zone takes the next bytes, where a
//! key's value lies, and what is reclaimed next.
//!
//! [`Plan`] is the validated configuration, [`ShardIndex`] maps key hashes to
//! locations on flash, and [`ZoneTable`] has the state of every zone. The
//! driver in the `floe` crate does the I/O.

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
