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
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "device",
        about: "The device back ends against a raw io_uring loop on the same file",
        cargo: &["bench", "--package", "floe-device", "--bench", "ring", "--"],
        folder: "",
    },
    Bench {
        name: "store",
        about: "Flash hits through the library against a raw io_uring loop on the same file",
        cargo: &["bench", "--package", "floe", "--bench", "store", "--"],
        folder: "",
    },
    Bench {
        name: "peers",
        about: "Floe and foyer on the same file system with the same sizes, workload and threads",
        cargo: &["run", "--release", "--quiet", "--"],
        folder: "peers",
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

/// One row per line of standard output that is a JSON object.
fn run_bench(bench: &Bench, quick: bool) -> Result<Vec<Value>> {
    let mut command: Command = project::cargo();
    command
        .current_dir(project::root().join(bench.folder))
        .args(bench.cargo)
        .arg("--json");
    if quick {
        command.arg("--quick");
    }
    let printed = project::output(&mut command)?;
    let rows: Vec<Value> = printed
        .lines()
        .filter(|line| line.trim_start().starts_with('{'))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if rows.is_empty() {
        bail!("the bench {} printed no figures:\n{printed}", bench.name);
    }
    Ok(rows)
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
