//! The tables of a report.

use super::data::ReportData;
use super::figure::slug;
use super::scale::short;
use super::table::Table;
use super::text::{bytes, percent, rate, time, value};
use super::verdicts;
use crate::metrics::{LatencySummary, SERIES, SeriesKind};
use crate::replay::ReplayResult;
use crate::replay::policy::PolicyCounts;
use crate::results::Row;
use crate::run::RunResult;

/// All tables, for export.
pub(super) fn all(data: &ReportData) -> Vec<Table> {
    let mut tables = verdicts::tables(&data.rows);
    tables.extend(latencies(&data.runs));
    tables.push(costs(&data.runs));
    tables.push(extras(&data.runs));
    tables.extend(data.replays.iter().flat_map(replay));
    tables.push(provenance(&data.rows));
    tables.retain(|table| !table.is_empty());
    tables
}

/// A table per recorded series of latencies.
pub(super) fn latencies(runs: &[RunResult]) -> Vec<Table> {
    let mut tables = Vec::new();
    for series in &SERIES {
        let SeriesKind::Latency(of) = series.kind else {
            continue;
        };
        if runs.iter().all(|run| of(&run.whole).count == 0) {
            continue;
        }
        let head = [
            "case", "count", "mean", "p50", "p99", "p99.9", "p99.99", "max",
        ];
        let mut table = Table::new(series.name.replace('_', "-"), series.title, &head);
        let rows = runs.iter().map(|run| latency_row(run, of(&run.whole)));
        table.rows.extend(rows);
        tables.push(table);
    }
    tables
}

fn latency_row(run: &RunResult, summary: &LatencySummary) -> Vec<String> {
    let mut row = vec![run.name.clone(), summary.count.to_string()];
    row.extend(summary.columns_ms().map(|ms| {
        if summary.count == 0 {
            "–".into()
        } else {
            time(ms)
        }
    }));
    row
}

/// Throughput, hit ratios and their cost.
pub(super) fn costs(runs: &[RunResult]) -> Table {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".into());
    let head = [
        "case",
        "requests",
        "failed",
        "requests/s",
        "get",
        "disk read",
        "disk write",
        "hit ratio",
        "byte hit ratio",
        "CPU",
        "CPU/request",
        "RSS, greatest",
        "WA",
    ];
    let mut table = Table::new("throughput-and-cost", "Throughput and cost", &head);
    table.rows.extend(runs.iter().map(|run| {
        let whole = &run.whole;
        let is_timed = is_timed(run);
        let timed = |text: String| or_none(is_timed.then_some(text));
        let known = |text: String| or_none((!whole.hits_untold).then_some(text));
        vec![
            run.name.clone(),
            run.requests.to_string(),
            run.failed.to_string(),
            timed(short(whole.requests_per_s)),
            timed(rate(whole.get_bytes_per_s)),
            timed(rate(whole.read_bytes_per_s)),
            timed(rate(whole.write_bytes_per_s)),
            known(percent(whole.hit_ratio)),
            known(timed(percent(whole.byte_hit_ratio))),
            or_none(whole.cpu_percent.map(|cpu| format!("{cpu:.0} %"))),
            or_none(run.cpu_us_per_request.map(|us| time(us / 1e3))),
            or_none(run.rss_bytes_max.map(|rss| bytes(rss as f64))),
            or_none(run.write_amplification.map(|factor| format!("{factor:.3}"))),
        ]
    }));
    table.without_empty_columns()
}

/// True if a run measured time. A run on modelled flash does not.
pub(super) fn is_timed(run: &RunResult) -> bool {
    run.whole.requests_per_s > 0.0
}

/// Metrics that only some runs have, a column each.
pub(super) fn extras(runs: &[RunResult]) -> Table {
    let mut metrics: Vec<&str> = Vec::new();
    for extra in runs.iter().flat_map(|run| &run.extra) {
        if !metrics.contains(&extra.metric.as_str()) {
            metrics.push(&extra.metric);
        }
    }
    let names: Vec<String> = metrics.iter().map(|name| name.replace('_', " ")).collect();
    let mut head = vec!["case"];
    head.extend(names.iter().map(String::as_str));
    let mut table = Table::new("device", "The device and what else is known", &head);
    if metrics.is_empty() {
        return table;
    }
    table.rows.extend(runs.iter().map(|run| {
        let cell = |metric: &&str| {
            let found = run.extra.iter().find(|extra| extra.metric == *metric);
            found.map_or_else(|| "–".into(), |extra| value(extra.value, &extra.unit))
        };
        let cells = metrics.iter().map(cell);
        std::iter::once(run.name.clone()).chain(cells).collect()
    }));
    table.without_empty_columns()
}

/// Miss ratios and misses, a row per size, a column per policy.
pub(super) fn replay(replay: &ReplayResult) -> Vec<Table> {
    let name = |of: &str| format!("{of}-{}", slug(&replay.name));
    let ratios = pivot(replay, |counts| percent(counts.miss_ratio()));
    let misses = pivot(replay, |counts| counts.misses.to_string());
    vec![
        Table {
            name: name("miss-ratio"),
            title: "Miss ratio".into(),
            ..ratios
        },
        Table {
            name: name("misses"),
            title: "Misses".into(),
            ..misses
        },
    ]
}

fn pivot(replay: &ReplayResult, cell: fn(&PolicyCounts) -> String) -> Table {
    let mut sizes: Vec<u64> = replay.counts.iter().map(|c| c.cache_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut policies: Vec<&str> = replay.counts.iter().map(|c| c.policy.name()).collect();
    policies.dedup();
    let head: Vec<&str> = std::iter::once("cache size")
        .chain(policies.iter().copied())
        .collect();
    let mut table = Table::new("", "", &head);
    table.rows.extend(sizes.iter().map(|&size| {
        let found = |policy: &&str| {
            let mut at_size = replay.counts.iter().filter(|c| c.cache_bytes == size);
            at_size
                .find(|counts| counts.policy.name() == *policy)
                .map_or_else(String::new, cell)
        };
        let cells = policies.iter().map(found);
        std::iter::once(replay.size_label(size))
            .chain(cells)
            .collect()
    }));
    table
}

/// The provenance of each case.
pub(super) fn provenance(rows: &[Row]) -> Table {
    let head = [
        "case",
        "commit",
        "configuration",
        "seed",
        "device",
        "machine",
        "date",
    ];
    let mut table = Table::new("provenance", "Where each case comes from", &head);
    for row in rows
        .iter()
        .filter(|row| row.unit != "ratio" || row.paper.is_none())
    {
        if table.rows.last().is_some_and(|last| last[0] == row.case) {
            continue;
        }
        let from = &row.provenance;
        let cells = [
            &row.case,
            &from.commit,
            &from.config_digest,
            &from.seed.to_string(),
            &from.device,
            &from.machine,
            &from.date,
        ];
        table.rows.push(cells.map(String::to_owned).to_vec());
    }
    table
}
