//! The engines by name, and their settings.

use std::path::Path;

use floe_core::tiny::nemo::{Nemo, NemoConfig, NemoPlan};
use floe_core::tiny::{
    Engine, FairyWren, FairyWrenConfig, FairyWrenPlan, Flash, Kangaroo, KangarooConfig,
    KangarooPlan, Log, LogConfig, LogPlan, PAGE_BYTES, PlanError, Set, SetConfig, SetPlan,
    SetStorage,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::case::{EngineKind, TinyCase};
use super::driver::Driver;
use super::figures;
use super::progress::TinyProgress;
use crate::error::EvalError;
use crate::run::{ExtraFigure, RunResult};

/// The parameters of a run.
pub(super) struct Run<'a> {
    pub(super) case: &'a TinyCase,
    pub(super) name: &'a str,
    pub(super) seed: u64,
    pub(super) experiment: &'a Path,
    /// The folder of a file without a path.
    pub(super) scratch: &'a Path,
    pub(super) progress: &'a mut dyn FnMut(TinyProgress),
}

/// Runs the case's engine.
pub(super) fn run(run: Run<'_>) -> Result<RunResult, EvalError> {
    let case = run.case;
    match case.engine {
        EngineKind::Nemo => {
            let config = nemo(case)?;
            let flash = case.flash(false)?;
            let plan = NemoPlan::new(&config, &flash).map_err(reject)?;
            run.with(Nemo::new(plan), flash, Vec::new())
        }
        EngineKind::Log => {
            let config = log(case)?;
            let flash = case.flash(false)?;
            let plan = LogPlan::new(&config, &flash).map_err(reject)?;
            run.with(Log::new(plan), flash, Vec::new())
        }
        EngineKind::Set => {
            let config = set(case)?;
            let flash = case.flash(true)?;
            let plan = SetPlan::new(&config, &flash).map_err(reject)?;
            run.with(Set::new(plan), flash, Vec::new())
        }
        EngineKind::Kangaroo => {
            let config = kangaroo(case)?;
            let flash = case.flash(config.set_storage == SetStorage::InPlace)?;
            let plan = KangarooPlan::new(&config, &flash).map_err(reject)?;
            run.with(Kangaroo::new(plan), flash, Vec::new())
        }
        EngineKind::Fairywren => {
            let config = fairywren(case)?;
            let flash = case.flash(false)?;
            let plan = FairyWrenPlan::new(&config, &flash).map_err(reject)?;
            let equations = Equations {
                // N'_Set counts pages. A set has two.
                set_pages: 2.0 * f64::from(plan.sets()),
                log_pages: plan.log_pages() as f64,
                log_full_share: plan.log_full_share(),
            };
            let result = run.with(FairyWren::new(plan), flash, Vec::new())?;
            Ok(equations.beside(result))
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

/// Nemo's Eq. 6 and 8 of FairyWREN's plan.
struct Equations {
    set_pages: f64,
    log_pages: f64,
    /// Share of the log that holds live or dead objects.
    log_full_share: f64,
}

impl Equations {
    /// Adds the results of the equations to the measured ones, as published and
    /// in full.
    ///
    /// The published equations assume a full log whose objects all reach a set.
    /// Only the share of passive rewrites (p) is taken from the measurement.
    /// The full ones (derived in `docs/tiny-results.md`) consider three more
    /// effects:
    /// * The object at the log's end exists in any case. The expected length of
    ///   a list at a random time comes on top of it.
    /// * Part of the log is free, and some of its objects were replaced there.
    /// * p is a share of rewrites, so the objects per rewrite are averaged, not
    ///   their inverse: 2 / (1 + p) instead of 2 - p.
    fn beside(&self, mut result: RunResult) -> RunResult {
        let measured = |metric: &str| {
            let mut figures = result.extra.iter();
            figures
                .find(|figure| figure.metric == metric)
                .map(|f| f.value)
        };
        let passive = self.set_pages / (2.0 * self.log_pages);
        let mut add = vec![("eq6_l2swa_passive", passive)];
        let passive_full = self.passive_in_full(passive, &measured);
        if let Some(found) = measured("l2swa_passive") {
            add.push(("l2swa_passive_over_eq6", found / passive));
            if let Some(full) = passive_full {
                add.push(("eq6_in_full", full));
                add.push(("l2swa_passive_over_eq6_in_full", found / full));
            }
        }
        if let (Some(share), Some(found)) = (measured("passive_share"), measured("l2swa")) {
            let whole = (2.0 - share) * passive;
            add.push(("eq8_l2swa", whole));
            add.push(("l2swa_over_eq8", found / whole));
            if let Some(full) = passive_full {
                let whole = 2.0 / (1.0 + share) * full;
                add.push(("eq8_in_full", whole));
                add.push(("l2swa_over_eq8_in_full", found / whole));
            }
        }
        if let (Some(a), Some(p)) = (measured("l2swa_active"), measured("l2swa_passive"))
            && a > 0.0
            && p > 0.0
        {
            add.push(("l2swa_active_over_passive", a / p));
        }
        result
            .extra
            .extend(add.into_iter().map(|(metric, value)| ExtraFigure {
                metric: metric.to_owned(),
                unit: "ratio".to_owned(),
                value,
            }));
        result
    }

    /// Eq. 6 in full: the bytes of a page, divided by those of the object that
    /// causes the rewrite and of those that wait with it.
    fn passive_in_full(
        &self,
        passive: f64,
        measured: &impl Fn(&str) -> Option<f64>,
    ) -> Option<f64> {
        let page = PAGE_BYTES as f64;
        let object = measured("object_bytes")?;
        let alive = measured("log_alive_share")? * self.log_full_share;
        // Bytes of objects in a page of the log.
        let in_page = page / measured("alwa_log")?;
        let waiting = alive * in_page / passive;
        Some(page / (object + waiting))
    }
}

pub(super) fn nemo(case: &TinyCase) -> Result<NemoConfig, EvalError> {
    settings("tiny.nemo", &case.nemo, &presets(NemoConfig::published()))
}

pub(super) fn log(case: &TinyCase) -> Result<LogConfig, EvalError> {
    settings("tiny.log", &case.log, &[("floe", LogConfig::default())])
}

pub(super) fn set(case: &TinyCase) -> Result<SetConfig, EvalError> {
    settings("tiny.set", &case.set, &presets(SetConfig::published()))
}

pub(super) fn kangaroo(case: &TinyCase) -> Result<KangarooConfig, EvalError> {
    settings(
        "tiny.kangaroo",
        &case.kangaroo,
        &presets(KangarooConfig::published()),
    )
}

pub(super) fn fairywren(case: &TinyCase) -> Result<FairyWrenConfig, EvalError> {
    settings(
        "tiny.fairywren",
        &case.fairywren,
        &presets(FairyWrenConfig::published()),
    )
}

/// Floe's own settings and the paper's.
fn presets<T: Default>(published: T) -> [(&'static str, T); 2] {
    [("floe", T::default()), ("published", published)]
}

/// A preset, the first by default, overlaid with the experiment's table.
fn settings<T: Serialize + DeserializeOwned>(
    option: &'static str,
    given: &toml::Table,
    presets: &[(&str, T)],
) -> Result<T, EvalError> {
    let fail = |reason: String| EvalError::Option { option, reason };
    let mut given = given.clone();
    let preset = match given.remove("preset") {
        None => presets.first(),
        Some(name) => presets
            .iter()
            .find(|(known, _)| name.as_str() == Some(known)),
    };
    let Some((_, preset)) = preset else {
        let known: Vec<&str> = presets.iter().map(|(name, _)| *name).collect();
        return Err(fail(format!("preset must be one of {}", known.join(", "))));
    };
    let mut table = toml::Table::try_from(preset).map_err(|error| fail(error.to_string()))?;
    table.extend(given);
    table.try_into().map_err(|error| fail(error.to_string()))
}

fn reject(error: PlanError) -> EvalError {
    EvalError::Option {
        option: "tiny.engine",
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_override_their_preset() {
        let presets = [
            ("floe", NemoConfig::default()),
            ("published", NemoConfig::published()),
        ];
        let read = |text: &str| {
            let table: toml::Table = toml::from_str(text).expect("TOML");
            settings("tiny.nemo", &table, &presets)
        };
        assert_eq!(read("").expect("good"), NemoConfig::default());
        let config = read("preset = \"published\"\nindex_cache_share = 1").expect("good");
        assert_eq!((config.candidates, config.index_cache_share), (1, 1.0));
        let error = read("preset = \"mine\"").expect_err("unknown").to_string();
        assert!(error.contains("floe, published"), "{error}");
        let error = read("indexcached = 1").expect_err("unknown").to_string();
        assert!(error.contains("indexcached"), "{error}");
    }
}
