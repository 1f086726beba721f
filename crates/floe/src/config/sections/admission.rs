//! The admission keys, which several sections share.

use floe_core::ByteSize;
use floe_core::policy::admission::{AdmissionConfig, ProbabilisticConfig, WriteBudgetConfig};
use serde::{Deserialize, Serialize};

use crate::config::{Key, Kind, Limits, Setting};

crate::choices! {
    /// The values that are written to flash.
    pub enum AdmissionChoice, default All {
        /// Every value.
        All = "all",
        /// A random fraction of the values.
        Probabilistic = "probabilistic",
        /// As many values as a number of bytes in 24 hours allows.
        WriteBudget = "write-budget",
        /// Values of keys that were read or written several times recently.
        Frequency = "frequency",
        /// Values of keys that were seen before recently.
        RejectFirst = "reject-first",
    }
}

/// The admission policy, as flat keys of a section.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdmissionSettings {
    /// The policy.
    #[serde(rename = "admission")]
    pub choice: AdmissionChoice,
    /// With `probabilistic`: the fraction of values to write.
    #[serde(rename = "admission_probability")]
    pub probability: f64,
    /// With `write-budget`: most bytes written in any 24 hours.
    #[serde(rename = "admission_bytes_per_day")]
    pub bytes_per_day: ByteSize,
}

impl Default for AdmissionSettings {
    fn default() -> Self {
        AdmissionSettings {
            choice: AdmissionChoice::All,
            probability: 0.5,
            bytes_per_day: ByteSize::gib(500),
        }
    }
}

impl AdmissionSettings {
    /// The policy with its settings.
    pub fn config(&self) -> AdmissionConfig {
        match self.choice {
            AdmissionChoice::Probabilistic => AdmissionConfig::Probabilistic(ProbabilisticConfig {
                probability: self.probability,
            }),
            AdmissionChoice::WriteBudget => {
                AdmissionConfig::WriteBudget(WriteBudgetConfig::new(self.bytes_per_day))
            }
            AdmissionChoice::Frequency => AdmissionConfig::Frequency(Default::default()),
            AdmissionChoice::RejectFirst => AdmissionConfig::RejectFirst(Default::default()),
            AdmissionChoice::All => AdmissionConfig::default(),
        }
    }

    pub(super) fn keys() -> [Key; 3] {
        [
            Key::new(
                "admission",
                AdmissionChoice::KIND,
                "The admission policy: values that it declines stay in memory only (docs/admission.md).",
            ),
            Key::new(
                "admission_probability",
                Kind::Float,
                "With `probabilistic`: the fraction of values to write.",
            ),
            Key::new(
                "admission_bytes_per_day",
                Kind::Size,
                "With `write-budget`: most bytes written in any 24 hours.",
            )
            .limits(Limits::between(1 << 20, 1 << 60)),
        ]
    }
}
