//! The findings of a check, and why a configuration cannot be checked.

use std::fmt;

use serde::Serialize;

/// Longest configuration that is read.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 20;

/// How bad a finding is; the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Severity {
    /// A read can return a value that a later write has replaced.
    Lies,
    /// Keys move, copies multiply, requests fail, clients wait, or only a coincidence makes a
    /// read stale.
    Risk,
    /// Worth knowing.
    Note,
}

/// Something in a configuration that harms the ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// File, line, and pool or backend.
    pub(crate) place: String,
    pub(crate) problem: String,
    pub(crate) cure: String,
}

/// A configuration that cannot be examined.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error(
        "{name} is neither nutcracker's nor HAProxy's: expected a YAML map of pools, or a \
         section such as `global`, `defaults` or `backend` at the start of the first line"
    )]
    Unknown { name: String },
    #[error("{name}:{line}: {problem}")]
    Invalid {
        name: String,
        line: usize,
        problem: String,
    },
    #[error("{name} has {bytes} bytes; at most {TEXT_BYTES_MAX} are read")]
    TooLong { name: String, bytes: usize },
}

/// A line that cannot be read, and why.
#[derive(Debug)]
pub(super) struct BadLine {
    pub(super) line: usize,
    pub(super) problem: String,
}

impl BadLine {
    pub(super) fn new(line: usize, problem: impl Into<String>) -> Self {
        BadLine {
            line,
            problem: problem.into(),
        }
    }

    pub(super) fn of(self, name: &str) -> Unreadable {
        Unreadable::Invalid {
            name: name.to_owned(),
            line: self.line,
            problem: self.problem,
        }
    }
}

/// The place of a finding.
pub(super) struct Place<'a> {
    pub(super) file: &'a str,
    pub(super) line: usize,
    /// `pool` or `backend`.
    pub(super) kind: &'a str,
    pub(super) name: &'a str,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place {
            file,
            line,
            kind,
            name,
        } = self;
        write!(f, "{file}:{line}: {kind} `{name}`")
    }
}

impl Place<'_> {
    pub(super) fn finding(
        &self,
        severity: Severity,
        problem: impl Into<String>,
        cure: impl Into<String>,
    ) -> Finding {
        Finding {
            severity,
            place: self.to_string(),
            problem: problem.into(),
            cure: cure.into(),
        }
    }

    pub(super) fn lies(&self, problem: impl Into<String>, cure: impl Into<String>) -> Finding {
        self.finding(Severity::Lies, problem, cure)
    }

    pub(super) fn risk(&self, problem: impl Into<String>, cure: impl Into<String>) -> Finding {
        self.finding(Severity::Risk, problem, cure)
    }

    pub(super) fn note(&self, problem: impl Into<String>, cure: impl Into<String>) -> Finding {
        self.finding(Severity::Note, problem, cure)
    }
}
