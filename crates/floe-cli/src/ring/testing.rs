//! Helpers of the tests.

use super::check;
use super::finding::{Finding, Severity};
use super::nodes::{Consistency, Nodes, RingHash};

/// The problems of one severity.
pub(super) fn problems(findings: &[Finding], severity: Severity) -> Vec<&str> {
    let of_severity = findings.iter().filter(|one| one.severity == severity);
    of_severity.map(|one| one.problem.as_str()).collect()
}

/// The one finding whose problem contains `part`.
#[track_caller]
pub(super) fn the<'a>(findings: &'a [Finding], part: &str) -> &'a Finding {
    let found: Vec<_> = findings
        .iter()
        .filter(|one| one.problem.contains(part))
        .collect();
    assert_eq!(found.len(), 1, "{part}: {findings:#?}");
    found[0]
}

pub(super) fn knowing(ring_hash: RingHash) -> Nodes {
    Nodes {
        ring_hash,
        ..Nodes::default()
    }
}

pub(super) fn mode(consistency: Consistency) -> Nodes {
    Nodes {
        consistency: Some(consistency),
        ..Nodes::default()
    }
}

/// The findings in a text.
#[track_caller]
pub(super) fn found(text: &str, nodes: &Nodes) -> Vec<Finding> {
    check(text, "test", nodes).unwrap()
}

/// `text` with `to` in place of `from`, which it has.
#[track_caller]
pub(super) fn changed(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    text.replace(from, to)
}
