//! The settings of an emulated origin.

use std::path::PathBuf;

use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

use crate::latency::LatencyRule;
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
        Ok(self.latency.validate()?)
    }
}
