//! The engines by name, and their settings.

use std::path::Path;

use floe_core::tiny::nemo::{Nemo, NemoConfig, NemoPlan};
use floe_core::tiny::{Engine, Flash, Log, LogConfig, LogPlan, PlanError, Set, SetConfig, SetPlan};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::TinyProgress;
use super::case::TinyCase;
use super::driver::Driver;
use super::figures;
use crate::error::EvalError;
use crate::run::{ExtraFigure, RunResult};

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
}

/// A run that is still to be given an engine.
pub(super) struct Run<'a> {
    pub(super) case: &'a TinyCase,
    pub(super) name: &'a str,
    pub(super) seed: u64,
    pub(super) experiment: &'a Path,
    pub(super) progress: &'a mut dyn FnMut(TinyProgress),
}

/// Runs the engine that the case names.
pub(super) fn run(run: Run<'_>) -> Result<RunResult, EvalError> {
    let case = run.case;
    match case.engine {
        EngineKind::Nemo => {
            let presets = [
                ("floe", NemoConfig::default()),
                ("published", NemoConfig::published()),
            ];
            let config = settings("tiny.nemo", &case.nemo, &presets)?;
            let flash = case.flash(false)?;
            let plan = NemoPlan::new(&config, flash).map_err(refuse)?;
            run.with(Nemo::new(plan), flash, Vec::new())
        }
        EngineKind::Log => {
            let presets = [("floe", LogConfig::default())];
            let config = settings("tiny.log", &case.log, &presets)?;
            let flash = case.flash(false)?;
            let plan = LogPlan::new(&config, &flash).map_err(refuse)?;
            run.with(Log::new(plan), flash, Vec::new())
        }
        EngineKind::Set => {
            let presets = [
                ("floe", SetConfig::default()),
                ("published", SetConfig::published()),
            ];
            let config = settings("tiny.set", &case.set, &presets)?;
            let flash = case.flash(true)?;
            let plan = SetPlan::new(&config, &flash).map_err(refuse)?;
            run.with(Set::new(plan), flash, Vec::new())
        }
    }
}

impl Run<'_> {
    fn with<E: Engine>(
        self,
        engine: E,
        flash: Flash,
        extra: Vec<ExtraFigure>,
    ) -> Result<RunResult, EvalError> {
        let driver = Driver::new(self.case, engine, flash, self.seed, self.experiment)?;
        let outcome = driver.run(self.case, flash, self.progress)?;
        Ok(figures::result(self.name, &outcome, extra))
    }
}

/// A preset, the first by default, with what the experiment's table says over it.
fn settings<T: Serialize + DeserializeOwned>(
    option: &'static str,
    given: &toml::Table,
    presets: &[(&str, T)],
) -> Result<T, EvalError> {
    let fail = |reason: String| EvalError::Option { option, reason };
    let mut given = given.clone();
    let preset = match given.remove("preset") {
        None => presets.first(),
        Some(name) => presets.iter().find(|(known, _)| name.as_str() == Some(known)),
    };
    let Some((_, preset)) = preset else {
        let known: Vec<&str> = presets.iter().map(|(name, _)| *name).collect();
        return Err(fail(format!("preset must be one of {}", known.join(", "))));
    };
    let mut table = toml::Table::try_from(preset).map_err(|error| fail(error.to_string()))?;
    table.extend(given);
    table.try_into().map_err(|error| fail(error.to_string()))
}

fn refuse(error: PlanError) -> EvalError {
    EvalError::Option {
        option: "tiny.engine",
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_stand_over_their_preset() {
        let presets = [
            ("floe", NemoConfig::default()),
            ("published", NemoConfig::published()),
        ];
        let read = |text: &str| {
            let table: toml::Table = toml::from_str(text).expect("TOML");
            settings("tiny.nemo", &table, &presets)
        };
        assert_eq!(read("").expect("good"), NemoConfig::default());
        let config = read("preset = \"published\"\nindex_cached = 1").expect("good");
        assert_eq!((config.candidates, config.index_cached), (1, 1.0));
        let error = read("preset = \"mine\"").expect_err("unknown").to_string();
        assert!(error.contains("floe, published"), "{error}");
        let error = read("indexcached = 1").expect_err("unknown").to_string();
        assert!(error.contains("indexcached"), "{error}");
    }
}
