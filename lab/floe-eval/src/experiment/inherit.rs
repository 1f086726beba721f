//! An experiment that is another one with a few keys changed: `extends = "nemo-fig12.toml"`
//! names that one's file, which lies beside it.

use std::path::Path;

use toml::{Table, Value};

use crate::error::EvalError;

/// The text of the experiment at `path`, with all keys of the one that it extends: its own
/// ones replace those, and tables are merged.
///
/// # Errors
/// When the file that it extends cannot be read, is no TOML, or extends another one.
pub(super) fn inherit(path: &Path, text: &str) -> Result<String, EvalError> {
    let reject = |reason: String| EvalError::Experiment {
        path: path.to_owned(),
        reason,
    };
    // What is no TOML is refused later, with its line.
    let Some(mut own) = toml::from_str::<Table>(text).ok() else {
        return Ok(text.to_owned());
    };
    let Some(name) = own.remove("extends") else {
        return Ok(text.to_owned());
    };
    let name = name.as_str().unwrap_or_default();
    let base = path.with_file_name(name);
    let refuse = |reason: &str| reject(format!("`extends`: {}: {reason}", base.display()));
    let inherited = std::fs::read_to_string(&base).map_err(|error| refuse(&error.to_string()))?;
    let mut all: Table = toml::from_str(&inherited).map_err(|error| refuse(&error.to_string()))?;
    if all.contains_key("extends") {
        return Err(refuse("it extends another one itself"));
    }
    merge(&mut all, own);
    toml::to_string(&all).map_err(|error| reject(error.to_string()))
}

fn merge(all: &mut Table, own: Table) {
    for (key, value) in own {
        match (all.get_mut(&key), value) {
            (Some(Value::Table(all)), Value::Table(own)) => merge(all, own),
            (_, value) => {
                all.insert(key, value);
            }
        }
    }
}
