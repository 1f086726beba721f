//! Estimates the number of live objects, those that a lookup finds, from a
//! sample.
//!
//! Set-groups count copies. An overwritten key has one in each set-group that
//! it was written to, and no filter tells which is the newest. So the engine
//! follows the keys whose hash falls into a sample, from insert to eviction.
//! The sample takes every key until it is full. Each time it is full, half of
//! the hashes leave it.
//!
//! After a restart, set-groups have no sample. The driver draws copies from
//! them and reports which ones are the newest of their key
//! ([`Sample::surveyed`]). Until it has done so, all of their copies count.

use std::ops::Range;

use super::pool::Pool;
use crate::hash::KeyHash;
use crate::tiny::object::{Expiry, Object, PAGE_ROOM_BYTES};
use crate::tiny::statistics::LiveObjects;

/// Most keys in the sample. Half of them stay when it is full; the standard
/// error of that many is one in their square root, 3.1 %.
const SAMPLE_MAX: usize = 2048;

/// The survey after a restart ends when this many drawn copies are the newest
/// of their key, again for an error of 3.1 %, or when `SURVEY_DRAWN_MAX` copies
/// were drawn.
const SURVEY_FOUND: u64 = 1024;
const SURVEY_DRAWN_MAX: u64 = 16 * SURVEY_FOUND;

/// The sequence of a key whose newest copy is not on flash yet.
pub(super) const IN_MEMORY: u64 = u64::MAX;

/// A sampled key.
#[derive(Clone, Copy, Debug)]
struct Key {
    hash: KeyHash,
    /// The set-group that holds its newest copy, or [`IN_MEMORY`].
    sequence: u64,
    bytes: u32,
    expires: Expiry,
}

/// Sampled keys, ordered by hash.
#[derive(Debug, Default)]
struct Keys(Vec<Key>);

impl Keys {
    /// The range of a key's entries. A survey can draw a copy several times.
    fn range(&self, hash: KeyHash) -> Range<usize> {
        let first = self.0.partition_point(|key| key.hash < hash);
        let count = self.0[first..].iter().take_while(|key| key.hash == hash);
        first..first + count.count()
    }

    fn add(&mut self, key: Key) {
        let first = self.range(key.hash).start;
        self.0.insert(first, key);
    }

    fn remove(&mut self, hash: KeyHash) {
        let range = self.range(hash);
        if !range.is_empty() {
            self.0.drain(range);
        }
    }

    /// The entries that have not expired, each counted `weight` times.
    fn live_objects(&self, weight: f64, now_seconds: u32) -> LiveObjects {
        let alive = self
            .0
            .iter()
            .filter(|key| !key.expires.is_over(now_seconds));
        let (mut objects, mut bytes) = (0.0, 0.0);
        for key in alive {
            objects += weight;
            bytes += weight * f64::from(key.bytes);
        }
        LiveObjects {
            objects: objects.round() as u64,
            bytes: bytes.round() as u64,
        }
    }
}

/// The survey of the set-groups that a restart found.
#[derive(Debug, Default)]
struct Survey {
    /// The restart found set-groups before this one.
    end: u64,
    /// Copies in these set-groups.
    copies: u64,
    /// Copies that were drawn, and how many of them a lookup found.
    drawn: u64,
    found: u64,
    /// Found copies that are still the newest of their key.
    keys: Keys,
    /// Some of them were written back.
    wrote_back: bool,
}

impl Survey {
    fn is_over(&self) -> bool {
        self.found >= SURVEY_FOUND || self.drawn >= SURVEY_DRAWN_MAX
    }
}

/// The sampled keys, and the survey after a restart.
#[derive(Debug, Default)]
pub(super) struct Sample {
    keys: Keys,
    /// The sample takes one hash in 2^`shift`.
    shift: u32,
    survey: Survey,
}

impl Sample {
    fn takes(&self, hash: KeyHash) -> bool {
        // Mixed, because the hash's own bits choose instance and sets.
        let mixed = hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed.checked_shr(u64::BITS - self.shift).unwrap_or(0) == 0
    }

    /// Records an insert: the newest copy of the key is in memory.
    pub(super) fn inserted(&mut self, hash: KeyHash, bytes: u32, expires: Expiry) {
        self.removed(hash);
        if !self.takes(hash) {
            return;
        }
        self.keys.add(Key {
            hash,
            sequence: IN_MEMORY,
            bytes,
            expires,
        });
        while self.keys.0.len() >= SAMPLE_MAX {
            self.shift += 1;
            let mut keys = std::mem::take(&mut self.keys);
            keys.0.retain(|key| self.takes(key.hash));
            self.keys = keys;
        }
    }

    /// Drops a key that no lookup finds any more.
    pub(super) fn removed(&mut self, hash: KeyHash) {
        if self.takes(hash) {
            self.keys.remove(hash);
        }
        self.survey.keys.remove(hash);
    }

    /// Records that the newest copy of a key is in memory again.
    pub(super) fn written_back(&mut self, hash: KeyHash) {
        for keys in [&mut self.keys, &mut self.survey.keys] {
            let range = keys.range(hash);
            for key in &mut keys.0[range] {
                key.sequence = IN_MEMORY;
            }
        }
        self.survey.wrote_back |= !self.survey.keys.0.is_empty();
    }

    /// Drops keys in set-groups before `oldest`, which were evicted.
    pub(super) fn retired(&mut self, oldest: u64) {
        for keys in [&mut self.keys, &mut self.survey.keys] {
            keys.0.retain(|key| key.sequence >= oldest);
        }
    }

    /// Records that a copy goes to flash in the set-group `sequence`, unless `is_old`: there is a
    /// newer one in memory.
    pub(super) fn flushed(&mut self, hash: KeyHash, sequence: u64, is_old: impl Fn() -> bool) {
        let sampled = self.takes(hash).then_some(&mut self.keys);
        let survey = &mut self.survey;
        let surveyed = survey.wrote_back.then_some(&mut survey.keys);
        for keys in sampled.into_iter().chain(surveyed) {
            let range = keys.range(hash);
            for key in &mut keys.0[range] {
                if key.sequence == IN_MEMORY && !is_old() {
                    key.sequence = sequence;
                }
            }
        }
    }

    /// Drops the keys in memory that are `gone`.
    pub(super) fn dropped(&mut self, gone: impl Fn(KeyHash) -> bool) {
        for keys in [&mut self.keys, &mut self.survey.keys] {
            keys.0
                .retain(|key| key.sequence != IN_MEMORY || !gone(key.hash));
        }
    }

    /// The sample of a cache in which a restart found `copies` copies in
    /// set-groups before `end`.
    pub(super) fn recovered(end: u64, copies: u64) -> Self {
        Sample {
            survey: Survey {
                end,
                copies,
                ..Survey::default()
            },
            ..Sample::default()
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let keys = self.keys.0.capacity() + self.survey.keys.0.capacity();
        (keys * size_of::<Key>()) as u64
    }
}

impl Sample {
    /// Estimates the live objects, in memory and on flash, and their bytes:
    /// exact for fewer than 2,048 keys, then within 10 % of the most that were
    /// live at once (three standard errors). After a restart, all recovered
    /// copies count until the survey ends.
    pub(super) fn live_objects(&self, pool: &Pool, sets: u32, now_seconds: u32) -> LiveObjects {
        let weight = 2f64.powi(self.shift.cast_signed());
        let mut live = self.keys.live_objects(weight, now_seconds);
        let survey = &self.survey;
        live.add(match survey.is_over() {
            false => copies_before(survey.end, pool, sets),
            true => {
                let weight = survey.copies as f64 / survey.drawn.max(1) as f64;
                survey.keys.live_objects(weight, now_seconds)
            }
        });
        live
    }

    /// Draws one of the copies that a restart found: its set-group, and its
    /// number there. `None` once the survey is over.
    pub(super) fn draw(&self, pool: &Pool, random: u64) -> Option<(u64, u64)> {
        match self.survey.is_over() {
            true => None,
            false => pool.draw(random, self.survey.end),
        }
    }

    /// Records whether a lookup found a drawn copy. `sequence` is its set-group
    /// if it did and the set-group is still there.
    pub(super) fn surveyed(&mut self, object: &Object, sequence: Option<u64>) {
        self.survey.drawn += 1;
        if let Some(sequence) = sequence {
            self.survey.found += 1;
            self.survey.keys.add(Key {
                hash: object.hash,
                sequence,
                bytes: object.bytes,
                expires: object.expires,
            });
        }
    }
}

/// All copies in set-groups before `end`. Their bytes assume full sets.
fn copies_before(end: u64, pool: &Pool, sets: u32) -> LiveObjects {
    let set_groups = end.saturating_sub(pool.oldest());
    LiveObjects {
        objects: pool.objects_before(end),
        bytes: set_groups * u64::from(sets) * PAGE_ROOM_BYTES as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Nemo, NemoConfig, NemoPlan};
    use super::*;
    use crate::tiny::Flash;
    use crate::tiny::model::Model;

    const FLASH: Flash = Flash {
        zones: 24,
        zone_pages: 256,
        in_place: false,
    };
    const BYTES: u32 = 100;

    struct Cache {
        model: Model<Nemo>,
        keys: u64,
        most: u64,
    }

    impl Cache {
        fn of(keys: u64) -> Self {
            let plan = NemoPlan::new(&NemoConfig::default(), &FLASH).expect("fits");
            Cache {
                model: Model::new(Nemo::new(plan), FLASH),
                keys,
                most: 0,
            }
        }

        fn hash(key: u64) -> KeyHash {
            KeyHash(xxhash_rust::xxh3::xxh3_64(&key.to_le_bytes()))
        }

        fn put(&mut self, keys: impl Iterator<Item = u64>, expires: Expiry) {
            for key in keys {
                self.model.put(Self::hash(key), BYTES, expires, 1);
            }
        }

        fn delete(&mut self, keys: impl Iterator<Item = u64>) {
            for key in keys {
                self.model.delete(Self::hash(key), 1);
            }
        }

        /// Compares the estimate with a lookup of every key; returns the number
        /// found.
        fn judge(&mut self, what: &str, now_seconds: u32) -> u64 {
            let found = (0..self.keys)
                .filter(|key| self.model.get(Self::hash(*key), now_seconds).is_some())
                .count() as u64;
            self.most = self.most.max(found);
            let live = self.model.live_objects(now_seconds);
            let error = live.objects.abs_diff(found) as f64 / self.most as f64;
            assert!(error <= 0.1, "{what}: {live:?}, found {found}");
            assert_eq!(live.bytes, live.objects * u64::from(BYTES));
            found
        }
    }

    #[test]
    fn the_estimate_keeps_its_documented_error() {
        let mut cache = Cache::of(40_000);
        cache.put(0..40_000, Expiry::NEVER);
        assert_eq!(cache.judge("filled", 1), 40_000);
        for _ in 0..5 {
            cache.put(0..40_000, Expiry::NEVER);
        }
        assert!(cache.judge("overwritten", 1) > 39_000);
        let copies = cache.model.memory().objects_on_flash;
        assert!(copies > 120_000, "{copies}");
        cache.delete((0..40_000).step_by(2));
        assert!(cache.judge("half deleted", 1) < 20_001);
        cache.put(0..20_000, Expiry(5));
        cache.judge("with expiry times", 1);
        cache.judge("ended", 5);

        let mut cache = Cache::of(600_000);
        cache.put(0..600_000, Expiry::NEVER);
        assert!(cache.judge("evicted", 1) < 400_000);
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut cache = Cache::of(2000);
        cache.put(0..2000, Expiry::NEVER);
        cache.put(0..2000, Expiry::NEVER);
        cache.delete(0..500);
        assert_eq!(cache.judge("few", 1), 1500);
        assert_eq!(cache.model.live_objects(1).objects, 1500);
    }
}
