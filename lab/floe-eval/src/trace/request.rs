//! Requests of a trace.

use std::time::Duration;

pub use floe_core::volume::{Operation as BlockOp, SECTOR_BYTES};

/// A cache key of a trace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A number.
    Id(u64),
    /// Text or bytes.
    Bytes(Box<[u8]>),
}

impl Key {
    /// The key as bytes: numbers in decimal, as ZNCache writes them.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Key::Id(id) => id.to_string().into_bytes(),
            Key::Bytes(bytes) => bytes.to_vec(),
        }
    }

    /// A 64-bit name: the number itself, or a hash of the bytes.
    pub fn to_u64(&self) -> u64 {
        match self {
            Key::Id(id) => *id,
            Key::Bytes(bytes) => xxhash_rust::xxh3::xxh3_64(bytes),
        }
    }
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reads.
    Get,
    /// Writes or overwrites.
    Put,
    /// Removes.
    Delete,
}

/// A byte range of an object. If the trace does not have the end, the length is
/// the largest possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes; `offset + length` never overflows.
    pub length: u64,
}

impl ByteRange {
    /// `length` bytes at `offset`, shortened if their end would overflow.
    pub fn new(offset: u64, length: u64) -> Self {
        ByteRange {
            offset,
            length: length.min(u64::MAX - offset),
        }
    }

    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Time in nanoseconds since the trace's own zero.
    pub time_ns: Option<u64>,
    /// The key.
    pub key: Key,
    /// The operation.
    pub op: Op,
    /// Bytes of the whole object, if the trace has them.
    pub size: Option<u64>,
    /// The range of the object; `None` for all of it.
    pub range: Option<ByteRange>,
    /// Time to live of the object, if the trace has it.
    pub ttl: Option<Duration>,
}

impl Request {
    /// A read of a whole object, without further properties.
    pub fn get(key: Key) -> Self {
        Request {
            time_ns: None,
            key,
            op: Op::Get,
            size: None,
            range: None,
            ttl: None,
        }
    }
}

/// One request to a block device. Lines name their volume by a [`Key`]; a
/// [`BlockTrace`](super::BlockTrace) numbers the volumes from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest<Volume = u32> {
    /// Time in nanoseconds since the trace's own zero.
    pub time_ns: Option<u64>,
    /// The volume.
    pub volume: Volume,
    /// The operation.
    pub op: BlockOp,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; `offset + length` never overflows.
    pub length: u64,
}

impl BlockRequest<Key> {
    /// The request as one for a range of an object, which is the volume. A flush
    /// asks for no object.
    pub fn into_request(self) -> Option<Request> {
        let op = match self.op {
            BlockOp::Read => Op::Get,
            BlockOp::Write | BlockOp::WriteZeroes => Op::Put,
            BlockOp::Trim => Op::Delete,
            BlockOp::Flush => return None,
        };
        Some(Request {
            time_ns: self.time_ns,
            key: self.volume,
            op,
            size: None,
            range: Some(ByteRange::new(self.offset, self.length)),
            ttl: None,
        })
    }
}

/// The requests that one line or record stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Nothing: a header, a marker, an empty line.
    Nothing,
    /// One request.
    One(Request),
    /// The same request again and again.
    Repeat(Request, u64),
    /// Reads of this many consecutive sectors from the first.
    Run(u64, u64),
    /// The same request to a block device, so many times.
    Blocks(BlockRequest<Key>, u64),
}

impl Decoded {
    /// One request to a block device.
    pub(super) fn block(
        time_ns: Option<u64>,
        volume: Key,
        op: BlockOp,
        offset: u64,
        length: u64,
    ) -> Result<Self, String> {
        if offset.checked_add(length).is_none() {
            return Err(format!("{length} bytes at {offset} end after 2^64"));
        }
        let request = BlockRequest {
            time_ns,
            volume,
            op,
            offset,
            length,
        };
        Ok(Decoded::Blocks(request, 1))
    }

    /// Reads of `count` sectors from `first`, whose bytes fit in 64 bits.
    pub(super) fn run(first: u64, count: u64) -> Result<Self, String> {
        let end = first.checked_add(count);
        match end.and_then(|end| end.checked_mul(SECTOR_BYTES)) {
            Some(_) => Ok(Decoded::Run(first, count)),
            None => Err(format!("the blocks after {first} exceed 2^64 bytes")),
        }
    }
}
