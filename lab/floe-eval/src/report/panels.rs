//! Distributions and groups of runs: cumulative curves, box plots, and the
//! panels that experiments ask for.

use super::boxes::{BoxChart, BoxMark};
use super::chart::{Axis, Chart, Line};
use super::data::{Panel, ReportData};
use super::figure::{Figure, LOG_FROM_SPAN, ValueAxis, slug, time_chart};
use super::scale::ScaleKind;
use crate::experiment::PanelKind;
use crate::metrics::{Distribution, SERIES, Series, SeriesKind};
use crate::run::{ExtraSeries, RunResult};

/// The panels that an experiment asks for.
pub(super) fn all(data: &ReportData) -> Vec<Figure> {
    let panels = data.panels.iter();
    panels.filter_map(|panel| figure(panel, data)).collect()
}

fn figure(panel: &Panel, data: &ReportData) -> Option<Figure> {
    let Some(series) = SERIES.iter().find(|series| series.name == panel.series) else {
        return extra_figure(panel, data);
    };
    let lines = panel.lines.iter();
    let runs: Vec<(String, &RunResult)> = lines
        .filter_map(|line| Some((line.name.clone(), data.runs.get(line.run)?)))
        .collect();
    let kind = match panel.kind {
        PanelKind::Time => "time",
        PanelKind::Cdf => "cdf",
        PanelKind::Box => "box",
    };
    let name = slug(&format!("{kind}-{}-{}", series.name, panel.group));
    let title = match panel.group.as_str() {
        "" => series.title.to_owned(),
        group => format!("{}\n{group}", series.title),
    };
    Some(match panel.kind {
        PanelKind::Time => Figure::Lines(time_chart(name, title, series, runs)),
        PanelKind::Cdf => Figure::Lines(cumulative(name, title, series, &runs)),
        PanelKind::Box => Figure::Boxes(boxes(name, title, series, &runs)),
    })
}

/// A panel of a series that is not over time.
fn extra_figure(panel: &Panel, data: &ReportData) -> Option<Figure> {
    let lines = panel.lines.iter().enumerate().filter_map(|(style, line)| {
        let run = data.runs.get(line.run)?;
        ExtraLine::of(run, &panel.series, style, &line.name)
    });
    let lines: Vec<ExtraLine<'_>> = lines.collect();
    let name = slug(&format!("over-{}-{}", panel.series, panel.group));
    Some(Figure::Lines(extra_chart(name, &panel.group, &lines)?))
}

/// A chart for each series that is not over time, a line per run.
pub(super) fn extra_series(runs: &[RunResult]) -> Vec<Figure> {
    let mut names: Vec<&str> = Vec::new();
    for series in runs.iter().flat_map(|run| &run.series) {
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    let of = |name: &&str| {
        let lines = runs.iter().enumerate();
        let lines = lines.filter_map(|(style, run)| ExtraLine::of(run, name, style, &run.name));
        let lines: Vec<ExtraLine<'_>> = lines.collect();
        extra_chart(slug(&format!("all-{name}")), "", &lines).map(Figure::Lines)
    };
    names.iter().filter_map(of).collect()
}

/// A series of a run and its presentation.
struct ExtraLine<'a> {
    name: String,
    style: usize,
    series: &'a ExtraSeries,
}

impl<'a> ExtraLine<'a> {
    fn of(run: &'a RunResult, series: &str, style: usize, name: &str) -> Option<Self> {
        let found = run.series.iter().find(|found| found.name == series)?;
        Some(ExtraLine {
            name: name.to_owned(),
            style,
            series: found,
        })
    }
}

/// Series of one name.
fn extra_chart(name: String, group: &str, lines: &[ExtraLine<'_>]) -> Option<Chart> {
    let first = lines.first()?.series;
    let (mut low, mut high) = (f64::INFINITY, 0.0f64);
    let values = lines.iter().flat_map(|line| &line.series.points);
    for (_, value) in values.filter(|(_, value)| *value > 0.0) {
        (low, high) = (low.min(*value), high.max(*value));
    }
    let scale = match first.unit.as_str() {
        "%" => ScaleKind::Percent,
        _ if high > LOG_FROM_SPAN * low => ScaleKind::Log,
        _ => ScaleKind::Linear,
    };
    let label = match first.unit.as_str() {
        "" | "%" => first.title.clone(),
        unit => format!("{} ({unit})", first.title),
    };
    Some(Chart {
        name,
        title: match group {
            "" => first.title.clone(),
            group => format!("{}\n{group}", first.title),
        },
        x: Axis::new(first.x_label.clone(), ScaleKind::Linear),
        y: Axis::new(label, scale),
        lines: (lines.iter())
            .map(|line| Line {
                name: line.name.clone(),
                style: line.style,
                points: line.series.points.clone(),
            })
            .collect(),
    })
}

/// Charts of distributions that every report of runs has: latencies by share, and
/// latencies and throughputs as boxes.
pub(super) fn distributions(runs: &[RunResult]) -> Vec<Figure> {
    let named: Vec<(String, &RunResult)> = runs.iter().map(|run| (run.name.clone(), run)).collect();
    let mut figures = Vec::new();
    for series in &SERIES {
        let of = series.title.to_lowercase();
        match series.name {
            "get_latency" | "hit_latency" | "miss_latency" | "read_latency" | "write_latency" => {
                let name = slug(&format!("cdf-{}", series.name));
                let title = format!("Distribution of {of}");
                figures.push(Figure::Lines(cumulative(name, title, series, &named)));
            }
            _ => {}
        }
        if matches!(series.name, "get_latency" | "get_throughput") {
            let name = slug(&format!("box-{}", series.name));
            let title = match series.kind {
                SeriesKind::Latency(_) => format!("Spread of {of}"),
                _ => format!("Spread of {of} over time bins"),
            };
            figures.push(Figure::Boxes(boxes(name, title, series, &named)));
        }
    }
    figures
}

/// Latencies of requests, or a rate's values in the bins.
fn distribution(series: &Series, run: &RunResult) -> Distribution {
    match run.distributions.of_series(series) {
        Some(distribution) => distribution.clone(),
        None => {
            let bins = run.bins.iter().filter_map(|bin| series.value(bin));
            Distribution::of_values(&bins.collect::<Vec<f64>>())
        }
    }
}

/// The cumulative share of values, a line per run.
fn cumulative(
    name: String,
    title: String,
    series: &Series,
    runs: &[(String, &RunResult)],
) -> Chart {
    let (distributions, axis) = drawn(series, runs);
    let lines = runs.iter().zip(&distributions).enumerate();
    Chart {
        name,
        title,
        x: Axis::new(axis.label, axis.scale),
        y: Axis::new("Share at most this", ScaleKind::Percent),
        lines: lines
            .map(|(style, ((name, _), distribution))| Line {
                name: name.clone(),
                style,
                points: distribution
                    .points()
                    .map(|(share, value)| (value * axis.factor, share))
                    .collect(),
            })
            .collect(),
    }
}

/// A box per run, with whiskers at the 1st and 99th percentile.
fn boxes(name: String, title: String, series: &Series, runs: &[(String, &RunResult)]) -> BoxChart {
    let (distributions, axis) = drawn(series, runs);
    let marks = runs.iter().zip(&distributions).enumerate();
    BoxChart {
        name,
        title,
        label: axis.label,
        is_log: axis.scale == ScaleKind::Log,
        boxes: marks
            .filter_map(|(style, ((name, _), distribution))| {
                let at = |share| Some(distribution.at(share)? * axis.factor);
                Some(BoxMark {
                    name: name.clone(),
                    style,
                    low: at(0.01)?,
                    quartile1: at(0.25)?,
                    median: at(0.5)?,
                    quartile3: at(0.75)?,
                    high: at(0.99)?,
                })
            })
            .collect(),
    }
}

/// The distribution of each run, and an axis for all of them.
fn drawn(series: &Series, runs: &[(String, &RunResult)]) -> (Vec<Distribution>, ValueAxis) {
    let distributions: Vec<Distribution> = runs
        .iter()
        .map(|(_, run)| distribution(series, run))
        .collect();
    let axis = axis(series, &distributions);
    (distributions, axis)
}

/// An axis of values, chosen by the range from the 1st to the 99th percentile: a
/// single outlier must not compress the rest.
fn axis(series: &Series, distributions: &[Distribution]) -> ValueAxis {
    let inner = distributions.iter().flat_map(|distribution| {
        let points = distribution.points();
        points.filter(|(share, _)| (0.01..=0.99).contains(share))
    });
    let values: Vec<f64> = inner.map(|(_, value)| value).collect();
    ValueAxis::of(series, values.iter().copied())
}
