//! The settings of an emulated origin.

use std::path::PathBuf;

use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

use crate::origin::config_error::{OriginConfigError, invalid};

/// Rules for the sizes, contents, latencies and faults of emulated objects. All
/// randomness comes from `seed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct EmulatedConfig {
    /// Seed of contents, latencies and faults.
    pub seed: u64,
    /// The sizes of objects.
    pub size: SizeRule,
    /// The time from a request to the first byte of its body.
    pub latency: LatencyRule,
    /// Delay metadata requests by `latency`, too.
    pub head_latency: bool,
    /// Bytes per second of one body; unlimited if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_per_stream: Option<ByteSize>,
    /// Bytes of one piece of a body.
    pub piece_size: ByteSize,
    /// Fraction of requests that fail with a server error.
    pub error_rate: f64,
    /// Fraction of bodies that end early.
    pub short_body_rate: f64,
    /// Fraction of requests before which the object changes its entity tag and bytes.
    pub change_rate: f64,
    /// Objects carry an entity tag and modification time.
    pub validators: bool,
    /// Most written, deleted or changed objects that the origin keeps track of.
    pub max_overrides: usize,
}

impl Default for EmulatedConfig {
    fn default() -> Self {
        EmulatedConfig {
            seed: 0,
            size: SizeRule::Fixed {
                bytes: ByteSize::mib(1),
            },
            latency: LatencyRule::None,
            head_latency: false,
            bandwidth_per_stream: None,
            piece_size: ByteSize::kib(256),
            error_rate: 0.0,
            short_body_rate: 0.0,
            change_rate: 0.0,
            validators: true,
            max_overrides: 1 << 20,
        }
    }
}

/// The sizes of emulated objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "snake_case", deny_unknown_fields)]
pub enum SizeRule {
    /// All objects have the same size.
    Fixed {
        /// The size.
        bytes: ByteSize,
    },
    /// Uniformly between two sizes, by the key's hash.
    Uniform {
        /// Smallest size.
        min: ByteSize,
        /// Largest size.
        max: ByteSize,
    },
    /// The last number in the key, after its last `.` or `-` (`photo-17-4096` has 4096 bytes).
    FromKey {
        /// For keys that do not end in a number.
        otherwise: ByteSize,
    },
    /// A CSV file of `key,bytes` (or `bucket/key,bytes`), for instance made from a trace.
    Table {
        /// The file.
        path: PathBuf,
        /// For keys that are not in the table; without it they do not exist.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        otherwise: Option<ByteSize>,
    },
}

/// The time from a request to the first byte of its body.
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
    /// [`LatencyFile`](super::LatencyFile). Bodies take the measured time too,
    /// unless `bandwidth_per_stream` is set.
    File {
        /// The file.
        path: PathBuf,
    },
    /// The latencies that OxCache's authors measured for S3 (us-west-2), appendix A.
    Measured {
        /// Size of the objects that they read.
        preset: LatencyPreset,
        /// Use the mean as a constant, as the papers' experiments do. Otherwise the distribution is log-normal with the measured mean,
        /// deviation, minimum and maximum.
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

impl EmulatedConfig {
    pub(crate) fn validate(&self) -> Result<(), OriginConfigError> {
        for (key, rate) in [
            ("emulated.error_rate", self.error_rate),
            ("emulated.short_body_rate", self.short_body_rate),
            ("emulated.change_rate", self.change_rate),
        ] {
            if !(0.0..=1.0).contains(&rate) {
                return Err(invalid(key, rate, "must be a share between 0 and 1"));
            }
        }
        if self.piece_size < ByteSize(512) || self.piece_size > ByteSize::mib(16) {
            return Err(invalid(
                "emulated.piece_size",
                self.piece_size,
                "must be between 512 and 16MiB",
            ));
        }
        if self.bandwidth_per_stream == Some(ByteSize(0)) {
            return Err(invalid(
                "emulated.bandwidth_per_stream",
                0,
                "must be at least 1; leave it out for no limit",
            ));
        }
        if let SizeRule::Uniform { min, max } = self.size
            && min > max
        {
            return Err(invalid("emulated.size.min", min, "must be at most max"));
        }
        self.latency.validate()
    }
}

impl LatencyRule {
    fn validate(&self) -> Result<(), OriginConfigError> {
        let wrong = |value: String, cure: &str| Err(invalid("emulated.latency", value, cure));
        let sane = sane_ms;
        match self {
            // A file is checked when it is read.
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
