//! A cache of volumes: requests in, steps out.

use std::ops::Range;

use super::address::{ByteRange, Extent, Piece, VolumeId};
use super::mode::{Mode, Sector, Write};
use super::plan::{ConfigError, Plan, WhenDirty, shard_of_hash};
use super::policies::{Admits, Policies};
use super::regions::hash_of;
use super::request::{Operation, Outcome, Request, Restored, Step};
use super::sequential::CutOff;
use super::shape::RegionKey;
use super::shard::{Part, Shard};
use super::stats::{Memory, Occupancy, Statistics, Usage};
use super::steps::Steps;
use crate::hash::KeyHash;
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
    /// Volumes with a mode of their own.
    volumes: Vec<Own>,
    /// The shards from number `first` on.
    shards: Vec<Shard>,
    first: usize,
    policies: Policies,
    statistics: Statistics,
    /// Blocks that the cleaning policy names: their numbers, and their places.
    numbers: Vec<u32>,
    named: Vec<u64>,
}

impl Cache {
    /// An empty cache.
    pub fn new(plan: &Plan) -> Self {
        Cache::of_shards(plan, 0..plan.shards)
    }

    /// Shard `number` of an empty cache, for a driver with a lock for each. Requests
    /// must lie in regions of that shard ([`Plan::shard_of`]).
    pub fn of_shard(plan: &Plan, number: u32) -> Self {
        Cache::of_shards(plan, number..number + 1)
    }

    fn of_shards(plan: &Plan, numbers: Range<u32>) -> Self {
        Cache {
            mode: plan.mode,
            volumes: Vec::new(),
            first: numbers.start as usize,
            policies: Policies::new(plan, numbers.len() as u64),
            shards: numbers.map(|number| Shard::new(plan, number)).collect(),
            statistics: Statistics::default(),
            numbers: Vec::new(),
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
        let mode = self.mode_of(volume);
        match request.operation {
            Operation::Flush => {
                steps.push(Step::Flush(volume));
                self.count(request.operation, volume, (0, 0));
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
                mode,
                admits,
            };
            let shard = shard_of_hash(&self.plan, hash) - self.first;
            self.shards[shard].apply(request.operation, part, &mut steps);
        }
        let outcome = steps.outcome;
        let bytes = (outcome.bytes, outcome.hit_bytes);
        self.count(request.operation, volume, bytes);
        outcome
    }

    /// Hands the cached blocks that have bytes of `extent` to `each`, with these
    /// bytes. Changes nothing. Returns whether all bytes are cached.
    pub fn lookup(&self, extent: Extent, mut each: impl FnMut(Piece)) -> bool {
        let mut is_missing = false;
        for (key, range) in regions(&self.plan, extent) {
            let hash = hash_of(self.plan.seed, key);
            let shard = &self.shards[shard_of_hash(&self.plan, hash) - self.first];
            is_missing |= shard.lookup(key, hash, range, &mut each);
        }
        !is_missing
    }

    /// Answers a read of `extent`, which lies within one region, if a single block has
    /// all of it and the mode reads from it: counts the request, notes the use, and
    /// returns the bytes' place.
    pub fn hit(&mut self, extent: Extent, now: Tick) -> Option<Piece> {
        let mode = self.mode_of(extent.volume);
        let (key, hash, shard) = self.region_of(extent);
        let shard = &mut self.shards[shard];
        self.policies.now = now;
        let piece = shard.hit(key, hash, extent.range, mode, &mut self.policies)?;
        let bytes = extent.range.len();
        self.statistics.traffic.cache_hits.add(bytes);
        self.count(Operation::Read, extent.volume, (bytes, bytes));
        Some(piece)
    }

    /// Takes a write of `extent`, which lies within one region, if a single block has all
    /// of it, is dirty as a whole, and stays so: counts the request, notes the use, and
    /// returns the bytes' place.
    pub fn overwrite(&mut self, extent: Extent, now: Tick) -> Option<Piece> {
        let mode = self.mode_of(extent.volume);
        if mode.write(Sector::Dirty) != Write::Cache {
            return None;
        }
        let (key, hash, shard) = self.region_of(extent);
        let shard = &mut self.shards[shard];
        self.policies.now = now;
        let piece = shard.overwrite(key, hash, extent.range, &mut self.policies)?;
        let bytes = extent.range.len();
        self.statistics.traffic.cache_writes.add(bytes);
        self.count(Operation::Write, extent.volume, (bytes, bytes));
        Some(piece)
    }

    /// True if every sector of `extent` is valid in the cache. Changes nothing.
    pub fn is_cached(&self, extent: Extent) -> bool {
        let mut parts = regions(&self.plan, extent);
        parts.all(|(key, range)| {
            let hash = hash_of(self.plan.seed, key);
            self.shards[shard_of_hash(&self.plan, hash) - self.first].is_cached(key, hash, range)
        })
    }

    /// When [`Cache::clean`] is due; [`Tick::MAX`] if never.
    pub fn clean_at(&self) -> Tick {
        self.policies.cleaning.wake_at()
    }

    /// Lets the cleaning policy name dirty blocks, and appends the steps that write
    /// those of them back that `may_clean`. These blocks stay, clean. Returns how many
    /// they are.
    pub fn clean(
        &mut self,
        now: Tick,
        load: Load,
        may_clean: impl FnMut(Extent) -> bool,
        steps: &mut Vec<Step>,
    ) -> u64 {
        let mut named = std::mem::take(&mut self.named);
        self.due(now, load, &mut named);
        let cleaned = self.clean_at_places(named.drain(..), may_clean, steps);
        self.note_cleaned(cleaned);
        self.named = named;
        cleaned
    }

    /// Lets the cleaning policy name dirty blocks, and appends their places to `named`
    /// in the order of addresses. A driver that cleans them later tells how many it
    /// cleaned by [`Cache::note_cleaned`].
    pub fn due(&mut self, now: Tick, load: Load, named: &mut Vec<u64>) {
        let blocks = Numbered {
            plan: &self.plan,
            shards: &self.shards,
            first: self.first,
        };
        let mut numbers = std::mem::take(&mut self.numbers);
        self.policies.now = now;
        self.policies
            .cleaning
            .poll(now, load, &blocks, &mut numbers);
        let bits = self.plan.shape.granule_bits;
        named.extend(numbers.drain(..).map(|number| u64::from(number) << bits));
        self.numbers = numbers;
    }

    /// Counts blocks that were cleaned because the policy had named them.
    pub fn note_cleaned(&mut self, blocks: u64) {
        self.statistics.turnover.cleaned += blocks;
    }

    /// As [`Cache::clean`], for dirty blocks of `volume`, or of all volumes, from
    /// `cursor` on, until about `blocks_max` have been cleaned. Returns their number,
    /// and the cursor to go on with; none at the end.
    pub fn clean_all(
        &mut self,
        volume: Option<VolumeId>,
        cursor: CleanCursor,
        blocks_max: u64,
        mut may_clean: impl FnMut(Extent) -> bool,
        steps: &mut Vec<Step>,
    ) -> (u64, Option<CleanCursor>) {
        let mut steps = Steps::new(steps, &mut self.statistics, &mut self.policies);
        let mut cleaned = 0;
        let mut from = cursor.group;
        for at in cursor.shard..self.shards.len() {
            let limits = (from, blocks_max - cleaned);
            let shard = &mut self.shards[at];
            let (count, group) =
                shard.clean_all(volume, limits, &self.plan, &mut may_clean, &mut steps);
            cleaned += count;
            if let Some(group) = group {
                return (cleaned, Some(CleanCursor { shard: at, group }));
            }
            from = 0;
        }
        (cleaned, None)
    }

    /// Evicts clean blocks that `may_evict` until the reserve is there or about
    /// `blocks_max` have left, and appends the steps that name them. Their places stay
    /// unused until they are released. Victims that are dirty stay, and are appended to
    /// `dirty`: they are to be cleaned first. Returns how many blocks left.
    pub fn reclaim(
        &mut self,
        now: Tick,
        blocks_max: usize,
        mut may_evict: impl FnMut(Extent) -> bool,
        dirty: &mut Vec<Piece>,
        steps: &mut Vec<Step>,
    ) -> usize {
        self.policies.now = now;
        let mut steps = Steps::new(steps, &mut self.statistics, &mut self.policies);
        let mut evicted = 0;
        for shard in &mut self.shards {
            let rest = blocks_max.saturating_sub(evicted);
            let may_evict = &mut may_evict;
            evicted += shard.reclaim(rest, &self.plan, may_evict, dirty, &mut steps);
        }
        evicted
    }

    /// As [`Cache::clean`], for the blocks at `places`.
    pub fn clean_at_places(
        &mut self,
        places: impl IntoIterator<Item = u64>,
        mut may_clean: impl FnMut(Extent) -> bool,
        steps: &mut Vec<Step>,
    ) -> u64 {
        let mut steps = Steps::new(steps, &mut self.statistics, &mut self.policies);
        let mut cleaned = 0;
        for place in places {
            let number = (place >> self.plan.shape.granule_bits) as u32;
            let (shard, granule) = split(&self.plan, number);
            let shard = &mut self.shards[shard - self.first];
            let is_cleaned = shard.clean(granule, &self.plan, &mut may_clean, &mut steps);
            cleaned += u64::from(is_cleaned);
        }
        cleaned
    }

    /// True if [`Cache::reclaim`] has something to do.
    pub fn is_short(&self) -> bool {
        let mut shards = self.shards.iter();
        self.plan.reserve_granules > 0 && shards.any(|shard| shard.is_short(&self.plan))
    }

    /// Lets the place of a block that has left ([`Step::Unmap`]) be used again. To be
    /// called once, with the first byte of the place, if the plan has a reserve.
    pub fn release(&mut self, place: u64) {
        let (shard, granule) = self.at(place);
        self.shards[shard].release(granule);
    }

    /// Hands the blocks of the group that has `place` to `each`, whole.
    pub fn blocks_around(&self, place: u64, mut each: impl FnMut(Piece)) {
        let (shard, granule) = self.at(place);
        self.shards[shard].blocks_around(granule, &mut each);
    }

    /// Notes a use of the block at `place`: it cannot leave now, and others are to be
    /// tried first.
    pub fn touch(&mut self, place: u64) {
        let (shard, granule) = self.at(place);
        self.shards[shard].touch_at(granule);
    }

    /// True if the block at `place` is dirty.
    pub fn is_dirty(&self, place: u64) -> bool {
        let (shard, granule) = self.at(place);
        self.shards[shard].is_dirty(granule)
    }

    /// Hands the bytes of `piece` that are valid and clean to `each`, if the block at
    /// its place still has its address.
    pub fn clean_runs(&self, piece: Piece, mut each: impl FnMut(Piece)) {
        self.runs(piece, |piece, sector| {
            if sector == Sector::Clean {
                each(piece);
            }
        });
    }

    /// Hands runs of sectors of `piece` and their state to `each`, if the block at its
    /// place still has its address.
    pub fn runs(&self, piece: Piece, each: impl FnMut(Piece, Sector)) {
        let (shard, granule) = self.at(piece.place);
        self.shards[shard].runs_at(granule, piece.extent, each);
    }

    /// Forgets the bytes of `piece` without writing them back, and appends the step that
    /// says so. A block that keeps no map of its sectors keeps them, unless they are all
    /// that it has.
    pub fn forget(&mut self, piece: Piece, steps: &mut Vec<Step>) {
        let (shard, granule) = self.at(piece.place);
        let mut steps = Steps::new(steps, &mut self.statistics, &mut self.policies);
        self.shards[shard].forget_at(granule, piece.extent, &self.plan, &mut steps);
    }

    /// Marks the bytes of `piece` dirty, which lie in one cached block: writing them
    /// back has failed.
    pub fn mark_dirty(&mut self, piece: Piece) {
        let (shard, granule) = self.at(piece.place);
        let extent = piece.extent;
        let (key, hash, _) = self.region_of(extent);
        let part = Part {
            key,
            hash,
            range: extent.range,
            plan: &self.plan,
            mode: self.mode_of(extent.volume),
            admits: Admits::None,
        };
        let mut steps = Vec::new();
        let mut steps = Steps::new(&mut steps, &mut self.statistics, &mut self.policies);
        self.shards[shard].mark_dirty(granule, extent.range, part, &mut steps);
    }

    /// Removes the block at `place` without writing it back, and appends the step that
    /// names it.
    pub fn invalidate(&mut self, place: u64, steps: &mut Vec<Step>) {
        let (shard, granule) = self.at(place);
        let mut steps = Steps::new(steps, &mut self.statistics, &mut self.policies);
        self.shards[shard].invalidate_at(granule, &mut steps);
    }

    /// True if `volume` has dirty blocks.
    pub fn has_dirty(&self, volume: VolumeId) -> bool {
        self.shards.iter().any(|shard| shard.has_dirty(volume))
    }

    /// The blocks of `volume` that end after byte `from`, with all of their bytes. Looks at
    /// every block.
    pub fn blocks_after(&self, volume: VolumeId, from: u64) -> Vec<Piece> {
        let mut blocks = Vec::new();
        for shard in &self.shards {
            shard.blocks_after(volume, from, &mut blocks);
        }
        blocks
    }

    /// Removes all blocks of `volume` without writing them back, and appends the steps
    /// that name them.
    pub fn invalidate_volume(&mut self, volume: VolumeId, steps: &mut Vec<Step>) {
        let mut steps = Steps::new(steps, &mut self.statistics, &mut self.policies);
        for shard in &mut self.shards {
            shard.invalidate_volume(volume, &mut steps);
        }
    }

    /// Puts blocks of an earlier run back, all blocks of one group at once, in ascending
    /// order of their places and groups, before any request.
    ///
    /// # Errors
    /// A block has no place or size of this plan. Those that overlap one that was
    /// restored before are left out.
    pub fn restore(&mut self, blocks: &[Restored<'_>]) -> Result<(), RestoreError> {
        let numbered: Result<Vec<_>, _> = blocks.iter().map(|one| self.check(one)).collect();
        let numbered = numbered?;
        let Some((shard, granule)) = numbered.first().copied() else {
            return Ok(());
        };
        let (bits, bytes) = (
            self.plan.shape.group_bits,
            blocks[0].block.extent.range.len(),
        );
        let group = granule >> bits;
        let mut of_shard = Vec::with_capacity(blocks.len());
        for ((at, granule), one) in numbered.into_iter().zip(blocks) {
            let is_ascending = of_shard.last().is_none_or(|(before, _)| *before < granule);
            let is_alike = one.block.extent.range.len() == bytes;
            if (at, granule >> bits) != (shard, group) || !is_ascending || !is_alike {
                return Err(RestoreError::Place(one.block.place));
            }
            of_shard.push((granule, *one));
        }
        if group < self.shards[shard].groups_end() {
            return Err(RestoreError::Place(blocks[0].block.place));
        }
        let mut steps = Vec::new();
        let mut steps = Steps::new(&mut steps, &mut self.statistics, &mut self.policies);
        match self.shards[shard].restore(&of_shard, &self.plan, &mut steps) {
            true => Ok(()),
            false => Err(RestoreError::Overlap),
        }
    }

    /// The shard and granule of a block to restore.
    fn check(&self, restored: &Restored<'_>) -> Result<(usize, u32), RestoreError> {
        let (shape, Piece { extent, place }) = (self.plan.shape, restored.block);
        let (range, bytes) = (extent.range, extent.range.len());
        let number = place >> shape.granule_bits;
        let granules = bytes >> shape.granule_bits;
        let is_size = bytes.is_power_of_two()
            && granules > 0
            && u64::from(shape.classes) & granules != 0
            && granules <= 1 << shape.region_bits;
        let end = self.plan.end_of(extent.volume).min(self.plan.address_end());
        let is_sound = is_size
            && place.is_multiple_of(bytes)
            && range.start.is_multiple_of(bytes)
            && range.start < end
            && place + bytes <= self.plan.capacity_bytes();
        let shard = self.plan.shard_of_place(place).checked_sub(self.first);
        match shard {
            Some(shard)
                if is_sound
                    && shard < self.shards.len()
                    && self.plan.shard_of(extent.volume, range.start) == shard + self.first =>
            {
                Ok((shard, split(&self.plan, number as u32).1))
            }
            _ => Err(RestoreError::Place(place)),
        }
    }

    /// The region of `extent`, which lies within it, and its shard.
    fn region_of(&self, extent: Extent) -> (RegionKey, KeyHash, usize) {
        let key = self.plan.shape.region_of(extent.volume, extent.range.start);
        let hash = hash_of(self.plan.seed, key);
        (key, hash, shard_of_hash(&self.plan, hash) - self.first)
    }

    /// The shard and granule of `place`.
    fn at(&self, place: u64) -> (usize, u32) {
        let (shard, granule) = split(&self.plan, (place >> self.plan.shape.granule_bits) as u32);
        (shard - self.first, granule)
    }

    /// The mode of volumes without one of their own.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Changes the mode of volumes without one of their own. Dirty blocks of an
    /// earlier mode stay, and are served.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// The mode of `volume`.
    pub fn mode_of(&self, volume: VolumeId) -> Mode {
        let own = self.volumes.iter().find(|own| own.volume == volume);
        own.map_or(self.mode, |own| own.mode)
    }

    /// Gives `volume` a mode of its own. Its dirty blocks stay, and are served.
    pub fn set_mode_of(&mut self, volume: VolumeId, mode: Mode) {
        match self.own(volume) {
            Some(own) => own.mode = mode,
            None => self.volumes.push(Own {
                volume,
                mode,
                usage: Usage::default(),
            }),
        }
    }

    /// Takes the mode of its own from `volume`, and forgets its counts.
    pub fn disown(&mut self, volume: VolumeId) {
        self.volumes.retain(|own| own.volume != volume);
    }

    /// The requests and blocks of `volume`. Requests count from when it got a mode of its
    /// own. Looks at every block.
    pub fn usage_of(&self, volume: VolumeId) -> Usage {
        let own = self.volumes.iter().find(|own| own.volume == volume);
        let mut usage = own.map(|own| own.usage).unwrap_or_default();
        for shard in &self.shards {
            shard.add_usage(volume, &mut usage);
        }
        usage
    }

    fn own(&mut self, volume: VolumeId) -> Option<&mut Own> {
        self.volumes.iter_mut().find(|own| own.volume == volume)
    }

    /// Sets the size of `volume`: no block is read or written past its end.
    ///
    /// # Errors
    /// The size is more than the plan's blocks can address.
    pub fn set_size_of(&mut self, volume: VolumeId, size: ByteSize) -> Result<(), ConfigError> {
        self.plan.set_size(volume, size)
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
            capacity_bytes: self.plan.shard_bytes() * self.shards.len() as u64,
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

    /// Counts a request of so many bytes, and those of them that hit.
    fn count(&mut self, operation: Operation, volume: VolumeId, (bytes, hit_bytes): (u64, u64)) {
        if let Some(own) = self.own(volume) {
            match operation {
                Operation::Read => own.usage.reads.add(bytes, hit_bytes),
                Operation::Write => own.usage.writes.add(bytes, hit_bytes),
                Operation::Flush | Operation::Trim | Operation::WriteZeroes => {}
            }
        }
        let statistics = &mut self.statistics;
        match operation {
            Operation::Read => statistics.reads.add(bytes, hit_bytes),
            Operation::Write => statistics.writes.add(bytes, hit_bytes),
            Operation::Flush => statistics.flushes += 1,
            Operation::Trim => statistics.trims += 1,
            Operation::WriteZeroes => statistics.write_zeroes += 1,
        }
    }
}

/// A volume with a mode of its own, and its requests.
#[derive(Debug)]
struct Own {
    volume: VolumeId,
    mode: Mode,
    usage: Usage,
}

/// A place where cleaning goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanCursor {
    shard: usize,
    group: u32,
}

/// Why blocks cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The block at this byte of the cache device has no size, place or address that
    /// the plan has, or is out of order.
    #[error("the block at byte {0} does not fit the plan of the cache")]
    Place(u64),
    /// A block has the address of another one.
    #[error("two blocks have the same address")]
    Overlap,
}

/// The dirty blocks by the numbers that the cleaning policy knows.
struct Numbered<'a> {
    plan: &'a Plan,
    shards: &'a [Shard],
    first: usize,
}

impl Blocks for Numbered<'_> {
    fn place(&self, block: u32) -> Place {
        let (shard, granule) = split(self.plan, block);
        let place = self.shards[shard - self.first].place_of(granule);
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
