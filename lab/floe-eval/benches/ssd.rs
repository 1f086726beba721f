//! How fast the SSD model and the papers' hosts over it are, in time of one
//! processor, so that what else the machine does hardly matters.
//!
//! ```text
//! cargo bench -p floe-eval --bench ssd               # a table; --json for a line per figure
//! cargo bench -p floe-eval --bench ssd -- --quick    # only a few configurations
//! ```

use std::time::Duration;

use floe_core::ssd::{Command, CommandId, Interface, Ssd, SsdConfig};
use floe_core::{ByteSize, Tick};
use floe_eval::hosts::{self, HostConfig};
use floe_eval::workload::Distribution;
use serde_json::json;

type Failure = Box<dyn std::error::Error>;

/// Goals: what the model must reach on one processor.
const OPERATIONS_MIN: f64 = 5e6;
const LARGE_CHUNKS_MOST_S: f64 = 30.0;
const SMALL_CHUNKS_MOST_S: f64 = 60.0;
const TABLE_MOST_S: f64 = 2.0 * 20.0 * 60.0;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let report = Report {
        json: has("--json"),
    };
    for (name, config) in [
        ("zoned, appends and reads", SsdConfig::zn540()),
        (
            "conventional and preconditioned, overwrites and reads",
            SsdConfig::sn540(),
        ),
    ] {
        let speed = operations_per_s(config, if has("--quick") { 60_000 } else { 300_000 })?;
        report.row(
            &format!("die operations, {name}"),
            speed / 1e6,
            "M/s",
            OPERATIONS_MIN / 1e6,
        );
    }
    let mut total = 0.0;
    for (name, config, most_s) in configurations(has("--quick")) {
        let before = processor_time();
        hosts::run(&config, 42, &mut |_| {})?;
        let seconds = (processor_time() - before).as_secs_f64();
        total += seconds;
        report.row(&name, seconds, "s", most_s);
    }
    if !has("--quick") {
        report.row("all of the table", total, "s", TABLE_MOST_S);
    }
    Ok(())
}

struct Report {
    json: bool,
}

impl Report {
    fn row(&self, figure: &str, value: f64, unit: &str, goal: f64) {
        match self.json {
            true => println!(
                "{}",
                json!({ "figure": figure, "value": value, "unit": unit, "goal": goal })
            ),
            false => println!("{figure:60} {value:8.2} {unit:4} (goal {goal})"),
        }
    }
}

/// Of this process: the bench has one thread.
fn processor_time() -> Duration {
    floe_device::baseline::process_cpu()
}

/// 32 commands of 1 MiB at a time, every third a read.
fn operations_per_s(config: SsdConfig, commands: u32) -> Result<f64, Failure> {
    const BYTES: u64 = 1 << 20;
    // Zones are filled one after the other: few may be active.
    let zone_appends = zone_bytes(&config).map(|bytes| bytes / BYTES);
    let mut ssd = Ssd::new(config, 42)?;
    ssd.precondition();
    let mut done = Vec::new();
    let (mut next, mut appended) = (0u64, 0u64);
    let mut state = 1u64;
    let mut issue = |ssd: &mut Ssd, now, id| {
        next += 1;
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let command = match (zone_appends, next % 3) {
            (_, 0) => Command::Read {
                offset: (state >> 33) % 64 * BYTES,
                bytes: BYTES,
            },
            (Some(zone_appends), _) => {
                appended += 1;
                Command::Append {
                    zone: ((appended - 1) / zone_appends) as u32,
                    bytes: BYTES,
                }
            }
            (None, _) => Command::Write {
                offset: (state >> 33) % 800_000 * BYTES,
                bytes: BYTES,
                handle: 0,
            },
        };
        ssd.submit(now, CommandId(id), command)
    };
    for id in 0..32 {
        issue(&mut ssd, Tick::ZERO, id)?;
    }
    let before = processor_time();
    let mut completed = Vec::new();
    for _ in 0..commands {
        let now = ssd.advance_to_completion(Tick::MAX, &mut done);
        completed.append(&mut done);
        for completion in completed.drain(..) {
            issue(&mut ssd, now, completion.id.0)?;
        }
    }
    let seconds = (processor_time() - before).as_secs_f64();
    Ok(ssd.statistics().die_operations as f64 / seconds)
}

/// The bytes of a zone of the drive, if it has zones.
fn zone_bytes(config: &SsdConfig) -> Option<u64> {
    match &config.flash()?.interface {
        Interface::Zoned(zones) => Some(config.capacity_bytes() / u64::from(zones.zones)),
        _ => None,
    }
}

/// The papers' 32 configurations, or three of them; and what each may take.
fn configurations(is_quick: bool) -> Vec<(String, HostConfig, f64)> {
    let zipf = Distribution::Zipf {
        skew: 0.99,
        scrambled: false,
    };
    let mut all = Vec::new();
    for (chunk, most_s) in [
        (ByteSize::mib(512), LARGE_CHUNKS_MOST_S),
        (ByteSize::kib(64), SMALL_CHUNKS_MOST_S),
    ] {
        for (law, distribution) in [("uniform", Distribution::Uniform), ("Zipf", zipf.clone())] {
            for ratio in [10.0, 2.0] {
                for (device, preset) in [("ZNS", "zn540"), ("block", "sn540")] {
                    let row = format!("{device} {chunk} {law} {ratio}");
                    let law = || distribution.clone();
                    let zncache = HostConfig::zncache(preset, chunk, law(), ratio);
                    let oxcache = HostConfig::oxcache(preset, chunk, law(), ratio);
                    all.push((format!("ZNCache {row}"), zncache, most_s));
                    all.push((format!("OxCache {row}"), oxcache, most_s));
                }
            }
        }
    }
    if is_quick {
        all.retain(|(name, ..)| name.starts_with("ZNCache block") && name.ends_with("form 2"));
    }
    all
}
