//! A cache that may be advised, and what it costs.

use floe_core::ByteSize;
use floe_core::volume::{Accesses, Io, Plan};
use serde::Serialize;

use super::drive::Drive;
use super::facts::{DAY_S, TraceFacts};
use super::options::bad_option;
use crate::error::EvalError;
use crate::trace::BlockRequest;
use crate::volume::{Simulation, VolumeCase};
use floe_core::volume::VolumeId;

/// The settings in which candidates differ, as `floe replay --volume` reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// The block sizes.
    pub sizes: &'static str,
    /// The promotion policy.
    pub promotion: &'static str,
    /// The mode.
    pub mode: &'static str,
}

impl Settings {
    /// Block sizes of candidates.
    pub const SIZES: [&'static str; 6] = [
        "4KiB",
        "32KiB",
        "256KiB",
        "4KiB..32KiB",
        "4KiB..256KiB",
        "32KiB..256KiB",
    ];
    /// Promotion policies of candidates.
    pub const PROMOTIONS: [&'static str; 4] = ["always", "nhit-2", "smq", "sketch-2"];
    /// The mode that keeps dirty blocks.
    pub const WRITE_BACK: &'static str = "write-back";
    /// Modes of candidates that keep no dirty blocks.
    pub const SAFE_MODES: [&'static str; 2] = ["write-through", "write-around"];

    /// The settings with a capacity, for `floe replay --volume`.
    pub fn volume(&self, capacity_bytes: u64) -> String {
        format!(
            "sizes={},capacity={},mode={},promotion={}",
            self.sizes,
            ByteSize(capacity_bytes),
            self.mode,
            self.promotion
        )
    }

    /// True if a failure of the cache device loses acknowledged writes.
    pub fn is_write_back(&self) -> bool {
        self.mode == Settings::WRITE_BACK
    }
}

/// A cache that replayed the trace, and its costs.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// Its settings.
    pub settings: Settings,
    /// The same with its capacity, for `floe replay --volume`.
    pub volume: String,
    /// Reads, and those that hit.
    pub reads: Accesses,
    /// Writes, and those that hit.
    pub writes: Accesses,
    /// Reads of the cache device.
    pub cache_read: Io,
    /// Writes to the cache device.
    pub cache_written: Io,
    /// Reads of the backing device.
    pub backing_read: Io,
    /// Writes to the backing device, without the dirty bytes of the end.
    pub backing_written: Io,
    /// Bytes that are dirty at the end, and must still be written back.
    pub dirty_bytes: u64,
    /// Bytes read from and written to the backing device, with those that are
    /// dirty at the end.
    pub backing_bytes: u64,
    /// The same as a share of the I/O without a cache.
    pub backing_share: f64,
    /// Bytes programmed by the simulated SSD per byte written to it; `None` without
    /// writes, or if it is too large to simulate.
    pub device_write_amplification: Option<f64>,
    /// Bytes written to the cache device per day; `None` if the trace has no span.
    pub written_bytes_per_day: Option<f64>,
    /// The same as multiples of the cache's size.
    pub drive_writes_per_day: Option<f64>,
    /// RAM of metadata on average, and of the history of promotion at the end.
    pub memory_bytes: u64,
}

/// A candidate that replays the trace.
pub(super) struct Replaying {
    settings: Settings,
    volume: String,
    simulation: Simulation,
    drive: Option<Drive>,
}

impl Replaying {
    pub(super) fn new(
        settings: Settings,
        capacity_bytes: u64,
        drive: Option<Drive>,
    ) -> Result<Self, EvalError> {
        let volume = settings.volume(capacity_bytes);
        let case: VolumeCase = volume
            .parse()
            .map_err(|reason: String| bad_option("volume", reason))?;
        let plan: Plan = case
            .plan(0)
            .map_err(|error| bad_option("volume", format!("{volume}: {error}")))?;
        Ok(Replaying {
            settings,
            simulation: Simulation::new(&volume, &plan),
            volume,
            drive,
        })
    }

    pub(super) fn serve(
        &mut self,
        request: &BlockRequest,
        volume: VolumeId,
    ) -> Result<(), EvalError> {
        self.simulation.serve(request, volume);
        match &mut self.drive {
            Some(drive) => drive.apply(self.simulation.steps()),
            None => Ok(()),
        }
    }

    pub(super) fn finish(self, facts: &TraceFacts) -> Candidate {
        let write_amplification = self.drive.and_then(Drive::write_amplification);
        let result = self.simulation.finish();
        let traffic = &result.statistics.traffic;
        let (backing_read, backing_written) =
            (traffic.read_from_backing(), traffic.written_to_backing());
        let dirty_bytes = result.occupancy.dirty_bytes;
        let backing_bytes = backing_read.bytes + backing_written.bytes + dirty_bytes;
        let days = facts.time.map(|time| time.span_s / DAY_S);
        let per_day = days
            .filter(|days| *days > 0.0)
            .map(|days| traffic.written_to_cache().bytes as f64 / days);
        Candidate {
            settings: self.settings,
            volume: self.volume,
            reads: result.statistics.reads,
            writes: result.statistics.writes,
            cache_read: traffic.read_from_cache(),
            cache_written: traffic.written_to_cache(),
            backing_read,
            backing_written,
            dirty_bytes,
            backing_bytes,
            backing_share: backing_bytes as f64 / facts.requested_bytes.max(1) as f64,
            device_write_amplification: write_amplification,
            written_bytes_per_day: per_day,
            drive_writes_per_day: per_day.map(|bytes| bytes / result.capacity_bytes as f64),
            memory_bytes: result.metadata_bytes_mean as u64 + result.memory.history,
        }
    }
}
