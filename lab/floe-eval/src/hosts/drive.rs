//! A drive that carries out a host's commands: each when the simulated device accepts it, one
//! after another. The simulated device decides the times, the drive whether the commands
//! are valid and where appends lie. Every read is compared with what was written.

use std::collections::BTreeMap;

use floe_core::ssd::Command;
use floe_core::{Address, ByteSize, ZoneId};
use floe_device::{
    Clock, CounterSnapshot, DeviceConfig, DeviceError, IoBuf, OpFuture, Placement, SharedDevice,
    ZoneState,
};
use tokio::runtime::{Builder, Runtime};

use super::plan::Plan;
use crate::error::{EvalError, chain};

pub(super) struct Drive {
    runtime: Runtime,
    device: SharedDevice,
    before: CounterSnapshot,
    /// Bytes between the starts of two zones, in the addresses of commands.
    zone_distance: u64,
    is_zoned: bool,
    /// The number of the last write at each offset.
    written: BTreeMap<u64, u64>,
    writes: u64,
}

impl Drive {
    /// Opens the drive and empties the zones of the cache. Sizes that `config` leaves open are
    /// the simulated device's.
    pub(super) fn open(config: &DeviceConfig, plan: &Plan, zones: u32) -> Result<Self, EvalError> {
        let distance = plan.zone_distance;
        let config = DeviceConfig {
            size: config.size.or(Some(ByteSize(distance * u64::from(zones)))),
            zone_size: config.zone_size.or(Some(ByteSize(distance))),
            zone_capacity: config.zone_capacity.or(Some(plan.capacity)),
            ..config.clone()
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| EvalError::Cache(format!("no runtime: {error}")))?;
        let clock = Clock::real();
        let device = runtime.block_on(floe_device::open_drives(&config, &clock))?;
        let geometry = device.geometry();
        let (wanted, capacity) = (plan.capacity.bytes(), geometry.zone_capacity);
        let fits = match plan.is_zoned {
            true => capacity == wanted,
            false => capacity >= wanted,
        };
        if !fits || geometry.zone_count < zones {
            return Err(EvalError::Option {
                option: "device",
                reason: format!(
                    "{} has {} zones of {}, and the host's device {zones} of {}; change \
                     host.device.flash, or the drive",
                    device.describe(),
                    geometry.zone_count,
                    ByteSize(capacity),
                    plan.capacity
                ),
            });
        }
        let emptied = runtime.block_on(async {
            let report = device.report().await?;
            for zone in report.iter().take(zones as usize) {
                if zone.state != ZoneState::Empty {
                    device.reset(zone.zone).await?;
                }
            }
            Ok(())
        });
        emptied.map_err(failed)?;
        Ok(Drive {
            before: device.counters().snapshot(),
            runtime,
            device,
            zone_distance: plan.zone_distance,
            is_zoned: plan.is_zoned,
            written: BTreeMap::new(),
            writes: 0,
        })
    }

    /// Carries out `command`; returns the offset of what it wrote, unless that is in place.
    pub(super) fn carry_out(&mut self, command: Command) -> Result<Option<u64>, EvalError> {
        match command {
            Command::Read { offset, bytes } => self.read(offset, bytes)?,
            Command::Append { zone, bytes } => return self.append(ZoneId(zone), bytes).map(Some),
            Command::Write { offset, bytes, .. } if self.is_zoned => {
                return self.append(self.place(offset).zone, bytes).map(Some);
            }
            Command::Write {
                offset,
                bytes,
                handle,
            } => {
                let (at, data) = (self.place(offset), self.next_write(bytes));
                self.wait(|device| device.write(at, data.freeze(), Placement(handle)))?;
                self.written.insert(offset, self.writes);
            }
            Command::Reset { zone } => self.wait(|device| device.reset(ZoneId(zone)))?,
            Command::Trim { offset, .. } => {
                let zone = self.place(offset).zone;
                self.wait(|device| device.reset(zone))?;
            }
            Command::Finish { zone } => self.wait(|device| device.finish(ZoneId(zone)))?,
            Command::Flush => self.wait(|device| device.flush())?,
            // The drive opens and closes zones itself.
            Command::Open { .. } | Command::Close { .. } | Command::UpdateHandle { .. } => {}
        }
        Ok(None)
    }

    /// What the drive counted since it was opened.
    pub(super) fn counts(&self) -> CounterSnapshot {
        self.device.counters().snapshot().since(&self.before)
    }

    /// Starts an operation, and waits for its end.
    fn wait<T: Send + 'static>(
        &self,
        start: impl FnOnce(&SharedDevice) -> OpFuture<T>,
    ) -> Result<T, EvalError> {
        let ended = self.runtime.block_on(async { start(&self.device).await });
        ended.map_err(failed)
    }

    /// The bytes of the next write.
    fn next_write(&mut self, bytes: u64) -> IoBuf {
        self.writes += 1;
        filled(self.device.allocate(bytes as usize), self.writes)
    }

    /// Appends in as many parts as the drive's limit needs.
    fn append(&mut self, zone: ZoneId, bytes: u64) -> Result<u64, EvalError> {
        let data = self.next_write(bytes).freeze();
        let part_max = self.device.geometry().max_append_bytes as usize;
        let mut first = None;
        for start in (0..data.len()).step_by(part_max) {
            let part = data.slice(start..data.len().min(start + part_max));
            let at = self.wait(|device| device.append(zone, part, Placement::default()))?;
            first.get_or_insert(at.offset);
        }
        let offset = u64::from(zone.0) * self.zone_distance + first.unwrap_or(0);
        self.written.insert(offset, self.writes);
        Ok(offset)
    }

    fn read(&self, offset: u64, bytes: u64) -> Result<(), EvalError> {
        let buf = self.device.allocate(bytes as usize);
        let found = self.wait(|device| device.read(self.place(offset), buf))?;
        let number = self.written.get(&offset).copied().unwrap_or(0);
        let wanted = filled(IoBuf::zeroed(bytes as usize), number);
        match found.iter().zip(wanted.iter()).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => Err(EvalError::WrongBytes {
                key: format!("at {offset} on the drive"),
                offset: at as u64,
            }),
        }
    }

    fn place(&self, offset: u64) -> Address {
        let zone = (offset / self.zone_distance) as u32;
        Address::new(ZoneId(zone), offset % self.zone_distance)
    }
}

/// The bytes of the write `number`.
fn filled(mut buf: IoBuf, number: u64) -> IoBuf {
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    for (out, byte) in buf.iter_mut().zip(word.iter().cycle()) {
        *out = *byte;
    }
    buf
}

fn failed(error: DeviceError) -> EvalError {
    EvalError::Cache(format!("the drive: {}", chain(&error)))
}
