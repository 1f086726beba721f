//! The simplest model of an SSD: queues, latencies, bandwidths. It takes any
//! geometry and knows the end of a command when it begins.

use std::time::Duration;

use floe_core::{ByteSize, Tick};

use super::command::Command;
use crate::sim_config::SimConfig;

/// Time at which each unit and each direction of the link becomes free.
#[derive(Debug)]
pub(crate) struct Queues {
    config: SimConfig,
    units: Vec<Tick>,
    next_unit: usize,
    from_device: Tick,
    to_device: Tick,
}

impl Queues {
    pub(crate) fn new(config: SimConfig) -> Self {
        Queues {
            units: vec![Tick::ZERO; config.units as usize],
            next_unit: 0,
            from_device: Tick::ZERO,
            to_device: Tick::ZERO,
            config,
        }
    }

    /// The end of a command that arrives `now`.
    pub(crate) fn schedule(&mut self, now: Tick, command: Command) -> Tick {
        let config = &self.config;
        let us = |us: f64| Duration::from_nanos((us * 1000.0) as u64);
        let transfer =
            |bytes: u64, rate: ByteSize| Duration::from_secs_f64(bytes as f64 / rate.0 as f64);
        match command {
            Command::Read { offset, bytes } => {
                let stripe = config.stripe.bytes();
                let (first, last) = (offset / stripe, (offset + bytes - 1) / stripe);
                // After one round, every unit has its stripes one after the
                // other.
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
            Command::Append { bytes, .. } | Command::Write { bytes, .. } => {
                let start = self.to_device.max(now);
                self.to_device = start + transfer(bytes, config.write_bandwidth);
                let (arrived, latency) = (self.to_device, us(config.write_us));
                self.occupy_next_unit(arrived, latency)
            }
            Command::Reset { .. } => {
                let latency = us(config.reset_us);
                self.occupy_next_unit(now, latency)
            }
            Command::Finish { .. } => {
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

    fn write(bytes: u64) -> Command {
        Command::Write {
            offset: 0,
            bytes,
            handle: 0,
        }
    }

    fn queues(units: u32) -> Queues {
        Queues::new(SimConfig {
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
        assert_eq!(queues(4).schedule(Tick(5), read), Tick(5 + 100_000 + 1000));
        let write = write(1000);
        assert_eq!(queues(4).schedule(Tick(5), write), Tick(5 + 10_000 + 1000));
    }

    #[test]
    fn reads_of_one_unit_queue_and_of_many_overlap() {
        let at = |stripe: u64| Command::Read {
            offset: stripe << 16,
            bytes: 4096,
        };
        let mut one = queues(4);
        one.schedule(Tick::ZERO, at(0));
        let second = one.schedule(Tick::ZERO, at(4));
        assert_eq!(second, Tick(200_000 + 4096), "behind the first");
        let mut many = queues(4);
        let ends: Vec<_> = (0..4).map(|i| many.schedule(Tick::ZERO, at(i))).collect();
        let expected: Vec<_> = (1..5).map(|i| Tick(100_000 + i * 4096)).collect();
        assert_eq!(ends, expected, "only the link is shared");
    }

    #[test]
    fn bandwidth_bounds_throughput() {
        let mut queues = queues(64);
        let mut end = Tick::ZERO;
        for _ in 0..1000 {
            end = queues.schedule(Tick::ZERO, write(1_000_000));
        }
        let seconds = end.0 as f64 / 1e9;
        assert!(
            (1.0..1.01).contains(&seconds),
            "1 GB at 1 GB/s took {seconds} s"
        );
    }
}
