//! An experiment that is another one with a few keys changed: `extends = "nemo-fig12.toml"`
//! names that one's file, which lies beside it.

use std::path::Path;

use toml::{Table, Value};

use crate::error::EvalError;

/// The text of the experiment at `path`, with all keys of the one that it extends: its own
/// ones replace those, and tables are merged, unless they differ in `kind`. Lists of tables, such
/// as `[[vary]]`, are replaced as a whole.
///
/// # Errors
/// When the file that it extends cannot be read, is no TOML, or extends another one.
pub(super) fn inherit(path: &Path, text: &str) -> Result<String, EvalError> {
    let reject = |reason: String| EvalError::Experiment {
        path: path.to_owned(),
        reason,
    };
    // A text that is no TOML is refused later, with its line.
    let Some(mut own) = toml::from_str::<Table>(text).ok() else {
        return Ok(text.to_owned());
    };
    let Some(name) = own.remove("extends") else {
        return Ok(text.to_owned());
    };
    let name = name.as_str().unwrap_or_default();
    if Path::new(name).file_name() != Some(name.as_ref()) {
        return Err(reject("`extends` names a file beside this one".into()));
    }
    let base = path.with_file_name(name);
    let refuse = |reason: &str| reject(format!("`extends`: {}: {reason}", base.display()));
    let inherited = std::fs::read_to_string(&base).map_err(|error| refuse(&error.to_string()))?;
    let mut all: Table = toml::from_str(&inherited).map_err(|error| refuse(&error.to_string()))?;
    if all.contains_key("extends") {
        return Err(refuse("it extends another one itself"));
    }
    merge(&mut all, own);
    let text = toml::to_string(&all).map_err(|error| reject(error.to_string()))?;
    Ok(format!("# Extends {name}.\n{text}"))
}

fn merge(all: &mut Table, own: Table) {
    for (key, value) in own {
        match (all.get_mut(&key), value) {
            // Keys of another kind of thing would have no meaning.
            (Some(Value::Table(all)), Value::Table(own))
                if own
                    .get("kind")
                    .is_none_or(|kind| all.get("kind") == Some(kind)) =>
            {
                merge(all, own);
            }
            (_, value) => {
                all.insert(key, value);
            }
        }
    }
}
