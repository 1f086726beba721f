//! `cargo xtask bench`: runs all committed benchmarks, and writes the page and
//! the JSON behind the README's figures.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::project;
use list::{BENCHES, Bench, names};

mod list;
mod page;

/// The benches to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Only the benches whose names contain one of these words.
    pub only: Vec<String>,
    /// Measure nothing: render the pages again from the existing figures.
    #[arg(long)]
    pub render: bool,
    /// Shorter runs, to check that the benches work; not for publication.
    #[arg(long)]
    pub quick: bool,
    /// Print the figures; do not change docs/benchmarks.md and its JSON.
    #[arg(long)]
    pub dry_run: bool,
    /// Further arguments for the bench itself.
    #[arg(last = true)]
    pub more: Vec<String>,
}

const PAGE: &str = "docs/benchmarks.md";
const FIGURES: &str = "docs/benchmarks.json";

/// Runs the benches. Earlier figures of other benches are kept.
pub fn run(options: &Options) -> Result<()> {
    if options.render {
        return write_pages(&earlier_figures()?);
    }
    let machine = machine()?;
    let mut measured = Map::new();
    for bench in BENCHES {
        if options.only.is_empty() || options.only.iter().any(|w| bench.name.contains(w.as_str())) {
            println!("bench: {}", bench.name);
            let rows = run_bench(bench, options)?;
            let section = json!({ "machine": machine, "arguments": options.more, "rows": rows });
            measured.insert(bench.name.to_owned(), section);
        }
    }
    if measured.is_empty() {
        bail!(
            "no bench has such a name; there are: {}",
            names().join(", ")
        );
    }
    if options.dry_run || options.quick {
        println!("\n{}", page::page(&measured));
        println!("{PAGE} is left as it is: only a full run writes it");
        return Ok(());
    }
    let mut figures = earlier_figures()?;
    figures.extend(measured);
    println!("\n{}", page::page(&figures));
    fs::write(
        project::root().join(FIGURES),
        serde_json::to_string_pretty(&figures)? + "\n",
    )?;
    write_pages(&figures)
}

/// Writes the page of all figures and the README's summary.
fn write_pages(figures: &Map<String, Value>) -> Result<()> {
    fs::write(project::root().join(PAGE), page::page(figures))
        .with_context(|| format!("writing {PAGE}"))?;
    let readme = project::root().join("README.md");
    let text = fs::read_to_string(&readme).context("reading README.md")?;
    fs::write(&readme, page::with_headlines(&text, figures)?).context("writing README.md")
}

/// The existing figures, if there are any.
fn earlier_figures() -> Result<Map<String, Value>> {
    match fs::read_to_string(project::root().join(FIGURES)) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("reading {FIGURES}")),
        Err(_) => Ok(Map::new()),
    }
}

/// Runs a bench. Each line of its output that is a JSON object is a row, and so
/// is each line of a table.
fn run_bench(bench: &Bench, options: &Options) -> Result<Vec<Value>> {
    let prepared = match bench.prepare {
        Some(prepare) => prepare()?,
        None => Vec::new(),
    };
    let mut command: Command = project::cargo();
    command
        .current_dir(project::root().join(bench.folder))
        .args(bench.cargo)
        .args(if options.quick {
            bench.quick
        } else {
            bench.full
        })
        .args(prepared)
        .args(&options.more);
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

/// The rows of the device bench's table, below a line of names.
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

/// Describes the machine of the measurement.
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
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    Ok(json!({
        "processor": model,
        "processors": processors,
        "kernel": kernel.trim(),
        "load": load,
        "commit": git(&["rev-parse", "--short=12", "HEAD"]),
        "changed_since_commit": !git(&["status", "--porcelain"]).is_empty(),
        "date": git(&["log", "-1", "--format=%cs"]),
    }))
}
