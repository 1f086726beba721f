//! The steps of one request, and the counts that follow from them.

use super::address::{ByteRange, Extent, Piece, VolumeId};
use super::mode::Sector;
use super::policies::Policies;
use super::request::{Outcome, Step};
use super::stats::{Statistics, Traffic};

/// Collects steps. No step passes the end of its volume, and none is empty.
pub(super) struct Steps<'a> {
    pub(super) steps: &'a mut Vec<Step>,
    pub(super) statistics: &'a mut Statistics,
    pub(super) policies: &'a mut Policies,
    pub(super) outcome: Outcome,
    /// Ends of the last ranges that the request reads from and writes to the
    /// backing device: the next range may continue an operation.
    read_end: u64,
    written_end: u64,
}

impl<'a> Steps<'a> {
    pub(super) fn new(
        steps: &'a mut Vec<Step>,
        statistics: &'a mut Statistics,
        policies: &'a mut Policies,
    ) -> Self {
        Steps {
            steps,
            statistics,
            policies,
            outcome: Outcome::default(),
            read_end: u64::MAX,
            written_end: u64::MAX,
        }
    }

    pub(super) fn read_cache(&mut self, piece: Piece) {
        self.traffic().cache_hits.add(piece.extent.range.len());
        self.steps.push(Step::ReadCache(piece));
    }

    pub(super) fn write_cache(&mut self, piece: Piece) {
        self.traffic().cache_writes.add(piece.extent.range.len());
        self.steps.push(Step::WriteCache(piece));
    }

    pub(super) fn zero_cache(&mut self, piece: Piece) {
        self.traffic().cache_writes.add(piece.extent.range.len());
        self.steps.push(Step::ZeroCache(piece));
    }

    pub(super) fn fill(&mut self, piece: Piece) {
        if !piece.extent.range.is_empty() {
            self.traffic().fills.add(piece.extent.range.len());
            self.steps.push(Step::Fill(piece));
        }
    }

    pub(super) fn write_back(&mut self, piece: Piece) {
        if !piece.extent.range.is_empty() {
            self.traffic().write_backs.add(piece.extent.range.len());
            self.steps.push(Step::WriteBack(piece));
        }
    }

    pub(super) fn read_backing(&mut self, volume: VolumeId, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        let reads = &mut self.statistics.traffic.backing_reads;
        reads.bytes += range.len();
        reads.operations += u64::from(range.start != self.read_end);
        self.read_end = range.end;
        self.steps.push(Step::ReadBacking(Extent { volume, range }));
    }

    pub(super) fn write_backing(&mut self, volume: VolumeId, range: ByteRange) {
        let writes = &mut self.statistics.traffic.backing_writes;
        writes.bytes += range.len();
        writes.operations += u64::from(range.start != self.written_end);
        self.written_end = range.end;
        self.steps
            .push(Step::WriteBacking(Extent { volume, range }));
    }

    pub(super) fn zero_backing(&mut self, extent: Extent) {
        self.traffic().backing_writes.add(extent.range.len());
        self.steps.push(Step::ZeroBacking(extent));
    }

    pub(super) fn map(&mut self, block: Piece) {
        self.policies.note_mapped(block);
        self.steps.push(Step::Map(block));
    }

    pub(super) fn unmap(&mut self, block: Piece) {
        self.policies.note_unmapped(block);
        self.steps.push(Step::Unmap(block));
    }

    pub(super) fn mark(&mut self, piece: Piece, state: Sector) {
        if !piece.extent.range.is_empty() {
            self.steps.push(Step::Mark(piece, state));
        }
    }

    fn traffic(&mut self) -> &mut Traffic {
        &mut self.statistics.traffic
    }
}
