//! Draws latencies from a rule's distribution.

use std::time::Duration;

use rand::{Rng, RngExt};

use super::error::LatencyError;
use super::recorded::LatencyFile;
use super::rule::LatencyRule;

/// A source of latencies that follow a [`LatencyRule`].
#[derive(Clone, Debug)]
pub struct LatencyModel {
    distribution: Distribution,
}

#[derive(Clone, Debug)]
enum Distribution {
    None,
    Constant(Duration),
    Normal {
        mean: f64,
        sd: f64,
        min: f64,
        max: f64,
    },
    /// `min` plus a log-normal variable with these parameters.
    LogNormal {
        mu: f64,
        sigma: f64,
        min: f64,
        max: f64,
    },
    Empirical(Vec<(f64, f64)>),
    Recorded(LatencyFile),
}

impl LatencyModel {
    /// Validates `rule`, and reads its file if it names one.
    ///
    /// # Errors
    /// [`LatencyError`].
    pub fn new(rule: &LatencyRule) -> Result<Self, LatencyError> {
        rule.validate()?;
        let distribution = match rule {
            LatencyRule::None => Distribution::None,
            LatencyRule::Constant { ms } => Distribution::Constant(milliseconds(*ms)),
            LatencyRule::Normal {
                mean_ms,
                sd_ms,
                min_ms,
                max_ms,
            } => Distribution::Normal {
                mean: *mean_ms,
                sd: *sd_ms,
                min: *min_ms,
                max: max_ms.unwrap_or(f64::MAX),
            },
            LatencyRule::LogNormal {
                mean_ms,
                sd_ms,
                min_ms,
                max_ms,
            } => Distribution::log_normal(*mean_ms, *sd_ms, *min_ms, max_ms.unwrap_or(f64::MAX)),
            LatencyRule::Empirical { quantiles } => Distribution::Empirical(quantiles.clone()),
            LatencyRule::File { path } => Distribution::Recorded(LatencyFile::read(path)?),
            LatencyRule::Measured { preset, constant } => {
                let row = preset.measured();
                if *constant {
                    Distribution::Constant(milliseconds(row.mean_ms))
                } else {
                    Distribution::log_normal(row.mean_ms, row.sd_ms, row.min_ms, row.max_ms)
                }
            }
        };
        Ok(LatencyModel { distribution })
    }

    /// Time until the first byte of a read of `bytes` bytes; `None` for no wait.
    pub fn draw(&self, random: &mut impl Rng, bytes: u64) -> Option<Duration> {
        match &self.distribution {
            Distribution::None => None,
            Distribution::Constant(latency) => Some(*latency),
            Distribution::Normal { mean, sd, min, max } => {
                Some(milliseconds((mean + sd * normal(random)).clamp(*min, *max)))
            }
            Distribution::LogNormal {
                mu,
                sigma,
                min,
                max,
            } => Some(milliseconds(
                (min + (mu + sigma * normal(random)).exp()).min(*max),
            )),
            Distribution::Empirical(quantiles) => {
                Some(milliseconds(interpolate(quantiles, random.random())))
            }
            Distribution::Recorded(file) => file
                .class(bytes)
                .map(|class| milliseconds(interpolate(&class.first_byte, random.random()))),
        }
        .filter(|latency| !latency.is_zero())
    }

    /// Time from the first byte to the last of `bytes`, if it was measured.
    pub fn draw_body(&self, random: &mut impl Rng, bytes: u64) -> Option<Duration> {
        let Distribution::Recorded(file) = &self.distribution else {
            return None;
        };
        let class = file.class(bytes)?;
        let measured_ms = interpolate(&class.body, random.random());
        let proportion = bytes as f64 / class.mean_bytes.max(1) as f64;
        Some(milliseconds(measured_ms * proportion)).filter(|time| !time.is_zero())
    }
}

impl Distribution {
    /// The log-normal part has the mean `mean - min` and the deviation `sd`.
    fn log_normal(mean: f64, sd: f64, min: f64, max: f64) -> Self {
        let share = mean - min;
        if share <= 0.0 || sd <= 0.0 {
            return Distribution::Constant(milliseconds(mean));
        }
        let variance = (1.0 + (sd / share).powi(2)).ln();
        Distribution::LogNormal {
            mu: share.ln() - variance / 2.0,
            sigma: variance.sqrt(),
            min,
            max,
        }
    }
}

fn milliseconds(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms.max(0.0) / 1e3).unwrap_or(Duration::ZERO)
}

/// A standard normal variable (Box and Muller).
fn normal(random: &mut impl Rng) -> f64 {
    let radius: f64 = 1.0 - random.random::<f64>();
    let angle: f64 = random.random();
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

fn interpolate(quantiles: &[(f64, f64)], share: f64) -> f64 {
    let above = quantiles.partition_point(|q| q.0 < share);
    match (
        above.checked_sub(1).and_then(|i| quantiles.get(i)),
        quantiles.get(above),
    ) {
        (Some(low), Some(high)) => low.1 + (high.1 - low.1) * (share - low.0) / (high.0 - low.0),
        (None, Some(end)) | (Some(end), None) => end.1,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::latency::LatencyPreset;

    fn moments(rule: &LatencyRule) -> (f64, f64, f64, f64) {
        let latency = LatencyModel::new(rule).expect("no file is read");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let drawn: Vec<f64> = (0..200_000)
            .map(|_| {
                latency
                    .draw(&mut random, 1)
                    .unwrap_or_default()
                    .as_secs_f64()
                    * 1e3
            })
            .collect();
        let n = drawn.len() as f64;
        let mean = drawn.iter().sum::<f64>() / n;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let min = drawn.iter().copied().fold(f64::MAX, f64::min);
        let max = drawn.iter().copied().fold(0.0, f64::max);
        (mean, variance.sqrt(), min, max)
    }

    #[test]
    fn presets_have_the_measured_mean_and_stay_within_the_measured_extremes() {
        for preset in [
            LatencyPreset::Kib64,
            LatencyPreset::Mib256,
            LatencyPreset::Mib512,
            LatencyPreset::Gib1,
        ] {
            let row = preset.measured();
            let (mean, _, min, max) = moments(&LatencyRule::Measured {
                preset,
                constant: false,
            });
            // The truncation at the maximum reduces the mean slightly.
            assert!((mean / row.mean_ms - 1.0).abs() < 0.04, "{preset:?} {mean}");
            assert!(min >= row.min_ms - 1e-6 && max <= row.max_ms + 1e-6);
            let (mean, sd, ..) = moments(&LatencyRule::Measured {
                preset,
                constant: true,
            });
            assert!((mean - row.mean_ms).abs() < 1e-3 && sd < 1e-3);
        }
    }

    #[test]
    fn normal_and_empirical_follow_their_parameters() {
        let (mean, sd, ..) = moments(&LatencyRule::Normal {
            mean_ms: 50.0,
            sd_ms: 5.0,
            min_ms: 0.0,
            max_ms: None,
        });
        assert!((mean - 50.0).abs() < 0.1 && (sd - 5.0).abs() < 0.1);
        let (mean, _, min, max) = moments(&LatencyRule::Empirical {
            quantiles: vec![(0.0, 1.0), (0.5, 2.0), (1.0, 10.0)],
        });
        assert!((mean - 3.75).abs() < 0.05 && min >= 1.0 && max <= 10.0);
    }

    #[test]
    fn rules_without_sense_are_rejected() {
        let rejected = |rule: &LatencyRule| LatencyModel::new(rule).unwrap_err().to_string();
        let negative = LatencyRule::Constant { ms: -1.0 };
        assert_eq!(
            rejected(&negative),
            "the latency -1 must be 0 to 86400000 ms"
        );
        let below_least = LatencyRule::LogNormal {
            mean_ms: 1.0,
            sd_ms: 1.0,
            min_ms: 2.0,
            max_ms: None,
        };
        assert!(rejected(&below_least).contains("min_ms ≤ mean_ms"));
        let unordered = LatencyRule::Empirical {
            quantiles: vec![(0.0, 2.0), (1.0, 1.0)],
        };
        assert!(rejected(&unordered).contains("ascend"));
        let missing = LatencyRule::File {
            path: "no/such/file".into(),
        };
        assert!(rejected(&missing).starts_with("no/such/file cannot be read"));
    }
}
