//! Charts over the cases of an experiment.

use floe_core::ByteSize;

use super::cases::{Case, is_selected};
use super::records::Record;
use super::schema::{CurveSpec, PanelSpec, REQUEST_SIZE};
use crate::report::{Curve, CurveLine, Panel, PanelLine};
use crate::results::Figure;
use crate::run::RunResult;

/// A chart of metrics over one coordinate. The other coordinates become lines.
pub(super) fn curve(spec: &CurveSpec, done: &[(&Case, Vec<Figure>)]) -> Curve {
    let mut lines: Vec<CurveLine> = Vec::new();
    let mut ticks: Vec<(f64, String)> = Vec::new();
    let mut unit = String::new();
    let is_even = is_even(spec, done);
    for metric in &spec.y {
        for (case, figures) in done {
            if !is_selected(&spec.only, &case.coordinates) {
                continue;
            }
            let figure = figures.iter().find(|figure| figure.metric == *metric);
            let (Some(x), Some(figure)) = (place(spec, is_even, case, &mut ticks), figure) else {
                continue;
            };
            unit = figure.unit.clone();
            let name = line_name(spec, metric, case);
            let point = (x, figure.value);
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => lines.push(CurveLine {
                    name,
                    points: vec![point],
                }),
            }
        }
    }
    let y_label = match scale(&unit, &mut lines) {
        "ratio" | "count" | "" => spec.y_label.clone(),
        unit => format!("{} ({unit})", spec.y_label),
    };
    Curve {
        title: spec.title.clone(),
        x_label: spec.x_label.clone().unwrap_or_else(|| spec.x.clone()),
        y_label,
        x_ticks: ticks,
        x_is_log: false,
        y_is_log: spec.y_log,
        lines,
    }
}

/// The share of the requests up to each size, a line for each case.
pub(super) fn request_sizes(spec: &CurveSpec, done: &[(&Case, Record)]) -> Curve {
    let shown = done.iter().filter(|(case, record)| {
        !record.request_sizes.is_empty() && is_selected(&spec.only, &case.coordinates)
    });
    let line = |(case, record): &(&Case, Record)| {
        let mut below = 0.0;
        let steps = record.request_sizes.iter().flat_map(|&(bytes, share)| {
            let step = [(bytes as f64, below), (bytes as f64, share)];
            below = share;
            step
        });
        CurveLine {
            name: line_name(spec, REQUEST_SIZE, case),
            points: steps.collect(),
        }
    };
    let lines: Vec<CurveLine> = shown.map(line).collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = points().map(|point| point.0).fold(0.0, f64::max);
    let least = points().map(|point| point.0).fold(most, f64::min);
    // Every third power of two, around all sizes.
    let powers = (0..60).step_by(3).map(|power| 1_u64 << power);
    let ticks = powers.filter(|bytes| {
        let bytes = *bytes as f64;
        bytes * 8.0 > least && bytes < most * 8.0
    });
    Curve {
        title: spec.title.clone(),
        x_label: spec
            .x_label
            .clone()
            .unwrap_or_else(|| "request size".into()),
        y_label: spec.y_label.clone(),
        x_ticks: ticks
            .map(|bytes| (bytes as f64, ByteSize(bytes).to_string()))
            .collect(),
        x_is_log: true,
        y_is_log: spec.y_log,
        lines,
    }
}

/// True if values have equal distances: if configured, and if one of them is a
/// name, which has no position.
fn is_even(spec: &CurveSpec, done: &[(&Case, Vec<Figure>)]) -> bool {
    let coordinates = done.iter().flat_map(|(case, _)| &case.coordinates);
    let mut along = coordinates.filter(|c| c.label == spec.x);
    spec.x_even || along.any(|c| c.position.is_none())
}

/// The position of a case along a curve. On an even axis it is the index of its
/// value in `ticks`.
fn place(
    spec: &CurveSpec,
    is_even: bool,
    case: &Case,
    ticks: &mut Vec<(f64, String)>,
) -> Option<f64> {
    let along = case.coordinates.iter().find(|c| c.label == spec.x)?;
    if !is_even {
        return along.position;
    }
    if let Some((at, _)) = ticks.iter().find(|(_, name)| *name == along.name) {
        return Some(*at);
    }
    let at = ticks.len() as f64;
    ticks.push((at, along.name.clone()));
    Some(at)
}

fn line_name(spec: &CurveSpec, metric: &str, case: &Case) -> String {
    let others = case.coordinates.iter().filter(|c| c.label != spec.x);
    // The title has a label with a single selected value.
    let others = others.filter(|c| spec.only.get(&c.label).is_none_or(|names| names.len() > 1));
    let mut parts: Vec<String> = others.map(|c| format!("{} {}", c.label, c.name)).collect();
    if spec.y.len() > 1 || parts.is_empty() {
        parts.insert(0, metric.replace('_', " "));
    }
    parts.join(", ")
}

/// Converts rates to MiB/s, and bytes to the largest unit that a point reaches;
/// returns the unit.
fn scale<'a>(unit: &'a str, lines: &mut [CurveLine]) -> &'a str {
    const BYTES: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = points().map(|point| point.1).fold(0.0, f64::max);
    let reached = |(_, bits): &&(&str, u32)| most >= (1_u64 << bits) as f64;
    let (unit, bits) = match unit {
        "B/s" => ("MiB/s", 20),
        "B" => *BYTES.iter().find(reached).unwrap_or(&("B", 0)),
        unit => (unit, 0),
    };
    for point in lines.iter_mut().flat_map(|line| &mut line.points) {
        point.1 /= (1_u64 << bits) as f64;
    }
    unit
}

fn varies(label: &str, runs: &[(&Case, &RunResult)]) -> bool {
    let mut names = runs.iter().filter_map(|(case, _)| {
        let mut coordinates = case.coordinates.iter();
        coordinates.find(|c| c.label == label).map(|c| &c.name)
    });
    let first = names.next();
    names.any(|name| Some(name) != first)
}

/// The charts of one panel, which refer to a run by its index in `runs`.
pub(super) fn panels(spec: &PanelSpec, runs: &[(&Case, &RunResult)]) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for series in &spec.series {
        for (run, (case, _)) in runs.iter().enumerate() {
            if !is_selected(&spec.only, &case.coordinates) {
                continue;
            }
            let named = |is_line: bool| -> String {
                let picked = case.coordinates.iter();
                let picked = picked.filter(|c| spec.lines.contains(&c.label) == is_line);
                // A label with the same value in all runs distinguishes none.
                let picked = picked.filter(|c| is_line || varies(&c.label, runs));
                let parts: Vec<String> = picked
                    .map(|c| match is_line {
                        true => c.name.clone(),
                        false => format!("{} {}", c.label, c.name),
                    })
                    .collect();
                parts.join(if is_line { " " } else { ", " })
            };
            let line = PanelLine {
                run,
                name: named(true),
            };
            let group = named(false);
            let of_group = |p: &&mut Panel| p.series == *series && p.group == group;
            match panels.iter_mut().find(of_group) {
                Some(panel) => panel.lines.push(line),
                None => panels.push(Panel {
                    kind: spec.kind,
                    series: series.clone(),
                    group,
                    lines: vec![line],
                }),
            }
        }
    }
    panels
}
