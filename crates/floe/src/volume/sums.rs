//! Checksums of the data on the cache device, as an option.
//!
//! A *unit* is a block of the device. Its checksum is kept in memory and compared at each
//! read; the first read of a unit whose checksum is unknown learns it. The table of blocks
//! gets the checksums of sectors when it hears of these, and those of writes in place
//! before the write-intent bit of their addresses is cleared, and at a clean stop. After
//! an unclean stop, the checksums of blocks with such a bit are unknown.
//!
//! Requests hold range locks, so that nothing changes the bytes that a read compares.
//!
//! Must not depend on: volumes, requests, policies.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use floe_core::layout::volume::{BlockRecord, NO_SUM, VolumeFormatPlan, unit_sum};
use floe_device::block::BlockDevice;
use floe_device::{
    Content, Counters, DeviceError, DeviceErrorKind, IoBuf, IoData, OpFuture, Operation,
    SharedBlockDevice,
};
use parking_lot::RwLock;

/// The checksums of all places.
#[derive(Debug)]
pub(super) struct Sums {
    places_offset: u64,
    unit_bytes: usize,
    units_in_granule: usize,
    /// Replaced by a larger one when the cache grows.
    units: RwLock<Units>,
    /// Reads that found other data than was written.
    failures: AtomicU64,
}

/// The checksum of each unit, by its number.
#[derive(Debug, Default)]
struct Units {
    sums: Vec<AtomicU32>,
    /// A bit for each unit whose checksum the table lacks.
    changed: Vec<AtomicU64>,
}

impl Sums {
    /// Those of the places of `plan`, all unknown.
    pub(super) fn new(plan: &VolumeFormatPlan) -> Self {
        let sums = Sums {
            places_offset: plan.places_offset,
            unit_bytes: plan.block_size as usize,
            units_in_granule: (plan.granule_bytes / plan.block_size) as usize,
            units: RwLock::default(),
            failures: AtomicU64::new(0),
        };
        sums.grow(plan);
        sums
    }

    /// Adds the places that `plan` has in addition. Their checksums are unknown.
    pub(super) fn grow(&self, plan: &VolumeFormatPlan) {
        let count = (plan.places_bytes / self.unit_bytes as u64) as usize;
        let Units { sums, changed } = &mut *self.units.write();
        sums.resize_with(count, || AtomicU32::new(NO_SUM));
        changed.resize_with(count.div_ceil(64), AtomicU64::default);
    }

    /// Bytes of RAM.
    pub(super) fn memory_bytes(&self) -> u64 {
        let units = self.units.read();
        (size_of_val(&*units.sums) + size_of_val(&*units.changed)) as u64
    }

    /// Reads that found other data than was written.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Takes over what the table says of unit `unit` of `granule`.
    pub(super) fn restore(&self, granule: u32, unit: u32, sum: u32) {
        let at = granule as usize * self.units_in_granule + unit as usize;
        if let Some(place) = self.units.read().sums.get(at) {
            place.store(sum, Relaxed);
        }
    }

    /// True if the table lacks a checksum of `places`.
    pub(super) fn has_changed(&self, places: Range<u64>) -> bool {
        let units = self.units.read();
        let mut within = self.units_of(&units, places);
        within.any(|unit| units.is_changed(unit))
    }

    /// Appends records of the units of `places`: of all whose checksum is known, or of
    /// those that the table lacks. To be called under the lock that guards the block.
    pub(super) fn records(
        &self,
        places: Range<u64>,
        only_changed: bool,
        records: &mut Vec<BlockRecord>,
    ) {
        let units = self.units.read();
        for unit in self.units_of(&units, places) {
            let was_changed = units.set_changed(unit, false);
            let sum = units.sums[unit].load(SeqCst);
            if (only_changed && !was_changed) || (!only_changed && sum == NO_SUM) {
                continue;
            }
            let granule = (unit / self.units_in_granule) as u32;
            let within = (unit % self.units_in_granule) as u16;
            match records.last_mut() {
                Some(BlockRecord::Sums {
                    granule: of_last,
                    first,
                    sums: (_, second @ None),
                }) if *of_last == granule && *first + 1 == within => *second = Some(sum),
                _ => records.push(BlockRecord::Sums {
                    granule,
                    first: within,
                    sums: (sum, None),
                }),
            }
        }
    }

    /// Compares `data`, read at `place`, with the checksums, and learns unknown ones.
    fn check(&self, place: u64, data: &[u8]) -> Result<(), DeviceError> {
        let units = self.units.read();
        let within = self.units_of(&units, place..place + data.len() as u64);
        for (unit, data) in within.zip(data.chunks(self.unit_bytes)) {
            let found = unit_sum(unit as u64, data);
            match units.sums[unit].load(Relaxed) {
                NO_SUM => units.set(unit, found),
                sum if sum == found => {}
                _ => {
                    self.failures.fetch_add(1, Relaxed);
                    return Err(self.damaged(unit));
                }
            }
        }
        Ok(())
    }

    fn damaged(&self, unit: usize) -> DeviceError {
        let at = self.places_offset + (unit * self.unit_bytes) as u64;
        let what = format!("the data at byte {at} has another checksum than what was written");
        let error = io::Error::new(io::ErrorKind::InvalidData, what);
        DeviceError::new(Operation::Read, None, DeviceErrorKind::Io(error))
    }

    fn note(&self, place: u64, data: &[u8]) {
        let units = self.units.read();
        let within = self.units_of(&units, place..place + data.len() as u64);
        for (unit, data) in within.zip(data.chunks(self.unit_bytes)) {
            units.set(unit, unit_sum(unit as u64, data));
        }
    }

    fn note_zeroes(&self, places: Range<u64>) {
        const ZEROES: [u8; 4096] = [0; 4096];
        let units = self.units.read();
        for unit in self.units_of(&units, places) {
            units.set(unit, unit_sum(unit as u64, &ZEROES[..self.unit_bytes]));
        }
    }

    fn forget(&self, places: Range<u64>) {
        let units = self.units.read();
        let within = self.units_of(&units, places);
        within.for_each(|unit| units.set(unit, NO_SUM));
    }

    fn units_of(&self, units: &Units, places: Range<u64>) -> Range<usize> {
        let unit = self.unit_bytes as u64;
        let end = (places.end.div_ceil(unit) as usize).min(units.sums.len());
        (places.start / unit) as usize..end
    }
}

impl Units {
    /// The record follows what is set: see [`Sums::records`].
    fn set(&self, unit: usize, sum: u32) {
        self.sums[unit].store(sum, SeqCst);
        self.set_changed(unit, true);
    }

    fn is_changed(&self, unit: usize) -> bool {
        self.changed[unit / 64].load(SeqCst) >> (unit % 64) & 1 == 1
    }

    /// Returns what was set before.
    fn set_changed(&self, unit: usize, is_changed: bool) -> bool {
        let (word, bit) = (&self.changed[unit / 64], 1 << (unit % 64));
        let before = match is_changed {
            true => word.fetch_or(bit, SeqCst),
            false => word.fetch_and(!bit, SeqCst),
        };
        before & bit != 0
    }
}

/// A cache device whose places have checksums.
#[derive(Debug)]
pub(super) struct SummedBlocks {
    below: SharedBlockDevice,
    sums: Arc<Sums>,
}

impl SummedBlocks {
    pub(super) fn new(below: SharedBlockDevice, sums: Arc<Sums>) -> Self {
        SummedBlocks { below, sums }
    }

    /// Starts a change of `range`, whose checksums are unknown until it has ended.
    fn change(
        &self,
        range: Range<u64>,
        start: impl FnOnce() -> OpFuture<()>,
        note: impl FnOnce(&Sums, Range<u64>) + Send + 'static,
    ) -> OpFuture<()> {
        let sums = Arc::clone(&self.sums);
        let offset = sums.places_offset;
        let places = range.start.saturating_sub(offset)..range.end.saturating_sub(offset);
        sums.forget(places.clone());
        let change = start();
        OpFuture::new(async move {
            change.await?;
            note(&sums, places);
            Ok(())
        })
    }
}

impl BlockDevice for SummedBlocks {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn refresh_size(&self) -> OpFuture<u64> {
        self.below.refresh_size()
    }

    fn allocate(&self, len: usize) -> IoBuf {
        self.below.allocate(len)
    }

    fn block_bytes(&self) -> u32 {
        self.below.block_bytes()
    }

    fn describe(&self) -> String {
        self.below.describe()
    }

    fn is_volatile(&self) -> bool {
        self.below.is_volatile()
    }

    fn read(&self, at: u64, buf: IoBuf) -> OpFuture<IoBuf> {
        let sums = Arc::clone(&self.sums);
        let read = self.below.read(at, buf);
        OpFuture::new(async move {
            let buf = read.await?;
            sums.check(at.saturating_sub(sums.places_offset), &buf)?;
            Ok(buf)
        })
    }

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        self.write_of(Content::Dirty, at, data)
    }

    fn write_of(&self, content: Content, at: u64, data: IoData) -> OpFuture<()> {
        let written = data.clone();
        let write = || self.below.write_of(content, at, data);
        let range = at..at + written.len() as u64;
        self.change(range, write, move |sums, places| {
            sums.note(places.start, &written);
        })
    }

    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        let write = || self.below.write_zeroes(range.clone());
        self.change(range.clone(), write, Sums::note_zeroes)
    }

    fn discard(&self, range: Range<u64>) -> OpFuture<()> {
        let discard = || self.below.discard(range.clone());
        self.change(range.clone(), discard, |_, _| {})
    }

    fn flush(&self) -> OpFuture<()> {
        self.below.flush()
    }

    fn set_size(&self, size: u64, allocates: bool) -> OpFuture<()> {
        self.below.set_size(size, allocates)
    }

    fn counters(&self) -> &Counters {
        self.below.counters()
    }
}
