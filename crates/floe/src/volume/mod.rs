//! Block caches of volumes: a fast device in front of slow ones.
//!
//! A [`VolumeCache`] owns a cache device. Each [`Volume`] is a backing device behind
//! it. The decisions are those of [`floe_core::volume`]; this module carries them out.
//!
//! | file | content |
//! |---|---|
//! | `cache.rs` | opening, volumes, closing |
//! | `load.rs`, `loading.rs` | reading the blocks of an earlier run, while requests are served |
//! | `detach.rs` | taking a volume off a cache that serves others |
//! | `handle.rs` | one volume: the public operations |
//! | `state.rs` | the shared state; flushing, poison |
//! | `shard.rs`, `decide.rs` | a part of the addresses; deciding about a request there |
//! | `locks.rs`, `lock.rs` | range locks; the lock of a shard |
//! | `read.rs`, `write.rs` | the way of a request |
//! | `clean.rs`, `limits.rs`, `reclaim.rs` | writing dirty blocks back and its limits, room for new ones |
//! | `resize.rs` | devices that have become larger or smaller |
//! | `table/` | the table of blocks on the cache device, and its log |
//! | `sums.rs`, `scrub.rs` | checksums of cached data; reading all of it |
//! | `stamp.rs` | what tells a backing device from others |
//! | `loss.rs`, `witness.rs` | going on without a cache device that has failed |
//! | `layout.rs` | the places of things on the cache device |
//! | `finish.rs` | futures that end even if their callers go |
//!
//! **An acknowledged flush survives anything.** A write-back volume's dirty block is
//! the only copy: its place is used again only once the backing device has the data
//! durably, and the table of blocks says so durably.
//!
//! Must not depend on: protocols, other engines.

mod cache;
mod clean;
mod config;
mod decide;
mod detach;
mod error;
mod finish;
mod handle;
mod layout;
mod limits;
mod load;
mod loading;
mod lock;
mod locks;
mod loss;
mod read;
mod reclaim;
mod reservation;
mod reservation_key;
mod resize;
mod scrub;
mod shard;
mod stamp;
mod state;
mod sums;
pub(crate) mod table;
mod witness;
mod write;

#[cfg(test)]
mod tests;

pub use cache::{VolumeCache, VolumeCacheStats};
pub use config::{LockGranularity, VolumeCacheConfig, VolumeConfig};
pub use detach::DirtyData;
pub use error::{DetachError, OpenVolumesError, VolumeError};
pub use floe_core::volume::mode::Mode;
pub use floe_core::volume::{BlockSizes, Usage};
pub use handle::{Volume, VolumeStatus};
pub use reservation_key::{ReservationKey, Reserve};
pub use resize::{ResizeError, Resized};
pub use scrub::ScrubReport;
