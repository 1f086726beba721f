//! Inserts a request when each of its granules has been requested `threshold`
//! times, as OCF's nhit.
//!
//! A ring remembers the last `2 × granules of the cache` addresses that were
//! missing, first in, first out, with a count each. Reads and writes count alike.
//! OCF's rules, which hold here too:
//!
//! * Below `trigger_percent` of occupancy the policy is inactive: it admits every
//!   request and counts nothing. At OCF's default of 80 %, a cache that never
//!   fills that far behaves like `always`.
//! * A request is admitted as a whole: every granule must have reached the
//!   threshold. A request that the cache has in part is always admitted.
//! * The count of a granule starts anew when it is inserted.

use serde::{Deserialize, Serialize};

use super::history::History;
use super::request::{Granule, Sighting, Verdict};
use crate::policy::error::{PolicyConfigError, check_range};

/// OCF remembers two addresses per cache line.
const REMEMBERED_PER_GRANULE: u64 = 2;
const PERCENT: u64 = 100;

/// `{ kind = "nhit", threshold = 3, trigger_percent = 80 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NhitConfig {
    /// Requests of a granule, this one included, from which on it is inserted:
    /// 2 to 1,000. Default 3.
    pub threshold: u32,
    /// Occupancy of the cache in percent from which on the policy is active: 0
    /// (always) to 100. Default 80.
    pub trigger_percent: u32,
}

impl Default for NhitConfig {
    fn default() -> Self {
        NhitConfig {
            threshold: 3,
            trigger_percent: 80,
        }
    }
}

impl NhitConfig {
    pub(super) fn check(&self) -> Result<(), PolicyConfigError> {
        check_range("threshold", self.threshold, 2, 1000)?;
        check_range("trigger_percent", self.trigger_percent, 0, 100)
    }
}

/// Admits requests of granules that were requested before. 18 to 22 bytes for
/// each remembered granule.
#[derive(Clone, Debug)]
pub struct Nhit {
    threshold: u16,
    trigger_percent: u64,
    remembered_max: usize,
    /// The ring: remembered granules and how often each was requested.
    granules: Vec<Granule>,
    counts: Vec<u16>,
    /// The slot that is overwritten next, once the ring is full.
    hand: usize,
    history: History,
}

impl Nhit {
    pub(super) fn new(config: &NhitConfig, granules_max: u64, seed: u64) -> Self {
        let remembered = granules_max.saturating_mul(REMEMBERED_PER_GRANULE);
        let remembered = remembered.clamp(1, u64::from(u32::MAX - 1)) as usize;
        Nhit {
            threshold: config.threshold as u16,
            trigger_percent: u64::from(config.trigger_percent),
            remembered_max: remembered,
            granules: Vec::with_capacity(remembered),
            counts: Vec::with_capacity(remembered),
            hand: 0,
            history: History::new(remembered, seed),
        }
    }

    pub(super) fn see(&mut self, sighting: &Sighting) -> Verdict {
        if !self.active(sighting) {
            return Verdict::All;
        }
        let mut admitted = true;
        for granule in sighting.granules() {
            admitted &= self.count(granule) >= self.threshold;
        }
        if admitted || sighting.partly_cached {
            Verdict::All
        } else {
            Verdict::None
        }
    }

    /// True if the cache is full enough.
    fn active(&self, sighting: &Sighting) -> bool {
        let used = u128::from(sighting.used_bytes) * u128::from(PERCENT);
        used >= u128::from(sighting.capacity_bytes) * u128::from(self.trigger_percent)
    }

    /// Counts a request of `granule`; returns its count.
    fn count(&mut self, granule: Granule) -> u16 {
        let slot = match self.history.find(granule, &self.granules) {
            Some(slot) => slot as usize,
            None => self.remember(granule),
        };
        self.counts[slot] = self.counts[slot].saturating_add(1);
        self.counts[slot]
    }

    /// Gives `granule` the oldest slot, with a count of zero.
    fn remember(&mut self, granule: Granule) -> usize {
        let slot = self.hand;
        self.hand = (self.hand + 1) % self.remembered_max;
        if slot == self.granules.len() {
            self.granules.push(granule);
            self.counts.push(0);
        } else {
            self.history.remove(self.granules[slot], slot as u32);
            self.granules[slot] = granule;
            self.counts[slot] = 0;
        }
        self.history.insert(granule, slot as u32);
        slot
    }

    pub(super) fn admits(&self, granule: Granule) -> bool {
        let slot = self.history.find(granule, &self.granules);
        slot.is_some_and(|slot| self.counts[slot as usize] >= self.threshold)
    }

    pub(super) fn note_inserted(&mut self, granule: Granule) {
        if let Some(slot) = self.history.find(granule, &self.granules) {
            self.counts[slot as usize] = 0;
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let ring = self.granules.capacity() * size_of::<Granule>()
            + self.counts.capacity() * size_of::<u16>();
        ring as u64 + self.history.memory_bytes()
    }
}
