//! A figure of a report, and the axes that figures share.

use super::boxes::BoxChart;
use super::chart::{Axis, Chart, Line};
use super::scale::ScaleKind;
use super::text::{Unit, rate_unit, time_unit};
use crate::metrics::{Measures, Series, SeriesKind};
use crate::run::RunResult;

/// Ratio of the largest to the smallest latency from which the axis is
/// logarithmic, so that small ones remain visible.
pub(super) const LOG_FROM_SPAN: f64 = 30.0;

/// A figure of either kind.
#[derive(Clone, Debug)]
pub(super) enum Figure {
    Lines(Chart),
    Boxes(BoxChart),
}

impl Figure {
    pub(super) fn name(&self) -> &str {
        match self {
            Figure::Lines(chart) => &chart.name,
            Figure::Boxes(chart) => &chart.name,
        }
    }

    pub(super) fn title(&self) -> &str {
        match self {
            Figure::Lines(chart) => &chart.title,
            Figure::Boxes(chart) => &chart.title,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Figure::Lines(chart) => chart.is_empty(),
            Figure::Boxes(chart) => chart.boxes.is_empty(),
        }
    }

    /// The figure as an SVG document, or as an element of an HTML page.
    pub(super) fn svg(&self, is_document: bool) -> String {
        match self {
            Figure::Lines(chart) => chart.svg(is_document),
            Figure::Boxes(chart) => chart.svg(is_document),
        }
    }

    /// The entries of its legend; box plots name their boxes themselves.
    pub(super) fn legend(&self) -> Vec<(usize, String)> {
        match self {
            Figure::Lines(chart) => {
                let lines = chart.lines.iter();
                lines.map(|line| (line.style, line.name.clone())).collect()
            }
            Figure::Boxes(_) => Vec::new(),
        }
    }
}

/// A series of some runs over time, each with the name of its line.
pub(super) fn time_chart(
    name: String,
    title: String,
    series: &Series,
    runs: Vec<(String, &RunResult)>,
) -> Chart {
    let end = |bin: &Measures| bin.start_s + bin.length_s;
    let bins = || runs.iter().flat_map(|(_, run)| &run.bins);
    let values = || bins().filter_map(|bin| series.value(bin));
    let axis = ValueAxis::of(series, values());
    let clock = clock_unit(bins().map(end).fold(0.0, f64::max));
    Chart {
        name,
        title,
        x: Axis::new(format!("Time ({})", clock.name), ScaleKind::Linear),
        y: Axis::new(axis.label, axis.scale),
        lines: runs
            .iter()
            .enumerate()
            .map(|(style, (name, run))| Line {
                name: name.clone(),
                style,
                points: run
                    .bins
                    .iter()
                    .filter_map(|bin| {
                        let value = series.value(bin)? * axis.factor;
                        Some((end(bin) * clock.factor, value))
                    })
                    .collect(),
            })
            .collect(),
    }
}

/// The presentation of a series' values.
pub(super) struct ValueAxis {
    pub(super) label: String,
    pub(super) factor: f64,
    pub(super) scale: ScaleKind,
}

impl ValueAxis {
    pub(super) fn of(series: &Series, values: impl Iterator<Item = f64> + Clone) -> Self {
        let greatest = values.clone().fold(0.0, f64::max);
        let (unit, scale) = match series.kind {
            SeriesKind::Latency(_) => (time_unit(greatest), latency_scale(values)),
            SeriesKind::Rate(_) => (rate_unit(greatest), ScaleKind::Linear),
            SeriesKind::Ratio(_) => {
                let (name, factor) = ("", 1.0);
                (Unit { name, factor }, ScaleKind::Percent)
            }
        };
        ValueAxis {
            label: match unit.name {
                "" => series.title.to_owned(),
                name => format!("{} ({name})", series.title),
            },
            factor: unit.factor,
            scale,
        }
    }
}

/// The best unit for a run of so many seconds.
fn clock_unit(seconds: f64) -> Unit {
    let (name, factor) = match seconds {
        s if s > 4.0 * 3600.0 => ("h", 1.0 / 3600.0),
        s if s > 600.0 => ("min", 1.0 / 60.0),
        s if s < 0.5 => ("ms", 1e3),
        _ => ("s", 1.0),
    };
    Unit { name, factor }
}

pub(super) fn latency_scale(values: impl Iterator<Item = f64>) -> ScaleKind {
    let (mut low, mut high) = (f64::INFINITY, 0.0f64);
    for value in values.filter(|value| *value > 0.0) {
        low = low.min(value);
        high = high.max(value);
    }
    if high > LOG_FROM_SPAN * low {
        ScaleKind::Log
    } else {
        ScaleKind::Linear
    }
}

/// A text as a part of a file's name.
pub(super) fn slug(text: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    let slug: String = text.to_lowercase().chars().map(plain).collect();
    let parts: Vec<&str> = slug.split('-').filter(|part| !part.is_empty()).collect();
    parts.join("-")
}
