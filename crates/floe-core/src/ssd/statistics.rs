//! Counters of a device.

use serde::{Deserialize, Serialize};

use crate::Tick;

/// All counters of a device, up to now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Bytes that hosts wrote.
    pub host_written_bytes: u64,
    /// Bytes that hosts read.
    pub host_read_bytes: u64,
    /// Bytes programmed, by cause.
    pub programmed: Programmed,
    /// Bytes accepted into the buffer and not yet programmed, by cause.
    pub buffered: Programmed,
    /// Bytes that a reset or trim dropped from the buffer before they were
    /// programmed.
    pub discarded_bytes: u64,
    /// Operations of all dies.
    pub die_operations: u64,
    /// Busy time of every die.
    pub dies: Vec<DieBusy>,
    /// Garbage collection.
    pub collection: Collection,
    /// Erases per superblock.
    pub wear: Wear,
    /// Nanoseconds during which a write waited because garbage collection
    /// throttled the host.
    pub throttled_ns: u64,
    /// Nanoseconds during which a write waited for room in the buffer.
    pub buffer_full_ns: u64,
}

/// Bytes programmed, by cause; parity not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Programmed {
    /// Bytes that the host wrote.
    pub host_bytes: u64,
    /// Bytes that garbage collection moved.
    pub collected_bytes: u64,
    /// Bytes rewritten by the device because a write was smaller than a mapping
    /// unit.
    pub rewritten_bytes: u64,
    /// Bytes that filled up a finished zone or an abandoned reclaim unit.
    pub padding_bytes: u64,
}

impl Programmed {
    /// The sum of all causes.
    pub fn total_bytes(&self) -> u64 {
        self.host_bytes + self.collected_bytes + self.rewritten_bytes + self.padding_bytes
    }

    /// The counters in the order host, collected, rewritten, padding.
    pub(super) fn in_order(&self) -> [u64; 4] {
        [
            self.host_bytes,
            self.collected_bytes,
            self.rewritten_bytes,
            self.padding_bytes,
        ]
    }

    /// The counters from that order.
    pub(super) fn of([host, collected, rewritten, padding]: [u64; 4]) -> Self {
        Programmed {
            host_bytes: host,
            collected_bytes: collected,
            rewritten_bytes: rewritten,
            padding_bytes: padding,
        }
    }

    pub(super) fn add(&mut self, other: &Programmed) {
        self.host_bytes += other.host_bytes;
        self.collected_bytes += other.collected_bytes;
        self.rewritten_bytes += other.rewritten_bytes;
        self.padding_bytes += other.padding_bytes;
    }

    pub(super) fn subtract(&mut self, other: &Programmed) {
        self.host_bytes -= other.host_bytes;
        self.collected_bytes -= other.collected_bytes;
        self.rewritten_bytes -= other.rewritten_bytes;
        self.padding_bytes -= other.padding_bytes;
    }
}

/// A die's busy time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DieBusy {
    /// Reading for hosts.
    pub host_read_ns: u64,
    /// Reading for garbage collection and partial writes.
    pub internal_read_ns: u64,
    /// Programming.
    pub program_ns: u64,
    /// Erasing.
    pub erase_ns: u64,
}

impl DieBusy {
    /// The sum of all operations.
    pub fn total_ns(&self) -> u64 {
        self.host_read_ns + self.internal_read_ns + self.program_ns + self.erase_ns
    }
}

/// Garbage collection so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Collection {
    /// Superblocks collected.
    pub victims: u64,
    /// Bytes moved.
    pub moved_bytes: u64,
    /// When the first collection began.
    pub first_ns: Option<u64>,
    /// Bytes that the host had written when the first collection began.
    pub first_at_host_bytes: Option<u64>,
    /// The last collections, oldest first; at most
    /// [`Collection::TIMELINE_MAX`].
    pub timeline: std::collections::VecDeque<Collected>,
}

impl Collection {
    /// Most collected superblocks in the timeline.
    pub const TIMELINE_MAX: usize = 1 << 14;
}

/// One collected superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// When it became the victim.
    pub started_ns: u64,
    /// When its last valid byte was moved.
    pub ended_ns: u64,
    /// Valid bytes when it became the victim.
    pub valid_bytes: u64,
    /// Free superblocks when it became the victim.
    pub free_superblocks: u32,
}

/// Erases per superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wear {
    /// Erases of the least erased superblock.
    pub erases_min: u32,
    /// Mean erases of a superblock.
    pub erases_mean: f64,
    /// Erases of the most erased superblock.
    pub erases_max: u32,
    /// Erases of all superblocks.
    pub erases: u64,
}

impl Wear {
    pub(super) fn of(erases: &[u32]) -> Self {
        let sum: u64 = erases.iter().map(|&count| u64::from(count)).sum();
        Wear {
            erases_min: erases.iter().copied().min().unwrap_or(0),
            erases_mean: sum as f64 / erases.len().max(1) as f64,
            erases_max: erases.iter().copied().max().unwrap_or(0),
            erases: sum,
        }
    }
}

/// The statistics that an FDP drive reports of an endurance group (NVMe "FDP
/// Statistics" log page).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdpStatistics {
    /// Host bytes with metadata written (HBMW).
    pub host_bytes_written: u64,
    /// Media bytes with metadata written (MBMW).
    pub media_bytes_written: u64,
    /// Media bytes erased (MBE).
    pub media_bytes_erased: u64,
}

/// The counters of several drives. Wear and the times of collections are those of none.
impl<'a> std::iter::Sum<&'a Statistics> for Statistics {
    fn sum<I: Iterator<Item = &'a Statistics>>(drives: I) -> Self {
        drives.fold(Statistics::default(), |mut all, drive| {
            all.host_written_bytes += drive.host_written_bytes;
            all.host_read_bytes += drive.host_read_bytes;
            all.programmed.add(&drive.programmed);
            all.buffered.add(&drive.buffered);
            all.discarded_bytes += drive.discarded_bytes;
            all.die_operations += drive.die_operations;
            all.dies.extend_from_slice(&drive.dies);
            all.collection.victims += drive.collection.victims;
            all.collection.moved_bytes += drive.collection.moved_bytes;
            all.wear.erases += drive.wear.erases;
            all.throttled_ns += drive.throttled_ns;
            all.buffer_full_ns += drive.buffer_full_ns;
            all
        })
    }
}

impl Statistics {
    /// Bytes that reached or will reach flash per byte that the host wrote;
    /// `None` before the first write.
    pub fn write_amplification(&self) -> Option<f64> {
        let mut all = self.programmed;
        all.add(&self.buffered);
        (all.host_bytes > 0).then(|| all.total_bytes() as f64 / all.host_bytes as f64)
    }

    /// The difference between these counters and `earlier`. Buffered bytes
    /// count as programmed; wear and timeline are those of now.
    pub fn since(&self, earlier: &Statistics) -> Statistics {
        let mut rest = self.clone();
        rest.host_written_bytes -= earlier.host_written_bytes;
        rest.host_read_bytes -= earlier.host_read_bytes;
        rest.programmed.add(&rest.buffered);
        rest.programmed.subtract(&earlier.programmed);
        rest.programmed.subtract(&earlier.buffered);
        rest.buffered = Programmed::default();
        rest.discarded_bytes -= earlier.discarded_bytes;
        rest.die_operations -= earlier.die_operations;
        rest.collection.victims -= earlier.collection.victims;
        rest.collection.moved_bytes -= earlier.collection.moved_bytes;
        rest.throttled_ns -= earlier.throttled_ns;
        rest.buffer_full_ns -= earlier.buffer_full_ns;
        for (busy, before) in rest.dies.iter_mut().zip(&earlier.dies) {
            busy.host_read_ns -= before.host_read_ns;
            busy.internal_read_ns -= before.internal_read_ns;
            busy.program_ns -= before.program_ns;
            busy.erase_ns -= before.erase_ns;
        }
        rest
    }

    /// The share of the time up to `now` that each die was busy.
    pub fn utilisation(&self, now: Tick) -> Vec<f64> {
        let busy = |die: &DieBusy| die.total_ns() as f64 / now.0.max(1) as f64;
        self.dies.iter().map(busy).collect()
    }
}
