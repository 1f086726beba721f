//! A cache of volumes: requests in, steps out.

use super::address::{ByteRange, Extent, Piece};
use super::mode::Mode;
use super::plan::{ConfigError, Plan, WhenDirty};
use super::policies::{Admits, Policies};
use super::regions::hash_of;
use super::request::{Operation, Outcome, Request, Step};
use super::sequential::CutOff;
use super::shape::RegionKey;
use super::shard::{Part, Shard};
use super::stats::{Memory, Occupancy, Statistics};
use super::steps::Steps;
use crate::hash::{KeyHash, fast_range};
use crate::policy::cleaning::{Blocks, Load, Place};
use crate::policy::promotion::{PromotionConfig, Sighting, Verdict};
use crate::{ByteSize, Tick};

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
    policies: Policies,
    statistics: Statistics,
    /// Blocks that the cleaning policy names.
    named: Vec<u32>,
}

impl Cache {
    /// An empty cache.
    pub fn new(plan: &Plan) -> Self {
        Cache {
            mode: plan.mode,
            shards: (0..plan.shards)
                .map(|number| Shard::new(plan, number))
                .collect(),
            policies: Policies::new(plan),
            statistics: Statistics::default(),
            named: Vec::new(),
            plan: plan.clone(),
        }
    }

    /// The plan that the cache follows.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Decides about a request at `now`, and appends the steps that answer it to
    /// `steps`. Bytes past the end of the volume are left out.
    pub fn request(&mut self, request: &Request, now: Tick, steps: &mut Vec<Step>) -> Outcome {
        let volume = request.volume;
        let end = self.plan.end_of(volume).min(self.plan.address_end());
        let range = request.range.intersection(ByteRange { start: 0, end });
        let extent = Extent { volume, range };
        self.policies.now = now;
        match request.operation {
            Operation::Flush => {
                steps.push(Step::Flush(volume));
                self.count(request.operation, Outcome::default());
                return Outcome::default();
            }
            Operation::Trim => steps.push(Step::TrimBacking(extent)),
            Operation::Read | Operation::Write | Operation::WriteZeroes => {}
        }
        let admits = self.admits(request.operation, extent);
        let mut steps = Steps::new(steps, &mut self.statistics, &mut self.policies);
        if request.operation == Operation::WriteZeroes {
            steps.zero_backing(extent);
        }
        steps.outcome.bytes = range.len();
        for (key, range) in regions(&self.plan, extent) {
            let hash = hash_of(self.plan.seed, key);
            let part = Part {
                key,
                hash,
                range,
                plan: &self.plan,
                mode: self.mode,
                admits,
            };
            self.shards[shard_of(&self.plan, hash)].apply(request.operation, part, &mut steps);
        }
        let outcome = steps.outcome;
        self.count(request.operation, outcome);
        outcome
    }

    /// Hands the cached blocks that have bytes of `extent` to `each`, with these
    /// bytes. Changes nothing. Returns whether all bytes are cached.
    pub fn lookup(&self, extent: Extent, mut each: impl FnMut(Piece)) -> bool {
        let mut is_missing = false;
        for (key, range) in regions(&self.plan, extent) {
            let hash = hash_of(self.plan.seed, key);
            is_missing |=
                self.shards[shard_of(&self.plan, hash)].lookup(key, hash, range, &mut each);
        }
        !is_missing
    }

    /// When [`Cache::clean`] is due; [`Tick::MAX`] if never.
    pub fn clean_at(&self) -> Tick {
        self.policies.cleaning.wake_at()
    }

    /// Lets the cleaning policy name dirty blocks, and appends the steps that
    /// write them back. The blocks stay, clean. Returns how many they are.
    pub fn clean(&mut self, now: Tick, load: Load, steps: &mut Vec<Step>) -> u64 {
        let mut named = std::mem::take(&mut self.named);
        let blocks = Numbered {
            plan: &self.plan,
            shards: &self.shards,
        };
        self.policies.now = now;
        self.policies.cleaning.poll(now, load, &blocks, &mut named);
        let mut steps = Steps::new(steps, &mut self.statistics, &mut self.policies);
        let mut cleaned = 0;
        for number in named.drain(..) {
            let (shard, granule) = split(&self.plan, number);
            cleaned += u64::from(self.shards[shard].clean(granule, &self.plan, &mut steps));
        }
        self.statistics.turnover.cleaned += cleaned;
        self.named = named;
        cleaned
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
        memory.history = self.policies.memory_bytes();
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

    /// The missing blocks of a read or write that may enter: none after a cut-off or
    /// if all are dirty, otherwise those that the promotion policy admits.
    fn admits(&mut self, operation: Operation, extent: Extent) -> Admits {
        let is_write = match operation {
            Operation::Read => false,
            Operation::Write => true,
            Operation::Flush | Operation::Trim | Operation::WriteZeroes => return Admits::None,
        };
        let config = self.plan.config();
        if config.sequential.cut_off != CutOff::Never {
            let is_full = self.shards.iter().all(Shard::is_full);
            let bytes = extent.range.start..extent.range.end;
            let sequential = &mut self.policies.sequential;
            if sequential.cuts_off(extent.volume.0, is_write, bytes, is_full) {
                return Admits::None;
            }
        }
        if config.when_dirty == WhenDirty::Bypass && self.is_full_of_dirty() {
            return Admits::None;
        }
        match self.plan.config().promotion {
            PromotionConfig::Always => Admits::All,
            _ => self.promotes(is_write, extent),
        }
    }

    fn promotes(&mut self, is_write: bool, extent: Extent) -> Admits {
        let mut partly_cached = false;
        if self.lookup(extent, |_| partly_cached = true) {
            return Admits::All;
        }
        let verdict = self.policies.promotion.see(&Sighting {
            volume: extent.volume.0,
            granules: self.policies.granules(extent.range),
            write: is_write,
            partly_cached,
            used_bytes: self.policies.used_bytes,
            capacity_bytes: self.plan.capacity_bytes(),
            now: self.policies.now,
        });
        match verdict {
            Verdict::All => Admits::All,
            Verdict::None => Admits::None,
            Verdict::Some => Admits::Some,
        }
    }

    fn is_full_of_dirty(&self) -> bool {
        let mut shards = self.shards.iter();
        shards.all(|shard| shard.is_full() && shard.dirty_blocks() == shard.blocks())
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

/// The dirty blocks by the numbers that the cleaning policy knows.
struct Numbered<'a> {
    plan: &'a Plan,
    shards: &'a [Shard],
}

impl Blocks for Numbered<'_> {
    fn place(&self, block: u32) -> Place {
        let (shard, granule) = split(self.plan, block);
        let place = self.shards[shard].place_of(granule);
        let (volume, offset_bytes) = place.unwrap_or_default();
        Place {
            volume: volume.0,
            offset_bytes,
        }
    }
}

/// The shard of granule `number` of the cache device, and its number there:
/// shards take turns in groups.
fn split(plan: &Plan, number: u32) -> (usize, u32) {
    let group_bits = plan.shape.group_bits;
    let group = number >> group_bits;
    let within = number & ((1 << group_bits) - 1);
    let granule = (group / plan.shards) << group_bits | within;
    ((group % plan.shards) as usize, granule)
}

fn shard_of(plan: &Plan, hash: KeyHash) -> usize {
    fast_range(hash.0, plan.shards as usize)
}

/// Cuts `extent` at the ends of regions.
fn regions(plan: &Plan, extent: Extent) -> impl Iterator<Item = (RegionKey, ByteRange)> + use<> {
    let (shape, range) = (plan.shape, extent.range);
    let mut start = range.start;
    std::iter::from_fn(move || {
        if start >= range.end {
            return None;
        }
        let region_end = (start & !(shape.region_bytes() - 1)) + shape.region_bytes();
        let part = ByteRange {
            start,
            end: range.end.min(region_end),
        };
        start = part.end;
        Some((shape.region_of(extent.volume, part.start), part))
    })
}
