//! A simulated SSD with the figures of a measured device.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use floe_core::{ByteSize, Geometry, Tick};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::profile::{Load, Measured};
use crate::config::{DeviceConfig, DeviceKind};
use crate::sim::SimConfig;
use crate::sim::command::Command;
use crate::sim::queues::Queues;

/// Settings of a simulated SSD, and which of them a profile tells.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The device: kind `sim`, model `queues`.
    pub config: DeviceConfig,
    /// The settings of `config.sim` that were measured. Others are assumed.
    pub measured: Vec<&'static str>,
}

/// Most parallel units of a simulated SSD.
const UNITS_MAX: u32 = 1 << 10;
/// Most bytes per second of a link: PCIe 5.0 with four lanes has half of that.
const LINK_MAX: u64 = 32_000_000_000;
/// Reads that are simulated to find the number of units.
const READS: u32 = 20_000;
/// The share of the measured throughput that the simulated SSD must reach.
const REACHED: f64 = 0.995;

/// The simulated SSD that comes closest to the figures of a device with `geometry`. Queues
/// with latencies and bandwidths have no garbage collection, caches or hot spots: percentiles
/// above the median may differ.
pub fn fit(all: &[Measured], geometry: &Geometry) -> Fitted {
    let mut sim = SimConfig {
        zoned: !geometry.random_writes,
        native_append: Some(geometry.native_append),
        placement_handles: geometry.placement_handles,
        ..SimConfig::default()
    };
    let mut measured = vec!["zoned", "native_append", "placement_handles"];
    let of = |load| {
        all.iter()
            .filter(move |one| one.load == load && one.operations > 0)
    };
    let bandwidth = |load| {
        let rates = of(load).map(|one| one.bytes_per_s);
        let most = rates.fold(0.0, f64::max);
        (most >= 1.0).then_some(ByteSize(most as u64))
    };
    // The shortest operation alone, less its transfer.
    let latency = |load, rate: ByteSize| {
        let alone = of(load).filter(|one| one.depth == 1);
        let shortest = alone.min_by_key(|one| one.bytes)?;
        let transfer_us = shortest.bytes as f64 / rate.bytes() as f64 * 1e6;
        Some((shortest.latency.p50_us - transfer_us).max(0.0))
    };
    if let Some(rate) = bandwidth(Load::Append) {
        sim.write_bandwidth = rate;
        sim.write_us = latency(Load::Append, rate).unwrap_or(sim.write_us);
        measured.extend(["write_bandwidth", "write_us"]);
    }
    // A drive with few units is not limited by its link, which lone reads of two sizes tell.
    let alone = |read: &&Measured| read.depth == 1;
    let short = of(Load::Read).filter(alone).min_by_key(|one| one.bytes);
    let long = of(Load::Read).filter(alone).max_by_key(|one| one.bytes);
    let link = short.zip(long).and_then(|(short, long)| {
        let us = long.latency.p50_us - short.latency.p50_us;
        (us > 0.0).then(|| ((long.bytes - short.bytes) as f64 * 1e6 / us) as u64)
    });
    if let Some(rate) = bandwidth(Load::Read) {
        let rate = ByteSize(link.unwrap_or(0).min(LINK_MAX).max(rate.bytes()));
        sim.read_bandwidth = rate;
        sim.read_us = latency(Load::Read, rate).unwrap_or(sim.read_us);
        measured.extend(["read_bandwidth", "read_us"]);
    }
    let small = of(Load::Read).min_by_key(|one| (one.bytes, Reverse(one.depth)));
    if let Some(small) = small.filter(|one| one.depth > 1) {
        sim.units = units(&sim, small);
        measured.push("units");
    }
    for (name, load, setting) in [
        ("reset_us", Load::Reset, &mut sim.reset_us),
        ("finish_us", Load::Finish, &mut sim.finish_us),
        ("flush_us", Load::Flush, &mut sim.flush_us),
    ] {
        if let Some(one) = of(load).next() {
            *setting = one.latency.p50_us;
            measured.push(name);
        }
    }
    Fitted {
        config: DeviceConfig {
            kind: DeviceKind::Sim,
            size: Some(ByteSize(
                geometry.zone_size * u64::from(geometry.zone_count),
            )),
            zone_size: Some(ByteSize(geometry.zone_size)),
            zone_capacity: Some(ByteSize(geometry.zone_capacity)),
            block_size: ByteSize(geometry.block_size.into()),
            max_open_zones: geometry.max_open_zones,
            max_active_zones: geometry.max_active_zones,
            max_append: ByteSize(geometry.max_append_bytes.into()),
            sim,
            ..DeviceConfig::default()
        },
        measured,
    }
}

/// The fewest parallel units that give the throughput of random reads at some depth.
fn units(sim: &SimConfig, reads: &Measured) -> u32 {
    let wanted = REACHED * reads.operations as f64 / reads.seconds.max(1e-9);
    let (mut low, mut high) = (1, UNITS_MAX);
    while low < high {
        let middle = low.midpoint(high);
        let config = SimConfig {
            units: middle,
            ..sim.clone()
        };
        match reads_per_s(config, reads.bytes, reads.depth) >= wanted {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    low
}

/// Reads a second of a simulated SSD at a depth.
fn reads_per_s(config: SimConfig, bytes: u64, depth: u32) -> f64 {
    let places = 1 << 20;
    let mut queues = Queues::new(config);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0);
    let mut ends: BinaryHeap<_> = (0..depth).map(|_| Reverse(Tick::ZERO)).collect();
    let mut last = Tick::ZERO;
    for _ in 0..READS {
        let Some(Reverse(now)) = ends.pop() else {
            break;
        };
        let offset = random.random_range(0..places) * bytes;
        let end = queues.schedule(now, Command::Read { offset, bytes });
        last = last.max(end);
        ends.push(Reverse(end));
    }
    f64::from(READS) / last.since(Tick::ZERO).as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::profile::{ProfileOptions, profile};
    use super::*;
    use crate::contract::SharedDevice;
    use crate::sim::SimDevice;
    use crate::virtual_time;

    fn bench(config: &DeviceConfig) -> (Vec<Measured>, Geometry) {
        virtual_time::run(7, |clock| async move {
            let device: SharedDevice = Arc::new(SimDevice::open(config, &clock).unwrap());
            let options = ProfileOptions {
                time: Duration::from_millis(1400),
                writes: true,
                seed: 3,
            };
            let all = profile(&device, &clock, &options, |_| {}).await.unwrap();
            (all, device.geometry().clone())
        })
    }

    fn drive(zoned: bool, sim: SimConfig) -> DeviceConfig {
        DeviceConfig {
            zone_size: Some(ByteSize::mib(32)),
            max_open_zones: zoned.then_some(8),
            max_active_zones: zoned.then_some(10),
            sim: SimConfig { zoned, ..sim },
            ..DeviceConfig::sim(ByteSize::gib(8))
        }
    }

    /// A profile that is fed to the simulated SSD gives the same latencies.
    #[test]
    fn a_simulated_drive_is_found_again_by_its_profile() {
        const TOLERANCE: f64 = 0.05;
        let fast = SimConfig {
            units: 48,
            read_us: 61.0,
            write_us: 17.0,
            reset_us: 1234.0,
            finish_us: 456.0,
            flush_us: 78.0,
            read_bandwidth: ByteSize(5_000_000_000),
            write_bandwidth: ByteSize(1_500_000_000),
            ..SimConfig::default()
        };
        let slow = SimConfig {
            units: 6,
            read_us: 300.0,
            ..fast.clone()
        };
        for (zoned, sim) in [(true, fast.clone()), (false, fast), (true, slow)] {
            let (before, geometry) = bench(&drive(zoned, sim.clone()));
            let fitted = fit(&before, &geometry);
            assert!(fitted.measured.contains(&"units"), "{fitted:?}");
            assert_eq!(fitted.measured.contains(&"finish_us"), zoned);
            let (after, again) = bench(&fitted.config);
            assert_eq!(again, geometry);
            assert_eq!(before.len(), after.len());
            let figures = |one: &Measured| [one.latency.p50_us, one.latency.mean_us];
            for (before, after) in before.iter().zip(&after) {
                let of_load = |one: &Measured| (one.load, one.bytes, one.depth, one.zones);
                assert_eq!(of_load(before), of_load(after));
                for (was, is) in figures(before).into_iter().zip(figures(after)) {
                    let error = (is - was).abs() / was;
                    assert!(error <= TOLERANCE, "{error:.3} of\n{before:?}\n{after:?}");
                }
            }
            let found = &fitted.config.sim;
            assert!(
                found.units.abs_diff(sim.units) <= sim.units / 10,
                "{found:?}"
            );
        }
    }

    #[test]
    fn what_was_not_measured_is_assumed() {
        let (all, geometry) = bench(&drive(true, SimConfig::default()));
        let reads: Vec<_> = all
            .into_iter()
            .filter(|one| one.load == Load::Read)
            .collect();
        let fitted = fit(&reads, &geometry);
        assert_eq!(fitted.config.sim.reset_us, SimConfig::default().reset_us);
        for name in ["reset_us", "write_us", "write_bandwidth", "flush_us"] {
            assert!(!fitted.measured.contains(&name), "{name}");
        }
    }
}
