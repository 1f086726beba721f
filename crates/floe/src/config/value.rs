//! Values: parses text into TOML, and checks it against a key's kind and limits.

use std::net::SocketAddr;

use floe_core::ByteSize;
use toml::Value;

use super::error::ConfigError;
use super::key::{Key, Kind};
use super::source::Source;

/// Parses `text`, from a flag or a variable, as a value of `key`.
pub(super) fn parse_text(
    setting: &str,
    key: &Key,
    text: &str,
    source: &Source,
) -> Result<Value, ConfigError> {
    let invalid = |problem: String| {
        let shown = if key.secret { "(secret)" } else { text };
        Err(ConfigError::bad_value(
            setting, shown, source, problem, None,
        ))
    };
    match key.kind {
        Kind::Bool => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(Value::Boolean(true)),
            "false" | "0" | "no" | "off" => Ok(Value::Boolean(false)),
            _ => invalid("must be true or false".into()),
        },
        Kind::Integer => match text.trim().replace('_', "").parse::<i64>() {
            Ok(number) => Ok(Value::Integer(number)),
            Err(_) => invalid("must be a whole number".into()),
        },
        Kind::Float => match text.trim().parse::<f64>() {
            Ok(number) => Ok(Value::Float(number)),
            Err(_) => invalid("must be a number".into()),
        },
        Kind::List => Ok(Value::Array(
            text.split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .map(|item| Value::String(item.to_owned()))
                .collect(),
        )),
        Kind::KeyPairs => key_pairs(text).or_else(invalid),
        Kind::Toml => match format!("value = {text}").parse::<toml::Table>() {
            Ok(mut table) => Ok(table.remove("value").unwrap_or(Value::Boolean(false))),
            Err(error) => invalid(format!("must be a TOML value: {}", error.message())),
        },
        Kind::Size | Kind::Text | Kind::Path | Kind::Address | Kind::Choice(_) => {
            Ok(Value::String(text.to_owned()))
        }
    }
}

fn key_pairs(text: &str) -> Result<Value, String> {
    let pairs = text
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty());
    let tables = pairs.map(|pair| {
        let (access, secret) = pair
            .split_once(':')
            .ok_or_else(|| "must be pairs ACCESS:SECRET, separated by commas".to_owned())?;
        let table = [("access_key", access), ("secret_key", secret)]
            .map(|(name, text)| (name.to_owned(), Value::String(text.to_owned())));
        Ok(Value::Table(table.into_iter().collect()))
    });
    tables.collect::<Result<Vec<_>, String>>().map(Value::Array)
}

/// True for a table of texts, and tables of texts such as `origin`: an error that shows another
/// value could show a secret.
fn is_key_pair(value: &Value) -> bool {
    let is_of_texts = |table: &toml::Table| table.values().all(Value::is_str);
    let Value::Table(table) = value else {
        return false;
    };
    table.values().all(|value| match value {
        Value::Table(inner) => is_of_texts(inner),
        other => other.is_str(),
    }) && table.get("origin").is_none_or(Value::is_table)
}

/// Checks `value` against the kind and limits of `key`.
pub(super) fn check(
    setting: &str,
    key: &Key,
    value: &Value,
    source: &Source,
) -> Result<(), ConfigError> {
    let shown = || shown(key, value);
    let invalid = |problem: String, nearest: Option<String>| {
        Err(ConfigError::bad_value(
            setting,
            shown(),
            source,
            problem,
            nearest,
        ))
    };
    match (key.kind, value) {
        (Kind::Bool, Value::Boolean(_))
        | (Kind::Text | Kind::Path, Value::String(_))
        | (Kind::Toml, _) => Ok(()),
        (Kind::Integer, Value::Integer(number)) => {
            check_number(key, *number, |n| n.to_string()).or_else(|(p, n)| invalid(p, n))
        }
        (Kind::Float, Value::Integer(_)) => Ok(()),
        (Kind::Float, Value::Float(number)) => {
            if number.is_finite() && *number >= 0.0 {
                Ok(())
            } else {
                invalid("must be a number of at least 0".into(), Some("0.0".into()))
            }
        }
        (Kind::Size, Value::Integer(number)) => {
            check_number(key, *number, size_text).or_else(|(p, n)| invalid(p, n))
        }
        (Kind::Size, Value::String(text)) => match text.parse::<ByteSize>() {
            Ok(ByteSize(bytes)) => match i64::try_from(bytes) {
                Ok(number) => check_number(key, number, size_text).or_else(|(p, n)| invalid(p, n)),
                Err(_) => invalid("must be less than 8 EiB".into(), None),
            },
            Err(error) => invalid(error.to_string(), None),
        },
        (Kind::KeyPairs, Value::Array(items)) if items.iter().all(is_key_pair) => Ok(()),
        (Kind::List, Value::Array(items)) if items.iter().all(Value::is_str) => Ok(()),
        (Kind::Address, Value::String(text)) => {
            if text == "off" || text.parse::<SocketAddr>().is_ok() {
                return Ok(());
            }
            let port = text.rsplit_once(':').map(|(_, port)| port);
            let nearest = port
                .and_then(|port| port.parse::<u16>().ok())
                .map(|port| format!("\"127.0.0.1:{port}\""));
            invalid(
                "must be an IP address and a port, such as 127.0.0.1:9000, or off".into(),
                nearest,
            )
        }
        // Some choices have boolean spellings too.
        (Kind::Choice(choices), Value::Boolean(flag))
            if choices.iter().any(|choice| choice.word == flag.to_string()) =>
        {
            Ok(())
        }
        (Kind::Choice(choices), Value::String(text)) => {
            if choices.iter().any(|choice| choice.word == text) {
                return Ok(());
            }
            let words: Vec<&str> = choices.iter().map(|choice| choice.word).collect();
            let nearest = nearest(text, words.iter().copied());
            invalid(
                format!("must be one of {}", words.join(", ")),
                nearest.map(|word| format!("\"{word}\"")),
            )
        }
        (kind, _) => invalid(format!("must be {}", wanted(kind)), None),
    }
}

fn check_number(
    key: &Key,
    number: i64,
    text: impl Fn(u64) -> String,
) -> Result<(), (String, Option<String>)> {
    let least = key.limits.least.unwrap_or(0);
    let Ok(number) = u64::try_from(number) else {
        return Err((
            format!("must be at least {}", text(least)),
            Some(text(least)),
        ));
    };
    if number < least {
        return Err((
            format!("must be at least {}", text(least)),
            Some(text(least)),
        ));
    }
    if let Some(most) = key.limits.most
        && number > most
    {
        return Err((format!("must be at most {}", text(most)), Some(text(most))));
    }
    if let Some(unit) = key.limits.multiple_of
        && !number.is_multiple_of(unit)
    {
        let below = number - number % unit;
        let near = if number - below > unit / 2 || below < least {
            below.saturating_add(unit)
        } else {
            below
        };
        return Err((
            format!("must be a multiple of {}", text(unit)),
            Some(text(near)),
        ));
    }
    Ok(())
}

fn size_text(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

fn wanted(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "true or false",
        Kind::Integer => "a whole number",
        Kind::Float => "a number",
        Kind::Size => "a size such as \"64KiB\" or a number of bytes",
        Kind::Text | Kind::Path | Kind::Address => "a text in quotes",
        Kind::List => "a list of texts such as [\"a\", \"b\"]",
        Kind::Choice(_) => "one of its words, in quotes",
        Kind::KeyPairs => "a list of tables with access_key and secret_key",
        Kind::Toml => "a TOML value",
    }
}

/// `value` for output; a secret is masked.
pub(super) fn shown(key: &Key, value: &Value) -> String {
    if key.secret {
        return "(secret)".to_owned();
    }
    toml_text(value)
}

/// `value` as one line of TOML.
pub(super) fn toml_text(value: &Value) -> String {
    value.to_string()
}

/// The candidate most similar to `word`, if any is similar enough.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| {
            (
                strsim::normalized_damerau_levenshtein(word, candidate),
                candidate,
            )
        })
        .filter(|(likeness, _)| *likeness >= 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
