//! The Grafana dashboards must name only metrics that the code exports.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::files::project_files;
use super::rust_rules::is_rust;
use super::violation::Violation;

const DASHBOARDS: &[&str] = &[
    "packaging/grafana/floe.json",
    "packaging/grafana/fleet.json",
];

/// Prefixes of exported tables of counters.
const TABLES: &[&str] = &["floe_object_", "floe_chunk_", "floe_device_"];

/// Suffixes that Prometheus adds to a metric's registered name.
const SUFFIXES: &[&str] = &["_bucket", "_sum", "_count", "_total"];

pub(super) fn check(root: &Path, violations: &mut Vec<Violation>) -> Result<()> {
    let code = server_source(root)?;
    for &file in DASHBOARDS {
        if let Ok(text) = std::fs::read_to_string(root.join(file)) {
            check_dashboard(file, &text, &code, violations);
        }
    }
    Ok(())
}

fn check_dashboard(file: &str, text: &str, code: &str, violations: &mut Vec<Violation>) {
    let dashboard: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => {
            let rule = format!("is not JSON: {error}");
            violations.push(Violation::new(file, error.line(), rule));
            return;
        }
    };
    let mut queries = Vec::new();
    collect_queries(&dashboard, &mut queries);
    for (index, line) in text.lines().enumerate() {
        for name in metric_names(line) {
            if queries.iter().any(|q| q.contains(name)) && !exported(code, name) {
                let rule = format!("the metric `{name}` is not exported by floe-server");
                violations.push(Violation::new(file, index + 1, rule));
            }
        }
    }
}

fn collect_queries(value: &Value, queries: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                match inner {
                    Value::String(query) if key == "expr" => queries.push(query.clone()),
                    _ => collect_queries(inner, queries),
                }
            }
        }
        Value::Array(list) => list
            .iter()
            .for_each(|inner| collect_queries(inner, queries)),
        _ => {}
    }
}

/// The sources that export metrics: the frontends by name, and tables whose
/// counters are named after their identifiers.
fn server_source(root: &Path) -> Result<String> {
    let mut code = String::new();
    for file in project_files(root)? {
        let frontends = file.starts_with("crates/floe-server/src");
        let counters = file.starts_with("crates/floe") && file.ends_with("stats.rs");
        let device = file.starts_with("crates/floe-device") && file.ends_with("counters.rs");
        if (frontends || counters || device) && is_rust(&file) {
            code += &std::fs::read_to_string(root.join(&file))
                .with_context(|| format!("reading {}", file.display()))?;
        }
    }
    Ok(code)
}

/// The words of `line` that begin with `floe_`.
fn metric_names(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("floe_"))
}

/// True if `code` registers `name`, with or without the exporter's suffix: as a
/// string, or as a counter of a table with a prefix.
fn exported(code: &str, name: &str) -> bool {
    let mut names = vec![name];
    names.extend(
        SUFFIXES
            .iter()
            .filter_map(|suffix| name.strip_suffix(suffix)),
    );
    names.iter().any(|name| {
        code.contains(&format!("\"{name}\""))
            || TABLES
                .iter()
                .filter_map(|prefix| name.strip_prefix(prefix))
                .any(|counter| {
                    code.lines()
                        .any(|line| line.trim().strip_suffix(',') == Some(counter))
                })
    })
}
