//! Plain workloads: uniform, Zipf, zones with a wanted hit rate, bursts.

use floe_core::ByteSize;

use super::generator::{ClassSpec, Generator, Pace, Spec};
use super::options::{REQUESTS_DEFAULT, SEED_DEFAULT, each_option, parsed};
use crate::workload::Distribution;

/// Requests at equal distances.
const EVEN: Pace = Pace::even(100_000);
/// Bursts of 100 ms with 2 s between them, in which a cache is idle.
const BURSTS: Pace = Pace {
    gap_ns: 10_000,
    burst_requests: 10_000,
    pause_ns: 2_000_000_000,
};

/// The addresses of the hot zone as a share of the range. The zone is so small that
/// an LRU cache keeps it at any hit rate.
const HOT_SET: f64 = 0.001;

/// Options of a workload.
struct Options {
    requests: u64,
    seed: u64,
    size: ByteSize,
    range: ByteSize,
    reads: f64,
    skew: f64,
    hit: f64,
}

/// The plain workload `name`.
///
/// # Errors
/// When there is no such workload, or an option makes no sense.
pub(super) fn generator(name: &str, options: &str) -> Result<Generator, String> {
    let mut with = Options {
        requests: REQUESTS_DEFAULT,
        seed: SEED_DEFAULT,
        size: ByteSize::kib(4),
        range: ByteSize::gib(16),
        reads: 0.7,
        skew: 1.1,
        hit: 0.85,
    };
    each_option(options, |key, value| {
        match key {
            "requests" => with.requests = parsed(value)?,
            "seed" => with.seed = parsed(value)?,
            "size" => with.size = parsed(value)?,
            "range" => with.range = parsed(value)?,
            "reads" => with.reads = share(value)?,
            "skew" if matches!(name, "zipf" | "bursts") => with.skew = parsed(value)?,
            "hit" if name == "zoned" => with.hit = share(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let zipf = Distribution::Zipf {
        skew: with.skew,
        scrambled: true,
    };
    let (distribution, pace) = match name {
        "uniform" => (Distribution::Uniform, EVEN),
        "zipf" => (zipf, EVEN),
        "zoned" => {
            let zones = Distribution::Hotspot {
                hot_set: HOT_SET,
                hot_operations: with.hit,
            };
            (zones, EVEN)
        }
        "bursts" => (zipf, BURSTS),
        _ => {
            return Err(format!(
                "there is no workload `{name}`; there is uniform, zipf, zoned, bursts"
            ));
        }
    };
    let bytes = with.size.bytes();
    if bytes == 0 || with.range < with.size {
        return Err(format!(
            "a range of {} has no request of {}",
            with.range, with.size
        ));
    }
    Generator::new(Spec {
        requests: with.requests,
        seed: with.seed,
        read_share: with.reads,
        classes: vec![ClassSpec {
            bytes,
            share_of_reads: 1.0,
            share_of_writes: 1.0,
            places: with.range.bytes() / bytes,
            distribution,
        }],
        sequential_share: 0.0,
        pace,
    })
}

/// A share such as `0.85` or `85%`.
fn share(value: &str) -> Result<f64, String> {
    let share = match value.strip_suffix('%') {
        Some(percent) => parsed::<f64>(percent)? / 100.0,
        None => parsed(value)?,
    };
    match (0.0..=1.0).contains(&share) {
        true => Ok(share),
        false => Err(format!("{value} is not between 0 and 1")),
    }
}
