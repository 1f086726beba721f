//! The charts of a report.

use super::chart::{Axis, Chart, Line};
use super::data::{Curve, ReportData};
use super::figure::{Figure, latency_scale, slug, time_chart};
use super::panels;
use super::scale::ScaleKind;
use super::text::{Unit, rate_unit, time_unit};
use crate::metrics::{LatencySummary, SERIES, Series};
use crate::replay::ReplayResult;
use crate::replay::policy::PolicyCounts;
use crate::run::RunResult;

/// All figures, in the order of the page.
pub(super) fn all(data: &ReportData) -> Vec<Figure> {
    let mut figures: Vec<Figure> = curves(data).into_iter().map(Figure::Lines).collect();
    figures.extend(panels::all(data));
    let replays = data.replays.iter().flat_map(miss_ratios);
    figures.extend(replays.map(Figure::Lines));
    figures.extend(percentiles(&data.runs).map(Figure::Lines));
    figures.extend(all_over_time(&data.runs).into_iter().map(Figure::Lines));
    figures.extend(panels::extra_series(&data.runs));
    figures.extend(panels::distributions(&data.runs));
    figures.retain(|figure| !figure.is_empty());
    figures
}

/// The charts that an experiment asks for.
pub(super) fn curves(data: &ReportData) -> Vec<Chart> {
    let charts = data.curves.iter().enumerate();
    charts
        .map(|(number, curve)| chart_of(number, curve))
        .collect()
}

fn chart_of(number: usize, curve: &Curve) -> Chart {
    let lines = curve.lines.iter().enumerate();
    let place = |x: f64| if curve.x_is_log { x.max(1.0).log2() } else { x };
    let ticks = curve.x_ticks.iter();
    Chart {
        name: format!("curve-{}", number + 1),
        title: curve.title.clone(),
        x: Axis {
            named_ticks: ticks.map(|(x, name)| (place(*x), name.clone())).collect(),
            ..Axis::new(curve.x_label.clone(), ScaleKind::Free)
        },
        y: Axis::new(
            curve.y_label.clone(),
            if curve.y_is_log {
                ScaleKind::Log
            } else {
                ScaleKind::Linear
            },
        ),
        lines: lines
            .map(|(style, line)| Line {
                name: line.name.clone(),
                style,
                points: line.points.iter().map(|(x, y)| (place(*x), *y)).collect(),
            })
            .collect(),
    }
}

/// A ratio of a policy's counts.
type RatioOf = fn(&PolicyCounts) -> f64;

/// Miss ratio and byte miss ratio over cache size, a line per policy.
pub(super) fn miss_ratios(replay: &ReplayResult) -> Vec<Chart> {
    let sizes = replay.counts.iter().map(|counts| counts.cache_bytes);
    let largest = sizes.max().unwrap_or(0);
    let size_unit = match replay.sizes_are_bytes {
        true => rate_unit(largest as f64),
        false => Unit {
            name: "objects",
            factor: 1.0,
        },
    };
    let ratios: [(&str, &str, RatioOf); 2] = [
        ("miss-ratio", "Miss ratio", |counts| counts.miss_ratio()),
        ("byte-miss-ratio", "Byte miss ratio", |counts| {
            counts.byte_miss_ratio()
        }),
    ];
    // Without sizes in bytes there is no byte miss ratio.
    let ratios_shown = if replay.sizes_are_bytes { 2 } else { 1 };
    ratios
        .into_iter()
        .take(ratios_shown)
        .map(|(name, title, of)| Chart {
            name: format!("{name}-{}", slug(&replay.name)),
            title: format!("{title}, {}", replay.trace),
            x: Axis::new(
                format!("Cache size ({})", size_unit.name.trim_end_matches("/s")),
                ScaleKind::Free,
            ),
            y: Axis::new(title.to_owned(), ScaleKind::Percent),
            lines: policy_lines(replay, size_unit.factor, of),
        })
        .collect()
}

fn policy_lines(replay: &ReplayResult, factor: f64, of: RatioOf) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for counts in &replay.counts {
        let name = counts.policy.name();
        let point = (counts.cache_bytes as f64 * factor, of(counts));
        match lines.last_mut() {
            Some(line) if line.name == name => line.points.push(point),
            _ => lines.push(Line {
                name: name.to_owned(),
                style: lines.len(),
                points: vec![point],
            }),
        }
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

/// Latency of whole requests by percentile, a line per run.
pub(super) fn percentiles(runs: &[RunResult]) -> Option<Chart> {
    let shares = |summary: &LatencySummary| {
        [
            (1.0, summary.p50_ms),
            (2.0, summary.p99_ms),
            (3.0, summary.p999_ms),
            (4.0, summary.p9999_ms),
        ]
    };
    let summaries = runs.iter().filter(|run| run.whole.get.count > 0);
    let greatest = summaries
        .clone()
        .map(|run| run.whole.get.p9999_ms)
        .fold(0.0, f64::max);
    let unit = time_unit(greatest);
    let lines: Vec<Line> = runs
        .iter()
        .enumerate()
        .filter(|(_, run)| run.whole.get.count > 0)
        .map(|(style, run)| Line {
            name: run.name.clone(),
            style,
            points: shares(&run.whole.get)
                .map(|(x, ms)| (x, ms * unit.factor))
                .to_vec(),
        })
        .collect();
    (!lines.is_empty()).then(|| Chart {
        name: "get-latency-percentiles".into(),
        title: "Get latency by percentile".into(),
        x: Axis {
            named_ticks: [(1.0, "p50"), (2.0, "p99"), (3.0, "p99.9"), (4.0, "p99.99")]
                .map(|(at, name)| (at, name.to_owned()))
                .to_vec(),
            ..Axis::new("Percentile", ScaleKind::Free)
        },
        y: Axis::new(
            format!("Latency ({})", unit.name),
            latency_scale(
                lines
                    .iter()
                    .flat_map(|line| line.points.iter().map(|p| p.1)),
            ),
        ),
        lines,
    })
}

/// A chart of each of the nine series over time, a line per run.
pub(super) fn all_over_time(runs: &[RunResult]) -> Vec<Chart> {
    SERIES
        .iter()
        .map(|series| over_time(series, runs))
        .collect()
}

fn over_time(series: &Series, runs: &[RunResult]) -> Chart {
    let lines = runs.iter().map(|run| (run.name.clone(), run)).collect();
    time_chart(
        series.name.replace('_', "-"),
        series.title.to_owned(),
        series,
        lines,
    )
}
