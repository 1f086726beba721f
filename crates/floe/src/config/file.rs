//! Reading a file: settings with their lines.

use std::path::Path;

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::error::ConfigError;
use super::schema::Schema;
use super::source::Place;

/// A setting of a file.
pub(super) struct FileSetting {
    /// `section.key`.
    pub(super) setting: String,
    /// Its value.
    pub(super) value: Value,
    /// Its line, from one.
    pub(super) line: usize,
}

/// Finds every setting of `schema` in `text`, the contents of `file`.
///
/// # Errors
/// The first syntax error or unknown key, with its line.
pub(super) fn read(
    schema: &Schema,
    file: &Path,
    text: &str,
) -> Result<Vec<FileSetting>, ConfigError> {
    let syntax = |error: toml::de::Error| {
        let offset = error.span().map_or(0, |span| span.start);
        ConfigError::Syntax {
            place: Place {
                file: file.to_owned(),
                line: line_of(text, offset),
            },
            message: error.message().replace('\n', ", "),
        }
    };
    let spans = DeTable::parse(text).map_err(syntax)?;
    let values: Table = text.parse().map_err(syntax)?;
    let mut walk = Walk {
        schema,
        file,
        text,
        found: Vec::new(),
    };
    walk.table("", spans.get_ref(), &values)?;
    Ok(walk.found)
}

struct Walk<'a> {
    schema: &'a Schema,
    file: &'a Path,
    text: &'a str,
    found: Vec<FileSetting>,
}

impl Walk<'_> {
    fn table(
        &mut self,
        prefix: &str,
        spans: &DeTable<'_>,
        values: &Table,
    ) -> Result<(), ConfigError> {
        for (name, spanned) in spans {
            let Some(value) = values.get(name.get_ref().as_ref()) else {
                continue;
            };
            let path = if prefix.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{prefix}.{}", name.get_ref())
            };
            let line = line_of(self.text, name.span().start);
            match (spanned.get_ref(), value) {
                _ if self.schema.key(&path).is_some() => self.found.push(FileSetting {
                    setting: path,
                    value: value.clone(),
                    line,
                }),
                (DeValue::Table(inner_spans), Value::Table(inner))
                    if self.schema.has_table(&path) =>
                {
                    self.table(&path, inner_spans, inner)?;
                }
                _ => {
                    let place = Place {
                        file: self.file.to_owned(),
                        line,
                    };
                    return Err(self.schema.unknown(format!("{place}: "), &path));
                }
            }
        }
        Ok(())
    }
}

/// The line, from one, of the byte at `offset`.
fn line_of(text: &str, offset: usize) -> usize {
    let end = offset.min(text.len());
    1 + text.as_bytes()[..end]
        .iter()
        .filter(|b| **b == b'\n')
        .count()
}
