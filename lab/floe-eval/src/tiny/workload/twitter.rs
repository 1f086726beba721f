//! Requests like those of Twitter's caches, drawn from published figures.
//!
//! The numbers of [`Cluster::TWITTER`] are from the table that comes with the
//! traces (Yang, Yue and Rashmi, OSDI 2020; March 2020). Nemo's evaluation
//! (§5.1) interleaves clusters 14, 29, 34 and 52, each over four disjoint key
//! spaces, with the sizes of 14 and 29 divided by 2 and 3.
//!
//! The table does not specify the following, which is decided here:
//! * *Sizes*: only means are published, so sizes are lognormal around them. The
//!   means of the four clusters after scaling (255, 278, 355 and 293 bytes)
//!   cannot average to the 246 bytes that the paper reports. All sizes are
//!   therefore multiplied by the factor that gives 246 per request.
//! * *Interleaving*: the paper says "proportionally". Here it is in proportion
//!   to the number of requests in each trace, its mean frequency times its
//!   keys, so that all would end together.
//! * *Time* for expiry: as many requests as the traces have last seven days.
//!   The paper's replayer has no expiry, so it is off by default.
//! * *`delete`*: as in the table. Nemo's published code ignores it.

use floe_core::hash::KeyHash;
use rand::{RngExt as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::sizes::{SizeModel, Sizes, mix};
use super::{Draw, alias::Alias};
use crate::trace::Op;
use crate::workload::{WorkloadError, Zipf};

/// The published figures of a cluster's trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// The cluster's number.
    pub number: u16,
    /// Mean bytes of a key.
    pub key_bytes: f64,
    /// Mean bytes of a value.
    pub value_bytes: f64,
    /// Mean number of requests of a key.
    pub frequency: f64,
    /// Megabytes of all keys and values.
    pub working_set_mb: f64,
    /// Exponent of the popularity's distribution.
    pub skew: f64,
    /// Shares of `get`, `set` and `delete`. `gets` counts as `get`, `add` and
    /// `cas` as `set`.
    pub shares: [f64; 3],
    /// Times to live in seconds, with their shares.
    pub ttl: &'static [(f64, f64)],
    /// The divisor of the sizes in Nemo's evaluation.
    pub divisor: f64,
}

const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;

impl Cluster {
    /// The four clusters that Nemo's evaluation interleaves.
    pub const TWITTER: [Cluster; 4] = [
        Cluster {
            number: 14,
            key_bytes: 96.0,
            value_bytes: 414.0,
            frequency: 35.4,
            working_set_mb: 18_333.0,
            skew: 1.2959,
            shares: [0.65, 0.13, 0.22],
            ttl: &[(DAY, 1.0)],
            divisor: 2.0,
        },
        Cluster {
            number: 29,
            key_bytes: 36.0,
            value_bytes: 799.0,
            frequency: 22.5,
            working_set_mb: 40_520.0,
            skew: 1.2323,
            shares: [0.86, 0.13, 0.0],
            ttl: &[(HOUR, 0.67), (2.0 * HOUR, 0.33)],
            divisor: 3.0,
        },
        Cluster {
            number: 34,
            key_bytes: 33.0,
            value_bytes: 322.0,
            frequency: 49.4,
            working_set_mb: 11_552.0,
            skew: 1.1401,
            shares: [0.94, 0.06, 0.0],
            ttl: &[
                (9.7 * HOUR, 0.04),
                (9.8 * HOUR, 0.04),
                (10.0 * HOUR, 0.04),
                (10.1 * HOUR, 0.03),
                (10.3 * HOUR, 0.03),
                (10.4 * HOUR, 0.03),
                (10.5 * HOUR, 0.04),
                (10.6 * HOUR, 0.04),
                (10.7 * HOUR, 0.04),
                (11.1 * HOUR, 0.04),
                (11.2 * HOUR, 0.04),
            ],
            divisor: 1.0,
        },
        Cluster {
            number: 52,
            key_bytes: 20.0,
            value_bytes: 273.0,
            frequency: 32.6,
            working_set_mb: 14_057.0,
            skew: 1.2117,
            shares: [0.93, 0.06, 0.0],
            ttl: &[(DAY, 0.65), (14.0 * DAY, 0.27), (0.5 * DAY, 0.07)],
            divisor: 1.0,
        },
    ];

    /// Distinct keys of the trace.
    pub fn keys(&self) -> f64 {
        self.working_set_mb * 1e6 / (self.key_bytes + self.value_bytes)
    }

    /// Requests of the trace.
    pub fn requests(&self) -> f64 {
        self.keys() * self.frequency
    }

    /// Mean bytes of key and value after Nemo's scaling.
    pub fn scaled_bytes(&self) -> f64 {
        (self.key_bytes + self.value_bytes) / self.divisor
    }
}

/// The flash of Nemo's evaluation (Table 4).
pub const PAPER_FLASH_BYTES: f64 = 360e9;

/// The mean object of Nemo's evaluation (§5.1).
pub const PAPER_OBJECT_BYTES: f64 = 246.0;

/// Duration of the traces.
const TRACE_SECONDS: f64 = 7.0 * DAY;

/// Requests like those of some clusters, interleaved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TwitterMix {
    /// The numbers of the clusters.
    pub clusters: Vec<u16>,
    /// Disjoint key spaces per cluster.
    pub key_spaces: u32,
    /// Mean bytes of an object over all requests; 0 keeps the table's means.
    pub mean_object_bytes: f64,
    /// Standard deviation of sizes, divided by their mean.
    pub size_spread: f64,
    /// The number of keys per byte of flash, as a multiple of the paper's.
    pub keys: f64,
    /// Objects expire.
    pub ttl: bool,
    /// Include `delete` requests.
    pub deletes: bool,
}

impl Default for TwitterMix {
    fn default() -> Self {
        TwitterMix {
            clusters: Cluster::TWITTER.iter().map(|c| c.number).collect(),
            key_spaces: 4,
            mean_object_bytes: PAPER_OBJECT_BYTES,
            size_spread: 0.5,
            keys: 1.0,
            ttl: false,
            deletes: true,
        }
    }
}

/// Generates these requests.
#[derive(Clone, Debug)]
pub struct TwitterStream {
    rng: Xoshiro256PlusPlus,
    choice: Alias,
    parts: Vec<Part>,
    key_spaces: u64,
    seed: u64,
    seconds_per_request: f64,
    drawn: u64,
}

#[derive(Clone, Debug)]
struct Part {
    number: u64,
    popularity: Zipf,
    sizes: Sizes,
    /// The mean size, which the most popular keys have.
    mean_bytes: u32,
    /// Upper bounds of a random number in [0, 1) for a `get` and for a `set`.
    get_upto: f64,
    set_upto: f64,
    ttl: Option<Ttl>,
    deletes: bool,
}

#[derive(Clone, Debug)]
struct Ttl {
    choice: Alias,
    seconds: Vec<u32>,
}

/// Number of the most popular keys that have their cluster's mean size. A
/// quarter of all requests may be for one key, whose size would otherwise
/// determine the mean.
const HOTTEST: u64 = 64;

impl TwitterMix {
    fn clusters(&self) -> Result<Vec<Cluster>, WorkloadError> {
        let known = Cluster::TWITTER;
        if self.clusters.is_empty() {
            return Err(WorkloadError::new("name at least one cluster"));
        }
        let find = |number: &u16| {
            let found = known.iter().find(|cluster| cluster.number == *number);
            found.copied().ok_or_else(|| {
                WorkloadError::new(format!(
                    "there is no cluster {number} in the table; choose of 14, 29, 34, 52"
                ))
            })
        };
        self.clusters.iter().map(find).collect()
    }

    /// Distinct keys of all clusters and key spaces over `flash_bytes`.
    ///
    /// # Errors
    /// If a cluster is not in the table.
    pub fn distinct_keys(&self, flash_bytes: u64) -> Result<u64, WorkloadError> {
        let clusters = self.clusters()?;
        let of = |cluster: &Cluster| self.keys_of(cluster, flash_bytes);
        Ok(clusters.iter().map(of).sum::<u64>() * u64::from(self.key_spaces))
    }

    fn keys_of(&self, cluster: &Cluster, flash_bytes: u64) -> u64 {
        let scale = self.keys * flash_bytes as f64 / PAPER_FLASH_BYTES;
        ((cluster.keys() * scale) as u64).max(1)
    }

    /// A stream over keys for `flash_bytes` of flash.
    ///
    /// # Errors
    /// If a setting is out of range.
    pub fn stream(&self, flash_bytes: u64, seed: u64) -> Result<TwitterStream, WorkloadError> {
        let clusters = self.clusters()?;
        if !(1..=1024).contains(&self.key_spaces) {
            return Err(WorkloadError::new("key-spaces must be from 1 to 1024"));
        }
        if !(self.keys > 0.0 && self.keys <= 1e3) {
            return Err(WorkloadError::new("keys must be above 0 and at most 1000"));
        }
        let weights: Vec<f64> = clusters.iter().map(Cluster::requests).collect();
        let factor = self.size_factor(&clusters, &weights);
        let parts: Result<Vec<Part>, WorkloadError> = clusters
            .iter()
            .map(|cluster| self.part(cluster, factor, self.keys_of(cluster, flash_bytes)))
            .collect();
        let scale = flash_bytes as f64 / PAPER_FLASH_BYTES * f64::from(self.key_spaces);
        let requests = weights.iter().sum::<f64>() * scale;
        Ok(TwitterStream {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            choice: Alias::new(&weights)?,
            parts: parts?,
            key_spaces: u64::from(self.key_spaces),
            seed,
            seconds_per_request: TRACE_SECONDS / requests,
            drawn: 0,
        })
    }

    fn size_factor(&self, clusters: &[Cluster], weights: &[f64]) -> f64 {
        if self.mean_object_bytes == 0.0 {
            return 1.0;
        }
        let bytes = clusters.iter().zip(weights);
        let bytes: f64 = bytes.map(|(cluster, w)| cluster.scaled_bytes() * w).sum();
        self.mean_object_bytes / (bytes / weights.iter().sum::<f64>())
    }

    fn part(&self, cluster: &Cluster, factor: f64, keys: u64) -> Result<Part, WorkloadError> {
        let key_bytes = (cluster.key_bytes / cluster.divisor * factor).ceil() as u32;
        let model = SizeModel::Lognormal {
            mean: cluster.scaled_bytes() * factor,
            spread: self.size_spread,
        };
        let sizes = model.sizes(key_bytes + 1)?;
        let [get, set, delete] = cluster.shares;
        let delete = if self.deletes { delete } else { 0.0 };
        let all = get + set + delete;
        let ttl = self.ttl.then(|| Ttl::new(cluster.ttl)).transpose()?;
        Ok(Part {
            number: u64::from(cluster.number),
            popularity: Zipf::new(keys, cluster.skew, false)?,
            mean_bytes: sizes.mean().round() as u32,
            sizes,
            get_upto: get / all,
            set_upto: (get + set) / all,
            ttl,
            deletes: self.deletes,
        })
    }
}

impl Ttl {
    fn new(shares: &[(f64, f64)]) -> Result<Self, WorkloadError> {
        let weights: Vec<f64> = shares.iter().map(|(_, weight)| *weight).collect();
        Ok(Ttl {
            choice: Alias::new(&weights)?,
            seconds: shares.iter().map(|(seconds, _)| *seconds as u32).collect(),
        })
    }
}

impl TwitterStream {
    /// The next request.
    pub fn draw(&mut self) -> Draw {
        let rng = &mut self.rng;
        let part = &self.parts[self.choice.draw(rng)];
        let space = rng.random_range(0..self.key_spaces);
        let rank = part.popularity.sample(rng);
        let name = mix(self.seed ^ (part.number << 32 | space));
        let hash = KeyHash(mix(name ^ rank));
        let point: f64 = rng.random();
        let op = match point {
            point if point < part.get_upto => Op::Get,
            point if point < part.set_upto || !part.deletes => Op::Put,
            _ => Op::Delete,
        };
        let ttl_seconds = part
            .ttl
            .as_ref()
            .map_or(0, |ttl| ttl.seconds[ttl.choice.draw(rng)]);
        // An expiry time of 0 would mean "never".
        let now = 1.0 + self.drawn as f64 * self.seconds_per_request;
        self.drawn += 1;
        Draw {
            hash,
            op,
            bytes: match rank < HOTTEST {
                true => part.mean_bytes,
                false => part.sizes.of(hash),
            },
            ttl_seconds,
            now_seconds: now as u32,
        }
    }
}
