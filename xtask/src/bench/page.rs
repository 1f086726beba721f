//! Renders figures as Markdown: the page of all figures, its summary, and the
//! README's headlines.

mod cells;
mod rivals;
mod s3;
mod tiny;

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::{Map, Value};

use super::list::BENCHES;
use cells::{cell, entry, line, round};

/// Columns that identify a row; they come first, in this order.
const LABELS: &[&str] = &[
    "value_kib",
    "value_bytes",
    "bytes",
    "depth",
    "peer",
    "runtime",
    "recovered_after",
    "engine",
    "flash_gib",
    "turnovers",
    "gets_a_second",
    "sets_a_second",
    "start_after",
    "mix",
    "filters",
    "key",
    "lookup",
    "threads",
    "set_groups",
    "step",
    "figure",
];

/// The summary's lines that the README shows: two for the device, two for
/// peers, and one that a peer wins.
const HEADLINES: &[&str] = &[
    "flash hit of 4 KiB, depth 64, over an io_uring loop |",
    "gets per CPU second at 4 KiB, over foyer's best |",
    "flash gets of 246 B per CPU second, over memcached with extstore",
    "Twitter-like mix of 246 B, bytes written",
    "Twitter-like mix of 246 B, requests per CPU second",
];

const BEGIN: &str = "<!-- figures:begin -->";
const END: &str = "<!-- figures:end -->";

/// The page of all figures.
pub(super) fn page(figures: &Map<String, Value>) -> String {
    let mut page = String::from(
        "# Benchmarks\n\n\
         Written by `cargo xtask bench`; the same figures as JSON are in [benchmarks.json](benchmarks.json). \
         Figures of one table come from one run and are to be read as ratios to each other.\n\n\
         ## Summary\n\n",
    );
    page += &summary(figures);
    for bench in BENCHES {
        let Some(section) = figures.get(bench.name) else {
            continue;
        };
        let rows = section["rows"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let _ = writeln!(
            page,
            "\n## {}\n\n{}. `cargo xtask bench {}{}`\n\n{}\n",
            bench.name,
            bench.about,
            bench.name,
            arguments(section),
            machine(&section["machine"]),
        );
        page += &if matches!(bench.name, "peers" | "rivals") {
            compared(rows)
        } else {
            tables(rows)
        };
    }
    page
}

fn arguments(section: &Value) -> String {
    let words: Vec<&str> = section["arguments"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if words.is_empty() {
        String::new()
    } else {
        format!(" -- {}", words.join(" "))
    }
}

fn machine(machine: &Value) -> String {
    let text = |key: &str| machine[key].as_str().unwrap_or("unknown").to_owned();
    format!(
        "Machine: {}, {} processors, Linux {}, load {} when it began. Commit {}{}.",
        text("processor"),
        machine["processors"],
        text("kernel"),
        text("load"),
        text("commit"),
        if machine["changed_since_commit"] == true {
            " with local changes"
        } else {
            ""
        },
    )
}

/// Puts rows with the same keys into one table.
fn tables(rows: &[Value]) -> String {
    let mut groups: Vec<(Vec<&str>, Vec<&Value>)> = Vec::new();
    for row in rows {
        let keys = ordered_keys(row);
        match groups.iter_mut().find(|(columns, _)| *columns == keys) {
            Some((_, members)) => members.push(row),
            None => groups.push((keys, vec![row])),
        }
    }
    let mut text = String::new();
    for (index, (columns, members)) in groups.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        heading(
            &mut text,
            columns
                .iter()
                .map(|column| column.replace('_', " "))
                .collect(),
        );
        for row in members {
            line(
                &mut text,
                columns.iter().map(|column| cell(&row[*column])).collect(),
            );
        }
    }
    text
}

fn ordered_keys(row: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = row
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .map(String::as_str)
        .collect();
    keys.sort_by_key(|key| {
        LABELS
            .iter()
            .position(|label| label == key)
            .unwrap_or(LABELS.len())
    });
    keys
}

/// One table per value size: figures in rows, peers in columns.
fn compared(rows: &[Value]) -> String {
    let mut sizes: Vec<(&str, u64, &str)> = rows
        .iter()
        .filter_map(|row| {
            let kib = row["value_kib"]
                .as_u64()
                .map(|kib| ("value_kib", kib, "KiB"));
            kib.or_else(|| Some(("value_bytes", row["value_bytes"].as_u64()?, "B")))
        })
        .collect();
    sizes.dedup();
    let mut text = String::new();
    for (name, size, unit) in sizes {
        let members: Vec<&Value> = rows.iter().filter(|row| row[name] == size).collect();
        let _ = writeln!(text, "### Values of {size} {unit}\n");
        let mut head = vec!["figure".to_owned()];
        head.extend(members.iter().map(|row| cell(&row["peer"])));
        heading(&mut text, head);
        let figures = members
            .first()
            .map(|row| ordered_keys(row))
            .unwrap_or_default();
        for figure in figures
            .into_iter()
            .filter(|figure| !LABELS.contains(figure))
        {
            let mut cells = vec![figure.replace('_', " ")];
            cells.extend(members.iter().map(|row| cell(&row[figure])));
            line(&mut text, cells);
        }
        text.push('\n');
    }
    text
}

fn heading(text: &mut String, names: Vec<String>) {
    let _ = writeln!(
        text,
        "| {} |\n|{}",
        names.join(" | "),
        "---|".repeat(names.len())
    );
}

/// Replaces the headlines in `readme`.
pub(super) fn with_headlines(readme: &str, figures: &Map<String, Value>) -> Result<String> {
    let begin = readme
        .find(BEGIN)
        .context("README.md has no place for figures")?
        + BEGIN.len();
    let end = readme
        .find(END)
        .context("README.md has no place for figures")?;
    Ok(format!(
        "{}\n{}{}",
        &readme[..begin],
        headlines(figures),
        &readme[end..]
    ))
}

/// The most important figures, beside the goals.
fn summary(figures: &Map<String, Value>) -> String {
    let rows = |name: &str| -> Vec<&Value> {
        figures
            .get(name)
            .and_then(|s| s["rows"].as_array())
            .into_iter()
            .flatten()
            .collect()
    };
    let mut text = String::new();
    heading(
        &mut text,
        ["", "measured", "goal"].map(str::to_owned).to_vec(),
    );
    let store = rows("store");
    for kib in [4, 64] {
        flash_hits(&mut text, &store, kib);
    }
    index_and_recovery(&mut text, &store);
    purges(&mut text, &rows("purges"));
    tiny::brains(&mut text, &rows("tiny"));
    tiny::steps(&mut text, &rows("tiny-steps"));
    tiny::stalls(&mut text, &rows("stalls"));
    for kib in [4, 64, 1024] {
        against_foyer(&mut text, &rows("peers"), kib);
    }
    against_memcached(&mut text, &rows("memcached"));
    against_nbd_servers(&mut text, &rows("nbd"));
    for bytes in [246, 4096] {
        rivals::compare(&mut text, &rows("rivals"), bytes);
    }
    rivals::compare_fill(&mut text, &rows("fill"));
    s3::compare(&mut text, &rows("s3"));
    s3::far(&mut text, &rows("far"));
    simulated(&mut text, &rows("ssd"));
    text
}

/// The summary's lines that the README shows.
fn headlines(figures: &Map<String, Value>) -> String {
    let mut text = String::new();
    heading(
        &mut text,
        ["", "measured", "goal"].map(str::to_owned).to_vec(),
    );
    for line in summary(figures).lines() {
        let is_headline = |head: &&str| line.starts_with(&format!("| {head}"));
        if HEADLINES.iter().any(is_headline) {
            text += line;
            text.push('\n');
        }
    }
    text
}

/// Flash hits beside plain io_uring loops, and bytes written per accepted byte.
fn flash_hits(text: &mut String, store: &[&Value], kib: u64) {
    let of_size: Vec<_> = store.iter().filter(|row| row["value_kib"] == kib).collect();
    let hits = |row: &&&&Value| row["depth"] == 64 && row["runtime"] == "current_thread";
    for row in of_size.iter().filter(hits) {
        for (cpu, throughput, what) in [
            (
                "cpu_ratio_unregistered",
                Some("throughput_ratio_unregistered"),
                "",
            ),
            (
                "cpu_ratio",
                Some("throughput_ratio"),
                " that registers file and buffers",
            ),
            (
                "cpu_ratio_checking",
                None,
                " that registers them and checks checksums",
            ),
        ] {
            let rate = throughput.map(|rate| format!(", {} × throughput", cell(&row[rate])));
            entry(
                text,
                format!("flash hit of {kib} KiB, depth 64, over an io_uring loop{what}"),
                format!("{} × CPU{}", cell(&row[cpu]), rate.unwrap_or_default()),
                "≤ 1.6 ×, ≥ 0.9 ×",
            );
        }
    }
    for row in of_size
        .iter()
        .filter(|row| !row["write_amplification"].is_null())
    {
        entry(
            text,
            format!("write amplification at {kib} KiB"),
            cell(&row["write_amplification"]),
            if kib == 4 { "≤ 1.15" } else { "≤ 1.05" },
        );
    }
}

fn index_and_recovery(text: &mut String, store: &[&Value]) {
    let of_4_kib = || store.iter().filter(|row| row["value_kib"] == 4);
    for row in of_4_kib().filter(|row| !row["index_bytes_per_value"].is_null()) {
        entry(
            text,
            format!("index memory per value, {} values", cell(&row["values"])),
            format!("{} B", cell(&row["index_bytes_per_value"])),
            "≤ 32 B",
        );
    }
    for row in of_4_kib().filter(|row| !row["recovered_after"].is_null()) {
        let (values, after) = (cell(&row["chunks"]), cell(&row["recovered_after"]));
        entry(
            text,
            format!("recovery of {values} values after a {after}"),
            format!("{} ms of CPU", cell(&row["cpu_ms"])),
            "< 500 ms per million",
        );
    }
}

/// Gets of values in memory.
fn against_memcached(text: &mut String, rows: &[&Value]) {
    for row in rows
        .iter()
        .filter(|row| row["peer"] == "floe" && row["of_memcached"].is_number())
    {
        let case = row["case"].as_str().unwrap_or_default();
        entry(
            text,
            format!("memcached's protocol, {case}, per CPU second, over memcached"),
            format!("{} ×", cell(&row["of_memcached"])),
            "≥ 1 ×",
        );
    }
}

/// Reads and writes over NBD: CPU cost in parallel, latency one by one.
fn against_nbd_servers(text: &mut String, rows: &[&Value]) {
    for row in rows.iter().filter(|row| row["peer"] == "floe memory") {
        let case = row["case"].as_str().unwrap_or_default();
        let (figure, field, goal) = match case.ends_with("depth 1") {
            true => ("mean latency, over", "mean_us", "≤ 1 ×"),
            false => ("per CPU second, over", "requests_per_cpu_second", "≥ 1 ×"),
        };
        for peer in ["nbdkit", "qemu-nbd"] {
            let same = |other: &&&Value| other["peer"] == peer && other["case"] == row["case"];
            let theirs = rows
                .iter()
                .find(same)
                .and_then(|other| other[field].as_f64());
            if let (Some(ours), Some(theirs)) = (row[field].as_f64(), theirs) {
                let figure = format!("NBD, {case}, {figure} {peer}");
                entry(text, figure, format!("{:.2} ×", ours / theirs), goal);
            }
        }
    }
}

/// The price of many purges.
fn purges(text: &mut String, rows: &[&Value]) {
    for row in rows.iter().filter(|row| row["purges"] == 10_000) {
        entry(
            text,
            "10,000 live purges of prefixes, for each read".into(),
            format!("{} ns", cell(&row["added_ns"])),
            "≤ 1,000 ns",
        );
    }
}

/// The slowest figures of the SSD model, and the time for the papers' table.
fn simulated(text: &mut String, rows: &[&Value]) {
    let named = |row: &&&Value, begin: &str| {
        let name = row["figure"].as_str();
        name.is_some_and(|name| name.starts_with(begin))
    };
    let operations = rows.iter().filter(|row| named(row, "die operations"));
    let slowest = operations
        .filter_map(|row| row["value"].as_f64())
        .fold(f64::INFINITY, f64::min);
    if slowest.is_finite() {
        entry(
            text,
            "simulated SSD, operations of dies per second of one processor".to_owned(),
            format!("{} million", round(slowest)),
            "≥ 5 million",
        );
    }
    for row in rows.iter().filter(|row| named(row, "all of the table")) {
        entry(
            text,
            "the 32 configurations of ZNCache and OxCache on it".to_owned(),
            format!("{} s of one processor", cell(&row["value"])),
            "≤ 2400 s",
        );
    }
}

fn against_foyer(text: &mut String, peers: &[&Value], kib: u64) {
    let of = |name: &str, figure: &str| {
        peers
            .iter()
            .filter(|r| {
                r["value_kib"] == kib && r["peer"].as_str().is_some_and(|c| c.starts_with(name))
            })
            .filter_map(|r| r[figure].as_f64())
            .collect::<Vec<f64>>()
    };
    let best = of("foyer", "get_per_cpu_second")
        .into_iter()
        .fold(0.0, f64::max);
    if let Some(floe) = of("floe", "get_per_cpu_second")
        .first()
        .filter(|_| best > 0.0)
    {
        let measured = format!("{} ×", round(floe / best));
        entry(
            text,
            format!("gets per CPU second at {kib} KiB, over foyer's best"),
            measured,
            "≥ 2 ×",
        );
    }
    let worst = of("foyer", "dropped_percent")
        .into_iter()
        .fold(0.0, f64::max);
    if let Some(floe) = of("floe", "dropped_percent").first() {
        let measured = format!("{} % (foyer: up to {} %)", round(*floe), round(worst));
        entry(
            text,
            format!("inserts of a burst silently dropped at {kib} KiB"),
            measured,
            "none",
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn figures() -> Map<String, Value> {
        let rows = json!([
            { "peer": "floe", "value_kib": 4, "get_per_cpu_second": 100_000.0, "dropped_percent": 0.0 },
            { "peer": "foyer-psync", "value_kib": 4, "get_per_cpu_second": 25_000.0, "dropped_percent": 61.5 },
        ]);
        figures_of("peers", &rows)
    }

    /// Figures of one bench.
    pub(super) fn figures_of(bench: &str, rows: &Value) -> Map<String, Value> {
        let found = json!({ "machine": {}, "arguments": [], "rows": rows });
        Map::from_iter([(bench.to_owned(), found)])
    }

    #[test]
    fn headlines_replace_the_old_ones() {
        let readme = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let new = with_headlines(&readme, &figures()).expect("the marks are there");
        assert!(new.starts_with("before\n") && new.ends_with("after\n"));
        assert!(
            new.contains("| 4.00 × |") || new.contains("| 4 × |"),
            "{new}"
        );
        assert!(!new.contains("foyer: up to 61.5 %") && !new.contains("old"));
        assert!(page(&figures()).contains("foyer: up to 61.5 %"));
        assert_eq!(with_headlines(&new, &figures()).expect("still there"), new);
        assert!(with_headlines("no marks", &figures()).is_err());
    }

    #[test]
    fn committed_pages_match_the_figures() {
        let root = crate::project::root();
        let read = |name: &str| std::fs::read_to_string(root.join(name)).expect(name);
        let figures: Map<String, Value> =
            serde_json::from_str(&read("docs/benchmarks.json")).expect("is JSON");
        let readme = read("README.md");
        assert_eq!(
            with_headlines(&readme, &figures).expect("has marks"),
            readme
        );
        assert_eq!(page(&figures), read("docs/benchmarks.md"));
    }

    #[test]
    fn peers_stand_side_by_side() {
        let page = page(&figures());
        assert!(page.contains("| figure | floe | foyer-psync |"), "{page}");
        assert!(page.contains("| dropped percent | 0 | 61.5 |"), "{page}");
    }
}
