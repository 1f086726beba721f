//! The records of a sweep. Each case's record is written as soon as it is done,
//! so that a sweep can be resumed, spread over machines and merged.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Shard;
use super::cases::Case;
use super::known;
use crate::error::EvalError;
use crate::replay::ReplayResult;
use crate::results::{Figure, Provenance};
use crate::run::RunResult;

/// The folder of records within a folder of results.
const CASES: &str = "cases";
const SWEEP: &str = "sweep.json";
const EXPERIMENT: &str = "experiment.toml";

/// A completed case, stored in `cases/<digest>.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The case's name at that time. A later version of the file may rename it.
    pub(super) case: String,
    pub(super) provenance: Provenance,
    pub(super) run: Option<RunResult>,
    pub(super) replay: Option<ReplayResult>,
    /// Of a cache of volumes.
    #[serde(default)]
    pub(super) figures: Vec<Figure>,
    /// Sizes of the requests to a cache of volumes, each with the share of the
    /// requests that do not exceed it.
    #[serde(default)]
    pub(super) request_sizes: Vec<(u64, f64)>,
}

/// The sweep of a results folder, stored in `sweep.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sweep {
    pub(super) experiment: String,
    pub(super) config_digest: String,
    pub(super) shard: Option<Shard>,
}

impl Sweep {
    pub(super) fn read(folder: &Path) -> Result<Self, EvalError> {
        read_json(&folder.join(SWEEP))
    }

    /// Prepares `folder` for this sweep: writes the experiment's text and the
    /// list of rows known to differ from next to `experiment`, and creates the
    /// folder of records.
    pub(super) fn write(
        &self,
        folder: &Path,
        text: &str,
        experiment: &Path,
    ) -> Result<(), EvalError> {
        let cases = folder.join(CASES);
        std::fs::create_dir_all(&cases).map_err(EvalError::file("create", &cases))?;
        let copy = folder.join(EXPERIMENT);
        std::fs::write(&copy, text).map_err(EvalError::file("write", &copy))?;
        let known = known::path_beside(experiment);
        if known.is_file() {
            let copy = folder.join(known::KNOWN_TO_DIFFER);
            std::fs::copy(&known, &copy).map_err(EvalError::file("write", &copy))?;
        }
        write_json(&folder.join(SWEEP), self)
    }
}

/// The experiment's text of a results folder.
pub(super) fn experiment_text(folder: &Path) -> Result<(PathBuf, String), EvalError> {
    let path = folder.join(EXPERIMENT);
    let text = std::fs::read_to_string(&path).map_err(EvalError::file("read", &path))?;
    Ok((path, text))
}

impl Record {
    /// The record of `case` in a results folder, if the case is done.
    pub(super) fn find(folder: &Path, case: &Case) -> Result<Option<Record>, EvalError> {
        let path = path_of(folder, case);
        if !path.exists() {
            return Ok(None);
        }
        let mut record: Record = read_json(&path)?;
        record.rename(&case.name);
        Ok(Some(record))
    }

    pub(super) fn keep(&self, folder: &Path, case: &Case) -> Result<(), EvalError> {
        write_json(&path_of(folder, case), self)
    }

    fn rename(&mut self, name: &str) {
        self.case = name.to_owned();
        if let Some(run) = &mut self.run {
            run.name = name.to_owned();
        }
        if let Some(replay) = &mut self.replay {
            replay.name = name.to_owned();
        }
    }
}

fn path_of(folder: &Path, case: &Case) -> PathBuf {
    folder.join(CASES).join(format!("{}.json", case.digest))
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, EvalError> {
    let json = std::fs::read(path).map_err(EvalError::file("read", path))?;
    serde_json::from_slice(&json).map_err(|error| EvalError::Results {
        path: path.to_owned(),
        reason: format!("{error}; it is damaged or of another version: remove it and resume"),
    })
}

/// Writes atomically, because a sweep may be killed at any time.
fn write_json(path: &Path, value: &impl Serialize) -> Result<(), EvalError> {
    let json = serde_json::to_vec(value).map_err(|error| EvalError::Results {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    let part = path.with_extension("part");
    std::fs::write(&part, json).map_err(EvalError::file("write", &part))?;
    std::fs::rename(&part, path).map_err(EvalError::file("write", path))
}
