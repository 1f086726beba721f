//! The papers' tables from the simulated SSD, beside the papers' numbers.
//!
//! ```text
//! cargo run --release -p floe-eval --example paper_hosts            # everything
//! cargo run --release -p floe-eval --example paper_hosts -- 512M    # rows whose name contains it
//! ```
//!
//! `DIES=8` simulates wider dies, four times faster; `THREADS=2` is how many
//! rows run at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use floe_core::ByteSize;
use floe_eval::hosts::{self, HostConfig, HostResult};
use floe_eval::workload::Distribution;

/// Throughput in MiB/s, mean and 99th percentile of the get latency in ms.
type Paper = (f64, f64, f64);

/// The papers' tables 5 and 8, 5 and 6: ZNCache ZNS, block, OxCache ZNS, block.
const ROWS: [(&str, [Paper; 4]); 8] = [
    (
        "512M-UNIF-10",
        [
            (1068.0, 30434.25, 121_594.3),
            (637.0, 51219.31, 297_634.35),
            (1229.0, 27342.11, 37412.80),
            (656.0, 53156.16, 246_416.68),
        ],
    ),
    (
        "512M-UNIF-2",
        [
            (1556.0, 20797.86, 115_668.18),
            (578.0, 56353.88, 358_656.23),
            (1638.0, 20548.26, 43584.92),
            (611.0, 54793.77, 206_632.99),
        ],
    ),
    (
        "512M-ZIPF-10",
        [
            (1873.0, 17217.21, 120_884.2),
            (845.0, 38448.44, 321_128.22),
            (1782.0, 18509.96, 35350.96),
            (869.0, 38810.68, 252_975.99),
        ],
    ),
    (
        "512M-ZIPF-2",
        [
            (2176.0, 14512.1, 140_618.34),
            (1260.0, 25649.63, 213_772.96),
            (1843.0, 17239.12, 25178.34),
            (1198.0, 27218.81, 236_752.36),
        ],
    ),
    (
        "64K-UNIF-10",
        [
            (23.2, 172.5, 693.76),
            (23.3, 171.74, 693.86),
            (103.6, 38.59, 44.22),
            (103.7, 38.53, 44.24),
        ],
    ),
    (
        "64K-UNIF-2",
        [
            (34.5, 115.92, 629.02),
            (35.7, 112.2, 630.11),
            (181.2, 22.02, 43.22),
            (181.0, 22.04, 43.21),
        ],
    ),
    (
        "64K-ZIPF-10",
        [
            (87.9, 45.52, 488.2),
            (88.6, 45.13, 488.72),
            (398.0, 9.98, 42.49),
            (379.0, 10.49, 42.53),
        ],
    ),
    (
        "64K-ZIPF-2",
        [
            (178.0, 22.52, 367.69),
            (183.0, 21.87, 367.37),
            (825.0, 4.84, 42.16),
            (790.0, 5.0, 42.19),
        ],
    ),
];

struct Job {
    name: String,
    config: HostConfig,
    paper: Option<Paper>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let dies: Option<u32> = std::env::var("DIES").ok().and_then(|d| d.parse().ok());
    let threads: usize = std::env::var("THREADS")
        .ok()
        .and_then(|t| t.parse().ok())
        .unwrap_or(2);
    let mut jobs = parameter_evaluation();
    jobs.extend(collection_evaluation());
    jobs.extend(placement());
    jobs.retain(|job| job.name.contains(&wanted));
    for job in &mut jobs {
        if job.config.chunk.bytes() >= 16 << 20 && !job.name.starts_with("OxCache") {
            job.config.device.dies = dies;
        }
    }
    println!(
        "| run | MiB/s paper | model | error | mean ms paper | model | p99 ms paper | model | error | hit | WA | seconds |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let next = AtomicUsize::new(0);
    let output = Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let start = Instant::now();
                    let result = hosts::run(&job.config, 42, &mut |_| {});
                    let _turn = output.lock();
                    match result {
                        Ok(result) => print(job, &result, start.elapsed().as_secs_f64()),
                        Err(error) => println!("| {} | failed: {error} |", job.name),
                    }
                }
            });
        }
    });
    Ok(())
}

fn print(job: &Job, result: &HostResult, seconds: f64) {
    const MIB: f64 = 1_048_576.0;
    let whole = &result.run.whole;
    let throughput = whole.get_bytes_per_s / MIB;
    let (paper, mean, p99) = job.paper.unwrap_or((f64::NAN, f64::NAN, f64::NAN));
    println!(
        "| {} | {paper:.1} | {throughput:.1} | {:+.1} % | {mean:.1} | {:.1} | {p99:.1} | {:.1} | {:+.1} % | {:.3} | {:.3} | {seconds:.1} |",
        job.name,
        100.0 * (throughput / paper - 1.0),
        whole.get.mean_ms,
        whole.get.p99_ms,
        100.0 * (whole.get.p99_ms / p99 - 1.0),
        whole.hit_ratio,
        result.run.write_amplification.unwrap_or(f64::NAN),
    );
    let operations = result.device.die_operations as f64;
    let bins: Vec<String> = result
        .run
        .bins
        .chunks(if job.name.contains("GC") { 5 } else { 3 })
        .map(|bins| {
            let sum: f64 = bins.iter().map(|bin| bin.get_bytes_per_s).sum();
            format!("{:.0}", sum / bins.len() as f64 / MIB)
        })
        .collect();
    let worst = result
        .run
        .bins
        .iter()
        .map(|b| b.get_bytes_per_s / MIB)
        .fold(f64::MAX, f64::min);
    let onset = result.device.collection.first_at_host_bytes;
    eprintln!(
        "{}: read {:.0} ms write {:.0} ms; {:.1} M die operations/s; worst bin {worst:.0}; first collection after {:.2} TiB; throttled {:.0} s, buffer full {:.0} s of {:.0}; bins {}",
        job.name,
        whole.disk_read.mean_ms,
        whole.disk_write.mean_ms,
        operations / seconds / 1e6,
        onset.map_or(f64::NAN, |bytes| bytes as f64 / MIB / MIB),
        result.device.throttled_ns as f64 / 1e9,
        result.device.buffer_full_ns as f64 / 1e9,
        result.elapsed_s,
        bins.iter().take(60).cloned().collect::<Vec<_>>().join(" ")
    );
}

fn parameter_evaluation() -> Vec<Job> {
    let mut jobs = Vec::new();
    for (row, papers) in ROWS {
        let mut parts = row.split('-');
        let (chunk, law, ratio) = (parts.next(), parts.next(), parts.next());
        let chunk = match chunk {
            Some("64K") => ByteSize::kib(64),
            _ => ByteSize::mib(512),
        };
        let distribution = match law {
            Some("ZIPF") => Distribution::Zipf {
                skew: 0.99,
                scrambled: false,
            },
            _ => Distribution::Uniform,
        };
        let ratio: f64 = ratio.and_then(|r| r.parse().ok()).unwrap_or(2.0);
        for (paper, (system, preset)) in papers.into_iter().zip([
            ("ZNCache", "zn540"),
            ("ZNCache", "sn540"),
            ("OxCache", "zn540"),
            ("OxCache", "sn540"),
        ]) {
            let config = match system {
                "ZNCache" => HostConfig::zncache(preset, chunk, distribution.clone(), ratio),
                _ => HostConfig::oxcache(preset, chunk, distribution.clone(), ratio),
            };
            let device = if preset == "zn540" { "ZNS" } else { "Block" };
            jobs.push(Job {
                name: format!("{system}-{device}-{row}"),
                config,
                paper: Some(paper),
            });
        }
    }
    jobs
}

/// The papers' throughputs of whole runs follow from their mean latencies: 64
/// chunks per mean latency.
fn collection_evaluation() -> Vec<Job> {
    let mut jobs = Vec::new();
    for (chunk, latency_us, papers) in [
        (256, 3_209_583, [951.0, 832.0]),
        (256, 0, [1211.0, 843.0]),
        (512, 5_413_781, [1062.0, 1079.0]),
        (512, 0, [1200.0, 993.0]),
    ] {
        for (paper, preset) in papers.into_iter().zip(["zn540", "sn540"]) {
            let zones = if preset == "zn540" { 904 } else { 850 };
            let mut config =
                HostConfig::zncache(preset, ByteSize::mib(chunk), Distribution::Uniform, 10.0)
                    .on_trimmed_device(zones);
            config.remote.latency_us = latency_us;
            jobs.push(Job {
                name: format!("GC-{chunk}M-{latency_us}us-{preset}"),
                config,
                paper: Some((paper, f64::NAN, f64::NAN)),
            });
        }
    }
    jobs
}

/// A handle per open zone: on the whole trimmed device, and on one that was
/// filled at random before, beside which the cache is small.
fn placement() -> Vec<Job> {
    let on = |chunk| HostConfig::zncache("fdp", ByteSize::mib(chunk), Distribution::Uniform, 10.0);
    let mut trimmed = on(256).on_trimmed_device(850);
    trimmed.remote.latency_us = 0;
    let job = |name: &str, config| Job {
        name: name.into(),
        config,
        paper: None,
    };
    vec![
        job("FDP-256M-UNIF-10-trimmed", trimmed),
        job("FDP-512M-UNIF-10-preconditioned", on(512)),
    ]
}
