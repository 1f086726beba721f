//! Configuration errors. Each says how to correct it.

use std::fmt;
use std::path::PathBuf;

use super::source::{Place, Source};

/// An error in the configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{place}: not valid TOML: {message}")]
    Syntax {
        /// The file and line.
        place: Place,
        /// The parser's message.
        message: String,
    },
    /// A key that does not exist.
    #[error("{place}unknown setting `{key}`{}", did_you_mean(nearest.as_deref()))]
    UnknownKey {
        /// `FILE:LINE: `, or empty for `--set`.
        place: String,
        /// The key as written.
        key: String,
        /// The nearest known key, if one is similar.
        nearest: Option<String>,
    },
    /// A key under its old name.
    #[error("{place}the setting `{key}` is called `{name}` now")]
    RenamedKey {
        /// `FILE:LINE: `, or empty for `--set`.
        place: String,
        /// The key as written.
        key: String,
        /// Its present name.
        name: &'static str,
    },
    /// An invalid value.
    #[error("`{setting}` = {value} ({source_text}): {problem}{}", nearest_text(nearest.as_deref()))]
    BadValue {
        /// The key, as `section.key`.
        setting: String,
        /// The value as given.
        value: String,
        /// The source of the value, in words.
        source_text: String,
        /// The limit it breaks.
        problem: String,
        /// The nearest valid value.
        nearest: Option<String>,
    },
    /// A section whose values contradict each other.
    #[error("[{section}]: {message}")]
    Section {
        /// The section.
        section: String,
        /// The contradiction.
        message: String,
    },
}

impl ConfigError {
    /// A bad value of `setting`.
    pub fn bad_value(
        setting: impl Into<String>,
        value: impl fmt::Display,
        source: &Source,
        problem: impl Into<String>,
        nearest: Option<String>,
    ) -> Self {
        ConfigError::BadValue {
            setting: setting.into(),
            value: value.to_string(),
            source_text: source.to_string(),
            problem: problem.into(),
            nearest,
        }
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    match nearest {
        Some(key) => format!("; the nearest known one is `{key}`"),
        None => "; `floe config default` lists every setting".to_owned(),
    }
}

fn nearest_text(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |value| {
        format!("; the nearest value that works is {value}")
    })
}
