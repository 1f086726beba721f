//! A cache of volumes: requests in, steps out.

use super::address::{ByteRange, Extent, VolumeId};
use super::mode::Mode;
use super::plan::{ConfigError, Plan};
use super::regions::hash_of;
use super::request::{Operation, Outcome, Request, Step};
use super::shard::{Part, Shard};
use super::stats::{Memory, Occupancy, Statistics};
use super::steps::Steps;
use crate::ByteSize;
use crate::hash::fast_range;

/// The decisions of a block cache for volumes.
///
/// Every decision takes effect at once: after a request the cache knows its
/// blocks as if all of its steps had been carried out. A driver that carries
/// them out later keeps others from the same bytes until then.
#[derive(Debug)]
pub struct Cache {
    plan: Plan,
    mode: Mode,
    shards: Vec<Shard>,
    statistics: Statistics,
}

impl Cache {
    /// An empty cache.
    pub fn new(plan: &Plan) -> Self {
        Cache {
            mode: plan.mode,
            shards: (0..plan.shards)
                .map(|number| Shard::new(plan, number))
                .collect(),
            statistics: Statistics::default(),
            plan: plan.clone(),
        }
    }

    /// The plan that the cache follows.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Decides about a request, and appends the steps that answer it to `steps`.
    /// Bytes past the end of the volume are left out.
    pub fn request(&mut self, request: &Request, steps: &mut Vec<Step>) -> Outcome {
        let end = self
            .plan
            .end_of(request.volume)
            .min(self.plan.address_end());
        let range = request.range.intersection(ByteRange { start: 0, end });
        let (plan, mode) = (&self.plan, self.mode);
        let mut steps = Steps::new(steps, &mut self.statistics);
        let extent = Extent {
            volume: request.volume,
            range,
        };
        match request.operation {
            Operation::Read | Operation::Write => {}
            Operation::Flush => {
                steps.push(Step::Flush(request.volume));
                self.statistics.flushes += 1;
                return Outcome::default();
            }
            Operation::Trim => steps.push(Step::TrimBacking(extent)),
            Operation::WriteZeroes => steps.zero_backing(extent),
        }
        steps.outcome.bytes = range.len();
        for part in parts(plan, mode, request.volume, range) {
            let shard = &mut self.shards[fast_range(part.hash.0, plan.shards as usize)];
            shard.apply(request.operation, part, &mut steps);
        }
        let outcome = steps.outcome;
        self.count(request.operation, outcome);
        outcome
    }

    /// Changes the mode. Dirty blocks of an earlier mode stay, and are served.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Adds room at the end of the cache device. Blocks stay where they are.
    ///
    /// # Errors
    /// The capacity is less than before, or cannot work.
    pub fn grow(&mut self, capacity: ByteSize) -> Result<(), ConfigError> {
        self.plan = self.plan.grown_to(capacity)?;
        for shard in &mut self.shards {
            shard.grow(&self.plan);
        }
        Ok(())
    }

    /// Everything counted since the start.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Live bytes of RAM.
    pub fn memory(&self) -> Memory {
        let mut memory = Memory::default();
        for shard in &self.shards {
            memory += shard.memory();
        }
        memory
    }

    /// The state of the blocks.
    pub fn occupancy(&self) -> Occupancy {
        let mut occupancy = Occupancy::default();
        for shard in &self.shards {
            shard.add_occupancy(&mut occupancy);
        }
        occupancy
    }

    fn count(&mut self, operation: Operation, outcome: Outcome) {
        let statistics = &mut self.statistics;
        match operation {
            Operation::Read => statistics.reads.add(outcome.bytes, outcome.hit_bytes),
            Operation::Write => statistics.writes.add(outcome.bytes, outcome.hit_bytes),
            Operation::Flush => statistics.flushes += 1,
            Operation::Trim => statistics.trims += 1,
            Operation::WriteZeroes => statistics.write_zeroes += 1,
        }
    }
}

/// Cuts `range` of `volume` at the ends of regions.
fn parts(
    plan: &Plan,
    mode: Mode,
    volume: VolumeId,
    range: ByteRange,
) -> impl Iterator<Item = Part<'_>> {
    let region_bytes = plan.region_bytes();
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let end = range.end.min((at & !(region_bytes - 1)) + region_bytes);
        let key = plan.shape.region_of(volume, at);
        let part = Part {
            key,
            hash: hash_of(plan.seed, key),
            range: ByteRange { start: at, end },
            plan,
            mode,
            admits: true,
        };
        at = end;
        Some(part)
    })
}
