//! A zoned drive: the zone state machine of NVMe ZNS, with its limits.

use std::collections::VecDeque;

use super::array::{Array, Cause, Extent, Stream};
use super::command::{
    Command, CommandId, Rejection, Stored, ZoneCondition as Condition, ZoneDescriptor,
};
use super::config::{FlashConfig, ZonedConfig};
use super::front::Target;
use super::saved::{Busy, Reader, StateFault, Writer, check};

#[derive(Clone, Debug)]
pub(super) struct Zones {
    zones: Vec<Zone>,
    zone_size: u64,
    capacity: u64,
    open_max: u32,
    active_max: u32,
    append_max: u64,
    open: u32,
    active: u32,
    /// Number of openings so far. The implicitly open zone with the oldest
    /// opening is closed first.
    openings: u64,
    /// Zones that are being padded to their end.
    padding: VecDeque<u32>,
    padding_under_way: u64,
    padding_window: u64,
    resetting: Vec<(u32, CommandId)>,
}

#[derive(Clone, Debug)]
struct Zone {
    condition: Condition,
    /// Bytes claimed by commands.
    write_pointer: u64,
    /// Bytes that have arrived in the buffer.
    landed: u64,
    resets: u32,
    opened: u64,
    stream: Stream,
    padding_left: u64,
    finishing: Option<CommandId>,
}

/// The immediate outcome of a zone management command.
pub(super) struct Managed {
    pub(super) is_finished: bool,
    /// Bytes freed in the write buffer.
    pub(super) released_bytes: u64,
}

impl Zones {
    pub(super) fn new(config: &ZonedConfig, flash: &FlashConfig) -> Self {
        let zone = |number| Zone {
            condition: Condition::Empty,
            write_pointer: 0,
            landed: 0,
            resets: 0,
            opened: 0,
            stream: Stream::new(number),
            padding_left: 0,
            finishing: None,
        };
        Zones {
            zones: (0..config.zones).map(zone).collect(),
            zone_size: config.zone_size.bytes(),
            capacity: flash.superblock.bytes(),
            open_max: config.open_max,
            active_max: config.active_max,
            append_max: config.append_max.bytes(),
            open: 0,
            active: 0,
            openings: 0,
            padding: VecDeque::new(),
            padding_under_way: 0,
            padding_window: flash.nand.program_unit.bytes() * u64::from(flash.nand.dies),
            resetting: Vec::new(),
        }
    }

    pub(super) fn describe(&self, zone: u32) -> Option<ZoneDescriptor> {
        self.zones.get(zone as usize).map(|zone| ZoneDescriptor {
            condition: zone.condition,
            write_pointer: zone.write_pointer,
            resets: zone.resets,
        })
    }

    pub(super) fn check_read(&self, offset: u64, bytes: u64) -> Result<(), Rejection> {
        match offset % self.zone_size + bytes > self.zone_size {
            true => Err(Rejection::ZoneBoundary),
            false => Ok(()),
        }
    }

    /// Claims the range for a write at the write pointer.
    pub(super) fn claim_write(
        &mut self,
        offset: u64,
        bytes: u64,
    ) -> Result<(Target, u64), Rejection> {
        let zone = (offset / self.zone_size) as u32;
        self.claim(zone, Some(offset % self.zone_size), bytes)
    }

    /// Claims the next bytes of a zone.
    pub(super) fn claim_append(
        &mut self,
        zone: u32,
        bytes: u64,
    ) -> Result<(Target, u64), Rejection> {
        if zone as usize >= self.zones.len() {
            return Err(Rejection::OutOfRange);
        }
        if bytes > self.append_max {
            return Err(Rejection::InvalidField);
        }
        self.claim(zone, None, bytes)
    }

    /// Executes a zone management command.
    pub(super) fn manage(
        &mut self,
        now: u64,
        flash: &mut Array,
        id: CommandId,
        command: Command,
    ) -> Result<Managed, Rejection> {
        let number = match command {
            Command::Open { zone }
            | Command::Close { zone }
            | Command::Reset { zone }
            | Command::Finish { zone } => zone,
            _ => return Err(Rejection::InvalidOpcode),
        };
        if number as usize >= self.zones.len() {
            return Err(Rejection::OutOfRange);
        }
        let mut managed = Managed {
            is_finished: true,
            released_bytes: 0,
        };
        match command {
            Command::Open { .. } => self.open_explicitly(number)?,
            Command::Close { .. } => self.close(number)?,
            Command::Reset { .. } => {
                managed = self.reset(now, flash, id, number);
            }
            _ => managed.is_finished = !self.finish(id, number),
        }
        Ok(managed)
    }

    /// Accepts a piece that has crossed the link; whether it belongs to the
    /// zone's present life.
    pub(super) fn land(
        &mut self,
        now: u64,
        flash: &mut Array,
        zone: u32,
        resets: u32,
        bytes: u64,
    ) -> bool {
        let zone = &mut self.zones[zone as usize];
        if zone.resets != resets {
            flash.discarded_bytes += bytes;
            return false;
        }
        zone.landed += bytes;
        flash.place(now, &mut zone.stream, Cause::Host, bytes);
        true
    }

    /// Pads finished zones while the window has room. Returns the finish
    /// command of a zone that is now padded.
    pub(super) fn pad(&mut self, now: u64, flash: &mut Array) -> Option<CommandId> {
        let number = *self.padding.front()?;
        let zone = &mut self.zones[number as usize];
        let row = flash.layout.row_bytes();
        while zone.padding_left > 0 {
            let piece = (row - zone.stream.filled % row).min(zone.padding_left);
            if self.padding_under_way + piece > self.padding_window.max(row) {
                return None;
            }
            self.padding_under_way += piece;
            zone.padding_left -= piece;
            flash.place(now, &mut zone.stream, Cause::Padding, piece);
        }
        self.padding.pop_front();
        zone.finishing.take()
    }

    /// Counts padding that has reached flash.
    pub(super) fn padded(&mut self, bytes: u64) {
        self.padding_under_way -= bytes;
    }

    /// Handles the erase of a zone's last die. Returns a command that waited
    /// for it.
    pub(super) fn erased(&mut self, superblock: u32) -> Option<CommandId> {
        let position = self
            .resetting
            .iter()
            .position(|(zone, _)| *zone == superblock)?;
        Some(self.resetting.remove(position).1)
    }

    /// Writes the number of openings, and for every zone its state, write
    /// pointer, resets, opening and stream.
    pub(super) fn save(&self, out: &mut Writer) -> Result<(), Busy> {
        if !self.padding.is_empty() || !self.resetting.is_empty() || self.padding_under_way > 0 {
            return Err(Busy);
        }
        out.number(self.openings);
        for zone in &self.zones {
            out.numbers([
                zone.condition.code(),
                zone.write_pointer,
                u64::from(zone.resets),
                zone.opened,
            ]);
            Stream::save(Some(&zone.stream), out);
        }
        Ok(())
    }

    /// Restores a saved state into new zones. Returns how much of the write
    /// buffer is used.
    pub(super) fn restore(
        &mut self,
        from: &mut Reader<'_>,
        flash: &mut Array,
    ) -> Result<u64, StateFault> {
        self.openings = from.count()?;
        let mut buffered = 0;
        for number in 0..self.zones.len() as u32 {
            let wrong = "a zone's state and write pointer contradict each other";
            let condition = from.number().map(Condition::of)?;
            let condition =
                condition.ok_or(StateFault::Malformed("there is no such zone state"))?;
            let write_pointer = from.at_most(self.capacity, wrong)?;
            let resets = from.small(u32::MAX, "a zone was reset too often")?;
            let opened = from.at_most(self.openings, "a zone was opened later")?;
            let stream = Stream::restore(from, flash)?;
            let stream = stream.ok_or(StateFault::Malformed("a zone has no stream"))?;
            let row = stream.unprogrammed();
            let fits = match condition {
                Condition::Empty => stream.filled == 0 && write_pointer == 0,
                Condition::Full => stream.filled == self.capacity,
                _ => stream.filled == write_pointer && write_pointer < self.capacity,
            };
            check(fits && stream.superblock == number, wrong)?;
            check(
                u64::from(row.host) == row.total()
                    && flash.holds_rows(number, stream.filled, false),
                "a zone holds something else than was written",
            )?;
            buffered += u64::from(row.host);
            let zone = &mut self.zones[number as usize];
            (zone.write_pointer, zone.landed) = (write_pointer, write_pointer);
            (zone.resets, zone.opened, zone.stream) = (resets, opened, stream);
            self.set(number, condition);
        }
        check(
            self.open <= self.open_max && self.active <= self.active_max,
            "more zones are open or active than may be",
        )?;
        Ok(buffered)
    }

    pub(super) fn find(&self, offset: u64, bytes: u64) -> Extent {
        let number = (offset / self.zone_size) as u32;
        let within = offset % self.zone_size;
        let landed = self.zones[number as usize].landed;
        if within >= landed {
            return Extent { bytes, place: None };
        }
        Extent {
            bytes: bytes.min(landed - within),
            place: Some((number, within)),
        }
    }

    pub(super) fn stored(&self, offset: u64) -> Stored {
        let number = offset / self.zone_size;
        let zone = &self.zones[number as usize];
        let is_written = offset % self.zone_size < zone.landed;
        Stored {
            offset: number * self.zone_size,
            bytes: self.capacity,
            generation: is_written.then_some(zone.resets),
        }
    }

    fn claim(
        &mut self,
        number: u32,
        at: Option<u64>,
        bytes: u64,
    ) -> Result<(Target, u64), Rejection> {
        let zone = &self.zones[number as usize];
        if zone.condition == Condition::Full {
            return Err(Rejection::ZoneFull);
        }
        let begin = at.unwrap_or(zone.write_pointer);
        if begin
            .checked_add(bytes)
            .is_none_or(|end| end > self.capacity)
        {
            return Err(Rejection::ZoneBoundary);
        }
        if begin != zone.write_pointer {
            return Err(Rejection::ZoneInvalidWrite);
        }
        self.open(number, Condition::ImplicitlyOpen)?;
        let zone = &mut self.zones[number as usize];
        let at = zone.write_pointer;
        zone.write_pointer += bytes;
        let target = Target::Zone(number, zone.resets);
        if zone.write_pointer == self.capacity {
            self.set(number, Condition::Full);
        }
        Ok((target, u64::from(number) * self.zone_size + at))
    }

    /// Opens a zone for writing. At the limit it closes the implicitly open
    /// zone with the oldest opening.
    fn open(&mut self, number: u32, condition: Condition) -> Result<(), Rejection> {
        let before = self.zones[number as usize].condition;
        if before.is_open() {
            return Ok(());
        }
        if !before.is_active() && self.active >= self.active_max {
            return Err(Rejection::TooManyActiveZones);
        }
        if self.open >= self.open_max {
            let oldest = (0..self.zones.len())
                .filter(|&zone| self.zones[zone].condition == Condition::ImplicitlyOpen)
                .min_by_key(|&zone| self.zones[zone].opened);
            match oldest {
                Some(zone) => self.set(zone as u32, Condition::Closed),
                None => return Err(Rejection::TooManyOpenZones),
            }
        }
        self.openings += 1;
        self.zones[number as usize].opened = self.openings;
        self.set(number, condition);
        Ok(())
    }

    fn open_explicitly(&mut self, number: u32) -> Result<(), Rejection> {
        match self.zones[number as usize].condition {
            Condition::Full => Err(Rejection::InvalidTransition),
            Condition::ExplicitlyOpen => Ok(()),
            Condition::ImplicitlyOpen => {
                self.set(number, Condition::ExplicitlyOpen);
                Ok(())
            }
            Condition::Empty | Condition::Closed => self.open(number, Condition::ExplicitlyOpen),
        }
    }

    fn close(&mut self, number: u32) -> Result<(), Rejection> {
        let zone = &self.zones[number as usize];
        match zone.condition {
            Condition::Closed => Ok(()),
            // A zone that was opened and never written becomes empty again.
            condition if condition.is_open() && zone.write_pointer == 0 => {
                self.set(number, Condition::Empty);
                Ok(())
            }
            condition if condition.is_open() => {
                self.set(number, Condition::Closed);
                Ok(())
            }
            _ => Err(Rejection::InvalidTransition),
        }
    }

    /// Finishes a zone; whether padding remains to be written.
    fn finish(&mut self, id: CommandId, number: u32) -> bool {
        if self.zones[number as usize].condition == Condition::Full {
            return false;
        }
        self.set(number, Condition::Full);
        let zone = &mut self.zones[number as usize];
        zone.padding_left = self.capacity - zone.write_pointer;
        zone.finishing = Some(id);
        self.padding.push_back(number);
        true
    }

    fn reset(&mut self, now: u64, flash: &mut Array, id: CommandId, number: u32) -> Managed {
        let zone = &self.zones[number as usize];
        if zone.write_pointer == 0 && zone.condition != Condition::Full {
            // There is nothing to erase.
            self.set(number, Condition::Empty);
            return Managed {
                is_finished: true,
                released_bytes: 0,
            };
        }
        self.set(number, Condition::Empty);
        let zone = &mut self.zones[number as usize];
        let released_bytes = flash.discard(&zone.stream);
        self.padding_under_way -= u64::from(zone.stream.unprogrammed().padding);
        zone.write_pointer = 0;
        zone.landed = 0;
        zone.resets = zone.resets.wrapping_add(1);
        zone.stream = Stream::new(number);
        zone.padding_left = 0;
        let interrupted = zone.finishing.take();
        self.padding.retain(|&padded| padded != number);
        // A finish that a reset overtakes completes with the reset.
        self.resetting.extend(interrupted.map(|id| (number, id)));
        self.resetting.push((number, id));
        flash.erase(now, number);
        Managed {
            is_finished: false,
            released_bytes,
        }
    }

    fn set(&mut self, number: u32, condition: Condition) {
        let zone = &mut self.zones[number as usize];
        self.open -= u32::from(zone.condition.is_open());
        self.active -= u32::from(zone.condition.is_active());
        zone.condition = condition;
        self.open += u32::from(condition.is_open());
        self.active += u32::from(condition.is_active());
    }
}
