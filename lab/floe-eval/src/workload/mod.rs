//! Synthetic requests: generates the ids to read.
//!
//! A [`WorkloadSpec`] has the distribution, a [`Workload`] draws from it; the
//! same seed gives the same ids. Ids lie in `[0, items)`. As in ZNCache and
//! OxCache, `items` is usually the ratio of the working set to the cache, times
//! the chunks that the cache's zones hold ([`working_set_items`]).

mod error;
mod file;
#[cfg(test)]
mod tests;
mod zipf;

use rand::{RngExt as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

pub use error::WorkloadError;
pub use file::{WorkloadFileError, read_ids, write_ids};
pub use zipf::{YCSB_SCRAMBLED_ITEMS, YCSB_ZETA_OF_SCRAMBLED_ITEMS, Zipf, fnv1a_64, zeta};

/// The distribution of ids.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Distribution {
    /// All ids are equally likely.
    Uniform,
    /// Zipfian, YCSB's generator for skews below 1.
    Zipf {
        /// The exponent θ: 0.99 in YCSB; above 1 by rejection-inversion.
        #[serde(default = "default_skew")]
        skew: f64,
        /// Spread the popular ids over the id space, as YCSB's scrambled generator
        /// does. Otherwise id 0 is the most popular.
        #[serde(default = "default_scrambled")]
        scrambled: bool,
    },
    /// A share of the operations goes to a share of the ids, uniformly.
    Hotspot {
        /// Share of the ids that is hot, from 0 to 1.
        hot_set: f64,
        /// Share of the operations that goes to them, from 0 to 1.
        hot_operations: f64,
    },
    /// All ids in order from 0, repeatedly.
    Scan,
    /// Each request comes from one of several distributions, chosen by weight.
    Mix {
        /// The parts.
        parts: Vec<Weighted>,
    },
    /// Several distributions, one after another.
    Phases {
        /// The phases. The last one never ends.
        phases: Vec<Phase>,
    },
}

/// A part of a mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weighted {
    /// Weight relative to the other parts.
    pub weight: f64,
    /// The distribution of its ids.
    pub from: Distribution,
}

/// A phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Number of requests.
    pub requests: u64,
    /// The distribution of its ids.
    pub from: Distribution,
}

fn default_skew() -> f64 {
    0.99
}

fn default_scrambled() -> bool {
    true
}

/// Everything that determines a stream of ids.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadSpec {
    /// The distribution of ids.
    pub distribution: Distribution,
    /// Ids lie below this number.
    pub items: u64,
    /// The same seed draws the same ids.
    pub seed: u64,
}

/// The number of ids of a working set `ratio` times as large as the chunks of a
/// cache.
///
/// # Errors
/// If that is below 1, or above 2^32 (the most in a workload file).
pub fn working_set_items(
    ratio: f64,
    chunks_per_zone: u64,
    zones: u64,
) -> Result<u64, WorkloadError> {
    let chunks = chunks_per_zone.checked_mul(zones);
    let items = chunks.map(|chunks| (ratio * chunks as f64).floor());
    match items {
        Some(items) if ratio.is_finite() && (1.0..=4_294_967_296.0).contains(&items) => {
            Ok(items as u64)
        }
        _ => Err(WorkloadError::new(format!(
            "ratio {ratio} × {chunks_per_zone} chunks per zone × {zones} zones is not between 1 and 2^32 ids"
        ))),
    }
}

/// A stream of ids.
#[derive(Clone, Debug)]
pub struct Workload {
    generator: Generator,
    rng: Xoshiro256PlusPlus,
}

#[derive(Clone, Debug)]
enum Generator {
    Uniform(u64),
    Zipf(Zipf),
    Hotspot {
        hot: u64,
        items: u64,
        hot_operations: f64,
    },
    Scan {
        next: u64,
        items: u64,
    },
    /// Cumulative weights, normalised to end at 1.
    Mix(Vec<(f64, Generator)>),
    /// The rest of each phase, current one first.
    Phases(std::collections::VecDeque<(u64, Generator)>),
}

impl Workload {
    /// A stream that follows `spec`.
    ///
    /// # Errors
    /// If a share, weight or skew is out of range.
    pub fn new(spec: &WorkloadSpec) -> Result<Self, WorkloadError> {
        if spec.items == 0 {
            return Err(WorkloadError::new("there are no ids to draw"));
        }
        Ok(Workload {
            generator: Generator::new(&spec.distribution, spec.items, 0)?,
            rng: Xoshiro256PlusPlus::seed_from_u64(spec.seed),
        })
    }

    /// The next id.
    pub fn next_id(&mut self) -> u64 {
        self.generator.next(&mut self.rng)
    }
}

impl Iterator for Workload {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        Some(self.next_id())
    }
}

/// Deep nesting has no use and could exhaust the stack.
const DEPTH_MAX: u32 = 8;

impl Generator {
    fn new(from: &Distribution, items: u64, depth: u32) -> Result<Self, WorkloadError> {
        if depth > DEPTH_MAX {
            return Err(WorkloadError::new(format!(
                "mixes and phases are nested more than {DEPTH_MAX} deep"
            )));
        }
        match from {
            Distribution::Uniform => Ok(Generator::Uniform(items)),
            Distribution::Zipf { skew, scrambled } => {
                Zipf::new(items, *skew, *scrambled).map(Generator::Zipf)
            }
            Distribution::Hotspot {
                hot_set,
                hot_operations,
            } => {
                share("hot_set", *hot_set)?;
                share("hot_operations", *hot_operations)?;
                Ok(Generator::Hotspot {
                    hot: ((items as f64 * hot_set) as u64).clamp(1, items),
                    items,
                    hot_operations: *hot_operations,
                })
            }
            Distribution::Scan => Ok(Generator::Scan { next: 0, items }),
            Distribution::Mix { parts } => mix(parts, items, depth),
            Distribution::Phases { phases } => {
                if phases.is_empty() {
                    return Err(WorkloadError::new("there are no phases"));
                }
                phases
                    .iter()
                    .map(|p| Ok((p.requests, Generator::new(&p.from, items, depth + 1)?)))
                    .collect::<Result<_, _>>()
                    .map(Generator::Phases)
            }
        }
    }

    fn next(&mut self, rng: &mut Xoshiro256PlusPlus) -> u64 {
        match self {
            Generator::Uniform(items) => rng.random_range(0..*items),
            Generator::Zipf(zipf) => zipf.sample(rng),
            Generator::Hotspot {
                hot,
                items,
                hot_operations,
            } => {
                // With nothing cold, every operation is hot.
                if hot == items || rng.random::<f64>() < *hot_operations {
                    rng.random_range(0..*hot)
                } else {
                    rng.random_range(*hot..*items)
                }
            }
            Generator::Scan { next, items } => {
                let id = *next;
                *next = (id + 1) % *items;
                id
            }
            Generator::Mix(parts) => {
                let point: f64 = rng.random();
                let last = parts.len() - 1;
                let part = parts
                    .iter()
                    .position(|(upto, _)| point < *upto)
                    .unwrap_or(last);
                parts[part].1.next(rng)
            }
            Generator::Phases(phases) => {
                while phases.len() > 1 && phases[0].0 == 0 {
                    phases.pop_front();
                }
                phases[0].0 = phases[0].0.saturating_sub(1);
                phases[0].1.next(rng)
            }
        }
    }
}

fn mix(parts: &[Weighted], items: u64, depth: u32) -> Result<Generator, WorkloadError> {
    let total: f64 = parts.iter().map(|part| part.weight).sum();
    if !(total > 0.0 && total.is_finite()) || parts.iter().any(|part| part.weight < 0.0) {
        return Err(WorkloadError::new(
            "the weights of a mix must be positive numbers",
        ));
    }
    let mut upto = 0.0;
    parts
        .iter()
        .map(|part| {
            upto += part.weight / total;
            Ok((upto, Generator::new(&part.from, items, depth + 1)?))
        })
        .collect::<Result<_, _>>()
        .map(Generator::Mix)
}

fn share(name: &str, value: f64) -> Result<(), WorkloadError> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(WorkloadError::new(format!(
            "{name} {value} is not between 0 and 1"
        )))
    }
}
