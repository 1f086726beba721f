//! A translation layer as bytes; see [`super::super::saved`].
//!
//! In this order:
//! * the number of mapping units written;
//! * for every unit, its place plus one and its number of writes;
//! * for every superblock, its use (0 free, 1 open, from 2 on closed, at that
//!   time plus 2) and its handle;
//! * the free superblocks, in order;
//! * the handles' streams, the partially written units, and the collector.

use super::{Ftl, Handle, NONE, STAGED_MAX, Staged, Use};
use crate::ssd::array::{Array, Stream};
use crate::ssd::saved::{Busy, Reader, StateFault, Writer, check};

impl Ftl {
    pub(in crate::ssd) fn save(&self, out: &mut Writer) -> Result<(), Busy> {
        out.number(self.written_units);
        for (&place, &generation) in self.map.iter().zip(&self.generation) {
            out.option((place != NONE).then_some(u64::from(place)));
            out.number(u64::from(generation));
        }
        for block in &self.blocks {
            out.number(match block.use_ {
                Use::Free => 0,
                Use::Open => 1,
                Use::Closed { at } => at + 2,
                Use::Victim => return Err(Busy),
            });
            out.number(u64::from(block.handle));
        }
        out.number(self.free.len() as u64);
        out.numbers(self.free.iter().map(|&block| u64::from(block)));
        for handle in &self.handles {
            Stream::save(handle.stream.as_ref(), out);
            out.option(handle.next.map(u64::from));
        }
        out.number(self.staged.len() as u64);
        for staged in &self.staged {
            let place = self.map[staged.unit as usize];
            let stamp = (place != NONE).then(|| self.stamp[place as usize]);
            out.numbers([u64::from(staged.unit), u64::from(staged.handle)]);
            out.number(u64::from(stamp.unwrap_or(0)));
            out.number(staged.covered.len() as u64);
            out.numbers(staged.covered.iter().flat_map(|&(from, to)| [from, to]));
        }
        self.collector.save(out)
    }

    /// Restores a saved state into a new layer. Returns how much of the write
    /// buffer is used.
    pub(in crate::ssd) fn restore(
        &mut self,
        from: &mut Reader<'_>,
        flash: &mut Array,
    ) -> Result<u64, StateFault> {
        self.written_units = from.count()?;
        self.restore_map(from)?;
        // How many units of each superblock are filled.
        let mut filled = self.restore_blocks(from)?;
        let mut buffered = 0;
        for number in 0..self.handles.len() {
            let stream = Stream::restore(from, flash)?;
            let blocks = self.blocks.len() as u64;
            let next = from.option(blocks - 1, "a promised superblock does not exist")?;
            let next = next.map(|block| block as u32);
            if let Some(stream) = &stream {
                let row = stream.unprogrammed();
                check(
                    row.collected == 0,
                    "a handle's stream holds what was collected",
                )?;
                self.claim(stream.superblock, stream.filled, &mut filled)?;
                buffered += u64::from(row.host) + u64::from(row.rewritten);
            }
            if let Some(next) = next {
                self.claim(next, 0, &mut filled)?;
            }
            self.handles[number] = Handle { stream, next };
        }
        let staged = self.restore_staged(from)?;
        for stream in self.collector.restore(from, flash)? {
            self.claim(stream.superblock, stream.filled, &mut filled)?;
        }
        check(
            filled.iter().all(Option::is_some),
            "an open superblock has no owner",
        )?;
        self.check_places(&filled, &staged)?;
        for (number, filled) in filled.iter().enumerate() {
            let bytes = u64::from(filled.unwrap_or(0)) * self.unit;
            let is_closed = matches!(self.blocks[number].use_, Use::Closed { .. });
            check(
                flash.holds_rows(number as u32, bytes, is_closed),
                "a superblock is programmed up to elsewhere than it is filled",
            )?;
        }
        Ok(buffered + self.staged_bytes())
    }

    fn restore_map(&mut self, from: &mut Reader<'_>) -> Result<(), StateFault> {
        let places = self.owner.len() as u64;
        for unit in 0..self.map.len() {
            let place = from.option(places - 1, "a unit lies beyond the flash")?;
            let generation = from.small(u32::MAX, "a unit was written too often")?;
            self.generation[unit] = generation;
            let Some(place) = place else { continue };
            check(
                generation > 0,
                "a unit lies somewhere and was never written",
            )?;
            check(
                self.owner[place as usize] == NONE,
                "two units lie at one place",
            )?;
            self.point(unit as u32, place as u32);
        }
        Ok(())
    }

    /// Restores the uses of superblocks. Returns how far each is filled; none
    /// for open ones.
    fn restore_blocks(&mut self, from: &mut Reader<'_>) -> Result<Vec<Option<u32>>, StateFault> {
        let mut filled = Vec::with_capacity(self.blocks.len());
        let mut free = 0;
        for block in &mut self.blocks {
            let (use_, full) = match from.count()? {
                0 => (Use::Free, Some(0)),
                1 => (Use::Open, None),
                at => (Use::Closed { at: at - 2 }, Some(self.units_per_block)),
            };
            if let Use::Closed { at } = use_ {
                check(at <= self.written_units, "a superblock was closed later")?;
            }
            free += usize::from(use_ == Use::Free);
            block.use_ = use_;
            let most = self.handles.len() as u32 - 1;
            block.handle = from.small(most, "a superblock's handle does not exist")? as u16;
            filled.push(full);
        }
        let wrong = "the list of free superblocks is wrong";
        let most = self.blocks.len() as u64;
        check(from.at_most(most, wrong)? == free as u64, wrong)?;
        let mut is_listed = vec![false; self.blocks.len()];
        self.free.clear();
        for _ in 0..free {
            let block = from.small(most as u32 - 1, wrong)?;
            let listed = &mut is_listed[block as usize];
            check(
                !*listed && self.blocks[block as usize].use_ == Use::Free,
                wrong,
            )?;
            *listed = true;
            self.free.push_back(block);
        }
        Ok(filled)
    }

    /// Records that an open superblock is filled up to `bytes` by its only
    /// owner.
    fn claim(&self, block: u32, bytes: u64, filled: &mut [Option<u32>]) -> Result<(), StateFault> {
        let owned = &mut filled[block as usize];
        check(
            owned.is_none(),
            "a superblock that is filled is not open, or is filled twice",
        )?;
        check(
            bytes.is_multiple_of(self.unit),
            "a superblock is filled up to within a unit",
        )?;
        *owned = Some((bytes / self.unit) as u32);
        Ok(())
    }

    /// Restores partially written units. Returns the units that also have a
    /// place, with the number of the write there.
    fn restore_staged(&mut self, from: &mut Reader<'_>) -> Result<Vec<(u32, u32)>, StateFault> {
        let wrong = "a unit written in part is wrong";
        let count = from.at_most(STAGED_MAX as u64, wrong)?;
        let mut stamps = Vec::new();
        for _ in 0..count {
            let unit = from.small(self.map.len() as u32 - 1, wrong)?;
            let handle = from.small(self.handles.len() as u32 - 1, wrong)? as u16;
            let stamp = from.small(u32::MAX, wrong)?;
            check(!self.is_staged(unit), wrong)?;
            check(self.generation[unit as usize] > 0, wrong)?;
            let mut staged = Staged {
                unit,
                handle,
                covered: Vec::new(),
            };
            let mut end = None;
            for _ in 0..from.at_most(self.unit, wrong)? {
                let start = from.at_most(self.unit, wrong)?;
                let stop = from.at_most(self.unit, wrong)?;
                check(start < stop && end.is_none_or(|end| end < start), wrong)?;
                end = Some(stop);
                staged.covered.push((start, stop));
            }
            let bytes = staged.bytes();
            check(bytes > 0 && bytes < self.unit, wrong)?;
            if self.map[unit as usize] != NONE {
                stamps.push((unit, stamp));
            }
            self.staged.push_back(staged);
        }
        Ok(stamps)
    }

    /// Checks that every unit's place is filled. Under a partially written unit
    /// lies an older write of it.
    fn check_places(
        &mut self,
        filled: &[Option<u32>],
        staged: &[(u32, u32)],
    ) -> Result<(), StateFault> {
        for &place in self.map.iter().filter(|&&place| place != NONE) {
            let block = (place / self.units_per_block) as usize;
            check(
                filled[block].is_some_and(|filled| place % self.units_per_block < filled),
                "a unit lies where nothing was written",
            )?;
        }
        for &(unit, stamp) in staged {
            let place = self.map[unit as usize];
            self.stamp[place as usize] = stamp;
        }
        Ok(())
    }
}
