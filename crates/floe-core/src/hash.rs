//! Key hashing. One seeded 64-bit hash names a key everywhere: in the index,
//! in summaries on flash, in the journal of deaths.

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

/// Scales a 64-bit hash to `0..n` without a division (Lemire's fast range).
pub fn fast_range(hash: u64, n: usize) -> usize {
    ((u128::from(hash) * n as u128) >> 64) as usize
}
