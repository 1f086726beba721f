//! The page. All of its style, script and figures are inside of it.

use std::fmt::Write as _;

use super::chart::{self, COLOURS, Chart, dashes};
use super::text::{bytes, escape, percent, rate, time};
use super::{ReportData, figures};
use crate::metrics::{LatencySummary, SERIES, SeriesKind};
use crate::replay::ReplayResult;
use crate::replay::policy::PolicyCounts;
use crate::results::Row;
use crate::run::RunResult;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The whole page.
pub(super) fn page(data: &ReportData) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <link rel=\"icon\" href=\"data:,\">\
         <title>{} – Floe</title><style>{}{STYLE}</style></head><body><main>",
        escape(&data.title),
        chart::style()
    );
    header(data, &mut page);
    section("At a glance", &cards(&data.runs), &mut page);
    section("Curves", &grid(&figures::curves(data), &[]), &mut page);
    for replay in &data.replays {
        let charts = figures::miss_ratios(replay);
        let legend = charts.first().map(names).unwrap_or_default();
        let body = grid(&charts, &legend) + &replay_table(replay);
        section(&format!("Replay of {}", replay.trace), &body, &mut page);
    }
    runs(data, &mut page);
    section(
        "Beside published figures",
        &comparison(&data.rows),
        &mut page,
    );
    provenance(data, &mut page);
    let _ = writeln!(page, "</main><script>{SCRIPT}</script></body></html>");
    page
}

fn header(data: &ReportData, page: &mut String) {
    let _ = write!(
        page,
        "<header><p class=\"brand\">floe · {}</p><h1>{}</h1>",
        escape(&data.name),
        escape(&data.title)
    );
    for paragraph in data
        .about
        .split("\n\n")
        .filter(|text| !text.trim().is_empty())
    {
        let _ = write!(page, "<p class=\"about\">{}</p>", escape(paragraph.trim()));
    }
    let from = &data.provenance;
    let device = match from.device.as_str() {
        "none" => String::new(),
        device => format!(" · {}", escape(device)),
    };
    let _ = write!(
        page,
        "<p class=\"facts\">{} · {}{device}</p>",
        escape(&from.date),
        escape(&from.machine)
    );
    if !data.missing.is_empty() {
        let _ = write!(
            page,
            "<details><summary>{} cases were not run</summary><p class=\"facts\">{}</p></details>",
            data.missing.len(),
            escape(&data.missing.join(" · "))
        );
    }
    page.push_str("</header>");
}

fn section(title: &str, body: &str, page: &mut String) {
    if !body.is_empty() {
        let _ = write!(page, "<section><h2>{}</h2>{body}</section>", escape(title));
    }
}

/// The numbers that one looks for first; only for a single run.
fn cards(runs: &[RunResult]) -> String {
    let [run] = runs else { return String::new() };
    let mut cards = String::from("<div class=\"cards\">");
    let mut card = |name: &str, value: String| {
        let _ = write!(
            cards,
            "<div class=\"card\"><b>{value}</b><span>{name}</span></div>"
        );
    };
    card("get throughput", rate(run.whole.get_bytes_per_s));
    card(
        "requests per second",
        super::scale::short(run.whole.requests_per_s),
    );
    card("hit ratio", percent(run.whole.hit_ratio));
    card("get p50", time(run.whole.get.p50_ms));
    card("get p99", time(run.whole.get.p99_ms));
    if let Some(factor) = run.write_amplification {
        card("write amplification", format!("{factor:.3}"));
    }
    if let Some(rss) = run.rss_bytes_max {
        card("memory, greatest", bytes(rss as f64));
    }
    cards + "</div>"
}

fn runs(data: &ReportData, page: &mut String) {
    if data.runs.is_empty() {
        return;
    }
    let names: Vec<(usize, String)> = data
        .runs
        .iter()
        .enumerate()
        .map(|(style, run)| (style, run.name.clone()))
        .collect();
    let over_time = figures::nine(&data.runs);
    section("The nine series over time", &grid(&over_time, &names), page);
    let by_percentile: Vec<Chart> = figures::percentiles(&data.runs).into_iter().collect();
    let tables = latency_tables(&data.runs);
    section("Latency", &(grid(&by_percentile, &names) + &tables), page);
    section("Throughput and cost", &cost_table(&data.runs), page);
}

fn names(chart: &Chart) -> Vec<(usize, String)> {
    chart
        .lines
        .iter()
        .map(|line| (line.style, line.name.clone()))
        .collect()
}

/// Charts side by side under one legend; without names, each with its own.
fn grid(charts: &[Chart], names: &[(usize, String)]) -> String {
    if charts.iter().all(Chart::is_empty) {
        return String::new();
    }
    let mut grid = String::from("<div class=\"group\">");
    if names.len() > 1 {
        grid += &legend(names);
    }
    grid.push_str("<div class=\"grid\">");
    for chart in charts {
        let body = if chart.is_empty() {
            format!(
                "<p class=\"none\"><b>{}</b>nothing happened</p>",
                escape(&chart.title)
            )
        } else {
            chart.svg(false)
        };
        let own = if names.is_empty() && chart.lines.len() > 1 {
            legend(&self::names(chart))
        } else {
            String::new()
        };
        let class = if names.is_empty() { "group" } else { "" };
        let _ = write!(grid, "<figure class=\"{class}\">{body}{own}</figure>");
    }
    grid + "</div></div>"
}

fn legend(names: &[(usize, String)]) -> String {
    let mut legend = String::from("<div class=\"legend fl\">");
    for (style, name) in names {
        let _ = write!(
            legend,
            "<button type=\"button\" data-line=\"{style}\" aria-pressed=\"true\" title=\"show or hide\">\
             <svg width=\"26\" height=\"10\" aria-hidden=\"true\"><path d=\"M1 5h24\" stroke=\"var(--c{})\" stroke-dasharray=\"{}\"/></svg>{}</button>",
            style % COLOURS,
            dashes(*style),
            escape(name)
        );
    }
    legend + "</div>"
}

fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = String::from("<div class=\"scroll\"><table><thead><tr>");
    for name in head {
        let _ = write!(table, "<th>{}</th>", escape(name));
    }
    table.push_str("</tr></thead><tbody>");
    for row in rows {
        table.push_str("<tr>");
        for cell in row {
            let _ = write!(table, "<td>{}</td>", escape(&cell));
        }
        table.push_str("</tr>");
    }
    table + "</tbody></table></div>"
}

fn latency_tables(runs: &[RunResult]) -> String {
    let mut tables = String::new();
    for series in &SERIES {
        let SeriesKind::Latency(of) = series.kind else {
            continue;
        };
        if runs.iter().all(|run| of(&run.whole).count == 0) {
            continue;
        }
        let _ = write!(tables, "<h3>{}</h3>", escape(series.title));
        tables += &table(
            &[
                "case", "count", "mean", "p50", "p99", "p99.9", "p99.99", "max",
            ],
            runs.iter().map(|run| latency_row(run, of(&run.whole))),
        );
    }
    tables
}

fn latency_row(run: &RunResult, summary: &LatencySummary) -> Vec<String> {
    let mut row = vec![run.name.clone(), summary.count.to_string()];
    let values = [
        summary.mean_ms,
        summary.p50_ms,
        summary.p99_ms,
        summary.p999_ms,
        summary.p9999_ms,
        summary.max_ms,
    ];
    row.extend(values.map(|ms| {
        if summary.count == 0 {
            "–".into()
        } else {
            time(ms)
        }
    }));
    row
}

fn cost_table(runs: &[RunResult]) -> String {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".into());
    table(
        &[
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
        ],
        runs.iter().map(|run| {
            let whole = &run.whole;
            vec![
                run.name.clone(),
                run.requests.to_string(),
                run.failed.to_string(),
                super::scale::short(whole.requests_per_s),
                rate(whole.get_bytes_per_s),
                rate(whole.read_bytes_per_s),
                rate(whole.write_bytes_per_s),
                percent(whole.hit_ratio),
                percent(whole.byte_hit_ratio),
                or_none(whole.cpu_percent.map(|cpu| format!("{cpu:.0} %"))),
                or_none(run.cpu_us_per_request.map(|us| time(us / 1e3))),
                or_none(run.rss_bytes_max.map(|rss| bytes(rss as f64))),
                or_none(run.write_amplification.map(|factor| format!("{factor:.3}"))),
            ]
        }),
    )
}

fn replay_table(replay: &ReplayResult) -> String {
    let facts = format!(
        "<p class=\"facts\">{} requests, {} format, cache of {}{}</p>",
        replay.requests,
        escape(&replay.format),
        escape(&replay.unit),
        match replay.skipped {
            0 => String::new(),
            skipped => format!(", {skipped} bad lines skipped"),
        }
    );
    let ratio = pivot(replay, |counts| percent(counts.miss_ratio()));
    let misses = pivot(replay, |counts| counts.misses.to_string());
    format!("{facts}<h3>Miss ratio</h3>{ratio}<h3>Misses</h3>{misses}")
}

/// A row per size, a column per policy.
fn pivot(replay: &ReplayResult, cell: fn(&PolicyCounts) -> String) -> String {
    let mut sizes: Vec<u64> = replay.counts.iter().map(|c| c.cache_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut policies: Vec<&str> = replay.counts.iter().map(|c| c.policy.name()).collect();
    policies.dedup();
    let head: Vec<&str> = std::iter::once("cache size")
        .chain(policies.iter().copied())
        .collect();
    let rows = sizes.iter().map(|&size| {
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
    });
    table(&head, rows)
}

fn comparison(rows: &[Row]) -> String {
    const SHOWN_MAX: usize = 24;
    let compared: Vec<&Row> = rows.iter().filter(|row| row.paper.is_some()).collect();
    if compared.is_empty() {
        return String::new();
    }
    let differs = |row: &&&Row| {
        row.verdict
            .as_deref()
            .is_some_and(|v| v.starts_with("DIFFERS"))
    };
    let differing = compared.iter().filter(differs).count();
    let summary = format!(
        "{} figures compared, {} of them differ",
        compared.len(),
        if differing == 0 {
            "none".to_owned()
        } else {
            differing.to_string()
        }
    );
    let body = table(
        &[
            "case",
            "metric",
            "unit",
            "measured",
            "published",
            "verdict",
            "source",
        ],
        compared.iter().map(|row| {
            vec![
                row.case.clone(),
                row.metric.clone(),
                row.unit.clone(),
                plain(row.measured),
                row.paper.map(plain).unwrap_or_default(),
                row.verdict.clone().unwrap_or_default(),
                row.source.clone().unwrap_or_default(),
            ]
        }),
    );
    if compared.len() > SHOWN_MAX {
        format!("<details><summary>{summary}</summary>{body}</details>")
    } else {
        format!("<p class=\"facts\">{summary}</p>{body}")
    }
}

/// Counts exactly, other numbers in short.
fn plain(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        format!("{value:.0}")
    } else {
        super::scale::short(value)
    }
}

fn provenance(data: &ReportData, page: &mut String) {
    let from = &data.provenance;
    let seed = from.seed.to_string();
    let facts = [
        ("Floe", &from.commit),
        ("Date", &from.date),
        ("Machine", &from.machine),
        ("Device", &from.device),
        ("Seed", &seed),
        ("Configuration digest", &from.config_digest),
    ];
    let mut body = String::from("<dl>");
    for (name, value) in facts {
        let _ = write!(body, "<dt>{name}</dt><dd>{}</dd>", escape(value));
    }
    let _ = write!(
        body,
        "</dl><details><summary>Configuration</summary><pre>{}</pre></details>",
        escape(&data.config)
    );
    section("Where these figures come from", &body, page);
}
