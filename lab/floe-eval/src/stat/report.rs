//! A trace's statistics as a report.

use super::{Sizes, TraceStat};
use crate::report::{Curve, CurveLine, ReportData};
use crate::results::{Figure, Provenance, Row};

impl ReportData {
    /// A report that describes a trace.
    pub fn of_trace(found: &TraceStat, config: String, provenance: Provenance) -> Self {
        let title = format!("The trace {}", found.trace);
        let mut data = ReportData::new(
            "trace",
            title,
            config,
            provenance.clone(),
            Vec::new(),
            Vec::new(),
        );
        data.about = format!(
            "{} requests of the format {}, counted in {}.",
            found.operations.total(),
            found.format,
            found.unit()
        );
        data.curves = vec![size_curve(found), popularity_curve(found)];
        data.rows = figures(found)
            .into_iter()
            .map(|figure| Row::new("trace", &found.trace, figure, provenance.clone()))
            .collect();
        data
    }
}

fn figures(found: &TraceStat) -> Vec<Figure> {
    let accesses = &found.accesses;
    let mut figures = Vec::new();
    let mut add = |metric: &str, unit: &str, value: f64| {
        figures.push(Figure {
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            value,
        });
    };
    add("requests", "count", found.operations.total() as f64);
    add("read_share", "ratio", found.operations.read_share());
    add("read_bytes_mean", "B", found.read_sizes.mean());
    add("write_bytes_mean", "B", found.write_sizes.mean());
    add("accesses", "count", accesses.total as f64);
    add("unique", "count", accesses.unique as f64);
    add("working_set", "B", accesses.working_set_bytes as f64);
    add("reuse_share", "ratio", accesses.reuse_share);
    add(
        "top_1_percent_share",
        "ratio",
        found.skew.top_1_percent_share,
    );
    add(
        "top_10_percent_share",
        "ratio",
        found.skew.top_10_percent_share,
    );
    if let Some(zipf) = found.skew.zipf {
        add("zipf_exponent", "none", zipf.exponent);
    }
    if let Some(time) = found.time {
        add("span", "s", time.span_s);
    }
    if let Some(sequential) = found.sequential {
        add(
            "sequential_request_share",
            "ratio",
            sequential.request_share,
        );
        add("sequential_byte_share", "ratio", sequential.byte_share);
    }
    figures
}

/// The share of requests up to each size, on a logarithmic axis.
fn size_curve(found: &TraceStat) -> Curve {
    let line = |name: &str, sizes: &Sizes| {
        let mut seen = 0;
        let points = sizes.bins().into_iter().map(|bin| {
            seen += bin.count;
            let share = super::ratio(seen, sizes.count());
            (bin.bytes_max as f64, 100.0 * share)
        });
        CurveLine {
            name: name.to_owned(),
            points: points.collect(),
        }
    };
    let lines = [("reads", &found.read_sizes), ("writes", &found.write_sizes)];
    let sizes = lines.iter().flat_map(|(_, sizes)| sizes.bins());
    let mut ticks: Vec<u64> = sizes.map(|bin| bin.bytes_max).collect();
    ticks.sort_unstable();
    ticks.dedup();
    let named = ticks.into_iter();
    Curve {
        title: "Sizes of requests".to_owned(),
        x_label: "request size".to_owned(),
        y_label: "% of requests up to it".to_owned(),
        x_ticks: named
            .map(|bytes| (bytes as f64, floe_core::ByteSize(bytes).to_string()))
            .collect(),
        x_is_log: true,
        y_is_log: false,
        lines: lines
            .into_iter()
            .filter(|(_, sizes)| sizes.count() > 0)
            .map(|(name, sizes)| line(name, sizes))
            .collect(),
    }
}

/// Accesses by rank, both logarithmic.
fn popularity_curve(found: &TraceStat) -> Curve {
    let popularity = &found.skew.popularity;
    let last = popularity.last().map_or(1, |(rank, _)| *rank);
    let decades = (0..20).map(|power| 10u64.pow(power));
    Curve {
        title: "Popularity".to_owned(),
        x_label: "rank".to_owned(),
        y_label: "accesses".to_owned(),
        x_ticks: decades
            .take_while(|rank| *rank <= last)
            .map(|rank| (rank as f64, rank.to_string()))
            .collect(),
        x_is_log: true,
        y_is_log: true,
        lines: vec![CurveLine {
            name: found.unit(),
            points: popularity
                .iter()
                .map(|(rank, count)| (*rank as f64, *count as f64))
                .collect(),
        }],
    }
}
