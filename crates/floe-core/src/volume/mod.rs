//! The block cache of volumes: decisions about sectors of a slow backing device
//! that a fast cache device keeps.
//!
//! Blocks have any set of sizes, and each missing range gets the largest that
//! fit it (AdaCache: Yang et al.). Blocks of one size share a group, which is
//! allocated and evicted as one. [`Plan`] is a validated configuration, and
//! [`Cache`] turns each [`Request`] into [`Step`]s for a driver.
//!
//! A write-back volume may not forget: a dirty sector is the only copy. Every
//! victim's dirty bytes are written back by steps before its place is reused.
//!
//! Must not depend on: drivers, devices, other engines.

mod address;
mod cache;
mod greedy;
mod groups;
mod members;
pub mod mode;
mod order;
mod pages;
mod plan;
mod policies;
mod regions;
mod request;
mod sectors;
pub mod sequential;
mod shape;
mod shard;
mod sizes;
mod slabs;
mod stats;
mod steps;
#[cfg(test)]
mod tests;

pub use address::{ByteRange, Extent, Piece, SECTOR_BYTES, VolumeId};
pub use cache::{Cache, CleanCursor, RestoreError};
pub use order::{Levels, Replacement};
pub use plan::{Config, ConfigError, Fill, Level, Plan, VolumeBounds, WhenDirty};
pub use request::{Operation, Outcome, Request, Restored, Step};
pub use sizes::{BlockSizes, BlockSizesError};
pub use stats::{Accesses, Io, Memory, Occupancy, Statistics, Traffic, Turnover, Usage};
