//! `cargo xtask bench`: every committed benchmark with one command, and the
//! page and the JSON that the README's figures come from.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::project;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Only the benches whose names contain one of these words.
    pub only: Vec<String>,
    /// Shorter runs: to see that the benches work, not to quote.
    #[arg(long)]
    pub quick: bool,
    /// Print the figures, leave docs/benchmarks.md and its JSON as they are.
    #[arg(long)]
    pub dry_run: bool,
}

struct Bench {
    name: &'static str,
    about: &'static str,
    /// Words after `cargo`.
    cargo: &'static [&'static str],
    /// The folder it runs in.
    folder: &'static str,
    /// What it is told further.
    full: &'static [&'static str],
    /// The same for a quick run.
    quick: &'static [&'static str],
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "device",
        about: "The device back ends against a raw io_uring loop on the same file",
        cargo: &["bench", "--package", "floe-device", "--bench", "ring", "--"],
        folder: "",
        full: &["1024", "2"],
        quick: &["256", "1"],
    },
    Bench {
        name: "store",
        about: "Flash hits through the library against a raw io_uring loop on the same file",
        cargo: &["bench", "--package", "floe", "--bench", "store", "--"],
        folder: "",
        full: &["--json"],
        quick: &["--json", "--quick"],
    },
    Bench {
        name: "peers",
        about: "Floe and foyer on the same file system with the same sizes, workload and threads",
        cargo: &["run", "--release", "--quiet", "--"],
        folder: "peers",
        full: &["--json"],
        quick: &["--json", "--quick"],
    },
];

const PAGE: &str = "docs/benchmarks.md";
const FIGURES: &str = "docs/benchmarks.json";

/// Runs the benches; each prints JSON lines, one per figure.
pub fn run(options: &Options) -> Result<()> {
    let mut sections = Vec::new();
    for bench in BENCHES {
        if !options.only.is_empty() && !options.only.iter().any(|w| bench.name.contains(w.as_str()))
        {
            continue;
        }
        println!("bench: {}", bench.name);
        sections.push((bench, run_bench(bench, options.quick)?));
    }
    if sections.is_empty() {
        bail!(
            "no bench has such a name; there are: {}",
            names().join(", ")
        );
    }
    let machine = machine()?;
    let page = page(&machine, &sections);
    println!("\n{page}");
    if options.dry_run || options.quick || !options.only.is_empty() {
        println!("{PAGE} is left as it is: only a full run writes it");
        return Ok(());
    }
    let figures: serde_json::Map<String, Value> = sections
        .iter()
        .map(|(bench, rows)| (bench.name.to_owned(), json!(rows)))
        .collect();
    let document = json!({ "machine": machine, "figures": figures });
    fs::write(
        project::root().join(FIGURES),
        serde_json::to_string_pretty(&document)? + "\n",
    )?;
    fs::write(project::root().join(PAGE), page).with_context(|| format!("writing {PAGE}"))
}

fn names() -> Vec<&'static str> {
    BENCHES.iter().map(|bench| bench.name).collect()
}

/// One row per line of standard output that is a JSON object; of a bench that
/// prints a table, one row per line of it.
fn run_bench(bench: &Bench, quick: bool) -> Result<Vec<Value>> {
    let mut command: Command = project::cargo();
    command
        .current_dir(project::root().join(bench.folder))
        .args(bench.cargo)
        .args(if quick { bench.quick } else { bench.full });
    let printed = project::output(&mut command)?;
    let mut rows: Vec<Value> = printed
        .lines()
        .filter(|line| line.trim_start().starts_with('{'))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if rows.is_empty() {
        rows = table_rows(&printed);
    }
    if rows.is_empty() {
        bail!("the bench {} printed no figures:\n{printed}", bench.name);
    }
    Ok(rows)
}

/// Rows of the table that the device's bench prints under one line of names.
fn table_rows(printed: &str) -> Vec<Value> {
    let mut lines = printed.lines().filter(|line| !line.trim().is_empty());
    let Some(head) = lines.next() else {
        return Vec::new();
    };
    // "CPU us", "CPU ratio" and "rate ratio" are columns of two words.
    let names: Vec<String> = head
        .replace("CPU ", "CPU_")
        .replace("rate ratio", "rate_ratio")
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    lines
        .filter_map(|line| {
            let cells = cells(line, names.len())?;
            Some(Value::Object(names.iter().cloned().zip(cells).collect()))
        })
        .collect()
}

/// Two numbers, a name with spaces, and numbers for the rest of `columns`.
fn cells(line: &str, columns: usize) -> Option<Vec<Value>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let name_words = words.len().checked_sub(columns - 1).filter(|n| *n > 0)?;
    let (numbers, rest) = words.split_at(2);
    let (name, tail) = rest.split_at(name_words);
    let number = |word: &&str| word.parse::<f64>().ok().map(Value::from);
    let mut cells: Vec<Value> = numbers.iter().map(number).collect::<Option<_>>()?;
    cells.push(json!(name.join(" ")));
    cells.extend(tail.iter().map(number).collect::<Option<Vec<_>>>()?);
    Some(cells)
}

/// What the figures were measured on.
fn machine() -> Result<Value> {
    let git = |arguments: &[&str]| {
        project::output(
            Command::new("git")
                .args(arguments)
                .current_dir(project::root()),
        )
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
    };
    let processors = std::thread::available_parallelism()?.get();
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown", |(_, name)| name.trim())
        .to_owned();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(json!({
        "processor": model,
        "processors": processors,
        "kernel": kernel.trim(),
        "commit": git(&["rev-parse", "--short=12", "HEAD"]),
        "changed_since_commit": !git(&["status", "--porcelain"]).is_empty(),
        "date": git(&["log", "-1", "--format=%cs"]),
    }))
}

fn page(machine: &Value, sections: &[(&Bench, Vec<Value>)]) -> String {
    let text = |key: &str| machine[key].as_str().unwrap_or_default().to_owned();
    let mut page = String::from("# Benchmarks\n\n");
    let _ = writeln!(
        page,
        "Written by `cargo xtask bench`; the same figures as JSON are in [benchmarks.json](benchmarks.json). \
         Figures of one table come from one run and are to be read as ratios to each other.\n\n\
         Machine: {}, {} processors, Linux {}. Commit {}{}.",
        text("processor"),
        machine["processors"],
        text("kernel"),
        text("commit"),
        if machine["changed_since_commit"] == true {
            " with local changes"
        } else {
            ""
        },
    );
    for (bench, rows) in sections {
        let _ = writeln!(page, "\n## {}\n\n{}.\n", bench.name, bench.about);
        page += &table(rows);
    }
    page
}

/// Rows that share their keys become one table.
fn table(rows: &[Value]) -> String {
    let mut text = String::new();
    let mut columns: Vec<&str> = Vec::new();
    for row in rows {
        let Some(object) = row.as_object() else {
            continue;
        };
        let keys: Vec<&str> = object.keys().map(String::as_str).collect();
        if keys != columns {
            if !columns.is_empty() {
                text.push('\n');
            }
            let heads: Vec<String> = keys.iter().map(|key| key.replace('_', " ")).collect();
            let _ = writeln!(
                text,
                "| {} |\n|{}",
                heads.join(" | "),
                "---|".repeat(keys.len())
            );
            columns = keys;
        }
        let cells: Vec<String> = object.values().map(cell).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if !number.is_u64() && !number.is_i64() => round(float),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// Three significant digits, or whole numbers where there are more.
fn round(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
