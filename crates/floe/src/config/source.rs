//! The places that a value can come from.

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

/// Where a value came from; later ones win.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody said otherwise.
    Default,
    /// A default that depends on how the program was started, and why.
    Derived(String),
    /// A line of the configuration file.
    File(Place),
    /// An environment variable, by name.
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
