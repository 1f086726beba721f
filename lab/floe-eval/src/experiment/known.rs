//! Judged rows that are known to differ, each with its reason.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::EvalError;

/// The file, beside the experiments.
pub(super) const KNOWN_TO_DIFFER: &str = "known-to-differ.toml";

/// The list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct KnownToDiffer {
    /// Its entries.
    #[serde(default)]
    pub known: Vec<Known>,
}

/// Rows of one experiment and metric that differ for one reason.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Known {
    /// The experiment's name.
    pub experiment: String,
    /// The metrics.
    pub metrics: Vec<String>,
    /// The cases as named in reports: `a / b` for a comparison of two.
    pub cases: Vec<String>,
    /// The beginning of the rows' source, if several sources judge a case and
    /// metric.
    #[serde(default)]
    pub source: String,
    /// The reason for the difference.
    pub reason: String,
}

impl Known {
    /// True if a row is listed here.
    pub fn is_of(&self, experiment: &str, case: &str, metric: &str, source: &str) -> bool {
        self.experiment == experiment
            && self.metrics.iter().any(|known| known == metric)
            && self.cases.iter().any(|known| known == case)
            && source.starts_with(&self.source)
    }
}

impl KnownToDiffer {
    /// The list next to an experiment file; empty if there is none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn beside(experiment: &Path) -> Result<Self, EvalError> {
        let path = path_beside(experiment);
        if !path.is_file() {
            return Ok(KnownToDiffer::default());
        }
        let text = std::fs::read_to_string(&path).map_err(EvalError::file("read", &path))?;
        toml::from_str(&text).map_err(|error| EvalError::Experiment {
            path,
            reason: error.to_string(),
        })
    }

    /// The reason for a row's difference, if it is listed.
    pub fn reason(&self, experiment: &str, case: &str, metric: &str, source: &str) -> Option<&str> {
        let mut known = self.known.iter();
        let found = known.find(|known| known.is_of(experiment, case, metric, source));
        found.map(|known| known.reason.as_str())
    }
}

pub(super) fn path_beside(experiment: &Path) -> PathBuf {
    experiment.with_file_name(KNOWN_TO_DIFFER)
}
