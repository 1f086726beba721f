//! Traces and other files that experiments share, and the places they lie in.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::EvalError;
use crate::trace::{TraceFormat, generated};

/// A trace.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TraceCase {
    /// The file: as it is, beside the experiment, in `$FLOE_TRACES`, or in
    /// `../shared/traces`. Or the name of a generated trace.
    pub path: PathBuf,
    /// Its format, if it is not to be recognised.
    pub format: Option<String>,
    /// Count and skip bad lines.
    #[serde(default)]
    pub skip_bad: bool,
}

impl TraceCase {
    /// The format by its name.
    ///
    /// # Errors
    /// When there is no such format.
    pub fn format(&self) -> Result<Option<TraceFormat>, EvalError> {
        let parsed = self.format.as_deref().map(str::parse).transpose();
        parsed.map_err(|error: crate::trace::UnknownFormat| EvalError::Option {
            option: "format",
            reason: error.to_string(),
        })
    }

    /// Finds the trace, for an experiment file at `experiment`.
    ///
    /// # Errors
    /// When none of the possible places has it.
    pub fn find(&self, experiment: &Path) -> Result<PathBuf, EvalError> {
        match generated(&self.path) {
            Some(_) => Ok(self.path.clone()),
            None => find_shared(&self.path, experiment),
        }
    }
}

/// Finds a file, for an experiment file at `experiment`: as it is, beside
/// the experiment, in `$FLOE_TRACES`, or in `../shared/traces`.
///
/// # Errors
/// [`EvalError::Absent`] when none of them has it.
pub fn find_shared(path: &Path, experiment: &Path) -> Result<PathBuf, EvalError> {
    let beside = experiment.parent().unwrap_or(Path::new("."));
    let shared = std::env::var_os("FLOE_TRACES").map(PathBuf::from);
    let places = [
        Some(PathBuf::from(".")),
        Some(beside.to_owned()),
        shared,
        Some(PathBuf::from("../shared/traces")),
    ];
    let mut candidates = places.into_iter().flatten().map(|place| place.join(path));
    candidates
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| EvalError::Absent {
            path: path.to_owned(),
        })
}
