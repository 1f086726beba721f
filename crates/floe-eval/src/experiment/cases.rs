//! From an experiment file to its cases: the product of all varied lists.

use std::path::Path;

use floe_core::ByteSize;

use super::schema::{Experiment, Vary};
use crate::error::EvalError;

/// Most cases of an experiment; more is a mistake.
const CASES_MAX: usize = 1000;

/// A case: the experiment with its values in place.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) experiment: Experiment,
    /// The value of each varied key, in their order.
    pub(super) coordinates: Vec<Coordinate>,
}

/// A varied key's value in a case.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Coordinate {
    pub(super) label: String,
    pub(super) name: String,
    /// Where it lies on an axis, if it is a number or a size.
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
            set(&mut table, &vary.key, vary.values[index].clone()).map_err(fail)?;
            coordinates.push(coordinate(vary, index));
        }
        let name = case_name(&base, &coordinates);
        let experiment: Experiment = table
            .try_into()
            .map_err(|error| fail(format!("case `{name}`: {error}")))?;
        cases.push(Case {
            name,
            experiment,
            coordinates,
        });
    }
    Ok((base, cases))
}

fn check(experiment: &Experiment) -> Result<(), String> {
    let named = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if experiment.name.is_empty() || !experiment.name.chars().all(named) {
        return Err(format!(
            "name `{}` must consist of letters, digits, - and _, for it becomes a file name",
            experiment.name
        ));
    }
    if experiment.bench.is_some() == experiment.replay.is_some() {
        return Err("give either [bench] or [replay]".into());
    }
    for vary in &experiment.vary {
        if vary.values.is_empty() {
            return Err(format!("`{}` is varied over no values", vary.key));
        }
        let names = vary.names.as_ref().map(Vec::len);
        if names.is_some_and(|count| count != vary.values.len()) {
            return Err(format!("`{}` has not as many names as values", vary.key));
        }
    }
    let sizes = experiment.vary.iter().map(|vary| vary.values.len());
    let count = sizes.fold(1usize, usize::saturating_mul);
    if count > CASES_MAX {
        return Err(format!("{count} cases are more than {CASES_MAX}"));
    }
    let labels: Vec<&str> = experiment.vary.iter().map(|v| v.label.as_str()).collect();
    for curve in &experiment.curves {
        if !labels.contains(&curve.x.as_str()) {
            return Err(format!(
                "curve `{}`: nothing that is varied is labelled `{}` (there is: {})",
                curve.title,
                curve.x,
                labels.join(", ")
            ));
        }
    }
    Ok(())
}

/// All combinations of indexes, the last key varying fastest.
fn product(vary: &[Vary]) -> Vec<Vec<usize>> {
    vary.iter().fold(vec![Vec::new()], |combinations, vary| {
        let extend = |combination: Vec<usize>| {
            (0..vary.values.len()).map(move |index| {
                let mut longer = combination.clone();
                longer.push(index);
                longer
            })
        };
        combinations.into_iter().flat_map(extend).collect()
    })
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
    let value = &vary.values[index];
    let written = match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let position = match value {
        toml::Value::Integer(number) => Some(*number as f64),
        toml::Value::Float(number) => Some(*number),
        toml::Value::String(text) => text.parse().ok().map(|size: ByteSize| size.0 as f64),
        _ => None,
    };
    let named = vary.names.as_ref().and_then(|names| names.get(index));
    Coordinate {
        label: vary.label.clone(),
        name: named.cloned().unwrap_or(written),
        position,
    }
}

fn case_name(experiment: &Experiment, coordinates: &[Coordinate]) -> String {
    if coordinates.is_empty() {
        return experiment.name.clone();
    }
    let parts = coordinates
        .iter()
        .map(|c| format!("{} {}", c.label, c.name));
    parts.collect::<Vec<String>>().join(", ")
}
