//! Advice as a report.

use floe_core::ByteSize;

use super::Advice;
use super::candidate::Candidate;
use crate::report::{Curve, CurveLine, ReportData};
use crate::results::{Figure, Provenance, Row};

impl ReportData {
    /// A report of advice: the curve, and the figures of every candidate.
    pub fn of_advice(advice: &Advice, config: String, provenance: Provenance) -> Self {
        let title = format!("A cache for the trace {}", advice.trace);
        let (runs, replays) = (Vec::new(), Vec::new());
        let mut data = ReportData::new("advise", title, config, provenance.clone(), runs, replays);
        data.about = advice.limits.join(" ");
        data.curves = vec![curve(advice)];
        let rows = advice.candidates.iter().flat_map(|candidate| {
            let figures = figures(candidate).into_iter();
            figures.map(|figure| (candidate.volume.clone(), figure))
        });
        data.rows = rows
            .map(|(case, figure)| Row::new("advise", case, figure, provenance.clone()))
            .collect();
        data
    }
}

/// Hit ratios by size, on a logarithmic axis.
fn curve(advice: &Advice) -> Curve {
    let points = &advice.sizing.points;
    Curve {
        title: "Hit ratio by cache size".to_owned(),
        x_label: "cache size".to_owned(),
        y_label: "% of accesses to 4 KiB blocks that hit in LRU".to_owned(),
        x_ticks: points
            .iter()
            .map(|point| (point.bytes as f64, ByteSize(point.bytes).to_string()))
            .collect(),
        x_is_log: true,
        y_is_log: false,
        lines: vec![CurveLine {
            name: advice.trace.clone(),
            points: points
                .iter()
                .map(|point| (point.bytes as f64, point.hit_ratio * 100.0))
                .collect(),
        }],
    }
}

fn figures(candidate: &Candidate) -> Vec<Figure> {
    let known = [
        ("read_hit_ratio", "ratio", candidate.reads.hit_ratio()),
        (
            "read_byte_hit_ratio",
            "ratio",
            candidate.reads.byte_hit_ratio(),
        ),
        ("write_hit_ratio", "ratio", candidate.writes.hit_ratio()),
        (
            "write_byte_hit_ratio",
            "ratio",
            candidate.writes.byte_hit_ratio(),
        ),
        ("backing_io", "B", candidate.backing_bytes as f64),
        ("cache_written", "B", candidate.cache_written.bytes as f64),
        ("memory", "B", candidate.memory_bytes as f64),
    ];
    let unknown = [
        (
            "device_write_amplification",
            "ratio",
            candidate.device_write_amplification,
        ),
        ("written_per_day", "B", candidate.written_bytes_per_day),
        (
            "drive_writes_per_day",
            "ratio",
            candidate.drive_writes_per_day,
        ),
    ];
    let measured = unknown
        .into_iter()
        .filter_map(|(metric, unit, value)| Some((metric, unit, value?)));
    known
        .into_iter()
        .chain(measured)
        .map(|(metric, unit, value)| Figure::new(metric, unit, value))
        .collect()
}
