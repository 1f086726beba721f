//! Tests of the real binary from outside: starts it, talks to it over sockets, kills it.

pub mod http;
pub(crate) mod memcached;
pub(crate) mod nbd;
pub(crate) mod origin;
pub mod scenario;
pub(crate) mod sectors;
pub mod server;
pub(crate) mod volume_load;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The bytes of version `version` of `key`.
pub fn content(key: &str, version: u32, len: usize) -> Vec<u8> {
    let seed = xxh3_64_with_seed(key.as_bytes(), u64::from(version));
    let mut bytes = vec![0; len];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}
