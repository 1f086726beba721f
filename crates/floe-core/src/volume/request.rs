//! Requests to a cache of volumes, and the steps that answer them.

use super::address::{ByteRange, Extent, Piece, VolumeId};
use super::mode::Sector;

/// The operations of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Makes all acknowledged writes of the volume durable.
    Flush,
    /// Declares data of no use. It may read as before or as zeros.
    Trim,
    /// Writes zeros.
    WriteZeroes,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The volume.
    pub volume: VolumeId,
    /// The operation.
    pub operation: Operation,
    /// Its bytes; begins and ends at sectors. Of no meaning for a flush.
    pub range: ByteRange,
}

/// One step of a driver. The steps of a request hold in their order: a step may
/// use bytes that an earlier one moved, and reuses a place only after the steps
/// that name and empty it. Steps about different places may overlap in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Answer these bytes from the cache device.
    ReadCache(Piece),
    /// Write these bytes of the request to the cache device.
    WriteCache(Piece),
    /// Write zeros to the cache device.
    ZeroCache(Piece),
    /// Read these bytes from the backing device: to answer the request, to fill
    /// blocks, or both.
    ReadBacking(Extent),
    /// Write bytes that an earlier [`Step::ReadBacking`] read to the cache device.
    Fill(Piece),
    /// Write these bytes of the request to the backing device.
    WriteBacking(Extent),
    /// Write zeros to the backing device.
    ZeroBacking(Extent),
    /// Declare these bytes of the backing device of no use.
    TrimBacking(Extent),
    /// Flush what the driver has written for the volume.
    Flush(VolumeId),
    /// Copy these dirty bytes from the cache device to the backing device.
    WriteBack(Piece),
    /// The block at this place has left the cache.
    Unmap(Piece),
    /// The block at this place is this one from now on; none of its bytes is
    /// valid before steps that follow make them so.
    Map(Piece),
    /// The bytes of a block have this state from now on. A block of a cache without
    /// maps is dirty as a whole. Writing bytes back makes them clean, without this step.
    Mark(Piece, Sector),
}

/// A block that an earlier run of the cache left on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored<'a> {
    /// The block, and its place.
    pub block: Piece,
    /// Its valid bytes in ascending order, each run with whether it is dirty.
    pub valid: &'a [(ByteRange, bool)],
}

/// The result of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes that a read found in the cache, or that a write found a block for.
    pub hit_bytes: u64,
    /// Bytes of the request.
    pub bytes: u64,
    /// Blocks that entered the cache.
    pub promoted: u32,
    /// Bytes of the blocks that entered.
    pub promoted_bytes: u64,
    /// Sectors that were dirty are so no more, because the backing device has newer
    /// data or the data is of no use. A driver makes the backing device durable before
    /// it says so.
    pub has_cleared_dirty: bool,
}

impl Outcome {
    /// True if the cache had the whole request.
    pub fn is_hit(&self) -> bool {
        self.hit_bytes == self.bytes
    }
}
