//! The translation layer of a conventional or FDP drive: a map of mapping units
//! to places.
//!
//! Every unit that was written has one place. The place records its unit and
//! the number of the write that it holds. **A place has an owner exactly while
//! the map points at it.** Garbage collection is in `collect`.

mod saved;

use super::array::{Array, Cause, Extent, Stream};
use super::collector::{Collector, read};
use super::command::{Rejection, Stored};
use super::config::{FlashConfig, FtlConfig, Isolation};
use super::statistics::Collection;
use std::collections::VecDeque;

pub(super) const NONE: u32 = u32::MAX;
/// Most partially written mapping units that wait for the rest of their bytes.
const STAGED_MAX: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Ftl {
    pub(super) unit: u64,
    pub(super) units_per_block: u32,
    /// Unit to place.
    map: Vec<u32>,
    /// Number of writes of each unit.
    generation: Vec<u32>,
    /// Place to unit; [`NONE`] for a place that is garbage or empty.
    owner: Vec<u32>,
    /// The number of the write of its unit that a place holds.
    stamp: Vec<u32>,
    pub(super) blocks: Vec<BlockState>,
    pub(super) free: VecDeque<u32>,
    handles: Vec<Handle>,
    staged: VecDeque<Staged>,
    /// Mapping units written by the host so far: the clock by which age is
    /// measured.
    pub(super) written_units: u64,
    pub(super) collector: Collector,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BlockState {
    pub(super) use_: Use,
    /// Valid units.
    pub(super) valid: u32,
    /// The handle whose data it holds.
    pub(super) handle: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Erased, or being erased.
    Free,
    /// Being filled.
    Open,
    /// Filled; `at` is the value of `written_units` at that time.
    Closed { at: u64 },
    /// Being collected.
    Victim,
}

#[derive(Clone, Copy, Debug, Default)]
struct Handle {
    stream: Option<Stream>,
    /// A superblock reserved for a write that is on the link.
    next: Option<u32>,
}

/// A partially written unit.
#[derive(Clone, Debug)]
struct Staged {
    unit: u32,
    handle: u16,
    /// Sorted, disjoint, not adjacent ranges within the unit.
    covered: Vec<(u64, u64)>,
}

impl Ftl {
    pub(super) fn new(config: &FtlConfig, flash: &FlashConfig) -> Self {
        let unit = config.mapping_unit.bytes();
        let units = (config.capacity.bytes() / unit) as usize;
        let units_per_block = (flash.superblock.bytes() / unit) as u32;
        let places = units_per_block as usize * flash.superblocks as usize;
        let state = BlockState {
            use_: Use::Free,
            valid: 0,
            handle: 0,
        };
        let collected_streams = match config.isolation {
            Isolation::Initial => 1,
            Isolation::Persistent => config.handles,
        };
        Ftl {
            unit,
            units_per_block,
            map: vec![NONE; units],
            generation: vec![0; units],
            owner: vec![NONE; places],
            stamp: vec![0; places],
            blocks: vec![state; flash.superblocks as usize],
            free: (0..flash.superblocks).collect(),
            handles: vec![Handle::default(); usize::from(config.handles)],
            staged: VecDeque::new(),
            written_units: 0,
            collector: Collector::new(config, collected_streams),
        }
    }

    pub(super) fn handle(&self, handle: u16) -> u16 {
        handle % self.handles.len() as u16
    }

    pub(super) fn free(&self) -> u32 {
        self.free.len() as u32
    }

    pub(super) fn collection(&self) -> &Collection {
        &self.collector.collection
    }

    pub(super) fn staged_bytes(&self) -> u64 {
        self.staged.iter().map(Staged::bytes).sum()
    }

    /// True if a piece of `bytes` for a handle may be accepted now. If so, room
    /// is reserved for it. **A piece touches no more units than a superblock
    /// has, and each writes one unit at most, so one superblock suffices.**
    pub(super) fn admit(&mut self, handle: u16, bytes: u64) -> bool {
        let needed = bytes.next_multiple_of(self.unit) + 2 * self.unit;
        let block_bytes = self.unit * u64::from(self.units_per_block);
        debug_assert!(bytes <= block_bytes, "a piece exceeds a superblock");
        let number = usize::from(handle);
        let rest = self.handles[number]
            .stream
            .map_or(0, |stream| block_bytes - stream.filled);
        let needs_block = rest < needed && self.handles[number].next.is_none();
        if needs_block && self.free.len() <= self.collector.reserve() {
            return false;
        }
        self.collector.grants(self.free.len(), bytes)
            && (!needs_block || self.reserve_superblock(handle))
    }

    /// Reserves a free superblock for a handle, if there is one to spare.
    fn reserve_superblock(&mut self, handle: u16) -> bool {
        if self.free.len() <= self.collector.reserve() {
            return false;
        }
        let Some(block) = self.free.pop_front() else {
            return false;
        };
        self.blocks[block as usize].use_ = Use::Open;
        self.blocks[block as usize].handle = handle;
        self.handles[usize::from(handle)].next = Some(block);
        true
    }

    /// Accepts a piece that has crossed the link. Returns the change of the
    /// buffer's fill besides these bytes.
    pub(super) fn land(
        &mut self,
        now: u64,
        flash: &mut Array,
        handle: u16,
        offset: u64,
        bytes: u64,
    ) -> i64 {
        let end = offset + bytes;
        let mut at = offset;
        let mut delta = 0;
        while at < end {
            let unit = (at / self.unit) as u32;
            let within = at % self.unit;
            let piece = (self.unit - within).min(end - at);
            let generation = &mut self.generation[unit as usize];
            *generation = generation.wrapping_add(1).max(1);
            if piece == self.unit {
                if let Some(staged) = self.unstage(unit) {
                    delta -= staged.bytes() as i64;
                    flash.discarded_bytes += staged.bytes();
                }
                self.write_unit(now, flash, handle, unit, self.unit);
            } else {
                delta += self.stage(now, flash, handle, unit, within, piece);
            }
            at += piece;
        }
        delta
    }

    /// Unmaps the whole units of a range. Returns the bytes freed in the
    /// buffer.
    pub(super) fn trim(&mut self, flash: &mut Array, offset: u64, bytes: u64) -> u64 {
        let first = offset.div_ceil(self.unit);
        let end = (offset + bytes) / self.unit;
        let mut released = 0;
        for unit in first..end {
            let unit = unit as u32;
            if let Some(staged) = self.unstage(unit) {
                released += staged.bytes();
                flash.discarded_bytes += staged.bytes();
            }
            self.unmap(unit);
        }
        released
    }

    /// Finds the start of a range: its place, and how many bytes from there on
    /// are stored contiguously.
    pub(super) fn find(&self, offset: u64, bytes: u64) -> Extent {
        let unit = (offset / self.unit) as u32;
        let within = offset % self.unit;
        let mut length = (self.unit - within).min(bytes);
        if self.is_staged(unit) {
            return Extent {
                bytes: length,
                place: None,
            };
        }
        let place = self.map[unit as usize];
        let mut following = unit + 1;
        while length < bytes
            && self.follows(place, following - unit, following)
            && !self.is_staged(following)
        {
            length = (length + self.unit).min(bytes);
            following += 1;
        }
        let place = (place != NONE).then(|| {
            let block = place / self.units_per_block;
            let slot = place % self.units_per_block;
            (block, u64::from(slot) * self.unit + within)
        });
        Extent {
            bytes: length,
            place,
        }
    }

    pub(super) fn stored(&self, offset: u64) -> Stored {
        let unit = (offset / self.unit) as u32;
        let place = self.map[unit as usize];
        let generation = if self.is_staged(unit) {
            Some(self.generation[unit as usize])
        } else if place == NONE {
            None
        } else if self.owner[place as usize] == unit {
            Some(self.stamp[place as usize])
        } else {
            // Another unit's data: a generation that no unit has.
            Some(0)
        };
        Stored {
            offset: u64::from(unit) * self.unit,
            bytes: self.unit,
            generation,
        }
    }

    /// Frees a superblock whose last die has been erased.
    pub(super) fn erased(&mut self, now: u64, flash: &mut Array, superblock: u32) {
        self.free.push_back(superblock);
        self.place_landed(now, flash);
    }

    /// Counts collected bytes that have reached flash.
    pub(super) fn programmed(&mut self, collected_bytes: u64) {
        self.collector.under_way_bytes -= collected_bytes;
    }

    pub(super) fn reclaim_unit_rest(&self, flash: &Array, handle: u16) -> Option<u64> {
        let handle = self.handles.get(usize::from(handle))?;
        let filled = handle.stream.map_or(0, |stream| stream.filled);
        Some(flash.superblock_bytes - filled)
    }

    /// Abandons the handle's superblock, and pads its rest. If no free
    /// superblock can replace it, the handle keeps its present one.
    pub(super) fn update_handle(
        &mut self,
        now: u64,
        flash: &mut Array,
        handle: u16,
    ) -> Result<(), Rejection> {
        if usize::from(handle) >= self.handles.len() {
            return Err(Rejection::InvalidField);
        }
        let number = usize::from(handle);
        let Some(mut stream) = self.handles[number].stream else {
            return Ok(());
        };
        // A write on the link relies on having a place.
        if self.handles[number].next.is_none() && !self.reserve_superblock(handle) {
            return Ok(());
        }
        self.handles[number].stream = None;
        let rest = flash.superblock_bytes - stream.filled;
        flash.place(now, &mut stream, Cause::Padding, rest);
        self.close(stream.superblock);
        Ok(())
    }

    /// Maps every unit once, in random order, if the drive was never written.
    pub(super) fn precondition(&mut self, flash: &mut Array, seed: u64) {
        if self.generation.iter().any(|&generation| generation != 0) {
            return;
        }
        let mut order: Vec<u32> = (0..self.map.len() as u32).collect();
        shuffle(&mut order, seed);
        for units in order.chunks(self.units_per_block as usize) {
            let Some(block) = self.free.pop_front() else {
                return;
            };
            for (slot, &unit) in units.iter().enumerate() {
                self.generation[unit as usize] = 1;
                self.point(unit, block * self.units_per_block + slot as u32);
            }
            flash.assume_programmed(block, flash.superblock_bytes);
            self.written_units += units.len() as u64;
            self.close(block);
        }
    }

    pub(super) fn close(&mut self, block: u32) {
        self.blocks[block as usize].use_ = Use::Closed {
            at: self.written_units,
        };
    }

    /// The unit that a place holds, if that is the unit's current place.
    pub(super) fn valid_owner(&self, place: u32) -> Option<u32> {
        let unit = self.owner[place as usize];
        (unit != NONE).then_some(unit)
    }

    /// Maps a unit to a place; its old place becomes garbage.
    pub(super) fn point(&mut self, unit: u32, place: u32) {
        self.unmap(unit);
        self.map[unit as usize] = place;
        self.owner[place as usize] = unit;
        self.stamp[place as usize] = self.generation[unit as usize];
        self.blocks[(place / self.units_per_block) as usize].valid += 1;
    }

    /// As [`Ftl::point`], but keeps the write number of the old place.
    pub(super) fn copy(&mut self, unit: u32, place: u32) {
        let stamp = self.stamp[self.map[unit as usize] as usize];
        self.point(unit, place);
        self.stamp[place as usize] = stamp;
    }

    fn unmap(&mut self, unit: u32) {
        let place = std::mem::replace(&mut self.map[unit as usize], NONE);
        if place != NONE {
            self.owner[place as usize] = NONE;
            self.blocks[(place / self.units_per_block) as usize].valid -= 1;
        }
    }

    fn follows(&self, place: u32, ahead: u32, unit: u32) -> bool {
        let Some(&next) = self.map.get(unit as usize) else {
            return false;
        };
        match place {
            NONE => next == NONE,
            place => next == place + ahead && !next.is_multiple_of(self.units_per_block),
        }
    }

    /// Writes a unit of which `host_bytes` are new.
    fn write_unit(&mut self, now: u64, flash: &mut Array, handle: u16, unit: u32, host_bytes: u64) {
        let number = usize::from(handle);
        let stream = self.handles[number].stream.take().or_else(|| {
            // `admit` has reserved it for the bytes that it accepted.
            let block = self.handles[number].next.take()?;
            Some(Stream::new(block))
        });
        let Some(mut stream) = stream else {
            debug_assert!(false, "a write was admitted without room for it");
            return;
        };
        let slot = (stream.filled / self.unit) as u32;
        let rest = self.unit - host_bytes;
        let had_a_place = self.map[unit as usize] != NONE;
        self.point(unit, stream.superblock * self.units_per_block + slot);
        flash.place(now, &mut stream, Cause::Host, host_bytes);
        let cause = match had_a_place {
            true => Cause::Rewritten,
            false => Cause::Padding,
        };
        flash.place(now, &mut stream, cause, rest);
        self.written_units += 1;
        if stream.filled == flash.superblock_bytes {
            self.close(stream.superblock);
        } else {
            self.handles[number].stream = Some(stream);
        }
    }

    fn is_staged(&self, unit: u32) -> bool {
        self.staged.iter().any(|staged| staged.unit == unit)
    }

    fn unstage(&mut self, unit: u32) -> Option<Staged> {
        let position = self.staged.iter().position(|staged| staged.unit == unit)?;
        self.staged.remove(position)
    }

    /// Keeps a part of a unit until the rest arrives, or until other parts push
    /// it out. Returns the change of the buffer's fill.
    fn stage(
        &mut self,
        now: u64,
        flash: &mut Array,
        handle: u16,
        unit: u32,
        within: u64,
        bytes: u64,
    ) -> i64 {
        let mut staged = self.unstage(unit).unwrap_or(Staged {
            unit,
            handle,
            covered: Vec::new(),
        });
        staged.handle = handle;
        let before = staged.bytes();
        staged.cover(within, within + bytes);
        let again = before + bytes - staged.bytes();
        flash.discarded_bytes += again;
        let mut delta = -(again as i64);
        if staged.bytes() == self.unit {
            self.write_unit(now, flash, handle, unit, self.unit);
            return delta;
        }
        self.staged.push_back(staged);
        if self.staged.len() > STAGED_MAX {
            delta += self.write_oldest_staged(now, flash, handle);
        }
        delta
    }

    /// Reads the rest of the unit that has waited longest, and writes the unit.
    fn write_oldest_staged(&mut self, now: u64, flash: &mut Array, handle: u16) -> i64 {
        let Some(staged) = self.staged.pop_front() else {
            return 0;
        };
        let place = self.map[staged.unit as usize];
        let host_bytes = staged.bytes();
        if place != NONE {
            let block = place / self.units_per_block;
            let offset = u64::from(place % self.units_per_block) * self.unit;
            read(now, flash, block, offset, self.unit, None);
        }
        // The stream in which `admit` reserved room.
        self.write_unit(now, flash, handle, staged.unit, host_bytes);
        match place {
            NONE => 0,
            _ => (self.unit - host_bytes) as i64,
        }
    }
}

impl Staged {
    fn bytes(&self) -> u64 {
        self.covered.iter().map(|(from, to)| to - from).sum()
    }

    fn cover(&mut self, mut from: u64, mut to: u64) {
        self.covered.retain(|&(start, end)| {
            let apart = end < from || start > to;
            if !apart {
                from = from.min(start);
                to = to.max(end);
            }
            apart
        });
        let at = self.covered.partition_point(|&(start, _)| start < from);
        self.covered.insert(at, (from, to));
    }
}

/// A Fisher–Yates shuffle with splitmix64 (Steele et al., OOPSLA 2014): the
/// only randomness in a device.
fn shuffle(values: &mut [u32], seed: u64) {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    for last in (1..values.len()).rev() {
        let other = (u128::from(next()) * (last as u128 + 1)) >> 64;
        values.swap(last, other as usize);
    }
}

#[cfg(test)]
impl Ftl {
    /// Checks every invariant of the mapping.
    pub(super) fn audit(&self) {
        let mut valid = vec![0u32; self.blocks.len()];
        for (unit, &place) in self.map.iter().enumerate() {
            if place == NONE {
                continue;
            }
            assert_eq!(self.owner[place as usize], unit as u32, "a mapping is lost");
            if !self.is_staged(unit as u32) {
                assert_eq!(
                    self.stamp[place as usize], self.generation[unit],
                    "unit {unit} is stale"
                );
            }
            let block = (place / self.units_per_block) as usize;
            assert_ne!(self.blocks[block].use_, Use::Free, "data in a free block");
            valid[block] += 1;
        }
        for (place, &unit) in self.owner.iter().enumerate() {
            assert!(unit == NONE || self.map[unit as usize] == place as u32);
        }
        for (block, state) in self.blocks.iter().enumerate() {
            assert_eq!(valid[block], state.valid, "valid units of block {block}");
            assert!(state.valid <= self.units_per_block);
        }
        for &block in &self.free {
            assert_eq!(self.blocks[block as usize].use_, Use::Free);
        }
    }
}
