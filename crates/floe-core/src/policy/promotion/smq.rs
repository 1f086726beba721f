//! Inserts granules of hot regions, as dm-cache's stochastic multi-queue policy.
//!
//! Three queues of 64 levels: *hotspots*, regions of 16 granules that were
//! missed, cached or not; and the *clean* and *dirty* granules in the cache. A
//! missing granule is inserted if its region's level reaches the promotion
//! level. Constants and rules are dm-cache's:
//!
//! * A miss lets its region rise 1, 2 or 4 levels, once per second. The jump
//!   follows the confidence in the hotspot queue: the share of its accesses at
//!   level 48 or above, good from 1/8, fair from 1/16, poor below.
//! * A hit lets a cached granule rise one level, once per 60 s.
//! * Each second the promotion level is computed anew from the confidence and the
//!   hotspot queue is redistributed; each 60 s the other two are.
//!
//! [`SmqThresholds`] has two ways to compute the promotion level. dm-cache means to
//! adapt it to the share of hits at high levels, but takes the maximum of the
//! result and 64, so that only the confidence counts. That is the default here;
//! the adaptive table is the other choice.
//!
//! Differences to dm-cache: SMQ only promotes here, since the cache has its own
//! replacement and cleaning; hotspots do not shrink on small volumes; a write that
//! covers whole blocks has no privilege while the cache has room.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::history::History;
use super::levels::{Entries, LEVELS, Levels};
use super::request::{Granule, Sighting, Verdict};
use crate::Tick;

const GRANULES_PER_HOTSPOT: u64 = 16;
const HOTSPOTS_MIN: u64 = 1024;
const GRANULES_PER_TRACKED_HOTSPOT: u64 = 4;
const HOTSPOT_PERIOD: Duration = Duration::from_secs(1);
const CACHE_PERIOD: Duration = Duration::from_secs(60);
/// Accesses from this level on are hits for the confidence.
const HIT_LEVEL: usize = LEVELS * 3 / 4;
/// The promotion threshold by sixteenths of cache hits at high levels: a cache
/// that works badly or well promotes little, one between them more.
const ADAPTIVE: [usize; 17] = [1, 1, 1, 2, 4, 6, 7, 8, 7, 6, 4, 4, 3, 3, 2, 2, 1];

/// `{ kind = "smq", thresholds = "confidence" }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SmqConfig {
    /// How the promotion level is computed. Default `confidence`.
    pub thresholds: SmqThresholds,
}

/// How SMQ computes the level from which on regions are promoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SmqThresholds {
    /// 0, 32 or 48, by the confidence alone: dm-cache as it runs.
    #[default]
    Confidence,
    /// From the table that dm-cache computes and then discards: 56 to 63 when the
    /// cache is full, 32 while it has room, and higher with less confidence.
    Adaptive,
}

/// How well a queue predicts: the share of accesses at high levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// Less than 1/16.
    Poor,
    /// Less than 1/8.
    Fair,
    /// At least 1/8.
    Good,
}

/// Promotes granules of hot regions. About 30 bytes for each granule of the cache
/// and 8 more for hotspots.
#[derive(Clone, Debug)]
pub struct Smq {
    thresholds: SmqThresholds,
    hotspots: Tracked,
    hotspot_levels: Levels,
    hotspot_accesses: Accesses,
    cached: Tracked,
    clean: Levels,
    dirty: Levels,
    cache_accesses: Accesses,
    level_jump: usize,
    promotion_level: usize,
    /// Ends of the current periods; `None` before the first call.
    periods: Option<Periods>,
    full: bool,
}

#[derive(Clone, Copy, Debug)]
struct Periods {
    hotspot_end: Tick,
    cache_end: Tick,
}

impl Smq {
    pub(super) fn new(config: &SmqConfig, granules_max: u64, seed: u64) -> Self {
        let hotspots = HOTSPOTS_MIN.max(granules_max / GRANULES_PER_TRACKED_HOTSPOT);
        let in_top = (hotspots / LEVELS as u64).min(granules_max / GRANULES_PER_HOTSPOT);
        Smq {
            thresholds: config.thresholds,
            hotspots: Tracked::new(hotspots, seed),
            hotspot_levels: Levels::new(Some(in_top as usize)),
            hotspot_accesses: Accesses::default(),
            cached: Tracked::new(granules_max, seed),
            clean: Levels::new(None),
            dirty: Levels::new(None),
            cache_accesses: Accesses::default(),
            level_jump: 1,
            // Nothing is promoted before the first period ends.
            promotion_level: LEVELS,
            periods: None,
            full: false,
        }
    }

    pub(super) fn see(&mut self, sighting: &Sighting) -> Verdict {
        // Open groups keep a cache that evicts a little below its capacity.
        self.full = sighting.used_bytes >= sighting.capacity_bytes / 100 * 99;
        self.advance(sighting.now);
        Verdict::of(sighting.granules().filter_map(|granule| self.miss(granule)))
    }

    /// Counts a request of `granule`; returns whether to insert it, unless it is
    /// cached.
    fn miss(&mut self, granule: Granule) -> Option<bool> {
        if self.cached.find(granule).is_some() {
            return None;
        }
        self.cache_accesses.misses += 1;
        let hotspot = self.heat(hotspot_of(granule));
        Some(self.hotspots.entries.level(hotspot) >= self.promotion_level)
    }

    pub(super) fn admits(&self, granule: Granule) -> bool {
        let hotspot = self.hotspots.find(hotspot_of(granule));
        hotspot.is_some_and(|id| self.hotspots.entries.level(id) >= self.promotion_level)
    }

    /// Notes a miss in `region`; returns its entry.
    fn heat(&mut self, region: Granule) -> u32 {
        if let Some(id) = self.hotspots.find(region) {
            self.hotspot_accesses.count(self.hotspots.entries.level(id));
            let jump = match self.hotspots.mark_hit(id) {
                true => self.level_jump,
                false => 0,
            };
            let entries = &mut self.hotspots.entries;
            self.hotspot_levels.requeue(entries, id, jump);
            return id;
        }
        self.hotspot_accesses.misses += 1;
        if self.hotspots.is_full() {
            let coldest = self.hotspot_levels.pop(&mut self.hotspots.entries);
            self.hotspots
                .remove(coldest.expect("a full table has entries"));
        }
        let id = self.hotspots.insert(region);
        self.hotspot_levels.push(&mut self.hotspots.entries, id);
        id
    }

    /// Ends the periods that are over at `now`.
    fn advance(&mut self, now: Tick) {
        let Some(periods) = self.periods else {
            self.periods = Some(Periods {
                hotspot_end: now + HOTSPOT_PERIOD,
                cache_end: now + CACHE_PERIOD,
            });
            return;
        };
        if now < periods.hotspot_end {
            return;
        }
        self.end_hotspot_period();
        if now - periods.hotspot_end >= HOTSPOT_PERIOD {
            // A period without accesses followed; more of them change nothing.
            self.end_hotspot_period();
        }
        let cache_over = now >= periods.cache_end;
        if cache_over {
            self.end_cache_period();
        }
        self.periods = Some(Periods {
            hotspot_end: now + HOTSPOT_PERIOD,
            cache_end: match cache_over {
                true => now + CACHE_PERIOD,
                false => periods.cache_end,
            },
        });
    }

    fn end_hotspot_period(&mut self) {
        let confidence = self.hotspot_accesses.confidence();
        self.promotion_level = LEVELS - self.threshold(confidence);
        self.level_jump = match confidence {
            Confidence::Poor => 4,
            Confidence::Fair => 2,
            Confidence::Good => 1,
        };
        self.hotspots.forget_hits();
        self.hotspot_levels.redistribute(&mut self.hotspots.entries);
        self.hotspot_accesses = Accesses::default();
    }

    /// The number of levels, from the top, that are promoted.
    fn threshold(&self, confidence: Confidence) -> usize {
        let levels = match self.thresholds {
            SmqThresholds::Confidence => LEVELS,
            SmqThresholds::Adaptive if self.full => ADAPTIVE[self.cache_accesses.sixteenths()],
            SmqThresholds::Adaptive => LEVELS / 2,
        };
        match confidence {
            Confidence::Poor => levels / 4,
            Confidence::Fair => levels / 2,
            Confidence::Good => levels,
        }
    }

    fn end_cache_period(&mut self) {
        self.cached.forget_hits();
        self.clean.redistribute(&mut self.cached.entries);
        self.dirty.redistribute(&mut self.cached.entries);
        self.cache_accesses = Accesses::default();
    }

    pub(super) fn note_hit(&mut self, granule: Granule, now: Tick) {
        self.advance(now);
        let Some(id) = self.cached.find(granule) else {
            return;
        };
        self.cache_accesses.count(self.cached.entries.level(id));
        if self.cached.mark_hit(id) {
            let queue = match self.cached.dirty[id as usize] {
                true => &mut self.dirty,
                false => &mut self.clean,
            };
            queue.requeue(&mut self.cached.entries, id, 1);
        }
    }

    pub(super) fn note_inserted(&mut self, granule: Granule, dirty: bool) {
        // A cache that grew inserts more than it said; those are not followed.
        if self.cached.find(granule).is_some() || self.cached.is_full() {
            return;
        }
        let id = self.cached.insert(granule);
        self.cached.dirty[id as usize] = dirty;
        let (queue, entries) = self.queue(dirty);
        queue.push_oldest(entries, id);
    }

    pub(super) fn note_dirty(&mut self, granule: Granule, dirty: bool) {
        let Some(id) = self.cached.find(granule) else {
            return;
        };
        let was = std::mem::replace(&mut self.cached.dirty[id as usize], dirty);
        if was != dirty {
            let (queue, entries) = self.queue(was);
            queue.remove(entries, id);
            let (queue, entries) = self.queue(dirty);
            queue.push(entries, id);
        }
    }

    pub(super) fn note_removed(&mut self, granule: Granule) {
        if let Some(id) = self.cached.find(granule) {
            let (queue, entries) = self.queue(self.cached.dirty[id as usize]);
            queue.remove(entries, id);
            self.cached.remove(id);
        }
    }

    fn queue(&mut self, dirty: bool) -> (&mut Levels, &mut Entries) {
        let queue = match dirty {
            true => &mut self.dirty,
            false => &mut self.clean,
        };
        (queue, &mut self.cached.entries)
    }

    /// The level from which on regions are promoted; 64 promotes none.
    pub fn promotion_level(&self) -> usize {
        self.promotion_level
    }

    #[cfg(test)]
    pub(super) fn queue_lengths(&self) -> (usize, usize) {
        (self.clean.len(), self.dirty.len())
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.hotspots.memory_bytes() + self.cached.memory_bytes()
    }
}

/// The region of `granule`.
fn hotspot_of(granule: Granule) -> Granule {
    let (volume, number) = granule.parts();
    Granule::new(volume, number / GRANULES_PER_HOTSPOT)
}

/// Accesses of a period, by level.
#[derive(Clone, Copy, Debug, Default)]
struct Accesses {
    /// At high levels.
    hits: u64,
    /// At lower levels or of unknown entries.
    misses: u64,
}

impl Accesses {
    fn count(&mut self, level: usize) {
        *match level >= HIT_LEVEL {
            true => &mut self.hits,
            false => &mut self.misses,
        } += 1;
    }

    /// The share of hits in sixteenths, rounded down; 0 without accesses.
    fn sixteenths(&self) -> usize {
        let accesses = self.hits + self.misses;
        (self.hits * 16).checked_div(accesses).unwrap_or(0) as usize
    }

    fn confidence(&self) -> Confidence {
        match self.sixteenths() {
            0 => Confidence::Poor,
            1 => Confidence::Fair,
            _ => Confidence::Good,
        }
    }
}

/// Granules with a level, at most a fixed number of them.
#[derive(Clone, Debug)]
struct Tracked {
    granules_max: usize,
    history: History,
    granules: Vec<Granule>,
    entries: Entries,
    /// The period in which an entry last rose, from 1; 0 for none.
    hit_in: Vec<u8>,
    period: u8,
    dirty: Vec<bool>,
    free: Vec<u32>,
}

impl Tracked {
    fn new(granules_max: u64, seed: u64) -> Self {
        let granules_max = granules_max.clamp(1, u64::from(u32::MAX - 1)) as usize;
        Tracked {
            granules_max,
            history: History::new(granules_max, seed),
            granules: Vec::with_capacity(granules_max),
            entries: Entries::with_capacity(granules_max),
            hit_in: Vec::with_capacity(granules_max),
            period: 1,
            dirty: Vec::with_capacity(granules_max),
            free: Vec::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.free.is_empty() && self.granules.len() == self.granules_max
    }

    fn find(&self, granule: Granule) -> Option<u32> {
        self.history.find(granule, &self.granules)
    }

    /// Adds `granule`, which is not there, in level 0 of no queue.
    fn insert(&mut self, granule: Granule) -> u32 {
        let id = match self.free.pop() {
            Some(id) => {
                self.granules[id as usize] = granule;
                self.entries.set_level(id, 0);
                self.hit_in[id as usize] = 0;
                id
            }
            None => {
                self.granules.push(granule);
                self.hit_in.push(0);
                self.dirty.push(false);
                self.entries.add()
            }
        };
        self.history.insert(granule, id);
        id
    }

    /// Removes `id`, which is in no queue.
    fn remove(&mut self, id: u32) {
        self.history.remove(self.granules[id as usize], id);
        self.free.push(id);
    }

    /// Marks that `id` rose in this period; returns whether it had not.
    fn mark_hit(&mut self, id: u32) -> bool {
        std::mem::replace(&mut self.hit_in[id as usize], self.period) != self.period
    }

    fn forget_hits(&mut self) {
        if self.period == u8::MAX {
            self.hit_in.fill(0);
            self.period = 0;
        }
        self.period += 1;
    }

    fn memory_bytes(&self) -> u64 {
        let plain = self.granules.capacity() * size_of::<Granule>()
            + self.hit_in.capacity()
            + self.dirty.capacity()
            + self.free.capacity() * size_of::<u32>();
        plain as u64 + self.history.memory_bytes() + self.entries.memory_bytes()
    }
}
