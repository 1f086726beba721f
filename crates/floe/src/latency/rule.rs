//! The settings of a latency model.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::LatencyError;

/// The time from a request to its answer, in most rules to the first byte.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "snake_case", deny_unknown_fields)]
pub enum LatencyRule {
    /// No wait.
    #[default]
    None,
    /// A constant, as in the papers' experiments.
    Constant {
        /// Milliseconds.
        ms: f64,
    },
    /// A normal distribution, truncated at both ends.
    Normal {
        /// Mean.
        mean_ms: f64,
        /// Standard deviation.
        sd_ms: f64,
        /// Least latency.
        #[serde(default)]
        min_ms: f64,
        /// Greatest latency.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_ms: Option<f64>,
    },
    /// `min_ms` plus a log-normal part; the whole has the given mean and
    /// standard deviation, and is truncated at `max_ms`.
    LogNormal {
        /// Mean.
        mean_ms: f64,
        /// Standard deviation.
        sd_ms: f64,
        /// Least latency.
        #[serde(default)]
        min_ms: f64,
        /// Greatest latency.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_ms: Option<f64>,
    },
    /// Linear interpolation between measured quantiles.
    Empirical {
        /// Pairs of a fraction (0 to 1, ascending, first 0 and last 1) and
        /// milliseconds (ascending).
        quantiles: Vec<(f64, f64)>,
    },
    /// Latencies measured by `floe bench --origin`, by the size of reads; see
    /// [`LatencyFile`](super::LatencyFile), which has the time of bodies, too.
    File {
        /// The file.
        path: PathBuf,
    },
    /// The latencies that OxCache's authors measured for S3 (us-west-2), appendix A.
    Measured {
        /// Size of the objects that they read.
        preset: LatencyPreset,
        /// Use the mean as a constant, as the papers' experiments do. Otherwise
        /// the distribution is log-normal with the measured mean, deviation,
        /// minimum and maximum.
        #[serde(default)]
        constant: bool,
    },
}

/// Measured latencies of S3: OxCache, appendix A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LatencyPreset {
    /// 64 KiB objects: mean 40.632 ms.
    #[serde(rename = "64KiB")]
    Kib64,
    /// 256 MiB objects: mean 3,209.583 ms.
    #[serde(rename = "256MiB")]
    Mib256,
    /// 512 MiB objects: mean 5,413.781 ms.
    #[serde(rename = "512MiB")]
    Mib512,
    /// 1 GiB objects: mean 11,524.248 ms.
    #[serde(rename = "1GiB")]
    Gib1,
}

/// A row of OxCache's appendix A, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredLatency {
    /// Mean.
    pub mean_ms: f64,
    /// Standard deviation.
    pub sd_ms: f64,
    /// Least.
    pub min_ms: f64,
    /// Greatest.
    pub max_ms: f64,
}

impl LatencyPreset {
    /// The measured values.
    pub fn measured(self) -> MeasuredLatency {
        let (mean_ms, sd_ms, min_ms, max_ms) = match self {
            LatencyPreset::Kib64 => (40.632, 35.049, 28.245, 384.506),
            LatencyPreset::Mib256 => (3209.583, 861.663, 2697.422, 7763.737),
            LatencyPreset::Mib512 => (5413.781, 100.301, 5383.455, 6041.250),
            LatencyPreset::Gib1 => (11524.248, 679.328, 11309.672, 16544.165),
        };
        MeasuredLatency {
            mean_ms,
            sd_ms,
            min_ms,
            max_ms,
        }
    }
}

impl LatencyRule {
    /// Checks the parameters. A file is checked when it is read.
    ///
    /// # Errors
    /// [`LatencyError::Rule`].
    pub fn validate(&self) -> Result<(), LatencyError> {
        let wrong = |value: String, cure| Err(LatencyError::Rule { value, cure });
        let sane = sane_ms;
        match self {
            LatencyRule::None | LatencyRule::Measured { .. } | LatencyRule::File { .. } => Ok(()),
            LatencyRule::Constant { ms } if sane(*ms) => Ok(()),
            LatencyRule::Constant { ms } => wrong(ms.to_string(), "must be 0 to 86400000 ms"),
            LatencyRule::Normal {
                mean_ms,
                sd_ms,
                min_ms,
                max_ms,
            }
            | LatencyRule::LogNormal {
                mean_ms,
                sd_ms,
                min_ms,
                max_ms,
            } => {
                let max = max_ms.unwrap_or(86_400_000.0);
                if sane(*mean_ms)
                    && sane(*sd_ms)
                    && sane(*min_ms)
                    && sane(max)
                    && min_ms <= mean_ms
                    && *mean_ms <= max
                {
                    Ok(())
                } else {
                    wrong(
                        format!("{self:?}"),
                        "must have 0 ≤ min_ms ≤ mean_ms ≤ max_ms ≤ 86400000 and sd_ms ≥ 0",
                    )
                }
            }
            LatencyRule::Empirical { quantiles } => {
                if check_quantiles(quantiles) && quantiles.iter().all(|q| sane(q.1)) {
                    Ok(())
                } else {
                    wrong(
                        format!("{quantiles:?}"),
                        "must be pairs [share, ms] that ascend from share 0 to share 1",
                    )
                }
            }
        }
    }
}

/// True if a latency is at most a day.
pub(super) fn sane_ms(ms: f64) -> bool {
    ms.is_finite() && (0.0..=86_400_000.0).contains(&ms)
}

/// True if fractions ascend from 0 to 1, and milliseconds with them.
pub(super) fn check_quantiles(quantiles: &[(f64, f64)]) -> bool {
    let ascending = quantiles
        .windows(2)
        .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
    let ends =
        quantiles.first().map(|q| q.0) == Some(0.0) && quantiles.last().map(|q| q.0) == Some(1.0);
    ascending && ends
}
