//! One pass over a trace: its facts, and the miss-ratio curve of its blocks.

use floe_core::volume::{ByteRange, SECTOR_BYTES, VolumeId};
use serde::Serialize;

use super::options::AdviseOptions;
use crate::error::EvalError;
use crate::mrc::{Curve, FixedSize, StackDistances as _};
use crate::stat::{Clock, Operations, Sequence, Sequential, Sizes, Times};
use crate::trace::{BlockOp, BlockRequest, BlockTrace};
use crate::volume::each_request;

/// Bytes of the blocks that the curve counts: the smallest blocks of a cache.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// Seconds of a day.
pub(super) const DAY_S: f64 = 86_400.0;

/// Distinguishes the blocks of the second sample from those of the first.
const SECOND_SAMPLE: u64 = 0x9e37_79b9_7f4a_7c15;

/// The facts of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct TraceFacts {
    /// Its format.
    pub format: String,
    /// Lines or records skipped as bad.
    pub skipped: u64,
    /// Requests by operation.
    pub operations: Operations,
    /// Volumes.
    pub volumes: u64,
    /// The trace's time; `None` if it has none.
    pub time: Option<Times>,
    /// Bytes of reads.
    pub read_sizes: Sizes,
    /// Bytes of writes.
    pub write_sizes: Sizes,
    /// Requests that continue earlier ones.
    pub sequential: Sequential,
    /// Bytes of reads, writes and zeros in whole sectors: the I/O of the backing
    /// device without a cache.
    pub requested_bytes: u64,
    /// Accesses of 4 KiB blocks by reads and writes.
    pub accesses: u64,
    /// Bytes of the distinct blocks; an estimate if the curve is of a sample.
    pub working_set_bytes: u64,
    /// The share of accesses that are the first of their block: no cache of any
    /// size has them.
    pub cold_miss_share: f64,
    /// True if every block was measured.
    pub is_exact: bool,
}

/// The facts of a trace, and the curves of two samples of its blocks. They are
/// equal if every block was measured.
pub(super) struct Measured {
    pub(super) facts: TraceFacts,
    pub(super) curves: [Curve; 2],
}

#[derive(Default)]
struct Collector {
    operations: Operations,
    clock: Clock,
    read_sizes: Sizes,
    write_sizes: Sizes,
    sequence: Sequence,
    requested_bytes: u64,
}

/// Reads the trace once. Memory is bounded by the sample.
pub(super) fn measure(options: &AdviseOptions) -> Result<Measured, EvalError> {
    let mut trace = BlockTrace::open(&options.trace, options.options)?;
    let mut collector = Collector::default();
    let mut samples = [(); 2].map(|()| FixedSize::new(options.sample));
    each_request(&mut trace, options.requests_max, |request, volume| {
        if collector.note(request) {
            for block in blocks(request, volume) {
                samples[0].access(block);
                samples[1].access(block ^ SECOND_SAMPLE);
            }
        }
        Ok(())
    })?;
    let curves = [&samples[0], &samples[1]].map(FixedSize::curve);
    let [curve, _] = &curves;
    let facts = TraceFacts {
        format: trace.format().to_string(),
        skipped: trace.skipped(),
        operations: collector.operations,
        volumes: trace.volumes().len() as u64,
        time: collector.clock.times(),
        read_sizes: collector.read_sizes,
        write_sizes: collector.write_sizes,
        sequential: collector.sequence.finish(),
        requested_bytes: collector.requested_bytes,
        accesses: curve.accesses,
        working_set_bytes: curve.unique.saturating_mul(BLOCK_BYTES),
        cold_miss_share: match curve.accesses {
            0 => 0.0,
            _ => curve.miss_ratio(u64::MAX),
        },
        is_exact: samples[0].is_exact(),
    };
    Ok(Measured { facts, curves })
}

impl Collector {
    /// Counts `request`. Returns true if it accesses blocks that a cache may
    /// insert.
    fn note(&mut self, request: &BlockRequest) -> bool {
        self.clock.note(request.time_ns);
        self.operations.count(request.op);
        let sizes = match request.op {
            BlockOp::Read => Some(&mut self.read_sizes),
            BlockOp::Write => Some(&mut self.write_sizes),
            BlockOp::WriteZeroes => None,
            BlockOp::Trim | BlockOp::Flush => return false,
        };
        let range = ByteRange::at(request.offset, request.length).aligned_to(SECTOR_BYTES);
        self.requested_bytes = self.requested_bytes.saturating_add(range.len());
        let Some(sizes) = sizes else { return false };
        sizes.add(request.length);
        self.sequence.add(request);
        request.length > 0
    }
}

/// The blocks of a request of at least one byte, each as one number.
fn blocks(request: &BlockRequest, volume: VolumeId) -> impl Iterator<Item = u64> + use<> {
    let volume = u64::from(volume.0) << 48;
    let last = (request.offset + request.length - 1) / BLOCK_BYTES;
    (request.offset / BLOCK_BYTES..=last).map(move |block| volume ^ block)
}
