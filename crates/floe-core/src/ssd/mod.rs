//! An SSD as a pure state machine: its inputs are commands and time, its
//! outputs completions and the next wake-up.
//!
//! | file | for |
//! |---|---|
//! | `config`, `presets` | configurations; real devices |
//! | `command` | commands and completions, with the status codes of NVMe |
//! | `flash` | a flash device: front end, dies and their manager together |
//! | `front` | link, write buffer, commands under way |
//! | `array` | superblocks over dies |
//! | `nand` | dies: programs, reads that suspend them, erases |
//! | `layout` | placement of a superblock's bytes on the dies |
//! | `ftl`, `collect` | a conventional or FDP drive: mapping, garbage collection |
//! | `zones` | a zoned drive |
//! | `in_place` | media without erasure: 3D XPoint, RAM, discs |
//! | `saved` | states as bytes |
//! | `statistics` | counters of a device |
//!
//! The model keeps no data. Every mapping unit, or zone, has a generation
//! instead ([`Ssd::stored`]). The model looks it up at the physical place of
//! the data, so that a lost or stale mapping becomes visible.
//!
//! Time is in whole nanoseconds. The same commands at the same times give the
//! same completions. A device can be cloned in any state, for instance after
//! [`Ssd::precondition`], and [saved](Ssd::save) while idle.
//!
//! ```
//! use floe_core::Tick;
//! use floe_core::ssd::{Command, CommandId, Ssd, SsdConfig};
//!
//! let mut ssd = Ssd::new(SsdConfig::zn540().scaled(32)?, 42)?;
//! ssd.submit(Tick::ZERO, CommandId(1), Command::Append { zone: 0, bytes: 65536 })?;
//! let mut done = Vec::new();
//! while let Some(at) = ssd.next_wakeup() {
//!     ssd.advance(at, &mut done);
//! }
//! assert_eq!(done[0].id, CommandId(1));
//! assert_eq!(done[0].appended_at, Some(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The model follows findings of SSD simulators that were compared with drives:
//! FEMU (FAST 2018), Amber (MICRO 2018), ConfZNS (SYSTOR 2023). It reproduces
//! the results of ZNCache and OxCache.

mod array;
mod collect;
mod collector;
mod command;
mod config;
mod flash;
mod front;
mod ftl;
mod in_place;
mod layout;
mod nand;
mod presets;
mod saved;
mod slab;
mod statistics;
#[cfg(test)]
mod tests;
mod validate;
mod zones;

pub use command::{
    Command, CommandId, Completion, Rejection, Stored, ZoneCondition, ZoneDescriptor,
};
pub use config::{
    ConfigFault, FlashConfig, FtlConfig, HostInterface, InPlaceConfig, Interface, Isolation,
    Medium, NandConfig, SsdConfig, Victim, ZonedConfig,
};
pub use saved::{Busy, StateFault};
pub use statistics::{Collected, Collection, DieBusy, FdpStatistics, Programmed, Statistics, Wear};

use crate::Tick;
use flash::Flash;
use in_place::InPlace;
use saved::Writer;

/// A device.
#[derive(Clone, Debug)]
pub struct Ssd {
    config: SsdConfig,
    seed: u64,
    now: u64,
    device: Device,
}

#[derive(Clone, Debug)]
enum Device {
    Flash(Box<Flash>),
    InPlace(Box<InPlace>),
}

impl Ssd {
    /// A new device, never written. The seed is used by [`Ssd::precondition`];
    /// nothing else is random.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(config: SsdConfig, seed: u64) -> Result<Self, ConfigFault> {
        config.validate()?;
        let device = match &config.medium {
            Medium::Flash(flash) => {
                Device::Flash(Box::new(Flash::new(flash, &config.host, config.block)))
            }
            Medium::InPlace(medium) => {
                Device::InPlace(Box::new(InPlace::new(medium, &config.host)))
            }
        };
        Ok(Ssd {
            config,
            seed,
            now: 0,
            device,
        })
    }

    /// The device's configuration.
    pub fn config(&self) -> &SsdConfig {
        &self.config
    }

    /// Submits a command at `now`. A `now` before that of an earlier call
    /// counts as the time of that call. If `now` is after [`Ssd::next_wakeup`],
    /// call [`Ssd::advance`] first, or completions come late.
    ///
    /// # Errors
    /// The status with which a drive would reject the command at once. The
    /// command then has no effect.
    pub fn submit(&mut self, now: Tick, id: CommandId, command: Command) -> Result<(), Rejection> {
        self.now = self.now.max(now.0);
        self.check(command)?;
        match &mut self.device {
            Device::Flash(flash) => flash.submit(self.now, id, command),
            Device::InPlace(device) => device.submit(self.now, id, command),
        }
    }

    /// The time of the next internal event; `None` while the device is idle.
    pub fn next_wakeup(&self) -> Option<Tick> {
        match &self.device {
            Device::Flash(flash) => flash.next_wakeup().map(Tick),
            Device::InPlace(device) => device.next_wakeup().map(Tick),
        }
    }

    /// Advances time to `now`, inclusive. Appends the completed commands, in
    /// the order of completion.
    pub fn advance(&mut self, now: Tick, done: &mut Vec<Completion>) {
        self.now = self.now.max(now.0);
        match &mut self.device {
            Device::Flash(flash) => {
                flash.advance(self.now, done, false);
            }
            Device::InPlace(device) => {
                device.advance(self.now, done, false);
            }
        }
    }

    /// As [`Ssd::advance`], but stops at the first completion. Returns the time
    /// reached: that of the commands in `done`, or `until`. For drivers with
    /// nothing else to do meanwhile: it saves a wake-up per internal event.
    pub fn advance_to_completion(&mut self, until: Tick, done: &mut Vec<Completion>) -> Tick {
        let until = self.now.max(until.0);
        self.now = match &mut self.device {
            Device::Flash(flash) => flash.advance(until, done, true),
            Device::InPlace(device) => device.advance(until, done, true),
        };
        Tick(self.now)
    }

    /// Fills a conventional device with one pass of writes in random order, one
    /// mapping unit each, in no time, as ZNCache and OxCache do before their
    /// experiments. Neither statistics nor wear count these writes.
    ///
    /// Does nothing to zoned devices, to media that overwrite in place, and to
    /// a device that was written before.
    pub fn precondition(&mut self) {
        if let Device::Flash(flash) = &mut self.device {
            flash.precondition(self.seed);
        }
    }

    /// Identifies the data stored at a byte offset: the data that a read
    /// submitted now would return.
    ///
    /// `None` beyond the device's end, and for media overwritten in place,
    /// which have no mapping that could be wrong.
    pub fn stored(&self, offset: u64) -> Option<Stored> {
        if offset >= self.config.address_bytes() {
            return None;
        }
        match &self.device {
            Device::Flash(flash) => Some(flash.stored(offset)),
            Device::InPlace(_) => None,
        }
    }

    /// A zone; `None` if there is no such zone.
    pub fn zone(&self, zone: u32) -> Option<ZoneDescriptor> {
        match &self.device {
            Device::Flash(flash) => flash.zone(zone),
            Device::InPlace(_) => None,
        }
    }

    /// Bytes that can still be written to the reclaim unit of a handle (FDP);
    /// `None` if there is no such handle.
    pub fn reclaim_unit_rest(&self, handle: u16) -> Option<u64> {
        match &self.device {
            Device::Flash(flash) => flash.reclaim_unit_rest(handle),
            Device::InPlace(_) => None,
        }
    }

    /// Superblocks that are erased and unused.
    pub fn free_superblocks(&self) -> Option<u32> {
        match &self.device {
            Device::Flash(flash) => flash.free_superblocks(),
            Device::InPlace(_) => None,
        }
    }

    /// All counters so far.
    pub fn statistics(&self) -> Statistics {
        match &self.device {
            Device::Flash(flash) => flash.statistics(),
            Device::InPlace(device) => device.statistics(),
        }
    }

    /// The endurance-group statistics of an FDP drive.
    pub fn fdp_statistics(&self) -> FdpStatistics {
        let statistics = self.statistics();
        let superblock = self.config.flash().map_or(0, |f| f.superblock.bytes());
        FdpStatistics {
            host_bytes_written: statistics.host_written_bytes,
            media_bytes_written: statistics.programmed.total_bytes(),
            media_bytes_erased: statistics.wear.erases * superblock,
        }
    }

    fn check(&self, command: Command) -> Result<(), Rejection> {
        let (offset, bytes, may_be_empty) = match command {
            Command::Read { offset, bytes } | Command::Write { offset, bytes, .. } => {
                (offset, bytes, false)
            }
            Command::Trim { offset, bytes } => (offset, bytes, true),
            Command::Append { bytes, .. } => (0, bytes, false),
            _ => return Ok(()),
        };
        let block = self.config.block.bytes();
        if !offset.is_multiple_of(block)
            || !bytes.is_multiple_of(block)
            || (bytes == 0 && !may_be_empty)
        {
            return Err(Rejection::InvalidField);
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= self.config.address_bytes() => Ok(()),
            _ => Err(Rejection::OutOfRange),
        }
    }

    /// The state as bytes.
    ///
    /// # Errors
    /// While anything is under way: advance time until
    /// [`next_wakeup`](Self::next_wakeup) is `None`.
    pub fn save(&self) -> Result<Vec<u8>, Busy> {
        let mut body = Writer::default();
        body.config(&self.config);
        body.number(self.seed);
        match &self.device {
            Device::Flash(flash) => flash.save(&mut body)?,
            Device::InPlace(device) => device.save(&mut body)?,
        }
        Ok(saved::seal(body))
    }

    /// A device of this configuration in a [saved](Self::save) state, at time
    /// zero.
    ///
    /// # Errors
    /// If the configuration is invalid, or the bytes are not a state of it.
    pub fn load(config: SsdConfig, bytes: &[u8]) -> Result<Self, StateFault> {
        let mut from = saved::open(&config, bytes)?;
        let seed = from.number()?;
        let mut ssd = Ssd::new(config, seed)
            .map_err(|_| StateFault::Malformed("no device has this configuration"))?;
        match &mut ssd.device {
            Device::Flash(flash) => flash.restore(&mut from)?,
            Device::InPlace(device) => device.restore(&mut from)?,
        }
        from.end()?;
        Ok(ssd)
    }
}
