//! Snapshots of a run's counts, and the differences between them.

use floe_core::Tick;
use floe_core::ssd;
use floe_core::tiny::{Memory, Statistics};

use super::timing::Latencies;
use super::watch::Commands;

/// The driver's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) operations: u64,
    pub(super) gets: u64,
    pub(super) sets: u64,
    pub(super) deletes: u64,
    /// Hits in the RAM tier.
    pub(super) ram_hits: u64,
    /// Hits in the engine.
    pub(super) engine_hits: u64,
    pub(super) misses: u64,
    /// Hits that read pages, and the pages that they read.
    pub(super) flash_hits: u64,
    pub(super) flash_hit_pages: u64,
    /// Pages that misses read.
    pub(super) miss_pages: u64,
    /// Bytes of objects returned.
    pub(super) bytes_out: u64,
}

impl Counts {
    pub(super) fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            operations: self.operations - earlier.operations,
            gets: self.gets - earlier.gets,
            sets: self.sets - earlier.sets,
            deletes: self.deletes - earlier.deletes,
            ram_hits: self.ram_hits - earlier.ram_hits,
            engine_hits: self.engine_hits - earlier.engine_hits,
            misses: self.misses - earlier.misses,
            flash_hits: self.flash_hits - earlier.flash_hits,
            flash_hit_pages: self.flash_hit_pages - earlier.flash_hit_pages,
            miss_pages: self.miss_pages - earlier.miss_pages,
            bytes_out: self.bytes_out - earlier.bytes_out,
        }
    }
}

/// All counts at one time.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) counts: Counts,
    pub(super) commands: Commands,
    pub(super) engine: Statistics,
    pub(super) memory: Memory,
    pub(super) device: Option<ssd::Statistics>,
    /// The time of the simulated device.
    pub(super) now: Tick,
}

/// The counts of a stretch of a run.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) counts: Counts,
    pub(super) commands: Commands,
    pub(super) engine: Statistics,
    pub(super) device: Option<ssd::Statistics>,
}

impl Snapshot {
    /// The counts since an earlier snapshot.
    pub(super) fn since(&self, earlier: &Snapshot) -> Stretch {
        let device = self.device.as_ref().zip(earlier.device.as_ref());
        Stretch {
            counts: self.counts.since(&earlier.counts),
            commands: Commands {
                writes: self.commands.writes - earlier.commands.writes,
                pages_written: self.commands.pages_written - earlier.commands.pages_written,
                pages_read: self.commands.pages_read - earlier.commands.pages_read,
                resets: self.commands.resets - earlier.commands.resets,
            },
            engine: self.engine.since(&earlier.engine),
            device: device.map(|(now, then)| now.since(then)),
        }
    }
}

/// The run in bins of equal numbers of operations. At [`BINS_MAX`] bins,
/// neighbours are merged, so the length of the run need not be known in
/// advance.
#[derive(Debug)]
pub(super) struct Bins {
    /// The snapshot before the first bin, then the end of each.
    pub(super) edges: Vec<Snapshot>,
    /// Latencies of each bin.
    pub(super) latencies: Vec<Latencies>,
    operations: u64,
    next: u64,
    /// Latencies since measuring began.
    measured: Option<Latencies>,
}

const BINS_MAX: usize = 200;

/// Initial number of operations per bin.
const BIN_OPERATIONS: u64 = 4096;

impl Bins {
    pub(super) fn new(begin: Snapshot) -> Self {
        Bins {
            edges: vec![begin],
            latencies: Vec::new(),
            operations: BIN_OPERATIONS,
            next: BIN_OPERATIONS,
            measured: None,
        }
    }

    pub(super) fn is_over(&self, operations: u64) -> bool {
        operations >= self.next
    }

    pub(super) fn start_measuring(&mut self) {
        self.measured = Some(Latencies::default());
    }

    /// Latencies since measuring began.
    pub(super) fn measured(&self) -> Option<&Latencies> {
        self.measured.as_ref()
    }

    pub(super) fn push(&mut self, snapshot: Snapshot, latencies: Latencies) {
        self.edges.push(snapshot);
        if let Some(measured) = &mut self.measured {
            measured.merge(&latencies);
        }
        self.latencies.push(latencies);
        if self.latencies.len() >= BINS_MAX {
            self.halve();
        }
        let last = self.edges.last().map_or(0, |edge| edge.counts.operations);
        self.next = last + self.operations;
    }

    fn halve(&mut self) {
        self.operations *= 2;
        let mut at = 0;
        self.edges.retain(|_| {
            at += 1;
            (at - 1) % 2 == 0
        });
        let pairs = self.latencies.chunks(2).map(|pair| {
            let mut both = pair[0].clone();
            pair[1..].iter().for_each(|other| both.merge(other));
            both
        });
        self.latencies = pairs.collect();
    }

    /// Number, beginning and end of each bin.
    pub(super) fn stretches(&self) -> impl Iterator<Item = (usize, &Snapshot, &Snapshot)> {
        let pairs = self.edges.windows(2).enumerate();
        pairs.map(|(bin, pair)| (bin, &pair[0], &pair[1]))
    }
}
