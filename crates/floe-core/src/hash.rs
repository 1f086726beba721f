//! Key hashing. One seeded 64-bit hash names a key everywhere: in the index,
//! in summaries on flash, in tombstones.

use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The seed of a cache's key hash: random at format time, kept in the
/// superblock, so that clients cannot choose colliding keys.
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

/// The hasher of maps keyed by [`KeyHash`]. Key hashes are seeded already, so
/// clients cannot choose colliding ones, and a run with a fixed seed is
/// deterministic.
pub type ByKeyHash = BuildHasherDefault<KeyHasher>;

/// Passes one [`KeyHash`] through as the hash.
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

    /// Rotated, because the upper bits choose shards and instances, and hash
    /// tables tag their slots with the uppermost bits: within one shard these
    /// bits are the same for all keys.
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash.rotate_left(32);
    }
}

/// Scales a 64-bit hash to `0..n` without a division (Lemire's fast range).
pub fn fast_range(hash: u64, n: usize) -> usize {
    ((u128::from(hash) * n as u128) >> 64) as usize
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", 2014): every bit of the result depends on
/// every bit of `word`. It is needed because all hashes of a shard agree in the
/// bits that chose the shard.
pub fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
