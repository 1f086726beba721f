//! Compares the memory metrics of tiny objects with the process's resident memory.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::Serving;

const MIB: u64 = 1 << 20;

/// Bytes of a value, as in the plain fill of docs/tiny-results.md.
const VALUE_BYTES: usize = 226;

/// Sets before their responses are read.
const BATCH: u64 = 512;

/// Batches between two samples of the metrics.
const BATCHES_PER_SAMPLE: usize = 16;

/// Bytes of keys and values: they fill the set-groups in memory and a part of flash.
const FILLED_BYTES: u64 = 96 * MIB;

/// Servers, of which one must have the resident memory that its metrics report.
const RUNS: usize = 3;

/// The sum of the memory metric, in bytes.
fn accounted(serving: &Serving) -> u64 {
    let (status, text) = common::get(serving.admin, "/metrics");
    assert_eq!(status, 200);
    let text = String::from_utf8(text).expect("text");
    let of_tiny = text
        .lines()
        .filter(|line| line.starts_with("floe_tiny_memory_bytes{"));
    let values: Vec<f64> = of_tiny
        .filter_map(|line| line.rsplit_once(' ')?.1.parse().ok())
        .collect();
    assert!(values.len() >= 7, "{text}");
    values.iter().sum::<f64>() as u64
}

/// The resident memory, in bytes.
fn resident(serving: &Serving) -> u64 {
    let path = format!("/proc/{}/status", serving.pid());
    let text = std::fs::read_to_string(path).expect("it runs");
    let kib = text.lines().find_map(|line| {
        let kib = line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?;
        kib.trim().parse::<u64>().ok()
    });
    kib.expect("a line") * 1024
}

/// Sets new keys, pipelined by one client; returns the largest sum of the metric.
fn fill(serving: &Serving) -> u64 {
    let address = serving.announced["memcached"].as_str().expect("it listens");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let value = vec![b'v'; VALUE_BYTES];
    let keys = FILLED_BYTES / (VALUE_BYTES as u64 + 20);
    let (mut requests, mut responses) = (Vec::new(), Vec::new());
    let mut most = 0;
    for (number, first) in (0..keys).step_by(BATCH as usize).enumerate() {
        requests.clear();
        for key in first..first + BATCH {
            requests.extend(format!("set key-{key:016} 0 0 {VALUE_BYTES}\r\n").bytes());
            requests.extend(&value);
            requests.extend(b"\r\n");
        }
        stream.write_all(&requests).expect("it reads");
        responses.resize(BATCH as usize * b"STORED\r\n".len(), 0);
        stream.read_exact(&mut responses).expect("it responds");
        assert!(responses.starts_with(b"STORED\r\n"));
        if number.is_multiple_of(BATCHES_PER_SAMPLE) {
            most = most.max(accounted(serving));
        }
    }
    most
}

/// Large set-groups are most of a server's memory, so an omission in the
/// metrics shows. A server with set-groups of 128 MiB once used 679 MB while
/// its metrics showed 290.
#[test]
fn metrics_report_the_resident_memory_of_large_set_groups() {
    // The allocator keeps up to 25 MiB more in one run than in another. A fault of the metrics
    // shows in each run.
    let mut all = std::iter::repeat_with(counted_and_grown).take(RUNS);
    let mut seen = Vec::new();
    let is_reported = all.any(|(counted, grown)| {
        seen.push((counted / MIB, grown / MIB));
        // Connections, tasks, pages being written and heap fragmentation are not in the metric.
        counted as f64 >= 0.75 * grown.saturating_sub(16 * MIB) as f64
    });
    assert!(
        is_reported,
        "the metrics and the process grew by {seen:?} MiB"
    );
}

/// By how much the metrics and the resident memory of a new server grow.
fn counted_and_grown() -> (u64, u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = common::floe(folder.path());
    let serving = Serving::spawn(
        command
            .env("FLOE_MEMCACHED_LISTEN", "127.0.0.1:0")
            .env("FLOE_TINY_SIZE", "256MiB")
            .env("FLOE_TINY_ZONE_SIZE", "16MiB")
            .env("FLOE_TINY_RAM_SIZE", "1MiB"),
    );
    let before = (accounted(&serving), resident(&serving));
    // The heap keeps freed memory resident, so the peak counts.
    let counted = fill(&serving) - before.0;
    let grown = resident(&serving).saturating_sub(before.1);
    eprintln!(
        "counted {} MiB, grown by {} MiB",
        counted / MIB,
        grown / MIB
    );
    assert!(counted > 40 * MIB, "{counted}");
    let costs = &serving.announced["tiny"]["sizes"]["costs"];
    let said = ["buffer_bytes", "filter_bytes", "hotness_bytes"]
        .iter()
        .map(|part| costs[part].as_u64().expect("it is announced"))
        .sum::<u64>();
    assert!(
        (counted..2 * counted).contains(&said),
        "counted {counted}, announced {said}"
    );
    let memory = &serving.announced["memory"];
    let bound = memory["total_bytes"].as_u64().expect("it is announced");
    assert!(resident(&serving) < bound, "more than {memory}");
    let costs = memory["parts"]["tiny"].as_u64();
    assert!(costs.is_some_and(|tiny| tiny >= said), "{memory}");
    (counted, grown)
}
