//! The sources of values.

use std::fmt;
use std::path::PathBuf;

/// A line of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The line, from one.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// The source of a value; later variants override earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// No source sets the value.
    Default,
    /// A default that depends on how the program was started, with the reason.
    Derived(String),
    /// A line of the configuration file.
    File(Place),
    /// An environment variable, with its name.
    Environment(String),
    /// A flag, as written.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::Derived(why) => f.write_str(why),
            Source::File(place) => write!(f, "{place}"),
            Source::Environment(name) => write!(f, "variable {name}"),
            Source::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}
