//! Key hashing. One seeded 64-bit hash names a key everywhere: in the index,
//! in summaries on flash, in tombstones.

use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The seed of a cache's key hash: random at format time, kept in the
/// superblock, so that nobody outside can choose colliding keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSeed(pub u64);

/// A key's 64-bit hash under its cache's seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// Hashes `key`.
    pub fn of(seed: HashSeed, key: &[u8]) -> Self {
        KeyHash(xxh3_64_with_seed(key, seed.0))
    }
}

/// The hasher of maps whose keys are [`KeyHash`]es. They are seeded hashes
/// already: nobody outside can choose colliding ones, and a run with a fixed
/// seed is the same every time.
pub type ByKeyHash = BuildHasherDefault<KeyHasher>;

/// Takes one [`KeyHash`] for what it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    /// Shards and instances are chosen by the upper bits, and tables tag their
    /// slots with the uppermost: those of one shard would be alike.
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash.rotate_left(32);
    }
}

/// Scales a 64-bit hash to `0..n` without a division (Lemire's fast range).
pub fn fast_range(hash: u64, n: usize) -> usize {
    ((u128::from(hash) * n as u128) >> 64) as usize
}
