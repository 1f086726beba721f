//! The page, with its style, script and figures inside.

use std::fmt::Write as _;

use super::chart::{self, COLOURS, dashes};
use super::data::ReportData;
use super::figure::Figure;
use super::scale::short;
use super::table::Table;
use super::tables::is_timed;
use super::text::{bytes, escape, percent, rate, time};
use super::{figures, panels, tables, verdicts};
use crate::replay::ReplayResult;
use crate::run::RunResult;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Rows from which a table is folded.
const ROWS_SHOWN_MAX: usize = 40;

/// The whole page.
pub(super) fn page(data: &ReportData) -> String {
    let mut body = String::new();
    header(data, &mut body);
    section("At a glance", &cards(&data.runs), &mut body);
    section("Verdicts", &comparison(data), &mut body);
    let curves = figures::curves(data).into_iter().map(Figure::Lines);
    section("Curves", &grid(&curves.collect::<Vec<_>>(), &[]), &mut body);
    section("Panels", &grid(&panels::all(data), &[]), &mut body);
    for replay in &data.replays {
        section(
            &format!("Replay of {}", replay.trace),
            &replayed(replay),
            &mut body,
        );
    }
    runs(data, &mut body);
    provenance(data, &mut body);
    frame(&data.title, &body)
}

/// A page with this title and body.
pub(super) fn frame(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <link rel=\"icon\" href=\"data:,\">\
         <title>{} – Floe</title><style>{}{STYLE}</style></head><body><main>{body}</main>\
         <script>{SCRIPT}</script></body></html>\n",
        escape(title),
        chart::style()
    )
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

pub(super) fn section(title: &str, body: &str, page: &mut String) {
    if !body.is_empty() {
        let _ = write!(page, "<section><h2>{}</h2>{body}</section>", escape(title));
    }
}

/// The most important numbers, only for a single run.
fn cards(runs: &[RunResult]) -> String {
    let [run] = runs else { return String::new() };
    let mut cards = String::from("<div class=\"cards\">");
    let mut card = |name: &str, value: String| {
        let _ = write!(
            cards,
            "<div class=\"card\"><b>{value}</b><span>{name}</span></div>"
        );
    };
    let whole = &run.whole;
    if is_timed(run) {
        card("get throughput", rate(whole.get_bytes_per_s));
        card("requests per second", short(whole.requests_per_s));
    }
    if !whole.hits_untold {
        card("hit ratio", percent(whole.hit_ratio));
    }
    if is_timed(run) {
        card("get p50", time(whole.get.p50_ms));
        card("get p99", time(whole.get.p99_ms));
    }
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
    let runs = data.runs.iter().enumerate();
    let names: Vec<(usize, String)> = runs.map(|(style, run)| (style, run.name.clone())).collect();
    let over_time = figures::all_over_time(&data.runs)
        .into_iter()
        .map(Figure::Lines);
    let over_time = grid(&over_time.collect::<Vec<_>>(), &names);
    let by_percentile = figures::percentiles(&data.runs).map(Figure::Lines);
    let mut latency: Vec<Figure> = by_percentile.into_iter().collect();
    latency.extend(panels::distributions(&data.runs));
    latency.retain(|figure| !figure.is_empty());
    let latency = grid(&latency, &names);
    let latencies: String = tables::latencies(&data.runs).iter().map(titled).collect();
    // The panels of an experiment are its most important charts.
    let is_folded = !data.panels.is_empty();
    let fold = |name: &str, body: String| match is_folded && !body.is_empty() {
        true => format!("<details><summary>{name} of all cases</summary>{body}</details>"),
        false => body,
    };
    section(
        "The nine series over time",
        &fold("Charts", over_time),
        page,
    );
    let extra = grid(&panels::extra_series(&data.runs), &names);
    section("Over operations", &fold("Charts", extra), page);
    section("Distributions", &fold("Charts", latency), page);
    section("Latency", &fold("Tables", latencies), page);
    section(
        "Throughput and cost",
        &tables::costs(&data.runs).html(),
        page,
    );
    let extras = tables::extras(&data.runs);
    if !extras.is_empty() {
        section(&extras.title, &extras.html(), page);
    }
}

fn titled(table: &Table) -> String {
    format!("<h3>{}</h3>{}", escape(&table.title), table.html())
}

/// A table under its title; a long one is folded.
pub(super) fn foldable(table: &Table) -> String {
    if table.rows.len() <= ROWS_SHOWN_MAX {
        return titled(table);
    }
    format!(
        "<details><summary>{}: {} rows</summary>{}</details>",
        escape(&table.title),
        table.rows.len(),
        table.html()
    )
}

fn replayed(replay: &ReplayResult) -> String {
    let charts = figures::miss_ratios(replay).into_iter().map(Figure::Lines);
    let charts: Vec<Figure> = charts.collect();
    let legend = charts.first().map(Figure::legend).unwrap_or_default();
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
    let tables: String = tables::replay(replay).iter().map(titled).collect();
    grid(&charts, &legend) + &facts + &tables
}

fn comparison(data: &ReportData) -> String {
    let tables = verdicts::tables(&data.rows);
    if tables.is_empty() {
        return String::new();
    }
    let judgement = verdicts::judgement(&data.rows).replace('\n', "<br>");
    let tables: String = tables.iter().map(foldable).collect();
    format!("<p class=\"facts\">{judgement}</p>{tables}")
}

/// Charts side by side under one legend; without names, each with its own.
pub(super) fn grid(charts: &[Figure], names: &[(usize, String)]) -> String {
    if charts.iter().all(Figure::is_empty) {
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
                escape(&chart.title().replace('\n', ", "))
            )
        } else {
            chart.svg(false)
        };
        let own = match chart.legend() {
            lines if names.is_empty() && lines.len() > 1 => legend(&lines),
            _ => String::new(),
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
        "</dl><details><summary>Each case</summary>{}</details>\
         <details><summary>Configuration</summary><pre>{}</pre></details>",
        tables::provenance(&data.rows).html(),
        escape(&data.config)
    );
    section("Where these figures come from", &body, page);
}
