//! Sizes of objects, for traces and tables that have only a mean.

use floe_core::hash::KeyHash;
use floe_core::tiny::OBJECT_BYTES_MAX;
use serde::{Deserialize, Serialize};

use crate::workload::WorkloadError;

/// Sizes of objects, key and value together. An object's size follows from its
/// key's hash: it is the same whenever the object is written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum SizeModel {
    /// All objects have the same size.
    Fixed {
        /// Bytes of key and value.
        bytes: u32,
    },
    /// Lognormal: many sizes below the mean, few far above it.
    Lognormal {
        /// The exact mean in bytes.
        mean: f64,
        /// Standard deviation divided by the mean.
        spread: f64,
    },
    /// Every size of a range is equally likely.
    Uniform {
        /// Smallest size in bytes.
        from: u32,
        /// Largest size in bytes.
        to: u32,
    },
}

/// Quantiles of a distribution at equal distances, for drawing in constant
/// time.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    quantiles: Box<[u16]>,
}

/// Number of quantiles.
const QUANTILES: usize = 1 << 12;

impl SizeModel {
    /// The quantiles. None is below `least_bytes`, because the key needs room.
    pub(crate) fn sizes(self, least_bytes: u32) -> Result<Sizes, WorkloadError> {
        let most = OBJECT_BYTES_MAX as f64;
        let least = f64::from(least_bytes.max(1));
        match self {
            SizeModel::Fixed { bytes } => in_range(f64::from(bytes), least, most)
                .map(|bytes| Sizes::new((0..QUANTILES).map(|_| bytes), bytes)),
            SizeModel::Uniform { from, to } => {
                let (from, to) = (f64::from(from), f64::from(to));
                in_range(from.min(to), least, most)?;
                in_range(to, from, most)?;
                let values = shares().map(|share| from + share * (to - from));
                Ok(Sizes::new(values, (from + to) / 2.0))
            }
            SizeModel::Lognormal { mean, spread } => {
                in_range(mean, least, most)?;
                if !(0.0..=4.0).contains(&spread) {
                    return Err(WorkloadError::new(format!(
                        "a spread of {spread} is not between 0 and 4 times the mean"
                    )));
                }
                Ok(lognormal(mean, spread, least, most))
            }
        }
    }
}

fn in_range(bytes: f64, least: f64, most: f64) -> Result<f64, WorkloadError> {
    if (least..=most).contains(&bytes) {
        return Ok(bytes);
    }
    Err(WorkloadError::new(format!(
        "an object of {bytes} bytes is not between {least} and {most}, what its key needs and what a page holds"
    )))
}

/// The positions of the quantiles: the middles of equal shares.
fn shares() -> impl Iterator<Item = f64> {
    (0..QUANTILES).map(|at| (at as f64 + 0.5) / QUANTILES as f64)
}

/// Cuts at both ends change the mean, which a factor corrects.
fn lognormal(mean: f64, spread: f64, least: f64, most: f64) -> Sizes {
    let deviation = (1.0 + spread * spread).ln().sqrt();
    let shape: Vec<f64> = shares()
        .map(|share| (deviation * normal_quantile(share)).exp())
        .collect();
    let sized = |factor: f64| shape.iter().map(move |s| (s * factor).clamp(least, most));
    let mut factor = mean / (deviation * deviation / 2.0).exp();
    for _ in 0..32 {
        let is = sized(factor).sum::<f64>() / QUANTILES as f64;
        factor *= mean / is;
    }
    Sizes::new(sized(factor), mean)
}

impl Sizes {
    /// Rounds the values and carries each rounding error to the next one.
    fn new(values: impl Iterator<Item = f64>, mean: f64) -> Self {
        let mut owed = 0.0;
        let mut quantiles: Vec<u16> = values
            .map(|value| {
                let rounded = (value + owed).round();
                owed += value - rounded;
                rounded as u16
            })
            .collect();
        if quantiles.is_empty() {
            quantiles.push(mean as u16);
        }
        Sizes {
            quantiles: quantiles.into(),
        }
    }

    /// The size of the object with this hash.
    pub(crate) fn of(&self, hash: KeyHash) -> u32 {
        // Bits that do not choose a set.
        let mixed = mix(hash.0 ^ 0x7369_7a65);
        u32::from(self.quantiles[(mixed >> 52) as usize % self.quantiles.len()])
    }

    /// The mean over keys.
    pub(crate) fn mean(&self) -> f64 {
        let sum: u64 = self.quantiles.iter().map(|bytes| u64::from(*bytes)).sum();
        sum as f64 / self.quantiles.len() as f64
    }
}

/// Spreads a number over all 64 bits: the finaliser of SplitMix64 (Steele, Lea
/// and Flood, 2014), which is one to one.
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The inverse of the standard normal distribution: the rational approximation
/// 26.2.23 of Abramowitz and Stegun, with an error below 0.00045.
fn normal_quantile(share: f64) -> f64 {
    let tail = share.min(1.0 - share);
    let t = (-2.0 * tail.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let distance = t - above / below;
    if share < 0.5 { -distance } else { distance }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_met_whatever_the_spread() {
        for spread in [0.0, 0.3, 0.5, 1.0, 2.0] {
            for mean in [60.0, 246.0, 292.6, 1000.0] {
                let model = SizeModel::Lognormal { mean, spread };
                let sizes = model.sizes(33).expect("a good model");
                assert!(
                    (sizes.mean() - mean).abs() < 0.01,
                    "{mean} ± {spread}: {}",
                    sizes.mean()
                );
            }
        }
    }

    #[test]
    fn sizes_spread_as_they_should() {
        let model = SizeModel::Lognormal {
            mean: 300.0,
            spread: 0.5,
        };
        let sizes = model.sizes(20).expect("a good model");
        let drawn: Vec<f64> = (0..200_000)
            .map(|key| f64::from(sizes.of(KeyHash(mix(key)))))
            .collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        assert!((mean - 300.0).abs() < 2.0, "{mean}");
        assert!((variance.sqrt() / mean - 0.5).abs() < 0.03);
    }

    #[test]
    fn sizes_beyond_a_page_are_rejected() {
        let fixed = |bytes| SizeModel::Fixed { bytes }.sizes(20);
        assert!(fixed(10).is_err() && fixed(5000).is_err());
        assert_eq!(fixed(100).expect("good").of(KeyHash(1)), 100);
        let uniform = SizeModel::Uniform { from: 50, to: 149 };
        let sizes = uniform.sizes(20).expect("good");
        assert!((sizes.mean() - 99.5).abs() < 0.5, "{}", sizes.mean());
        let back = SizeModel::Uniform { from: 50, to: 40 };
        assert!(back.sizes(20).is_err());
    }
}
