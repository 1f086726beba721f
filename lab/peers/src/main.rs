//! Floe and foyer on the same file system, with the same sizes, workload and
//! number of threads. A raw io_uring loop and fio show the limit.
//!
//! Every peer runs in its own processes, in turns (A B C A B C …). The figures
//! are medians over the turns.

mod floe_cache;
mod foyer_cache;
mod limit;
mod measure;
mod peer;
mod serve;
mod workload;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use peer::{Name, Sizes};
use workload::{Loaded, Pressure, Reopened};

/// Compare Floe with its peers.
#[derive(Parser)]
struct Arguments {
    /// Print one JSON object per row instead of a Markdown table.
    #[arg(long)]
    json: bool,
    /// Run one short round.
    #[arg(long)]
    quick: bool,
    /// Rounds. Figures are medians over them.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// A folder on the file system to use.
    #[arg(long, default_value = "target")]
    folder: PathBuf,
    /// Flash of each cache in MiB.
    #[arg(long, default_value_t = 1024)]
    flash_mib: u64,
    /// RAM tier of each cache in MiB.
    #[arg(long, default_value_t = 16)]
    ram_mib: u64,
    /// Value sizes in KiB.
    #[arg(long, value_delimiter = ',', default_value = "4,64,1024")]
    value_kib: Vec<usize>,
    /// Operations in flight.
    #[arg(long, default_value_t = 64)]
    depth: u64,
    /// Seconds of each timed phase.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Only these peers.
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Name>,
    #[command(subcommand)]
    part: Option<Part>,
}

/// A part of the work, which runs in a process of its own.
#[derive(Subcommand)]
enum Part {
    /// Run burst, gets and mixed.
    Load { name: Name, data: PathBuf },
    /// Run only the burst, and leave the cache on flash.
    Fill { name: Name, data: PathBuf },
    /// Open the cache on flash.
    Reopen {
        name: Name,
        data: PathBuf,
        entries: u64,
    },
    /// Run the raw io_uring loop.
    Ring { data: PathBuf },
    /// Serve foyer behind memcached's protocol, until standard input ends.
    Serve {
        socket: PathBuf,
        data: PathBuf,
        #[arg(value_enum)]
        io: foyer_cache::FoyerIo,
    },
}

const THREADS: usize = 2;

fn main() -> Result<()> {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        arguments.rounds = 1;
        arguments.seconds = arguments.seconds.min(2);
        arguments.flash_mib = arguments.flash_mib.min(512);
    }
    match &arguments.part {
        Some(part) => run_part(&arguments, part),
        None => compare(&arguments),
    }
}

/// Runs one part of one peer in this process, and prints its result as JSON.
fn run_part(arguments: &Arguments, part: &Part) -> Result<()> {
    let sizes = Sizes {
        flash_bytes: arguments.flash_mib << 20,
        ram_bytes: arguments.ram_mib << 20,
        value_bytes: arguments.value_kib.first().context("no value size")? << 10,
    };
    let pressure = Pressure {
        depth: arguments.depth,
        seconds: arguments.seconds,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()?;
    match part {
        Part::Load { name, data } => {
            print(&runtime.block_on(workload::load(*name, data, sizes, pressure))?)
        }
        Part::Fill { name, data } => {
            print(&runtime.block_on(workload::fill(*name, data, sizes, pressure))?)
        }
        Part::Reopen {
            name,
            data,
            entries,
        } => print(&runtime.block_on(workload::reopen(*name, data, sizes, *entries))?),
        Part::Serve { socket, data, io } => {
            runtime.block_on(serve::serve(socket, data, sizes, *io))
        }
        Part::Ring { data } => print(&limit::ring(data, sizes, pressure)?),
    }
}

fn print(result: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(result)?);
    Ok(())
}

fn compare(arguments: &Arguments) -> Result<()> {
    let all = [
        Name::Floe,
        Name::FloeRelaxed,
        Name::FoyerPsync,
        Name::FoyerUring,
    ];
    let names: Vec<Name> = all
        .into_iter()
        .filter(|name| arguments.only.is_empty() || arguments.only.contains(name))
        .collect();
    let mut rows = Vec::new();
    for &value_kib in &arguments.value_kib {
        let mut results: Vec<Vec<Value>> = vec![Vec::new(); names.len()];
        for round in 0..arguments.rounds {
            for (index, &name) in names.iter().enumerate() {
                eprintln!(
                    "peers: {value_kib} KiB, round {}, {}",
                    round + 1,
                    name.label()
                );
                results[index].push(one_turn(arguments, name, value_kib)?);
            }
        }
        for (name, turns) in names.iter().zip(&results) {
            rows.push(medians(name.label(), value_kib, turns));
        }
        rows.extend(limit::rows(arguments, value_kib)?);
    }
    show(arguments.json, &rows)
}

/// Runs all parts of one peer in fresh folders.
fn one_turn(arguments: &Arguments, name: Name, value_kib: usize) -> Result<Value> {
    std::fs::create_dir_all(&arguments.folder)?;
    let fresh = || {
        tempfile::Builder::new()
            .prefix("peers-")
            .tempdir_in(&arguments.folder)
    };
    let data = fresh()?;
    let loaded: Loaded = start(
        arguments,
        value_kib,
        "load",
        &[label(name), path(data.path())],
    )?;
    drop(data);

    // A second cache: filled, closed and opened again, to compare its memory
    // with that of an empty one.
    let data = fresh()?;
    let entries: u64 = start(
        arguments,
        value_kib,
        "fill",
        &[label(name), path(data.path())],
    )?;
    let reopened: Reopened = start(
        arguments,
        value_kib,
        "reopen",
        &[label(name), path(data.path()), entries.to_string()],
    )?;
    drop(data);
    let data = fresh()?;
    let empty: Reopened = start(
        arguments,
        value_kib,
        "reopen",
        &[label(name), path(data.path()), "0".into()],
    )?;

    let mut row = json!(loaded);
    let grown = reopened.resident_bytes.saturating_sub(empty.resident_bytes);
    row["recovery_cpu_ms"] =
        json!((reopened.recovery_cpu_seconds - empty.recovery_cpu_seconds).max(0.0) * 1e3);
    row["recovery_wall_ms"] = json!(reopened.recovery_wall_seconds * 1e3);
    row["found_after_reopen_percent"] = json!(reopened.found_percent);
    row["ram_bytes_per_entry"] = json!(grown as f64 / entries.max(1) as f64);
    Ok(row)
}

fn label(name: Name) -> String {
    name.label().to_owned()
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// Runs one part in a process of its own.
fn start<T: DeserializeOwned>(
    arguments: &Arguments,
    value_kib: usize,
    part: &str,
    rest: &[String],
) -> Result<T> {
    let output = Command::new(std::env::current_exe()?)
        .args(["--flash-mib", &arguments.flash_mib.to_string()])
        .args(["--ram-mib", &arguments.ram_mib.to_string()])
        .args(["--value-kib", &value_kib.to_string()])
        .args(["--depth", &arguments.depth.to_string()])
        .args(["--seconds", &arguments.seconds.to_string()])
        .arg(part)
        .args(rest)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("{part} {} failed: {}", rest.join(" "), output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("{part} printed {line:?}"))
}

/// The median of each figure over the turns.
fn medians(peer: &str, value_kib: usize, turns: &[Value]) -> Value {
    let mut row = Map::new();
    row.insert("peer".into(), json!(peer));
    row.insert("value_kib".into(), json!(value_kib));
    for key in turns
        .first()
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::keys)
    {
        let mut values: Vec<f64> = turns.iter().filter_map(|turn| turn[key].as_f64()).collect();
        values.sort_by(f64::total_cmp);
        if let Some(median) = values.get(values.len() / 2) {
            row.insert(key.clone(), json!(median));
        }
    }
    Value::Object(row)
}

fn show(as_json: bool, rows: &[Value]) -> Result<()> {
    if as_json {
        for row in rows {
            println!("{row}");
        }
        return Ok(());
    }
    for row in rows {
        let object = row.as_object().context("a row is an object")?;
        println!(
            "\n### {} at {} KiB\n\n| figure | |\n|---|---|",
            text(&row["peer"]),
            row["value_kib"]
        );
        for (key, value) in object
            .iter()
            .filter(|(k, _)| *k != "peer" && *k != "value_kib")
        {
            println!(
                "| {} | {:.3} |",
                key.replace('_', " "),
                value.as_f64().unwrap_or_default()
            );
        }
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
