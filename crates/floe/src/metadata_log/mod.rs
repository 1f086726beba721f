//! The metadata log: records that an engine must not forget, in the two
//! metadata zones.
//!
//! | file | content |
//! |---|---|
//! | `zones.rs` | the two zones: appends, checkpoints, the copy of the superblock |
//! | `reader.rs` | reading a log block by block |
//! | `scan.rs` | finding the zone that holds when a cache is opened |
//! | `contents.rs` | the records, as an engine sees them |
//! | `queue.rs`, `receipt.rs`, `batch.rs`, `write_batch.rs` | sending requests, waiting for them, and those that belong together |
//! | `owner.rs` | the owner of a log: group commit, moves to the other zone |
//! | `combiner.rs`, `shared.rs` | waiters do its work on their own threads |
//! | `keeper.rs`, `start.rs` | the task that drives the log when no waiter does |
//!
//! One zone is active. It begins with a superblock and a *checkpoint*: all live
//! records at that time. Appended records follow. When the zone is full, or an
//! append to it failed, the live records move to the other zone. Recovery
//! trusts that zone only once the end of its checkpoint is durable. Then the old
//! zone is reset and keeps a copy of the superblock.
//!
//! Must not depend on: the meaning of a record. The engine knows which records
//! are live ([`Contents`]).

mod batch;
mod combiner;
mod contents;
mod keeper;
mod lock;
mod owner;
mod queue;
mod reader;
mod receipt;
mod scan;
mod shared;
mod start;
mod write_batch;
mod zones;

#[cfg(test)]
mod tests;

use floe_core::ZoneId;
use floe_core::layout::{JournalChain, JournalRecord, LayoutError};
use floe_device::DeviceError;

pub(crate) use batch::Batch;
pub(crate) use contents::{Contents, Demand, Written};
pub(crate) use queue::{Place, Queue, group_bytes};
pub(crate) use reader::{Damage, Reader};
pub(crate) use receipt::Receipt;
pub(crate) use scan::{FindError, Found, newest, superblocks};
pub(crate) use start::Start;
pub use write_batch::WriteBatch;

/// The metadata zones.
pub(crate) const METADATA: [ZoneId; 2] = [ZoneId(0), ZoneId(1)];

/// The metadata zone that is not `zone`.
pub(crate) fn other(zone: ZoneId) -> ZoneId {
    ZoneId(1 - zone.0)
}

/// The superblock of one kind of cache, with the records of its log.
pub(crate) trait LogSuperblock: Copy + Send + Sync + 'static {
    /// The records of the log behind it.
    type Record: JournalRecord + Send + Sync + 'static;

    /// Most bytes of a log, if a metadata zone has room for more.
    const BYTES_MAX: u64 = u64::MAX;

    /// Writes the superblock over `out`, one device block.
    fn encode(&self, out: &mut [u8]) -> Result<usize, LayoutError>;

    /// Reads the superblock that a metadata zone begins with.
    fn decode(bytes: &[u8]) -> Result<Self, LayoutError>;

    /// The start of the log behind this superblock.
    fn chain(&self) -> JournalChain;

    /// The same superblock with another epoch.
    fn with_epoch(self, epoch: u64) -> Self;
}

/// Why a log cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("encoding: {0}")]
    Layout(#[from] LayoutError),
    #[error(
        "the records that must be kept do not fit a metadata zone; use larger zones (device.zone_size)"
    )]
    Full,
    #[error(
        "the journal does not read back as it was written, so it cannot move to its other zone; deletes and overwrites are rejected until it can, or until the cache is reopened, which forgets entries that may be stale"
    )]
    ReadBack,
    #[error("the last append to the journal, or its flush, failed")]
    Poisoned,
    #[error("the journal failed before; reopen the cache")]
    Broken,
}
