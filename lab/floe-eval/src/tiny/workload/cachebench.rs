//! CacheBench's workloads: popularity and sizes as histograms, in a folder with
//! `config.json`, `pop.json` and `sizes.json`.
//!
//! Like CacheBench's online generator, a request draws a bucket of keys by its
//! weight, then one of its keys uniformly. The number of keys is the scaled sum
//! of the buckets' sizes. A lone request is for a key that never repeats.
//! Values whose object does not fit a page belong to the chunk engine; they are
//! skipped and counted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use floe_core::hash::KeyHash;
use floe_core::tiny::OBJECT_BYTES_MAX;
use rand::{RngExt as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::alias::Alias;
use super::sizes::mix;
use super::{Draw, REQUESTS_PER_SECOND};
use crate::error::EvalError;
use crate::shared::find_shared;
use crate::trace::Op;
use crate::workload::WorkloadError;

/// A folder of CacheBench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CacheBench {
    /// The folder: a path, or relative to the experiment, to `$FLOE_TRACES`, or
    /// to `../shared/traces`.
    pub path: PathBuf,
    /// The number of its pool.
    #[serde(default)]
    pub pool: usize,
    /// Bytes of all objects as a multiple of the flash. Default: as many keys
    /// as the histogram has.
    #[serde(default)]
    pub working_set: Option<f64>,
}

/// The popularity file.
#[derive(Debug, Deserialize)]
struct Popularity {
    #[serde(rename = "popularityBuckets")]
    buckets: Vec<f64>,
    #[serde(rename = "popularityWeights")]
    weights: Vec<f64>,
}

/// The file of sizes.
#[derive(Debug, Deserialize)]
struct ValueSizes {
    #[serde(rename = "valSizeRange")]
    range: Vec<f64>,
    #[serde(rename = "valSizeRangeProbability")]
    weights: Vec<f64>,
}

/// A pool of the configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pool {
    #[serde(rename = "getRatio")]
    get: f64,
    #[serde(rename = "setRatio")]
    set: f64,
    #[serde(rename = "delRatio")]
    delete: f64,
    #[serde(rename = "loneGetRatio")]
    lone_get: f64,
    #[serde(rename = "loneSetRatio")]
    lone_set: f64,
    #[serde(rename = "keySizeRange")]
    key_range: Vec<f64>,
    #[serde(rename = "keySizeRangeProbability")]
    key_weights: Vec<f64>,
    #[serde(rename = "popDistFile")]
    popularity: String,
    #[serde(rename = "valSizeDistFile")]
    sizes: String,
}

/// A histogram: ranges, or single values.
#[derive(Clone, Debug)]
struct Histogram {
    choice: Alias,
    edges: Vec<f64>,
}

/// Draws requests as CacheBench does.
#[derive(Clone, Debug)]
pub struct CacheBenchStream {
    rng: Xoshiro256PlusPlus,
    ops: Alias,
    buckets: Alias,
    /// The first key of each bucket, and the end of the last.
    firsts: Vec<u64>,
    keys: Histogram,
    values: Histogram,
    seed: u64,
    lone: u64,
    drawn: u64,
    left_out: u64,
}

/// Operations in the order of their weights.
const OPS: [(Op, bool); 5] = [
    (Op::Get, false),
    (Op::Put, false),
    (Op::Delete, false),
    (Op::Get, true),
    (Op::Put, true),
];

/// Lowest lone key, above all keys of buckets.
const LONE_KEYS: u64 = 1 << 62;

/// After this many consecutive values that do not fit a page, the workload has
/// no others.
const LEFT_OUT_IN_A_ROW_MAX: u32 = 1 << 20;

impl CacheBench {
    /// A stream for `flash_bytes` of flash.
    ///
    /// # Errors
    /// If the files are invalid; [`EvalError::Absent`] if they do not exist.
    pub fn stream(
        &self,
        flash_bytes: u64,
        seed: u64,
        experiment: &Path,
    ) -> Result<CacheBenchStream, EvalError> {
        let config = find_shared(&self.path.join("config.json"), experiment)?;
        let folder = config.parent().unwrap_or(Path::new(".")).to_owned();
        let pool = self.pool(&config)?;
        let popularity: Popularity = read(&folder.join(&pool.popularity))?;
        let sizes: ValueSizes = read(&folder.join(&pool.sizes))?;
        let values = Histogram::new(sizes.range, &sizes.weights)?;
        let keys = Histogram::new(pool.key_range, &pool.key_weights)?;
        let mut stream = CacheBenchStream {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            ops: Alias::new(&[
                pool.get,
                pool.set,
                pool.delete,
                pool.lone_get,
                pool.lone_set,
            ])?,
            buckets: Alias::new(&popularity.weights)?,
            firsts: Vec::new(),
            keys,
            values,
            seed: mix(seed),
            lone: LONE_KEYS,
            drawn: 0,
            left_out: 0,
        };
        stream.firsts = firsts(
            &popularity,
            self.working_set
                .map(|share| share * flash_bytes as f64 / stream.mean_bytes()),
        )?;
        Ok(stream)
    }

    fn pool(&self, config: &Path) -> Result<Pool, EvalError> {
        let file: serde_json::Value = read(config)?;
        let test = &file["test_config"];
        let pools = test["poolDistributions"].as_array();
        let pool = match pools {
            Some(pools) => pools.get(self.pool).ok_or_else(|| {
                WorkloadError::new(format!(
                    "{} has {} pools and no number {}",
                    config.display(),
                    pools.len(),
                    self.pool
                ))
            })?,
            None => test,
        };
        serde_json::from_value(pool.clone()).map_err(|error| bad(config, &error))
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, EvalError> {
    let text = std::fs::read(path).map_err(EvalError::file("read", path))?;
    serde_json::from_slice(&text).map_err(|error| bad(path, &error))
}

fn bad(path: &Path, error: &serde_json::Error) -> EvalError {
    WorkloadError::new(format!("{} is not CacheBench's: {error}", path.display())).into()
}

/// The first key of each bucket, scaled to `keys` keys in total.
fn firsts(popularity: &Popularity, keys: Option<f64>) -> Result<Vec<u64>, WorkloadError> {
    let buckets = &popularity.buckets;
    let total: f64 = buckets.iter().sum();
    let are_good = buckets.iter().all(|keys| *keys >= 0.0) && (1.0..1e15).contains(&total);
    if buckets.len() != popularity.weights.len() || !are_good {
        return Err(WorkloadError::new(
            "the popularity's buckets must be as many as its weights, and not negative",
        ));
    }
    let scale = keys.unwrap_or(total).max(1.0) / total;
    let mut upto = 0.0;
    let ends = buckets.iter().map(|keys| {
        upto += keys * scale;
        upto as u64
    });
    Ok(std::iter::once(0).chain(ends).collect())
}

impl Histogram {
    fn new(edges: Vec<f64>, weights: &[f64]) -> Result<Self, WorkloadError> {
        let are_steps = edges.len() == weights.len() + 1;
        let are_rising = edges.windows(2).all(|pair| pair[0] <= pair[1]);
        if !(are_steps || edges.len() == weights.len()) || !are_rising {
            return Err(WorkloadError::new(
                "a histogram of sizes must rise, and have as many values as weights, or one more",
            ));
        }
        Ok(Histogram {
            choice: Alias::new(weights)?,
            edges,
        })
    }

    /// Depends only on the key, so that an object always has the same size.
    fn of(&self, hash: KeyHash) -> f64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(hash.0);
        let at = self.choice.draw(&mut rng);
        let from = self.edges[at];
        let to = self.edges.get(at + 1).copied().unwrap_or(from);
        from + rng.random::<f64>() * (to - from)
    }
}

impl CacheBenchStream {
    /// The next request.
    pub fn draw(&mut self) -> Draw {
        for _ in 0..LEFT_OUT_IN_A_ROW_MAX {
            let (op, is_lone) = OPS[self.ops.draw(&mut self.rng)];
            let key = if is_lone {
                self.lone += 1;
                self.lone
            } else {
                self.key()
            };
            self.drawn += 1;
            let hash = KeyHash(mix(key ^ self.seed));
            let bytes = self.bytes(hash);
            if bytes <= OBJECT_BYTES_MAX as f64 {
                return self.request(hash, op, bytes);
            }
            self.left_out += 1;
        }
        // No value fits a page: request one object of the largest size.
        let hash = KeyHash(mix(self.seed));
        self.request(hash, Op::Get, OBJECT_BYTES_MAX as f64)
    }

    fn request(&self, hash: KeyHash, op: Op, bytes: f64) -> Draw {
        Draw {
            hash,
            op,
            bytes: bytes as u32,
            ttl_seconds: 0,
            now_seconds: 1 + (self.drawn / REQUESTS_PER_SECOND) as u32,
        }
    }

    fn key(&mut self) -> u64 {
        let bucket = self.buckets.draw(&mut self.rng);
        let (from, to) = (self.firsts[bucket], self.firsts[bucket + 1]);
        // A bucket that was scaled to nothing has one key.
        from + self.rng.random_range(0..(to - from).max(1))
    }

    fn bytes(&self, hash: KeyHash) -> f64 {
        let key = self.keys.of(KeyHash(mix(hash.0 ^ 1)));
        let value = self.values.of(KeyHash(mix(hash.0 ^ 2)));
        (key.floor() + value.floor()).max(1.0)
    }

    /// Mean over the objects that fit a page.
    fn mean_bytes(&self) -> f64 {
        let sample = (0..1u64 << 16).map(|key| self.bytes(KeyHash(mix(key))));
        let sample: Vec<f64> = sample.filter(|b| *b <= OBJECT_BYTES_MAX as f64).collect();
        match sample.len() {
            0 => OBJECT_BYTES_MAX as f64,
            count => sample.iter().sum::<f64>() / count as f64,
        }
    }

    /// Requests that were skipped.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Distinct keys that may repeat.
    pub fn keys(&self) -> u64 {
        let firsts: BTreeSet<u64> = self.firsts.iter().copied().collect();
        firsts.last().copied().unwrap_or(0)
    }
}
