//! The series of a run in the formats of ZNCache (CSV) and OxCache (JSON
//! lines), so that their plotting scripts can be used.

use std::io::{self, Write};

use serde::Serialize;

use super::{Measures, SERIES};

/// Writes `TIMESTAMP,METRIC,VALUE` with a line per series and bin. Timestamps
/// are Unix seconds, latencies milliseconds, throughputs bytes per second.
///
/// # Errors
/// The writer's.
pub fn write_metrics_csv(
    out: &mut dyn Write,
    started_unix_s: f64,
    bins: &[Measures],
) -> io::Result<()> {
    writeln!(out, "TIMESTAMP,METRIC,VALUE")?;
    for (timestamp, name, value) in values(started_unix_s, bins) {
        writeln!(out, "{timestamp:.3},{},{value}", name.to_uppercase())?;
    }
    Ok(())
}

/// Writes `{"timestamp":…,"fields":{"name":…,"value":…}}` with a line per
/// series and bin, in the same units.
///
/// # Errors
/// The writer's.
pub fn write_metrics_jsonl(
    out: &mut dyn Write,
    started_unix_s: f64,
    bins: &[Measures],
) -> io::Result<()> {
    for (timestamp, name, value) in values(started_unix_s, bins) {
        let event = Event {
            timestamp: rfc3339(timestamp),
            fields: Fields { name, value },
        };
        serde_json::to_writer(&mut *out, &event)?;
        writeln!(out)?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Event {
    timestamp: String,
    fields: Fields,
}

#[derive(Serialize)]
struct Fields {
    name: &'static str,
    value: f64,
}

fn values(
    started_unix_s: f64,
    bins: &[Measures],
) -> impl Iterator<Item = (f64, &'static str, f64)> {
    bins.iter().flat_map(move |bin| {
        let timestamp = started_unix_s + bin.start_s + bin.length_s;
        SERIES
            .iter()
            .filter_map(move |series| Some((timestamp, series.name, series.value(bin)?)))
    })
}

fn rfc3339(unix_s: f64) -> String {
    let ns = (unix_s * 1e9) as i128;
    time::OffsetDateTime::from_unix_timestamp_nanos(ns)
        .ok()
        .and_then(|at| {
            at.format(&time::format_description::well_known::Rfc3339)
                .ok()
        })
        .unwrap_or_default()
}
