//! Formats figures for tables.

use std::fmt::Write as _;

use serde_json::Value;

pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().map_or_else(|| number.to_string(), round),
        other => other.to_string(),
    }
}

pub(super) fn entry(text: &mut String, what: String, measured: String, goal: &str) {
    line(text, vec![what, measured, goal.to_owned()]);
}

/// Three significant digits; no decimals from 100 on.
pub(super) fn round(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

pub(super) fn line(text: &mut String, cells: Vec<String>) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}
