//! Which engine a case drives, and its settings.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::TinyProgress;
use super::case::TinyCase;
use crate::error::EvalError;
use crate::run::RunResult;

/// An engine by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// A FIFO of set-groups.
    Nemo,
    /// A log with an exact index.
    Log,
    /// Sets in place.
    Set,
    /// A log in front of sets in place.
    Kangaroo,
    /// A log in front of sets in logs.
    Fairywren,
}

pub(super) fn run(
    _: &TinyCase,
    _: &str,
    _: u64,
    _: &Path,
    _: &mut dyn FnMut(TinyProgress),
) -> Result<RunResult, EvalError> {
    Err(EvalError::Option { option: "tiny.engine", reason: String::new() })
}
