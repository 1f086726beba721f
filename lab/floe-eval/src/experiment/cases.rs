//! Expands an experiment file to its cases: the product of all varied lists.

use std::path::Path;

use floe_core::ByteSize;

use super::published::Published;
use super::schema::{Experiment, PanelSpec, REQUEST_SIZE, Selection, Vary};
use crate::error::EvalError;
use crate::metrics::SERIES;
use crate::results::digest;
use crate::trace::{TraceFormat, generated};

/// The sections of which an experiment has one.
pub(super) const KINDS: &str = "[bench], [replay], [tiny], [volume], [volume-bench] and [fleet]";

/// Most cases of an experiment; more count as a mistake.
const CASES_MAX: usize = 1000;

/// A case: the experiment with the case's values.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) experiment: Experiment,
    /// The value of each varied key, in their order.
    pub(super) coordinates: Vec<Coordinate>,
    /// Digest of everything that the case's result depends on.
    pub(super) digest: String,
}

/// Keys that only name and present results, and do not change a case.
const KEYS_OF_SHOWING: [&str; 10] = [
    "name",
    "title",
    "about",
    "case-name",
    "vary",
    // Its values are already applied.
    "adjust",
    "curves",
    "panels",
    "published",
    "published-table",
];

/// A varied key's value in a case.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Coordinate {
    pub(super) label: String,
    pub(super) name: String,
    /// Its position on an axis, if it is a number or a size.
    pub(super) position: Option<f64>,
}

/// Reads an experiment from its text; `path` is for messages.
pub(super) fn parse(path: &Path, text: &str) -> Result<(Experiment, Vec<Case>), EvalError> {
    let fail = |reason: String| EvalError::Experiment {
        path: path.to_owned(),
        reason,
    };
    let base: Experiment = toml::from_str(text).map_err(|error| fail(error.to_string()))?;
    check(&base).map_err(fail)?;
    let table: toml::Table = toml::from_str(text).map_err(|error| fail(error.to_string()))?;
    let mut cases = Vec::new();
    for choice in product(&base.vary) {
        let mut table = table.clone();
        let mut coordinates = Vec::new();
        for (vary, index) in base.vary.iter().zip(choice) {
            vary_to(&mut table, vary, index).map_err(fail)?;
            coordinates.push(coordinate(vary, index));
        }
        for adjust in base
            .adjust
            .iter()
            .filter(|a| is_selected(&a.only, &coordinates))
        {
            let mut keys = adjust.set.iter();
            keys.try_for_each(|(key, value)| set(&mut table, key, value.clone()))
                .map_err(fail)?;
        }
        let name = case_name(&base, &coordinates);
        let digest = case_digest(&table).map_err(fail)?;
        let experiment: Experiment = table
            .try_into()
            .map_err(|error| fail(format!("case `{name}`: {error}")))?;
        cases.push(Case {
            name,
            experiment,
            coordinates,
            digest,
        });
    }
    check_names(&cases).map_err(fail)?;
    check_published(&base, &cases).map_err(fail)?;
    check_stand_ins(&base, &cases).map_err(fail)?;
    Ok((base, cases))
}

/// True if a selection includes a case with these coordinates.
pub(super) fn is_selected(only: &Selection, coordinates: &[Coordinate]) -> bool {
    coordinates.iter().all(|c| {
        only.get(&c.label)
            .is_none_or(|names| names.contains(&c.name))
    })
}

/// Tables are sorted by key, so that the same case has the same text in any
/// order of keys.
fn case_digest(table: &toml::Table) -> Result<String, String> {
    let mut table = table.clone();
    for key in KEYS_OF_SHOWING {
        table.remove(key);
    }
    let text = toml::to_string(&table).map_err(|error| error.to_string())?;
    Ok(digest(&text))
}

fn check_names(cases: &[Case]) -> Result<(), String> {
    let mut names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!(
            "two cases are called `{}`; name every label in case-name",
            pair[0]
        )),
        None => Ok(()),
    }
}

/// A published figure of a case that does not exist would never be compared.
fn check_published(base: &Experiment, cases: &[Case]) -> Result<(), String> {
    base.all_published()?
        .iter()
        .try_for_each(Published::check)?;
    if base.replay.is_some() {
        // The cases of a replay are only known afterwards.
        return Ok(());
    }
    for published in base.all_published()? {
        let named = std::iter::once(&published.case).chain(&published.relative_to);
        for name in named {
            if !cases.iter().any(|case| case.name == *name) {
                return Err(format!(
                    "{}: there is no case `{name}`; the first is `{}`",
                    published.source,
                    cases.first().map_or("", |case| &case.name)
                ));
            }
        }
    }
    Ok(())
}

/// Rows of a stand-in are context: its cases say that they are of one, and nothing
/// is compared with them.
fn check_stand_ins(base: &Experiment, cases: &[Case]) -> Result<(), String> {
    let label = TraceFormat::StandIn.name();
    let is_of_stand_in = |case: &&Case| {
        let trace = case.experiment.trace();
        trace.is_some_and(|trace| generated(&trace.path) == Some(TraceFormat::StandIn))
    };
    let published = base.all_published()?;
    for case in cases.iter().filter(is_of_stand_in) {
        let name = &case.name;
        if base.replay.is_some() {
            return Err(format!(
                "[replay] names its cases by policy, which hides a {label}; use [volume]"
            ));
        }
        if !name.contains(label) {
            return Err(format!(
                "the case `{name}` replays a {label}; its name must say so"
            ));
        }
        let is_compared = |p: &&Published| p.case == *name || p.relative_to.as_ref() == Some(name);
        if let Some(published) = published.iter().find(is_compared) {
            return Err(format!(
                "{}: nothing is compared with `{name}`: a {label} is context and has no verdict",
                published.source
            ));
        }
    }
    Ok(())
}

fn check(experiment: &Experiment) -> Result<(), String> {
    let named = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if experiment.name.is_empty() || !experiment.name.chars().all(named) {
        return Err(format!(
            "name `{}` must consist of letters, digits, - and _, for it becomes a file name",
            experiment.name
        ));
    }
    let kinds = [
        experiment.bench.is_some(),
        experiment.replay.is_some(),
        experiment.tiny.is_some(),
        experiment.volume.is_some(),
        experiment.volume_bench.is_some(),
        experiment.fleet.is_some(),
    ];
    if kinds.iter().filter(|is_given| **is_given).count() != 1 {
        return Err(format!("give one of {KINDS}"));
    }
    experiment.vary.iter().try_for_each(check_vary)?;
    let sizes = experiment.vary.iter().map(Vary::count);
    let count = sizes.fold(1usize, usize::saturating_mul);
    if count > CASES_MAX {
        return Err(format!("{count} cases are more than {CASES_MAX}"));
    }
    let labels: Vec<&str> = experiment.vary.iter().map(|v| v.label.as_str()).collect();
    for curve in &experiment.curves {
        if curve.x == REQUEST_SIZE {
            if experiment.volume.is_none() || !curve.y.is_empty() {
                return Err(format!(
                    "curve `{}`: `{REQUEST_SIZE}` is of [volume], and has no `y`",
                    curve.title
                ));
            }
            continue;
        }
        if curve.y.is_empty() {
            return Err(format!("curve `{}` shows no metric; give `y`", curve.title));
        }
        if !labels.contains(&curve.x.as_str()) {
            return Err(format!(
                "curve `{}`: nothing that is varied is labelled `{}` (there is: {})",
                curve.title,
                curve.x,
                labels.join(", ")
            ));
        }
    }
    for curve in &experiment.curves {
        check_selection(&curve.only, &experiment.vary)?;
    }
    for panel in &experiment.panels {
        check_panel(panel, &labels)?;
        check_selection(&panel.only, &experiment.vary)?;
    }
    for adjust in &experiment.adjust {
        check_selection(&adjust.only, &experiment.vary)?;
    }
    Ok(())
}

pub(super) fn check_vary(vary: &Vary) -> Result<(), String> {
    let label = &vary.label;
    if vary.count() == 0 {
        return Err(format!("`{label}` is varied over no values"));
    }
    if vary.key.is_some() == vary.values.is_empty()
        || vary.values.is_empty() == vary.sets.is_empty()
    {
        return Err(format!("`{label}` needs either key and values, or sets"));
    }
    match vary.names.as_ref().map(Vec::len) {
        None if !vary.sets.is_empty() => Err(format!("`{label}` has sets, which need names")),
        Some(count) if count != vary.count() => {
            Err(format!("`{label}` has not as many names as values"))
        }
        _ => Ok(()),
    }
}

/// A misspelt name would select no case.
fn check_selection(only: &Selection, vary: &[Vary]) -> Result<(), String> {
    for (label, names) in only {
        let Some(vary) = vary.iter().find(|vary| vary.label == *label) else {
            return Err(format!(
                "`only` names `{label}`, and nothing that is varied is labelled so"
            ));
        };
        let known = (0..vary.count()).map(|index| coordinate(vary, index).name);
        let known: Vec<String> = known.collect();
        if let Some(name) = names.iter().find(|name| !known.contains(name)) {
            return Err(format!(
                "`only` names `{label} {name}`; there is: {}",
                known.join(", ")
            ));
        }
    }
    Ok(())
}

fn check_panel(panel: &PanelSpec, labels: &[&str]) -> Result<(), String> {
    for label in &panel.lines {
        if !labels.contains(&label.as_str()) {
            return Err(format!(
                "a panel names `{label}`, and nothing that is varied is labelled so"
            ));
        }
    }
    for name in &panel.series {
        let known = SERIES.iter().map(|series| series.name);
        let known: Vec<&str> = known.chain(crate::tiny::series_names()).collect();
        if !known.contains(&name.as_str()) {
            return Err(format!(
                "a panel names the series `{name}`; there is: {}",
                known.join(", ")
            ));
        }
    }
    Ok(())
}

/// All combinations of indexes, the last key varying fastest.
fn product(vary: &[Vary]) -> Vec<Vec<usize>> {
    vary.iter().fold(vec![Vec::new()], |combinations, vary| {
        let extend = |combination: Vec<usize>| {
            (0..vary.count()).map(move |index| {
                let mut longer = combination.clone();
                longer.push(index);
                longer
            })
        };
        combinations.into_iter().flat_map(extend).collect()
    })
}

fn vary_to(table: &mut toml::Table, vary: &Vary, index: usize) -> Result<(), String> {
    if let Some(key) = &vary.key {
        return set(table, key, vary.values[index].clone());
    }
    let keys = vary.sets[index].iter();
    keys.into_iter()
        .try_for_each(|(key, value)| set(table, key, value.clone()))
}

fn set(table: &mut toml::Table, key: &str, value: toml::Value) -> Result<(), String> {
    let mut parts = key.split('.').peekable();
    let mut table = table;
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            table.insert(part.to_owned(), value);
            return Ok(());
        }
        let entry = table
            .entry(part)
            .or_insert_with(|| toml::Value::Table(toml::Table::new()));
        table = entry
            .as_table_mut()
            .ok_or_else(|| format!("`{key}`: `{part}` is a value and has no keys below it"))?;
    }
    Err("a varied key is empty".into())
}

fn coordinate(vary: &Vary, index: usize) -> Coordinate {
    let value = vary.values.get(index);
    let named = vary.names.as_ref().and_then(|names| names.get(index));
    let written = || match value {
        Some(toml::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => index.to_string(),
    };
    let name = named.cloned().unwrap_or_else(written);
    let size_of = |text: &str| text.parse().ok().map(|size: ByteSize| size.0 as f64);
    let position = match value {
        Some(toml::Value::Integer(number)) => Some(*number as f64),
        Some(toml::Value::Float(number)) => Some(*number),
        Some(toml::Value::String(text)) => size_of(text),
        Some(_) => None,
        None => size_of(&name),
    };
    Coordinate {
        label: vary.label.clone(),
        name,
        position,
    }
}

fn case_name(experiment: &Experiment, coordinates: &[Coordinate]) -> String {
    if coordinates.is_empty() {
        return experiment.name.clone();
    }
    if let Some(template) = &experiment.case_name {
        return coordinates.iter().fold(template.clone(), |name, c| {
            name.replace(&format!("{{{}}}", c.label), &c.name)
        });
    }
    let parts = coordinates
        .iter()
        .map(|c| format!("{} {}", c.label, c.name));
    parts.collect::<Vec<String>>().join(", ")
}
