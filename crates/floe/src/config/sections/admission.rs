//! The keys by which a section says what is written to flash.

use floe_core::ByteSize;
use floe_core::policy::admission::{AdmissionConfig, ProbabilisticConfig, WriteBudgetConfig};
use serde::{Deserialize, Serialize};

use crate::config::{Key, Kind, Limits, Setting};

crate::choices! {
    /// Which values are written to flash.
    pub enum AdmissionChoice, default All {
        /// All of them.
        All = "all",
        /// A share of them, by chance.
        Probabilistic = "probabilistic",
        /// As many as a number of bytes in 24 hours allows.
        WriteBudget = "write-budget",
        /// Those that were asked for or written several times of late.
        Frequency = "frequency",
        /// Those that are written for the second time of late.
        RejectFirst = "reject-first",
    }
}

/// Which values are written to flash, as flat keys of a section.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdmissionSettings {
    /// The policy.
    #[serde(rename = "admission")]
    pub choice: AdmissionChoice,
    /// With `probabilistic`: the share of values that is written.
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
                "Which values are written to flash; the others stay in memory only (docs/admission.md).",
            ),
            Key::new(
                "admission_probability",
                Kind::Float,
                "With `probabilistic`: the share of values that is written.",
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
