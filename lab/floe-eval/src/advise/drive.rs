//! A simulated SSD under a cache: what the cache's writes cost in flash.

use floe_core::ByteSize;
use floe_core::ssd::{Command, CommandId, Completion, Interface, Ssd, SsdConfig, Statistics};
use floe_core::{Tick, volume};

use crate::error::EvalError;

use super::options::bad_option;

/// The unit of the drive's mapping, and of its commands.
const PAGE_BYTES: u64 = 4096;
/// The largest command. The drive accepts one only if it fits the rest of a
/// superblock and another superblock, which has at least 96 KiB here.
const COMMAND_BYTES: u64 = 64 << 10;
/// Commands in flight.
const DEPTH: u64 = 16;
/// The largest cache whose drive is simulated. The drive's mapping has tens of
/// bytes for each page.
pub(super) const DRIVE_BYTES_MAX: u64 = 64 << 30;

/// A conventional drive that the cache fills: the SN540's firmware and share of
/// over-provisioning, with a mapping of 4 KiB pages and superblocks small enough
/// to have as many of them as the whole drive. Random writes have filled it
/// before, so that garbage collection works from the first write on.
#[derive(Clone)]
pub(super) struct Drive {
    ssd: Ssd,
    before: Statistics,
    now: Tick,
    submitted: u64,
    completed: u64,
    done: Vec<Completion>,
}

impl Drive {
    /// A drive of `capacity_bytes`; `None` if it would be too large.
    pub(super) fn new(capacity_bytes: u64) -> Result<Option<Self>, EvalError> {
        if capacity_bytes > DRIVE_BYTES_MAX {
            return Ok(None);
        }
        let mut ssd = Ssd::new(config(capacity_bytes), 0)
            .map_err(|fault| bad_option("capacity", fault.to_string()))?;
        ssd.precondition();
        Ok(Some(Drive {
            before: ssd.statistics(),
            ssd,
            now: Tick::ZERO,
            submitted: 0,
            completed: 0,
            done: Vec::new(),
        }))
    }

    /// Carries out the writes among the steps of a request.
    pub(super) fn apply(&mut self, steps: &[volume::Step]) -> Result<(), EvalError> {
        for step in steps {
            if let volume::Step::WriteCache(piece)
            | volume::Step::ZeroCache(piece)
            | volume::Step::Fill(piece) = step
            {
                self.write(piece.place, piece.extent.range.len())?;
            }
        }
        Ok(())
    }

    /// Writes the pages around a range.
    pub(super) fn write(&mut self, place: u64, bytes: u64) -> Result<(), EvalError> {
        let end = (place + bytes).next_multiple_of(PAGE_BYTES);
        let mut offset = place / PAGE_BYTES * PAGE_BYTES;
        while offset < end {
            let bytes = (end - offset).min(COMMAND_BYTES);
            self.submit(Command::Write {
                offset,
                bytes,
                handle: 0,
            })?;
            offset += bytes;
        }
        Ok(())
    }

    fn submit(&mut self, command: Command) -> Result<(), EvalError> {
        self.wait(DEPTH - 1);
        self.submitted += 1;
        self.ssd
            .submit(self.now, CommandId(self.submitted), command)
            .map_err(|rejection| bad_option("capacity", format!("{command:?}: {rejection}")))
    }

    /// Lets time pass until at most so many commands are in flight.
    fn wait(&mut self, in_flight: u64) {
        while self.submitted - self.completed > in_flight {
            self.now = self.ssd.advance_to_completion(Tick::MAX, &mut self.done);
            self.completed += self.done.len() as u64;
            self.done.clear();
        }
    }

    /// Bytes programmed per byte written since the drive was full; `None` without
    /// a write.
    pub(super) fn write_amplification(mut self) -> Option<f64> {
        self.wait(0);
        let since = self.ssd.statistics().since(&self.before);
        since.write_amplification()
    }
}

fn config(capacity_bytes: u64) -> SsdConfig {
    let mut config = SsdConfig::sn540();
    let Some(flash) = config.flash_mut() else {
        return config;
    };
    // The write buffer of a small drive has room for few dies.
    flash.nand.dies = 8;
    flash.nand.stripe_dies = 1;
    let Interface::Conventional(ftl) = &mut flash.interface else {
        return config;
    };
    let raw = flash.superblock.bytes() * u64::from(flash.superblocks);
    let raw = u128::from(raw) * u128::from(capacity_bytes) / u128::from(ftl.capacity.bytes());
    ftl.capacity = ByteSize(capacity_bytes);
    ftl.mapping_unit = ByteSize(PAGE_BYTES);
    let beside = u64::from(4 * u32::from(ftl.handles).max(1) + ftl.collect_below);
    let row = flash.nand.row_bytes();
    let superblock = (raw as u64 / u64::from(flash.superblocks) / row).max(1) * row;
    let least = capacity_bytes.div_ceil(superblock) + beside;
    let superblocks = (raw as u64).div_ceil(superblock).max(least);
    flash.superblocks = u32::try_from(superblocks).unwrap_or(u32::MAX);
    flash.resize_superblocks(ByteSize(superblock));
    config
}
