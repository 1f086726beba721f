//! Builds a report from the records of cases: rows with their provenance,
//! published figures beside them, curves and panels.

use super::cases::Case;
use super::curves;
use super::known::KnownToDiffer;
use super::published::Published;
use super::records::Record;
use super::schema::{Experiment, REQUEST_SIZE};
use crate::error::EvalError;
use crate::report::ReportData;
use crate::results::{Figure, Provenance, Row, replay_figures, run_figures};
use crate::run::RunResult;

/// A report of the cases `done`, in order. `missing` are the other cases,
/// `known` the rows that are known to differ.
pub(super) fn assemble(
    experiment: &Experiment,
    text: &str,
    known: &KnownToDiffer,
    done: Vec<(&Case, Record)>,
    missing: Vec<String>,
) -> Result<ReportData, EvalError> {
    let mut rows = Vec::new();
    for (case, record) in &done {
        rows.extend(rows_of(experiment, case, record));
    }
    let published = experiment.all_published();
    let published = published.and_then(|all| compare(&mut rows, &all));
    published.map_err(|reason| EvalError::Results {
        path: experiment.name.clone().into(),
        reason,
    })?;
    for row in &mut rows {
        let source = row.source.as_deref().unwrap_or_default();
        let reason = known.reason(&experiment.name, &row.case, &row.metric, source);
        row.known = reason.filter(|_| row.verdict.is_some()).map(str::to_owned);
    }
    let provenance = provenance(text, experiment.seed, &done);
    let of_case = |(case, record): &(_, Record)| (*case, figures_of(record));
    let figures: Vec<(&Case, Vec<Figure>)> = done.iter().map(of_case).collect();
    let curves = experiment.curves.iter();
    let curves = curves.map(|spec| match spec.x == REQUEST_SIZE {
        true => curves::request_sizes(spec, &done),
        false => curves::curve(spec, &figures),
    });
    let curves = curves.collect();
    let (mut cases, mut runs, mut replays) = (Vec::new(), Vec::new(), Vec::new());
    for (case, record) in done {
        replays.extend(record.replay);
        if let Some(run) = record.run {
            cases.push(case);
            runs.push(run);
        }
    }
    let pairs: Vec<(&Case, &RunResult)> = cases.into_iter().zip(&runs).collect();
    let panels = experiment.panels.iter();
    let panels = panels
        .flat_map(|spec| curves::panels(spec, &pairs))
        .collect();
    Ok(ReportData {
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        about: experiment.about.clone(),
        config: text.to_owned(),
        provenance,
        runs,
        replays,
        curves,
        panels,
        rows,
        missing,
    })
}

fn rows_of(experiment: &Experiment, case: &Case, record: &Record) -> Vec<Row> {
    let of_case = figures_of(record).into_iter();
    let of_case = of_case.map(|figure| (case.name.clone(), figure));
    of_case
        .chain(record.replay.iter().flat_map(replay_figures))
        .map(|(case, figure)| Row::new(&experiment.name, case, figure, record.provenance.clone()))
        .collect()
}

/// The figures of a run or of a cache of volumes.
fn figures_of(record: &Record) -> Vec<Figure> {
    let of_run = record.run.iter().flat_map(run_figures);
    of_run.chain(record.figures.iter().cloned()).collect()
}

/// The provenance that all cases have in common.
fn provenance(text: &str, seed: u64, done: &[(&Case, Record)]) -> Provenance {
    let together = |of: fn(&Provenance) -> &String| {
        let mut different: Vec<&str> = done
            .iter()
            .map(|(_, r)| of(&r.provenance).as_str())
            .collect();
        different.sort_unstable();
        different.dedup();
        different.join("; ")
    };
    Provenance {
        commit: together(|p| &p.commit),
        config_digest: crate::results::digest(text),
        seed,
        device: together(|p| &p.device),
        machine: together(|p| &p.machine),
        // Dates sort as text.
        date: done
            .iter()
            .map(|(_, record)| record.provenance.date.clone())
            .max()
            .unwrap_or_default(),
    }
}

/// Adds each published figure to its row. A row with several comparisons is
/// repeated; a figure that compares two cases gets its own row.
fn compare(rows: &mut Vec<Row>, published: &[Published]) -> Result<(), String> {
    for published in published {
        let find = |rows: &[Row], case: &str| {
            let is_of = |row: &Row| row.case == case && row.metric == published.metric;
            rows.iter().position(is_of)
        };
        let Some(at) = find(rows, &published.case) else {
            continue;
        };
        let Some(other) = &published.relative_to else {
            let mut row = rows[at].clone();
            let factor = published.factor(&row.unit)?;
            row.compare(published, factor);
            match rows[at].paper {
                None => rows[at] = row,
                Some(_) => rows.insert(at + 1, row),
            }
            continue;
        };
        let below = find(rows, other).map(|below| rows[below].measured);
        if let Some(below) = below.filter(|below| *below != 0.0) {
            let mut row = rows[at].clone();
            row.case = format!("{} / {other}", published.case);
            row.unit = "ratio".into();
            row.measured /= below;
            row.compare(published, 1.0);
            rows.push(row);
        }
    }
    Ok(())
}
