//! What the file system can do at best: a raw io_uring loop, and fio.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Arguments;
use crate::contender::Sizes;
use crate::workload::Pressure;

/// Random reads of a plain loop.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ring {
    pub get_per_second: f64,
    pub get_cpu_us: f64,
}

/// Reads at random places of a file of the caches' size.
pub fn ring(_data: &Path, _sizes: Sizes, _pressure: Pressure) -> Result<Ring> {
    anyhow::bail!("the baseline comes with the device branch")
}

/// One row for each limit that can be measured here.
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
        "contender": "raw io_uring loop",
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
        "contender": "fio",
        "value_kib": value_kib,
        "get_per_second": per_second,
        "get_cpu_us": cpu_us,
        "get_per_cpu_second": 1e6 / cpu_us,
        "get_p999_us": job["read"]["clat_ns"]["percentile"]["99.900000"].as_f64().map(|ns| ns / 1e3),
    }))
}
