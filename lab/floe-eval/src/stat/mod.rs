//! Statistics of a trace: operations, sizes, reuse, skew, sequentiality.

mod report;
mod sequential;
mod sizes;
mod skew;
#[cfg(test)]
mod tests;
mod times;

use std::collections::HashMap;
use std::path::PathBuf;

use floe_core::ByteSize;
use serde::Serialize;

use crate::error::EvalError;
use crate::ratio::ratio;
use crate::trace::{BlockOp, BlockRequest, BlockTrace, Op, Request, Trace, TraceOptions};
pub(crate) use sequential::Sequence;
pub(crate) use times::Clock;

pub use sequential::Sequential;
pub use sizes::{SizeBin, Sizes};
pub use skew::Skew;
pub use times::Times;

/// The blocks of a block trace, unless others are wished for.
pub const BLOCK_BYTES_DEFAULT: u64 = 4096;

/// A trace to describe.
#[derive(Clone, Debug)]
pub struct StatOptions {
    /// The trace.
    pub trace: PathBuf,
    /// How to read it.
    pub options: TraceOptions,
    /// Bytes of the blocks that requests of a block trace are cut into.
    pub block_bytes: u64,
}

/// The statistics of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceStat {
    /// The trace's file name.
    pub trace: String,
    /// Its format.
    pub format: String,
    /// Lines or records skipped as bad.
    pub skipped: u64,
    /// Bytes of the blocks that are counted; `None` where objects are.
    pub block_bytes: Option<u64>,
    /// Requests by operation.
    pub operations: Operations,
    /// Volumes of a block trace.
    pub volumes: Option<u64>,
    /// The trace's time; `None` if it has none.
    pub time: Option<Times>,
    /// Bytes of the reads whose size the trace tells.
    pub read_sizes: Sizes,
    /// Bytes of the writes whose size the trace tells.
    pub write_sizes: Sizes,
    /// Accesses of blocks or objects.
    pub accesses: Accesses,
    /// How unequally the accesses are distributed.
    pub skew: Skew,
    /// How often requests of a block trace continue earlier ones.
    pub sequential: Option<Sequential>,
}

/// Requests by operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Operations {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Writes of zeroes.
    pub write_zeroes: u64,
    /// Trims of blocks, or deletes of objects.
    pub trims: u64,
    /// Flushes.
    pub flushes: u64,
}

impl Operations {
    /// Counts a request to a block device.
    pub(crate) fn count(&mut self, op: BlockOp) {
        *match op {
            BlockOp::Read => &mut self.reads,
            BlockOp::Write => &mut self.writes,
            BlockOp::WriteZeroes => &mut self.write_zeroes,
            BlockOp::Trim => &mut self.trims,
            BlockOp::Flush => &mut self.flushes,
        } += 1;
    }

    /// Requests of all kinds.
    pub fn total(&self) -> u64 {
        self.reads + self.writes + self.write_zeroes + self.trims + self.flushes
    }

    /// The share of reads among reads and writes; zero without either.
    pub fn read_share(&self) -> f64 {
        ratio(self.reads, self.reads + self.writes + self.write_zeroes)
    }
}

/// Accesses of blocks or objects. Trims and flushes are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Accesses {
    /// All of them.
    pub total: u64,
    /// Distinct blocks or objects.
    pub unique: u64,
    /// Those of them that are read.
    pub unique_read: u64,
    /// Those of them that are written.
    pub unique_written: u64,
    /// Bytes of the distinct blocks, or of objects at their largest size.
    pub working_set_bytes: u64,
    /// The share of accesses that are not the first of theirs: the hit ratio of
    /// an infinite cache.
    pub reuse_share: f64,
}

/// Describes a trace. Memory grows with the number of its distinct blocks.
///
/// # Errors
/// When the trace cannot be read, or an option makes no sense.
pub fn stat(options: &StatOptions) -> Result<TraceStat, EvalError> {
    if options.block_bytes == 0 {
        return Err(EvalError::Option {
            option: "block-size",
            reason: "blocks of no bytes hold nothing; give at least 512B".into(),
        });
    }
    let mut collector = Collector::default();
    let mut trace = Trace::open(&options.trace, options.options)?;
    let (format, skipped, volumes) = match trace.format().has_blocks() {
        true => {
            let mut trace = BlockTrace::new(&options.trace, trace)?;
            for request in trace.by_ref() {
                collector.block(&request?, options.block_bytes);
            }
            let volumes = trace.volumes().len() as u64;
            (trace.format(), trace.skipped(), Some(volumes))
        }
        false => {
            for request in trace.by_ref() {
                collector.object(&request?);
            }
            (trace.format(), trace.skipped(), None)
        }
    };
    let file = options.trace.file_name().unwrap_or_default();
    Ok(TraceStat {
        trace: file.to_string_lossy().into_owned(),
        format: format.to_string(),
        skipped,
        block_bytes: volumes.map(|_| options.block_bytes),
        volumes,
        ..collector.finish(volumes.is_some())
    })
}

impl TraceStat {
    /// The unit of accesses, as people write it.
    pub fn unit(&self) -> String {
        match self.block_bytes {
            Some(bytes) => format!("blocks of {}", ByteSize(bytes)),
            None => "objects".to_owned(),
        }
    }
}

/// The accesses of one block or object.
#[derive(Clone, Copy, Default)]
struct Touched {
    count: u64,
    bytes: u64,
    is_read: bool,
    is_written: bool,
}

#[derive(Default)]
struct Collector {
    operations: Operations,
    read_sizes: Sizes,
    write_sizes: Sizes,
    touched: HashMap<(u64, u64), Touched>,
    sequence: Sequence,
    clock: Clock,
}

impl Collector {
    fn block(&mut self, request: &BlockRequest, block_bytes: u64) {
        self.clock.note(request.time_ns);
        self.operations.count(request.op);
        let is_read = match request.op {
            BlockOp::Read => true,
            BlockOp::Write | BlockOp::WriteZeroes => false,
            BlockOp::Trim | BlockOp::Flush => return,
        };
        self.sizes(is_read).add(request.length);
        self.sequence.add(request);
        let first = request.offset / block_bytes;
        let end = (request.offset + request.length).div_ceil(block_bytes);
        for block in first..end {
            self.touch((request.volume.into(), block), is_read, block_bytes);
        }
    }

    fn object(&mut self, request: &Request) {
        self.clock.note(request.time_ns);
        let is_read = match request.op {
            Op::Get => {
                self.operations.reads += 1;
                true
            }
            Op::Put => {
                self.operations.writes += 1;
                false
            }
            Op::Delete => return self.operations.trims += 1,
        };
        if let Some(bytes) = request.size {
            self.sizes(is_read).add(bytes);
        }
        let key = (request.key.to_u64(), 0);
        self.touch(key, is_read, request.size.unwrap_or(0));
    }

    fn sizes(&mut self, is_read: bool) -> &mut Sizes {
        match is_read {
            true => &mut self.read_sizes,
            false => &mut self.write_sizes,
        }
    }

    fn touch(&mut self, key: (u64, u64), is_read: bool, bytes: u64) {
        let touched = self.touched.entry(key).or_default();
        touched.count += 1;
        touched.bytes = bytes.max(touched.bytes);
        touched.is_read |= is_read;
        touched.is_written |= !is_read;
    }

    /// The figures so far. The caller fills in the rest.
    fn finish(self, has_blocks: bool) -> TraceStat {
        let mut counts: Vec<u64> = self.touched.values().map(|touched| touched.count).collect();
        let total = counts.iter().sum();
        let unique = counts.len() as u64;
        let count = |of: fn(&Touched) -> bool| {
            let counted = self.touched.values().filter(|touched| of(touched));
            counted.count() as u64
        };
        TraceStat {
            trace: String::new(),
            format: String::new(),
            skipped: 0,
            block_bytes: None,
            volumes: None,
            operations: self.operations,
            time: self.clock.times(),
            accesses: Accesses {
                total,
                unique,
                unique_read: count(|touched| touched.is_read),
                unique_written: count(|touched| touched.is_written),
                working_set_bytes: self.touched.values().map(|touched| touched.bytes).sum(),
                reuse_share: ratio(total - unique, total),
            },
            skew: Skew::of(&mut counts),
            sequential: has_blocks.then(|| self.sequence.finish()),
            read_sizes: self.read_sizes,
            write_sizes: self.write_sizes,
        }
    }
}
