//! Broken rules.

use std::fmt;
use std::path::PathBuf;

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The file, relative to the project's root.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The fault and its remedy.
    pub rule: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.rule)
    }
}

impl Violation {
    pub(super) fn new(file: impl Into<PathBuf>, line: usize, rule: impl Into<String>) -> Self {
        Violation {
            file: file.into(),
            line,
            rule: rule.into(),
        }
    }
}
