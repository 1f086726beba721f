//! The file system's limit: a raw io_uring loop, and fio.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use floe_device::baseline::{Reads, plain_reads};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Arguments;
use crate::peer::Sizes;
use crate::workload::Pressure;

/// Random reads of a plain loop.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ring {
    pub get_per_second: f64,
    pub get_cpu_us: f64,
}

/// Reads at random offsets of a file as large as the caches.
pub fn ring(data: &Path, sizes: Sizes, pressure: Pressure) -> Result<Ring> {
    let path = data.join("ring");
    fill(&path, sizes.flash_bytes)?;
    let mut reads = Reads {
        bytes: sizes.value_bytes,
        depth: pressure.depth as usize,
        count: 16 * pressure.depth,
        span: sizes.flash_bytes,
        seed: 1,
    };
    let trial = plain_reads(&path, &reads, true)?;
    reads.count = ((trial.rate() * pressure.seconds as f64) as u64).max(reads.count);
    let cost = plain_reads(&path, &reads, true)?;
    Ok(Ring {
        get_per_second: cost.rate(),
        get_cpu_us: cost.cpu_per_operation().as_secs_f64() * 1e6,
    })
}

/// Writes every byte, because reads of holes cause no I/O.
fn fill(path: &Path, bytes: u64) -> Result<()> {
    const STEP_BYTES: usize = 1 << 20;
    let mut file = File::create(path)?;
    let mut noise = vec![0; STEP_BYTES];
    Xoshiro256PlusPlus::seed_from_u64(1).fill_bytes(&mut noise);
    for _ in 0..bytes / STEP_BYTES as u64 {
        file.write_all(&noise)?;
    }
    Ok(file.sync_all()?)
}

/// One row for each limit that this machine can measure.
pub fn rows(arguments: &Arguments, value_kib: usize) -> Result<Vec<Value>> {
    let data = tempfile::Builder::new()
        .prefix("peers-")
        .tempdir_in(&arguments.folder)?;
    let mut rows = Vec::new();
    let ring: Ring = crate::start(
        arguments,
        value_kib,
        "ring",
        &[data.path().display().to_string()],
    )?;
    rows.push(json!({
        "peer": "raw io_uring loop",
        "value_kib": value_kib,
        "get_per_second": ring.get_per_second,
        "get_cpu_us": ring.get_cpu_us,
        "get_per_cpu_second": 1e6 / ring.get_cpu_us,
    }));
    match fio(data.path(), arguments, value_kib) {
        Ok(row) => rows.push(row),
        Err(error) => eprintln!("peers: fio is left out: {error:#}"),
    }
    Ok(rows)
}

fn fio(data: &Path, arguments: &Arguments, value_kib: usize) -> Result<Value> {
    let output = Command::new("fio")
        .args([
            "--name=limit",
            "--rw=randread",
            "--ioengine=io_uring",
            "--direct=1",
        ])
        .args(["--time_based", "--group_reporting", "--output-format=json"])
        .arg(format!("--filename={}", data.join("fio").display()))
        .arg(format!("--size={}m", arguments.flash_mib))
        .arg(format!("--bs={value_kib}k"))
        .arg(format!("--iodepth={}", arguments.depth))
        .arg(format!("--runtime={}", arguments.seconds))
        .stderr(Stdio::null())
        .output()
        .context("starting fio")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let start = text.find('{').context("fio printed no JSON")?;
    let document: Value = serde_json::from_str(&text[start..]).context("reading fio's JSON")?;
    let job = &document["jobs"][0];
    let per_second = job["read"]["iops"].as_f64().context("fio says no iops")?;
    let cpu_percent =
        job["usr_cpu"].as_f64().unwrap_or_default() + job["sys_cpu"].as_f64().unwrap_or_default();
    let cpu_us = cpu_percent * 1e4 / per_second;
    Ok(json!({
        "peer": "fio",
        "value_kib": value_kib,
        "get_per_second": per_second,
        "get_cpu_us": cpu_us,
        "get_per_cpu_second": 1e6 / cpu_us,
        "get_p999_us": job["read"]["clat_ns"]["percentile"]["99.900000"].as_f64().map(|ns| ns / 1e3),
    }))
}
