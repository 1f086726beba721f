//! What can be wrong with a configuration, said so that it can be put right.

use std::fmt;
use std::path::PathBuf;

use super::source::{Place, Source};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{place}: not valid TOML: {message}")]
    Syntax {
        /// Where.
        place: Place,
        /// What the parser said.
        message: String,
    },
    /// A key that does not exist.
    #[error("{place}unknown setting `{key}`{}", did_you_mean(nearest.as_deref()))]
    UnknownKey {
        /// `FILE:LINE: `, or empty for `--set`.
        place: String,
        /// The key as written.
        key: String,
        /// The known key nearest to it, if one is near.
        nearest: Option<String>,
    },
    /// A key that has another name now.
    #[error("{place}the setting `{key}` is called `{name}` now")]
    RenamedKey {
        /// `FILE:LINE: `, or empty for `--set`.
        place: String,
        /// The key as written.
        key: String,
        /// Its present name.
        name: &'static str,
    },
    /// A value that cannot be used.
    #[error("`{setting}` = {value} ({source_text}): {problem}{}", nearest_text(nearest.as_deref()))]
    BadValue {
        /// The key, as `section.key`.
        setting: String,
        /// The value as given.
        value: String,
        /// Where the value came from, in words.
        source_text: String,
        /// The limit it breaks.
        problem: String,
        /// The nearest value that works.
        nearest: Option<String>,
    },
    /// A section whose values do not fit together.
    #[error("[{section}]: {message}")]
    Section {
        /// The section.
        section: String,
        /// What does not fit.
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
