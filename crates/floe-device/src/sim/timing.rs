//! How long the simulated SSD takes: a pure model of queues, to be given a
//! translation layer later without the device around it noticing.

use std::time::Duration;

use floe_core::{ByteSize, Tick};
use serde::{Deserialize, Serialize};

use crate::medium::Keeping;

/// The simulated SSD's behaviour. Latencies are what an idle device takes for
/// one command, in microseconds; transfers add to them by bandwidth.
///
/// The defaults are round figures of a zoned NVMe SSD of 2021 (WD ZN540 class).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimConfig {
    /// Zoned: writes go only where the write pointer is, and zones keep their
    /// states over a restart. Otherwise a conventional SSD.
    pub zoned: bool,
    /// Whether the device chooses where appends land. Default: as `zoned`.
    pub native_append: Option<bool>,
    /// Placement handles (reclaim-unit handles) that the device offers.
    pub placement_handles: u16,
    /// Commands that are worked on at once; each is a first-in, first-out queue.
    pub units: u32,
    /// Bytes that lie on one unit before the next unit's begin.
    pub stripe: ByteSize,
    /// Reading a stripe from flash.
    pub read_us: f64,
    /// An append or write until it is in the device's buffer.
    pub write_us: f64,
    /// Resetting a zone.
    pub reset_us: f64,
    /// Finishing a zone.
    pub finish_us: f64,
    /// Flushing.
    pub flush_us: f64,
    /// Bytes per second from the device.
    pub read_bandwidth: ByteSize,
    /// Bytes per second to the device.
    pub write_bandwidth: ByteSize,
    /// Whether completed writes can be lost with the power until flushed.
    pub volatile_cache: bool,
    /// Most bytes that can be lost so.
    pub volatile_cache_bytes: ByteSize,
    /// How bytes are kept.
    pub data: Keeping,
}

impl Default for SimConfig {
    fn default() -> Self {
        SimConfig {
            zoned: true,
            native_append: None,
            placement_handles: 0,
            units: 32,
            stripe: ByteSize::kib(64),
            read_us: 70.0,
            write_us: 12.0,
            reset_us: 3000.0,
            finish_us: 1000.0,
            flush_us: 30.0,
            read_bandwidth: ByteSize(3_200_000_000),
            write_bandwidth: ByteSize(2_000_000_000),
            volatile_cache: true,
            volatile_cache_bytes: ByteSize::mib(64),
            data: Keeping::default(),
        }
    }
}

impl SimConfig {
    /// The first setting that makes no sense, and what would.
    pub(crate) fn fault(&self) -> Option<String> {
        let latencies = [
            ("read_us", self.read_us),
            ("write_us", self.write_us),
            ("reset_us", self.reset_us),
            ("finish_us", self.finish_us),
            ("flush_us", self.flush_us),
        ];
        for (name, us) in latencies {
            if !(0.0..=1e9).contains(&us) {
                return Some(format!(
                    "sim.{name} = {us} is not within 0 to 1e9 microseconds"
                ));
            }
        }
        let positive = [
            ("read_bandwidth", self.read_bandwidth.bytes()),
            ("write_bandwidth", self.write_bandwidth.bytes()),
            ("stripe", self.stripe.bytes()),
            ("units", u64::from(self.units)),
        ];
        for (name, value) in positive {
            if value == 0 {
                return Some(format!("sim.{name} = 0; it must be at least 1"));
            }
        }
        (self.units > 1 << 16).then(|| format!("sim.units = {}; at most 65536", self.units))
    }
}

/// A command as the timing model sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Read { offset: u64, bytes: u64 },
    Write { bytes: u64 },
    Reset,
    Finish,
    Flush,
}

/// The queues: when each unit and each direction of the link is free.
#[derive(Debug)]
pub(super) struct Timing {
    config: SimConfig,
    units: Vec<Tick>,
    next_unit: usize,
    from_device: Tick,
    to_device: Tick,
}

impl Timing {
    pub(super) fn new(config: SimConfig) -> Self {
        Timing {
            units: vec![Tick::ZERO; config.units as usize],
            next_unit: 0,
            from_device: Tick::ZERO,
            to_device: Tick::ZERO,
            config,
        }
    }

    /// When a command that arrives `now` will be done.
    pub(super) fn schedule(&mut self, now: Tick, command: Command) -> Tick {
        let config = &self.config;
        let us = |us: f64| Duration::from_nanos((us * 1000.0) as u64);
        let transfer =
            |bytes: u64, rate: ByteSize| Duration::from_secs_f64(bytes as f64 / rate.0 as f64);
        match command {
            Command::Read { offset, bytes } => {
                let stripe = config.stripe.bytes();
                let (first, last) = (offset / stripe, (offset + bytes - 1) / stripe);
                // Beyond one round, every unit has its stripes one after the other.
                let mut sensed = now;
                for stripe in first..=last {
                    let unit = (stripe % self.units.len() as u64) as usize;
                    let free = &mut self.units[unit];
                    *free = (*free).max(now) + us(config.read_us);
                    sensed = sensed.max(*free);
                }
                let start = self.from_device.max(sensed);
                self.from_device = start + transfer(bytes, config.read_bandwidth);
                self.from_device
            }
            Command::Write { bytes } => {
                let start = self.to_device.max(now);
                self.to_device = start + transfer(bytes, config.write_bandwidth);
                let (arrived, latency) = (self.to_device, us(config.write_us));
                self.occupy_next_unit(arrived, latency)
            }
            Command::Reset => {
                let latency = us(config.reset_us);
                self.occupy_next_unit(now, latency)
            }
            Command::Finish => {
                let latency = us(config.finish_us);
                self.occupy_next_unit(now, latency)
            }
            Command::Flush => now + us(config.flush_us),
        }
    }

    fn occupy_next_unit(&mut self, from: Tick, latency: Duration) -> Tick {
        let free = &mut self.units[self.next_unit];
        self.next_unit = (self.next_unit + 1) % self.config.units as usize;
        *free = (*free).max(from) + latency;
        *free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(units: u32) -> Timing {
        Timing::new(SimConfig {
            units,
            read_us: 100.0,
            write_us: 10.0,
            read_bandwidth: ByteSize(1_000_000_000),
            write_bandwidth: ByteSize(1_000_000_000),
            ..SimConfig::default()
        })
    }

    #[test]
    fn an_idle_device_takes_latency_plus_transfer() {
        let read = Command::Read {
            offset: 0,
            bytes: 1000,
        };
        assert_eq!(timing(4).schedule(Tick(5), read), Tick(5 + 100_000 + 1000));
        let write = Command::Write { bytes: 1000 };
        assert_eq!(timing(4).schedule(Tick(5), write), Tick(5 + 10_000 + 1000));
    }

    #[test]
    fn reads_of_one_unit_queue_and_of_many_overlap() {
        let at = |stripe: u64| Command::Read {
            offset: stripe << 16,
            bytes: 4096,
        };
        let mut one = timing(4);
        one.schedule(Tick::ZERO, at(0));
        let second = one.schedule(Tick::ZERO, at(4));
        assert_eq!(second, Tick(200_000 + 4096), "behind the first");
        let mut many = timing(4);
        let ends: Vec<_> = (0..4).map(|i| many.schedule(Tick::ZERO, at(i))).collect();
        let expected: Vec<_> = (1..5).map(|i| Tick(100_000 + i * 4096)).collect();
        assert_eq!(ends, expected, "only the link is shared");
    }

    #[test]
    fn bandwidth_bounds_throughput() {
        let mut timing = timing(64);
        let mut end = Tick::ZERO;
        for _ in 0..1000 {
            end = timing.schedule(Tick::ZERO, Command::Write { bytes: 1_000_000 });
        }
        let seconds = end.0 as f64 / 1e9;
        assert!(
            (1.0..1.01).contains(&seconds),
            "1 GB at 1 GB/s took {seconds} s"
        );
    }
}
