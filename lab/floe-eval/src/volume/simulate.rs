//! One cache of volumes that serves requests; both devices are counters.

use std::time::Duration;

use floe_core::Tick;
use floe_core::policy::cleaning::Load;
use floe_core::volume::{
    ByteRange, Cache, Operation, Outcome, Plan, Request, SECTOR_BYTES, Step, VolumeId,
};

use super::result::{MissedRequests, VolumeResult, VolumeSample};
use crate::trace::BlockRequest;

/// Samples of the series over time that are kept. When there are more, every
/// other one is dropped, and from then on samples are twice as far apart.
const SAMPLES_MAX: usize = 256;
/// Requests between the first samples.
const SAMPLE_REQUESTS_MIN: u64 = 256;

/// A cache and its counts.
#[derive(Debug)]
pub struct Simulation {
    name: String,
    cache: Cache,
    /// The steps of the last request.
    steps: Vec<Step>,
    requests: u64,
    missed: MissedRequests,
    samples: Vec<VolumeSample>,
    requests_per_sample: u64,
    /// The time of the first request with a time, in the trace's own time.
    started_ns: Option<u64>,
    now: Tick,
    last_request: Tick,
}

impl Simulation {
    /// An empty cache.
    pub fn new(name: impl Into<String>, plan: &Plan) -> Self {
        Simulation {
            name: name.into(),
            cache: Cache::new(plan),
            steps: Vec::new(),
            requests: 0,
            missed: MissedRequests::default(),
            samples: Vec::new(),
            requests_per_sample: SAMPLE_REQUESTS_MIN,
            started_ns: None,
            now: Tick::ZERO,
            last_request: Tick::ZERO,
        }
    }

    /// Serves `request`, after the cleaning that was due before it. A request whose
    /// bytes begin or end within a sector is widened to whole ones.
    pub fn serve(&mut self, request: &BlockRequest, volume: VolumeId) {
        self.advance(request.time_ns);
        let operation = request.op;
        let range = ByteRange::at(request.offset, request.length).aligned_to(SECTOR_BYTES);
        let request = Request {
            volume,
            operation,
            range,
        };
        self.steps.clear();
        let outcome = self.cache.request(&request, self.now, &mut self.steps);
        self.count(operation, outcome);
    }

    /// The steps of the last request.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Lets the trace's time pass; it never runs backwards.
    fn advance(&mut self, time_ns: Option<u64>) {
        let Some(time_ns) = time_ns else {
            return;
        };
        let started_ns = *self.started_ns.get_or_insert(time_ns);
        let now = Tick(time_ns.saturating_sub(started_ns));
        while self.cache.clean_at() <= now {
            let is_clean = self.cache.occupancy().dirty_blocks == 0;
            // Without dirty blocks every earlier wake-up would find nothing.
            self.now = match is_clean {
                true => self.now.max(now),
                false => self.now.max(self.cache.clean_at()),
            };
            self.steps.clear();
            let load = Load {
                in_flight: 0,
                last_request: self.last_request,
            };
            self.cache.clean(self.now, load, |_| true, &mut self.steps);
        }
        self.now = self.now.max(now);
        self.last_request = self.now;
    }

    fn count(&mut self, operation: Operation, outcome: Outcome) {
        self.requests += 1;
        if matches!(operation, Operation::Read | Operation::Write) && !outcome.is_hit() {
            self.missed.requests += 1;
            self.missed.bytes += outcome.bytes;
            self.missed.blocks += u64::from(outcome.promoted);
            self.missed.block_bytes += outcome.promoted_bytes;
        }
        if self.requests.is_multiple_of(self.requests_per_sample) {
            self.sample();
        }
    }

    fn sample(&mut self) {
        if self.samples.len() == SAMPLES_MAX {
            let mut at = 0;
            self.samples.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            self.requests_per_sample *= 2;
        }
        let statistics = self.cache.statistics();
        let (occupancy, memory) = (self.cache.occupancy(), self.cache.memory());
        let elapsed: Duration = self.now - Tick::ZERO;
        self.samples.push(VolumeSample {
            time_s: elapsed.as_secs_f64(),
            requests: self.requests,
            reads: statistics.reads,
            writes: statistics.writes,
            traffic: statistics.traffic,
            used_bytes: occupancy.bytes,
            dirty_bytes: occupancy.dirty_bytes,
            metadata_bytes: memory.metadata(),
            history_bytes: memory.history,
        });
    }

    /// Ends the simulation. Dirty blocks stay dirty.
    pub fn finish(mut self) -> VolumeResult {
        self.sample();
        let mean = self
            .samples
            .iter()
            .map(|sample| sample.metadata_bytes as f64);
        let metadata_bytes_mean = mean.sum::<f64>() / self.samples.len() as f64;
        VolumeResult {
            settings: self.name,
            capacity_bytes: self.cache.plan().capacity_bytes(),
            smallest_block_bytes: self.cache.plan().config().sizes.smallest().bytes(),
            requests: self.requests,
            statistics: *self.cache.statistics(),
            occupancy: self.cache.occupancy(),
            memory: self.cache.memory(),
            metadata_bytes_mean,
            missed: self.missed,
            samples: self.samples,
        }
    }
}
