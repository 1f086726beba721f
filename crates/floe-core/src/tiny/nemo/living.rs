//! How many keys a get finds, estimated from a sample of them.
//!
//! Set-groups count copies: a key that is overwritten has one in each
//! set-group that it was written to, and no filter tells which is the newest.
//! So the keys of which the hash falls into a sample are followed one by one,
//! from the insert to the eviction. The sample takes in every key until it is
//! full; then, and whenever it is full again, half of the hashes leave it.
//!
//! A restart finds set-groups without a sample. Their driver draws copies from
//! them and reports which are the newest of their key ([`Sample::surveyed`]);
//! until it does, all of their copies count.

use std::ops::Range;

use super::pool::Pool;
use crate::hash::KeyHash;
use crate::tiny::object::{Expiry, Object, PAGE_ROOM_BYTES};
use crate::tiny::statistics::Living;

/// Most keys that are followed. Half as many stay when it is full, and the
/// error is one in the square root of that: 3.1 %.
const SAMPLE_MAX: usize = 2048;

/// Copies that are drawn after a restart: until so many are the newest of
/// their key, for an error of 3.1 % again, or so many were looked for.
const SURVEY_FOUND: u64 = 1024;
const SURVEY_DRAWN_MAX: u64 = 16 * SURVEY_FOUND;

/// A key's newest copy is not on flash yet.
pub(super) const IN_MEMORY: u64 = u64::MAX;

/// A key that is followed.
#[derive(Clone, Copy, Debug)]
struct Key {
    hash: KeyHash,
    /// The set-group that holds its newest copy, or [`IN_MEMORY`].
    sequence: u64,
    bytes: u32,
    expires: Expiry,
}

/// Keys that are followed, by hash.
#[derive(Debug, Default)]
struct Keys(Vec<Key>);

impl Keys {
    /// The places of a key: one, or one for each time that it was drawn.
    fn places(&self, hash: KeyHash) -> Range<usize> {
        let first = self.0.partition_point(|key| key.hash < hash);
        let count = self.0[first..].iter().take_while(|key| key.hash == hash);
        first..first + count.count()
    }

    fn add(&mut self, key: Key) {
        let first = self.places(key.hash).start;
        self.0.insert(first, key);
    }

    fn remove(&mut self, hash: KeyHash) {
        let places = self.places(hash);
        if !places.is_empty() {
            self.0.drain(places);
        }
    }

    /// Those alive, each of which stands for `weight` of them.
    fn living(&self, weight: f64, now_seconds: u32) -> Living {
        let alive = self
            .0
            .iter()
            .filter(|key| !key.expires.is_over(now_seconds));
        let (mut objects, mut bytes) = (0.0, 0.0);
        for key in alive {
            objects += weight;
            bytes += weight * f64::from(key.bytes);
        }
        Living {
            objects: objects.round() as u64,
            bytes: bytes.round() as u64,
        }
    }
}

/// Set-groups that a restart found.
#[derive(Debug, Default)]
struct Survey {
    /// Those before this one.
    end: u64,
    /// Copies that they had.
    copies: u64,
    /// Copies that were drawn, and how many of them a get found.
    drawn: u64,
    found: u64,
    /// Those found that are still the newest of their key.
    keys: Keys,
}

impl Survey {
    fn is_over(&self) -> bool {
        self.found >= SURVEY_FOUND || self.drawn >= SURVEY_DRAWN_MAX
    }
}

/// The sample.
#[derive(Debug, Default)]
pub(super) struct Sample {
    keys: Keys,
    /// One hash in two to this many is in it.
    shift: u32,
    survey: Survey,
}

impl Sample {
    fn takes(&self, hash: KeyHash) -> bool {
        // Mixed, as the bits themselves choose instance and sets.
        let mixed = hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed.checked_shr(u64::BITS - self.shift).unwrap_or(0) == 0
    }

    /// An object is in memory, and is the newest of its key.
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

    /// No get finds the key any more.
    pub(super) fn removed(&mut self, hash: KeyHash) {
        if self.takes(hash) {
            self.keys.remove(hash);
        }
        self.survey.keys.remove(hash);
    }

    /// The newest copy of a key is in memory again.
    pub(super) fn written_back(&mut self, hash: KeyHash) {
        for keys in [&mut self.keys, &mut self.survey.keys] {
            let places = keys.places(hash);
            for key in &mut keys.0[places] {
                key.sequence = IN_MEMORY;
            }
        }
    }

    /// Set-groups before this one are gone.
    pub(super) fn retired(&mut self, oldest: u64) {
        for keys in [&mut self.keys, &mut self.survey.keys] {
            keys.0.retain(|key| key.sequence >= oldest);
        }
    }

    /// Of the keys whose newest copy is in memory, `place` says where it is
    /// now, or that it is gone.
    pub(super) fn follow(&mut self, place: impl Fn(KeyHash) -> Option<u64>) {
        for keys in [&mut self.keys, &mut self.survey.keys] {
            keys.0.retain_mut(|key| {
                if key.sequence == IN_MEMORY {
                    match place(key.hash) {
                        Some(sequence) => key.sequence = sequence,
                        None => return false,
                    }
                }
                true
            });
        }
    }

    /// Follows the keys of a cache in which a restart found set-groups before
    /// `end`, with so many copies.
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
    /// The keys that a get finds, in memory and on flash, and their bytes:
    /// exact while there are fewer than 2,048 of them, then within 10 % of the
    /// most keys that there were at once (three standard errors). After a
    /// restart all copies that it found count until [`Sample::surveyed`] was
    /// told of 1,024 that a get finds, or of 16,384.
    pub(super) fn living(&self, pool: &Pool, sets: u32, now_seconds: u32) -> Living {
        let weight = 2f64.powi(self.shift.cast_signed());
        let mut living = self.keys.living(weight, now_seconds);
        let survey = &self.survey;
        living.add(match survey.is_over() {
            false => copies_before(survey.end, pool, sets),
            true => {
                let weight = survey.copies as f64 / survey.drawn.max(1) as f64;
                survey.keys.living(weight, now_seconds)
            }
        });
        living
    }

    /// Draws a copy among those that a restart found: its set-group, and its
    /// number there. `None` once enough were drawn.
    pub(super) fn draw(&self, pool: &Pool, random: u64) -> Option<(u64, u64)> {
        match self.survey.is_over() {
            true => None,
            false => pool.draw(random, self.survey.end),
        }
    }

    /// A copy that was drawn is, or is not, the one that a get finds; it lies in
    /// the set-group `sequence`, if that is not gone.
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

/// All copies in set-groups before `end`, as if these were full.
fn copies_before(end: u64, pool: &Pool, sets: u32) -> Living {
    let set_groups = end.saturating_sub(pool.oldest());
    Living {
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

        /// Holds the estimate against a get of every key; returns how many
        /// are found.
        fn judge(&mut self, what: &str, now_seconds: u32) -> u64 {
            let found = (0..self.keys)
                .filter(|key| self.model.get(Self::hash(*key), now_seconds).is_some())
                .count() as u64;
            self.most = self.most.max(found);
            let living = self.model.living(now_seconds);
            let error = living.objects.abs_diff(found) as f64 / self.most as f64;
            assert!(error <= 0.1, "{what}: {living:?}, found {found}");
            assert_eq!(living.bytes, living.objects * u64::from(BYTES));
            found
        }
    }

    #[test]
    fn the_estimate_is_as_near_as_documented_whatever_became_of_the_keys() {
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
        assert_eq!(cache.model.living(1).objects, 1500);
    }
}
