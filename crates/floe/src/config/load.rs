//! Combining settings: default, file, environment, flag.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::error::ConfigError;
use super::file;
use super::schema::Schema;
use super::source::{Place, Source};
use super::value;

/// A setting from a source other than the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlay {
    /// `section.key`.
    pub setting: String,
    /// The value as text.
    pub text: String,
    /// The source.
    pub source: Source,
}

/// All sources of settings, the least important first.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Defaults that depend on how the program was started.
    pub derived: Vec<Overlay>,
    /// The configuration file.
    pub file: Option<PathBuf>,
    /// The environment variables, as name and value.
    pub environment: Vec<(String, String)>,
    /// Flags in the order given.
    pub flags: Vec<Overlay>,
}

impl Schema {
    /// Reads all sources and checks every value on its own.
    ///
    /// # Errors
    /// The first error: an unreadable file, an unknown key, or an invalid
    /// value.
    pub fn load(&self, sources: &Sources) -> Result<Effective<'_>, ConfigError> {
        let text = match &sources.file {
            Some(path) => {
                std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
                    path: path.clone(),
                    source,
                })?
            }
            None => String::new(),
        };
        let file = sources.file.as_deref().unwrap_or(Path::new(""));
        self.load_text(file, &text, sources)
    }

    /// As [`load`](Schema::load), with the contents of the file.
    ///
    /// # Errors
    /// As [`load`](Schema::load).
    pub fn load_text(
        &self,
        file: &Path,
        text: &str,
        sources: &Sources,
    ) -> Result<Effective<'_>, ConfigError> {
        let mut effective = Effective {
            schema: self,
            entries: BTreeMap::new(),
        };
        for (setting, key) in self.keys() {
            if let Some(value) = &key.default {
                effective.insert(setting, value.clone(), Source::Default)?;
            }
        }
        self.overlay(&mut effective, &sources.derived)?;
        for found in file::read(self, file, text)? {
            let place = Place {
                file: file.to_owned(),
                line: found.line,
            };
            effective.insert(found.setting, found.value, Source::File(place))?;
        }
        let environment = self.environment_overlays(&sources.environment);
        self.overlay(&mut effective, &environment)?;
        self.overlay(&mut effective, &sources.flags)?;
        self.apply_profiles(&mut effective)?;
        Ok(effective)
    }

    /// Replaces the defaults of settings by those of the chosen profiles.
    fn apply_profiles(&self, effective: &mut Effective<'_>) -> Result<(), ConfigError> {
        for (setting, key) in self.keys() {
            let word = effective
                .get(&setting)
                .and_then(|entry| entry.value.as_str());
            let Some(defaults) = word.and_then(|word| key.profiles.get(word)) else {
                continue;
            };
            let source = Source::Derived(format!("{setting} {}", word.unwrap_or_default()));
            let section = setting.strip_suffix(key.name).unwrap_or_default();
            for (name, value) in defaults {
                let of_profile = format!("{section}{name}");
                let is_default = effective
                    .get(&of_profile)
                    .is_none_or(|entry| entry.source == Source::Default);
                if is_default {
                    effective.insert(of_profile, value.clone(), source.clone())?;
                }
            }
        }
        Ok(())
    }

    fn environment_overlays(&self, environment: &[(String, String)]) -> Vec<Overlay> {
        self.keys()
            .filter_map(|(setting, _)| {
                let variable = Schema::variable(&setting);
                let (_, text) = environment.iter().find(|(name, _)| *name == variable)?;
                Some(Overlay {
                    setting,
                    text: text.clone(),
                    source: Source::Environment(variable),
                })
            })
            .collect()
    }

    fn overlay(
        &self,
        effective: &mut Effective<'_>,
        overlays: &[Overlay],
    ) -> Result<(), ConfigError> {
        for overlay in overlays {
            let Some(key) = self.key(&overlay.setting) else {
                return Err(self.unknown(format!("{}: ", overlay.source), &overlay.setting));
            };
            let value = value::parse_text(&overlay.setting, key, &overlay.text, &overlay.source)?;
            effective.insert(overlay.setting.clone(), value, overlay.source.clone())?;
        }
        Ok(())
    }
}

/// A value and its source.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// The source.
    pub source: Source,
}

/// The effective settings, each with its source.
#[derive(Clone)]
pub struct Effective<'a> {
    schema: &'a Schema,
    entries: BTreeMap<String, Entry>,
}

impl fmt::Debug for Effective<'_> {
    /// Prints the source of each value and no values: some are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources = self.entries.iter().map(|(key, entry)| (key, &entry.source));
        f.debug_map().entries(sources).finish()
    }
}

impl<'a> Effective<'a> {
    /// The schema they belong to.
    pub fn schema(&self) -> &'a Schema {
        self.schema
    }

    /// The value of `setting`, if it is set.
    pub fn get(&self, setting: &str) -> Option<&Entry> {
        self.entries.get(setting)
    }

    /// The name and value of every setting that has one, in the order of names.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &Entry)> {
        let entries = self.entries.iter();
        entries.map(|(setting, entry)| (setting.as_str(), entry))
    }

    /// The entries of `section`, whose names are of the user's choice.
    pub fn entries_of(&self, section: &str) -> impl Iterator<Item = (&str, &Entry)> {
        self.settings().filter_map(move |(setting, entry)| {
            let name = setting.strip_prefix(section)?.strip_prefix('.')?;
            Some((name, entry))
        })
    }

    /// The entries of `section`, whose names are of the user's choice, as their type.
    ///
    /// # Errors
    /// [`ConfigError::Section`] if an entry is not of this type.
    pub fn named<T: DeserializeOwned>(
        &self,
        section: &str,
    ) -> Result<BTreeMap<String, T>, ConfigError> {
        let read = |(name, entry): (&str, &Entry)| {
            let value = typed(&format!("{section}.{name}"), entry.value.clone())?;
            Ok((name.to_owned(), value))
        };
        self.entries_of(section).map(read).collect()
    }

    /// True if a source other than the defaults sets `setting`.
    pub fn is_given(&self, setting: &str) -> bool {
        self.get(setting)
            .is_some_and(|entry| !matches!(entry.source, Source::Default | Source::Derived(_)))
    }

    /// True if the value of `setting` differs from its default.
    pub fn is_changed(&self, setting: &str) -> bool {
        let default = self
            .schema
            .key(setting)
            .and_then(|key| key.default.as_ref());
        self.get(setting).map(|entry| &entry.value) != default
    }

    /// The settings of `section` as its type.
    ///
    /// # Errors
    /// [`ConfigError::Section`] if the values contradict each other, such as a
    /// key that belongs to another kind of origin.
    pub fn section<T: DeserializeOwned>(&self, section: &str) -> Result<T, ConfigError> {
        let mut table = Table::new();
        for (setting, entry) in &self.entries {
            if let Some(name) = setting
                .strip_prefix(section)
                .and_then(|rest| rest.strip_prefix('.'))
            {
                insert_nested(&mut table, name, entry.value.clone());
            }
        }
        typed(section, Value::Table(table))
    }

    /// An error about the current value of `setting`.
    pub fn bad_value(
        &self,
        setting: &str,
        problem: impl Into<String>,
        nearest: Option<String>,
    ) -> ConfigError {
        let (shown, source) = match (self.get(setting), self.schema.key(setting)) {
            (Some(entry), Some(key)) => (value::shown(key, &entry.value), entry.source.clone()),
            _ => ("(not set)".to_owned(), Source::Default),
        };
        ConfigError::bad_value(setting, shown, &source, problem, nearest)
    }

    fn insert(&mut self, setting: String, value: Value, source: Source) -> Result<(), ConfigError> {
        if let Some(key) = self.schema.key(&setting) {
            value::check(&setting, key, &value, &source)?;
        }
        self.entries.insert(setting, Entry { value, source });
        Ok(())
    }
}

/// The value of `section` as its type.
fn typed<T: DeserializeOwned>(section: &str, value: Value) -> Result<T, ConfigError> {
    value
        .try_into()
        .map_err(|error: toml::de::Error| ConfigError::Section {
            section: section.to_owned(),
            message: error.to_string().trim().replace('\n', " "),
        })
}

fn insert_nested(table: &mut Table, name: &str, value: Value) {
    match name.split_once('.') {
        None => {
            table.insert(name.to_owned(), value);
        }
        Some((head, rest)) => {
            let inner = table
                .entry(head.to_owned())
                .or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                insert_nested(inner, rest, value);
            }
        }
    }
}
