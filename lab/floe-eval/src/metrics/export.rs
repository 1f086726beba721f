//! The series of a run in the formats of ZNCache's profiler (CSV) and OxCache's
//! metrics (JSON lines), so that their plotting scripts read them: their names,
//! their units, a value per series and bin.

use std::io::{self, Write};

use serde::Serialize;

use super::{Measures, SERIES, Series, SeriesKind};

/// ZNCache's names (`src/znprofiler.c`) and OxCache's (`oxcache/src/server.rs`,
/// `device.rs`) of the series, in the order of [`SERIES`].
const NAMES: [(&str, &str); SERIES.len()] = [
    ("GETLATENCY", "get_total_latency_ms"),
    ("CACHEHITLATENCY", "get_hit_latency_ms"),
    ("CACHEMISSLATENCY", "get_miss_latency_ms"),
    ("READLATENCY", "disk_read_latency_ms"),
    ("WRITELATENCY", "disk_write_latency_ms"),
    ("CACHETHROUGHPUT", "bytes_total"),
    ("CACHEHITTHROUGHPUT", "read_bytes_total"),
    ("CACHEMISSTHROUGHPUT", "written_bytes_total"),
    ("HITRATIO", "hitratio"),
];

/// Writes `TIMESTAMP,METRIC,VALUE` with a line per series and bin, as ZNCache's
/// profiler does at every interval. Timestamps are milliseconds since the run's
/// start, latencies nanoseconds (means over the bin), throughputs bytes per
/// second; the hit ratio is the bin's, where ZNCache's is that since the start.
///
/// # Errors
/// The writer's.
pub fn write_metrics_csv(out: &mut dyn Write, bins: &[Measures]) -> io::Result<()> {
    writeln!(out, "TIMESTAMP,METRIC,VALUE")?;
    for bin in bins {
        let end_ms = 1e3 * (bin.start_s + bin.length_s);
        for (series, (name, _)) in named() {
            let in_their_unit = match series.kind {
                SeriesKind::Latency(_) => 1e6,
                SeriesKind::Rate(_) | SeriesKind::Ratio(_) => 1.0,
            };
            if let Some(value) = series.value(bin) {
                writeln!(out, "{end_ms:.6},{name},{:.6}", value * in_their_unit)?;
            }
        }
    }
    Ok(())
}

/// Writes `{"timestamp":…,"fields":{"name":…,"value":…}}` with a line per
/// series and bin, as OxCache's metrics file. Latencies are milliseconds (means
/// over the bin). Instead of throughputs it has counters of bytes, from which
/// its scripts make throughputs with buckets of two bins and more; they start
/// with a zero.
///
/// # Errors
/// The writer's.
pub fn write_metrics_jsonl(
    out: &mut dyn Write,
    started_unix_s: f64,
    bins: &[Measures],
) -> io::Result<()> {
    let mut totals = [0.0; SERIES.len()];
    for start in std::iter::once(None).chain(bins.iter().map(Some)) {
        let end_s = start.map_or(0.0, |bin| bin.start_s + bin.length_s);
        for ((series, (_, name)), total) in named().zip(&mut totals) {
            let value = match (series.kind, start) {
                (SeriesKind::Rate(of), bin) => {
                    *total += bin.map_or(0.0, |bin| of(bin) * bin.length_s);
                    Some(total.round())
                }
                (_, Some(bin)) => series.value(bin),
                (_, None) => None,
            };
            let Some(value) = value else { continue };
            let event = Event {
                timestamp: rfc3339(started_unix_s + end_s),
                fields: Fields { name, value },
            };
            serde_json::to_writer(&mut *out, &event)?;
            writeln!(out)?;
        }
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

/// The nine series with the papers' names.
fn named() -> impl Iterator<Item = (&'static Series, (&'static str, &'static str))> {
    SERIES.iter().zip(NAMES)
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
