//! The rows of results of runs and replays: one per figure, with its
//! provenance.

mod provenance;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::experiment::{Kind, Published};
use crate::metrics::{Distribution, LatencySummary, Measures, SERIES, Series, SeriesKind};
use crate::replay::ReplayResult;
use crate::run::RunResult;

pub use provenance::{Provenance, digest};

/// One figure. A line of `results.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The experiment.
    pub experiment: String,
    /// Its case.
    pub case: String,
    /// The metric.
    pub metric: String,
    /// The unit.
    pub unit: String,
    /// The value.
    pub measured: f64,
    /// The author of the value that the figure is compared with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kind: Option<Kind>,
    /// The value that the figure is compared with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub paper: Option<f64>,
    /// The deviation of the measured value, as a share of the other.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub relative_error: Option<f64>,
    /// The source of that value.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source: Option<String>,
    /// The result of the comparison.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verdict: Option<String>,
    /// The reason for a known difference.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub known: Option<String>,
    /// The provenance of the figure.
    #[serde(flatten)]
    pub provenance: Provenance,
}

impl Row {
    /// A figure without a comparison.
    pub fn new(
        experiment: &str,
        case: impl Into<String>,
        figure: Figure,
        provenance: Provenance,
    ) -> Self {
        Row {
            experiment: experiment.to_owned(),
            case: case.into(),
            metric: figure.metric,
            unit: figure.unit,
            measured: figure.value,
            kind: None,
            paper: None,
            relative_error: None,
            source: None,
            verdict: None,
            known: None,
            provenance,
        }
    }

    /// Adds a comparison with a published figure. `factor` converts its value
    /// to the row's unit.
    pub(crate) fn compare(&mut self, published: &Published, factor: f64) {
        let measured = self.measured / factor;
        self.kind = Some(published.kind);
        self.paper = Some(published.value * factor);
        self.relative_error = published.relative_error(measured);
        self.source = Some(published.source.clone());
        self.verdict = Some(published.verdict(measured));
    }
}

/// A figure before it has a provenance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The metric.
    pub metric: String,
    /// The unit.
    pub unit: String,
    /// The value.
    pub value: f64,
}

impl Figure {
    pub(crate) fn new(metric: impl Into<String>, unit: impl Into<String>, value: f64) -> Self {
        Figure {
            metric: metric.into(),
            unit: unit.into(),
            value,
        }
    }
}

/// All figures of a run. Latencies without values have none, nor have rates of
/// a run without time, such as of an engine on modelled flash.
pub fn run_figures(run: &RunResult) -> Vec<Figure> {
    let mut figures = Vec::new();
    let is_timed = run.whole.length_s > 0.0;
    for series in &SERIES {
        match series.kind {
            SeriesKind::Latency(of) => latency_figures(series.name, of(&run.whole), &mut figures),
            SeriesKind::Rate(of) => {
                let rate = Figure::new(series.name, series.unit(), of(&run.whole));
                figures.extend(is_timed.then_some(rate));
                bin_figures(series, run, of, &mut figures);
            }
            SeriesKind::Ratio(of) if !run.whole.hits_untold => {
                figures.push(Figure::new(series.name, series.unit(), of(&run.whole)));
            }
            SeriesKind::Ratio(_) => {}
        }
    }
    latency_figures("put_latency", &run.whole.put, &mut figures);
    let mut add = |name: &str, unit: &'static str, value: Option<f64>| {
        figures.extend(value.map(|value| Figure::new(name, unit, value)));
    };
    // Without a count of the requested bytes, there is no byte hit ratio.
    let counts_bytes =
        !run.whole.hits_untold && (run.whole.byte_hit_ratio > 0.0 || run.whole.hit_ratio == 0.0);
    let byte_hits = counts_bytes.then_some(run.whole.byte_hit_ratio);
    let rate = is_timed.then_some(run.whole.requests_per_s);
    add("byte_hit_ratio", "ratio", byte_hits);
    add("request_rate", "1/s", rate);
    add("requests", "count", Some(run.requests as f64));
    add("failed", "count", Some(run.failed as f64));
    add("elapsed", "s", is_timed.then_some(run.whole.length_s));
    add("cpu", "%", run.whole.cpu_percent);
    add("cpu_per_request", "us", run.cpu_us_per_request);
    add("rss_max", "B", run.rss_bytes_max.map(|bytes| bytes as f64));
    cost_figures("cpu", "%", run, |bin| bin.cpu_percent, &mut add);
    let rss = |bin: &Measures| bin.rss_bytes.map(|bytes| bytes as f64);
    cost_figures("rss", "B", run, rss, &mut add);
    add("write_amplification", "ratio", run.write_amplification);
    let written = run.whole.write_bytes_per_s * run.whole.length_s;
    let is_known = is_timed && run.requests > 0;
    let per_request = is_known.then(|| written / run.requests as f64);
    add("written_per_request", "B", per_request);
    let extra = run.extra.iter();
    figures.extend(extra.map(|extra| Figure::new(&extra.metric, &extra.unit, extra.value)));
    figures
}

/// The mean, percentiles and maximum of a latency; nothing without values.
pub(crate) fn latency_figures(name: &str, summary: &LatencySummary, figures: &mut Vec<Figure>) {
    if summary.count == 0 {
        return;
    }
    for (suffix, value) in [
        ("mean", summary.mean_ms),
        ("p50", summary.p50_ms),
        ("p99", summary.p99_ms),
        ("p99.9", summary.p999_ms),
        ("p99.99", summary.p9999_ms),
        ("max", summary.max_ms),
    ] {
        figures.push(Figure::new(format!("{name}_{suffix}"), "ms", value));
    }
}

/// The variation of a rate over bins. The papers' "P99" of a throughput is its
/// 1st percentile in ZNCache and its 99th in OxCache. With few bins, the
/// slowest bin is the honest form of the former.
fn bin_figures(
    series: &Series,
    run: &RunResult,
    of: fn(&Measures) -> f64,
    figures: &mut Vec<Figure>,
) {
    if run.bins.len() < 2 {
        return;
    }
    let bins: Vec<f64> = run.bins.iter().map(of).collect();
    let bins = Distribution::of_values(&bins);
    for (suffix, share) in [
        ("slowest_bin", 0.0),
        ("p1_bin", 0.01),
        ("p50_bin", 0.5),
        ("p99_bin", 0.99),
    ] {
        let value = bins.at(share);
        figures.extend(
            value.map(|v| Figure::new(format!("{}_{suffix}", series.name), series.unit(), v)),
        );
    }
}

/// The process's CPU and memory over bins: the figures that OxCache prints of its own
/// samples (Tables 15 to 62). The mean of the CPU is that of the whole run,
/// and other rows have the greatest memory.
fn cost_figures(
    name: &str,
    unit: &'static str,
    run: &RunResult,
    of: impl Fn(&Measures) -> Option<f64>,
    add: &mut impl FnMut(&str, &'static str, Option<f64>),
) {
    let bins: Vec<f64> = run.bins.iter().filter_map(of).collect();
    if bins.len() < 2 {
        return;
    }
    let count = bins.len() as f64;
    let mean = bins.iter().sum::<f64>() / count;
    let squares: f64 = bins.iter().map(|value| (value - mean).powi(2)).sum();
    let sorted = Distribution::of_values(&bins);
    let own = match name {
        "cpu" => ("max", sorted.at(1.0)),
        _ => ("mean", Some(mean)),
    };
    for (suffix, value) in [
        own,
        ("p50", sorted.at(0.5)),
        ("sd", Some((squares / (count - 1.0)).sqrt())),
        ("p95", sorted.at(0.95)),
        ("p99", sorted.at(0.99)),
    ] {
        add(&format!("{name}_{suffix}"), unit, value);
    }
}

/// All figures of a replay, each with its case: the policy and the size.
pub fn replay_figures(replay: &ReplayResult) -> Vec<(String, Figure)> {
    let mut figures = Vec::new();
    for counts in &replay.counts {
        let case = format!(
            "{} {}",
            counts.policy,
            replay.size_label(counts.cache_bytes)
        );
        for figure in [
            Figure::new("misses", "count", counts.misses as f64),
            Figure::new("miss_bytes", "B", counts.miss_bytes as f64),
            Figure::new("miss_ratio", "ratio", counts.miss_ratio()),
            Figure::new("byte_miss_ratio", "ratio", counts.byte_miss_ratio()),
        ] {
            figures.push((case.clone(), figure));
        }
    }
    figures
}
