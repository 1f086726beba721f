//! The requests that reach an engine, in a mix like that of Nemo's evaluation (§5.1):
//! Twitter's clusters 14, 29, 34 and 52 over four key spaces, behind a memory
//! tier of 2 % of the flash. `floe_eval` has the full mix. This one has the same
//! skew and size, without the cost of setting it up.

use floe_core::hash::KeyHash;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The key.
    pub(crate) hash: KeyHash,
    /// Bytes of key and value.
    pub(crate) bytes: u32,
    /// A `get`; otherwise an insert.
    pub(crate) is_get: bool,
}

/// The memory tier's size, as a share of the flash.
const TIER_SHARE: f64 = 0.02;
/// Overhead in bytes of each object in the memory tier.
const TIER_ENTRY_BYTES: f64 = 160.0;
/// The mean object of Nemo's evaluation.
pub(crate) const OBJECT_BYTES: f64 = 246.0;
/// Flash bytes of Nemo's evaluation.
const PAPER_FLASH_BYTES: f64 = 360e9;
const KEY_SPACES: u64 = 4;

/// A cluster: its share of requests, keys (thousands), skew, share of gets.
const CLUSTERS: [(f64, f64, f64, f64); 4] = [
    (0.230, 35_947.0, 1.2959, 0.833),
    (0.198, 48_527.0, 1.2323, 0.869),
    (0.291, 32_541.0, 1.1401, 0.940),
    (0.282, 47_976.0, 1.2117, 0.939),
];

/// Draws requests.
pub(crate) struct Mix {
    random: Xoshiro256PlusPlus,
    parts: Vec<Part>,
    tier: Tier,
}

struct Part {
    /// Draws from the previous part's value up to this one select this part.
    up_to: f64,
    number: u64,
    popularity: Zipf,
    gets: f64,
}

impl Mix {
    /// The mix for `flash_bytes` of flash.
    pub(crate) fn new(flash_bytes: u64) -> Self {
        let scale = flash_bytes as f64 / PAPER_FLASH_BYTES;
        let mut up_to = 0.0;
        let parts = (0..)
            .zip(CLUSTERS)
            .map(|(number, (share, keys, skew, gets))| {
                up_to += share;
                Part {
                    up_to,
                    number,
                    popularity: Zipf::new(keys * 1e3 * scale, skew),
                    gets,
                }
            });
        Mix {
            random: Xoshiro256PlusPlus::seed_from_u64(7),
            parts: parts.collect(),
            tier: Tier::new(tier_objects(flash_bytes)),
        }
    }

    /// The next request of the mix.
    pub(crate) fn draw(&mut self) -> Request {
        let point: f64 = self.random.random();
        let at = self.parts.iter().position(|part| point < part.up_to);
        let part = &self.parts[at.unwrap_or(self.parts.len() - 1)];
        let space = self.random.random_range(0..KEY_SPACES);
        let rank = part.popularity.draw(self.random.random());
        let is_get = self.random.random::<f64>() < part.gets;
        Request::new(scatter(rank ^ part.number << 56 ^ space << 48), is_get)
    }

    /// Adds requests that the memory tier does not serve to `requests`, until it
    /// has `count`.
    pub(crate) fn fill(&mut self, requests: &mut Vec<Request>, count: usize) {
        while requests.len() < count {
            let request = self.draw();
            let hash = request.hash.0;
            if request.is_get && self.tier.holds(hash) {
                continue;
            }
            if request.is_get {
                requests.push(request);
            }
            // A read object enters memory and needs no further write.
            if let Some(left) = self.tier.keep(hash, !request.is_get) {
                requests.push(Request::new(left, false));
            }
        }
    }
}

impl Request {
    fn new(hash: u64, is_get: bool) -> Self {
        Request {
            hash: KeyHash(hash),
            bytes: bytes_of(hash),
            is_get,
        }
    }
}

/// Objects in a memory tier in front of `flash_bytes` of flash.
pub(crate) fn tier_objects(flash_bytes: u64) -> usize {
    let tier_bytes = flash_bytes as f64 * TIER_SHARE;
    (tier_bytes / (OBJECT_BYTES + TIER_ENTRY_BYTES)) as usize
}

/// 32 to 460 bytes, 246 on average, fixed for each key.
fn bytes_of(hash: u64) -> u32 {
    32 + (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 % 429
}

/// Mixes the bits of a number.
pub(crate) fn scatter(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Zipf's law by inversion of its continuous form: accurate enough for a mix.
struct Zipf {
    exponent: f64,
    span: f64,
}

impl Zipf {
    fn new(items: f64, skew: f64) -> Self {
        let exponent = 1.0 - skew;
        Zipf {
            exponent,
            span: (items + 1.0).powf(exponent) - 1.0,
        }
    }

    fn draw(&self, uniform: f64) -> u64 {
        (1.0 + uniform * self.span).powf(1.0 / self.exponent) as u64 - 1
    }
}

/// A memory tier: small sets with a second chance for used objects.
struct Tier {
    ways: Vec<Way>,
    sets: usize,
}

#[derive(Clone, Copy, Default)]
struct Way {
    /// Zero for an empty way.
    hash: u64,
    is_used: bool,
    is_dirty: bool,
}

const WAYS: usize = 8;

impl Tier {
    fn new(objects: usize) -> Self {
        let sets = (objects / WAYS).max(1);
        Tier {
            ways: vec![Way::default(); sets * WAYS],
            sets,
        }
    }

    fn set(&mut self, hash: u64) -> &mut [Way] {
        let set = ((u128::from(scatter(hash)) * self.sets as u128) >> 64) as usize;
        &mut self.ways[set * WAYS..][..WAYS]
    }

    fn holds(&mut self, hash: u64) -> bool {
        let way = self.set(hash).iter_mut().find(|way| way.hash == hash);
        way.is_some_and(|way| {
            way.is_used = true;
            true
        })
    }

    /// Inserts an object. Returns the evicted object if it must be written.
    fn keep(&mut self, hash: u64, is_dirty: bool) -> Option<u64> {
        let set = self.set(hash);
        if let Some(way) = set.iter_mut().find(|way| way.hash == hash) {
            way.is_dirty |= is_dirty;
            way.is_used = true;
            return None;
        }
        let victim = set.iter().position(|way| !way.is_used).unwrap_or(0);
        if set.iter().all(|way| way.is_used) {
            set.iter_mut().for_each(|way| way.is_used = false);
        }
        let left = set[victim];
        set[victim..].rotate_left(1);
        set[WAYS - 1] = Way {
            hash,
            is_used: false,
            is_dirty,
        };
        (left.is_dirty && left.hash != 0).then_some(left.hash)
    }
}
