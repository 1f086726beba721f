//! Lists of settings that several experiments vary: a `[[vary]]` of nothing but
//! `from = "lists/block-traces.toml"` has the keys of that file, which lies beside
//! the experiment.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use toml::{Spanned, Value};

use super::cases::check_vary;
use super::inherit::inherit;
use super::schema::{Experiment, Vary};
use crate::error::EvalError;

/// The keys of a `[[vary]]`, with their places.
type Keys = BTreeMap<Spanned<String>, Spanned<Value>>;

#[derive(Deserialize)]
struct Varied {
    #[serde(default)]
    vary: Vec<Keys>,
}

/// The text of the experiment at `path` with the keys of the one that it extends and of its
/// lists. Results keep this text, so that they need no other file.
///
/// # Errors
/// When the experiment or one of its lists is invalid, or a file that it names cannot be read.
/// The error names the file and, unless the experiment extends another one, the line.
pub(super) fn expand(path: &Path, text: &str) -> Result<String, EvalError> {
    let text = &*inherit(path, text)?;
    let reject = |reason: String| invalid(path, reason);
    let varied: Varied = toml::from_str(text).map_err(|error| reject(error.to_string()))?;
    let (mut alone, mut expanded) = (text.to_owned(), text.to_owned());
    // From the last to the first, so that the places of the others stay valid.
    for keys in varied.vary.iter().rev() {
        let Some((key, from)) = keys.iter().find(|(key, _)| key.get_ref() == "from") else {
            continue;
        };
        let at = key.span().start..from.span().end;
        let (line, name) = (line_at(text, at.start), from.get_ref());
        let (Some(name), 1) = (name.as_str(), keys.len()) else {
            return Err(reject(format!(
                "line {line}: `from` names a file of all keys of its [[vary]], and stands alone"
            )));
        };
        let list = path.with_file_name(name);
        let list_text = std::fs::read_to_string(&list).map_err(|error| {
            reject(format!(
                "line {line}: cannot read {}: {error}",
                list.display()
            ))
        })?;
        expanded.replace_range(at.clone(), &inline(&list, &list_text)?);
        alone.replace_range(at, "label = ''");
    }
    // Faults of the experiment's own keys, at its own lines.
    toml::from_str::<Experiment>(&alone).map_err(|error| reject(error.to_string()))?;
    Ok(expanded)
}

/// The keys of a list, as a `[[vary]]` has them.
fn inline(path: &Path, text: &str) -> Result<String, EvalError> {
    let reject = |reason: String| invalid(path, reason);
    let vary: Vary = toml::from_str(text).map_err(|error| reject(error.to_string()))?;
    let keys: Keys = toml::from_str(text).map_err(|error| reject(error.to_string()))?;
    check_vary(&vary).map_err(|reason| {
        let names = keys.keys().find(|key| key.get_ref() == "names");
        let line = names.map_or(1, |key| line_at(text, key.span().start));
        reject(format!("line {line}: {reason}"))
    })?;
    let lines = keys.iter().map(|(key, value)| {
        let value = match value.get_ref() {
            Value::Array(values) => {
                let values = values.iter().map(|value| format!("    {value},\n"));
                format!("[\n{}]", values.collect::<String>())
            }
            value => value.to_string(),
        };
        format!("{} = {value}", key.get_ref())
    });
    Ok(lines.collect::<Vec<String>>().join("\n"))
}

fn invalid(path: &Path, reason: String) -> EvalError {
    EvalError::Experiment {
        path: path.to_owned(),
        reason,
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}
