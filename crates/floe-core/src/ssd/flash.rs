//! A flash device: front end, dies and their manager, advanced event by event.

use super::array::Array;
use super::command::{Command, CommandId, Completion, Rejection, Stored, ZoneDescriptor};
use super::config::{FlashConfig, HostInterface, Interface};
use super::front::{Front, Read as HostRead, Stall, Target, Write as HostWrite};
use super::ftl::Ftl;
use super::layout::Pages;
use super::nand::{Finished, Read, Work};
use super::saved::{Busy, Reader, StateFault, Writer, check};
use super::statistics::Statistics;
use super::zones::Zones;
use crate::ByteSize;

#[derive(Clone, Debug)]
pub(super) struct Flash {
    front: Front,
    flash: Array,
    manager: Manager,
    /// Most bytes of a command on the link at once, in whole mapping units.
    piece_bytes: u64,
    /// Scratch for page reads; empty between calls.
    pages: Vec<Pages>,
}

#[derive(Clone, Debug)]
enum Manager {
    Ftl(Box<Ftl>),
    Zones(Zones),
}

impl Flash {
    pub(super) fn new(config: &FlashConfig, host: &HostInterface, block: ByteSize) -> Self {
        const PIECE: u64 = 256 << 10;
        let (manager, piece_bytes) = match &config.interface {
            Interface::Conventional(ftl) => {
                let manager = Manager::Ftl(Box::new(Ftl::new(ftl, config)));
                // `Ftl::admit` reserves one superblock for a piece.
                let piece = PIECE.next_multiple_of(ftl.mapping_unit.bytes());
                (manager, piece.min(config.superblock.bytes()))
            }
            Interface::Zoned(zoned) => {
                let manager = Manager::Zones(Zones::new(zoned, config));
                (manager, PIECE.next_multiple_of(block.bytes()))
            }
        };
        Flash {
            front: Front::new(host),
            flash: Array::new(config),
            manager,
            piece_bytes,
            pages: Vec::new(),
        }
    }

    pub(super) fn submit(
        &mut self,
        now: u64,
        id: CommandId,
        command: Command,
    ) -> Result<(), Rejection> {
        match command {
            Command::Read { offset, bytes } => {
                if let Manager::Zones(zones) = &self.manager {
                    zones.check_read(offset, bytes)?;
                }
                self.front.host_read_bytes += bytes;
                let number = self.front.reads.insert(HostRead {
                    id,
                    next: offset,
                    end: offset + bytes,
                    under_way: 0,
                    under_way_bytes: 0,
                    delivered: now,
                });
                self.go_on_reading(now, number);
            }
            Command::Write {
                offset,
                bytes,
                handle,
            } => {
                let (target, offset) = match &mut self.manager {
                    Manager::Ftl(ftl) => (Target::Handle(ftl.handle(handle)), offset),
                    Manager::Zones(zones) => zones.claim_write(offset, bytes)?,
                };
                self.write(now, id, target, offset, bytes, None);
            }
            Command::Append { zone, bytes } => {
                let Manager::Zones(zones) = &mut self.manager else {
                    return Err(Rejection::InvalidOpcode);
                };
                let (target, offset) = zones.claim_append(zone, bytes)?;
                self.write(now, id, target, offset, bytes, Some(offset));
            }
            Command::Trim { offset, bytes } => {
                if let Manager::Ftl(ftl) = &mut self.manager {
                    let released = ftl.trim(&mut self.flash, offset, bytes);
                    self.front.buffer_used -= released;
                    self.front.finish(now, id, None);
                    self.go_on(now);
                } else {
                    self.front.finish(now, id, None);
                }
            }
            Command::Flush => self.front.finish(now, id, None),
            Command::UpdateHandle { handle } => {
                let Manager::Ftl(ftl) = &mut self.manager else {
                    return Err(Rejection::InvalidOpcode);
                };
                ftl.update_handle(now, &mut self.flash, handle)?;
                self.front.finish(now, id, None);
                self.go_on(now);
            }
            _ => {
                let Manager::Zones(zones) = &mut self.manager else {
                    return Err(Rejection::InvalidOpcode);
                };
                let outcome = zones.manage(now, &mut self.flash, id, command)?;
                self.front.buffer_used -= outcome.released_bytes;
                if outcome.is_finished {
                    self.front.finish(now, id, None);
                }
                self.go_on(now);
            }
        }
        Ok(())
    }

    pub(super) fn next_wakeup(&self) -> Option<u64> {
        let event = self.next_event();
        let completion = self.front.next_completion();
        event.into_iter().chain(completion).min()
    }

    pub(super) fn advance(
        &mut self,
        until: u64,
        done: &mut Vec<Completion>,
        stop_at_first: bool,
    ) -> u64 {
        loop {
            let event = self.next_event().filter(|&at| at <= until);
            if stop_at_first
                && let Some(completion) = self.front.next_completion()
                && completion <= until
                && event.is_none_or(|at| completion <= at)
            {
                self.front.complete(completion, done);
                return completion;
            }
            match event {
                Some(at) => self.step(at),
                None => break,
            }
        }
        self.front.complete(until, done);
        until
    }

    pub(super) fn precondition(&mut self, seed: u64) {
        if let Manager::Ftl(ftl) = &mut self.manager {
            ftl.precondition(&mut self.flash, seed);
        }
    }

    pub(super) fn save(&self, out: &mut Writer) -> Result<(), Busy> {
        if !self.front.is_at_rest() || !self.flash.is_at_rest() {
            return Err(Busy);
        }
        self.front.save(out);
        self.flash.save(out);
        match &self.manager {
            Manager::Ftl(ftl) => ftl.save(out),
            Manager::Zones(zones) => zones.save(out),
        }
    }

    /// Restores a saved state into a new device.
    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), StateFault> {
        self.front.restore(from)?;
        self.flash.restore(from)?;
        self.front.buffer_used = match &mut self.manager {
            Manager::Ftl(ftl) => ftl.restore(from, &mut self.flash)?,
            Manager::Zones(zones) => zones.restore(from, &mut self.flash)?,
        };
        check(
            self.front.buffer_used <= self.front.buffer_bytes,
            "the buffer holds more than it can",
        )
    }

    pub(super) fn stored(&self, offset: u64) -> Stored {
        match &self.manager {
            Manager::Ftl(ftl) => ftl.stored(offset),
            Manager::Zones(zones) => zones.stored(offset),
        }
    }

    pub(super) fn zone(&self, zone: u32) -> Option<ZoneDescriptor> {
        match &self.manager {
            Manager::Ftl(_) => None,
            Manager::Zones(zones) => zones.describe(zone),
        }
    }

    pub(super) fn reclaim_unit_rest(&self, handle: u16) -> Option<u64> {
        match &self.manager {
            Manager::Ftl(ftl) => ftl.reclaim_unit_rest(&self.flash, handle),
            Manager::Zones(_) => None,
        }
    }

    pub(super) fn free_superblocks(&self) -> Option<u32> {
        match &self.manager {
            Manager::Ftl(ftl) => Some(ftl.free()),
            Manager::Zones(_) => None,
        }
    }

    pub(super) fn statistics(&self) -> Statistics {
        let collection = match &self.manager {
            Manager::Ftl(ftl) => ftl.collection().clone(),
            Manager::Zones(_) => super::Collection::default(),
        };
        let mut buffered = self.flash.buffered;
        if let Manager::Ftl(ftl) = &self.manager {
            buffered.host_bytes += ftl.staged_bytes();
        }
        Statistics {
            host_written_bytes: self.front.host_written_bytes,
            host_read_bytes: self.front.host_read_bytes,
            programmed: self.flash.programmed,
            buffered,
            discarded_bytes: self.flash.discarded_bytes,
            die_operations: self.flash.nand.operations(),
            dies: self.flash.nand.busy(),
            collection,
            wear: self.flash.wear(),
            throttled_ns: self.front.throttled_ns,
            buffer_full_ns: self.front.buffer_full_ns,
        }
    }

    /// Checks every invariant of the manager.
    #[cfg(test)]
    pub(super) fn audit(&self) {
        if let Manager::Ftl(ftl) = &self.manager {
            ftl.audit();
        }
    }

    #[cfg(test)]
    pub(super) fn buffer_used(&self) -> u64 {
        self.front.buffer_used
    }

    fn write(
        &mut self,
        now: u64,
        id: CommandId,
        target: Target,
        offset: u64,
        bytes: u64,
        appended_at: Option<u64>,
    ) {
        let number = self.front.writes.insert(HostWrite {
            id,
            next: offset,
            end: offset + bytes,
            target,
            appended_at,
        });
        self.front.line.push_back(number);
        self.go_on(now);
    }

    fn next_event(&self) -> Option<u64> {
        let die = self.flash.nand.next().map(|(at, _)| at);
        let crossing = self.front.crossing.map(|crossing| crossing.until);
        die.into_iter().chain(crossing).min()
    }

    /// Handles the next event, which is due at `now`.
    fn step(&mut self, now: u64) {
        if let Some(crossing) = self.front.crossing
            && crossing.until <= now
        {
            self.front.crossing = None;
            self.land(now, crossing.write, crossing.bytes);
            self.go_on(now);
            return;
        }
        let Some((_, die)) = self.flash.nand.next() else {
            return;
        };
        match self.flash.nand.finish(now, die) {
            Some(Finished::Read(read)) => self.read_done(now, read),
            Some(Finished::Work(work)) => {
                self.work_done(now, work);
                self.go_on(now);
            }
            None => {}
        }
    }

    fn work_done(&mut self, now: u64, work: Work) {
        match work {
            Work::Program(program) => {
                self.flash.programmed(&program);
                let bytes = &program.bytes;
                self.front.buffer_used -= u64::from(bytes.host) + u64::from(bytes.rewritten);
                match &mut self.manager {
                    Manager::Ftl(ftl) => ftl.programmed(u64::from(bytes.collected)),
                    Manager::Zones(zones) => zones.padded(u64::from(bytes.padding)),
                }
            }
            Work::Erase { superblock } => {
                if !self.flash.erased(superblock) {
                    return;
                }
                match &mut self.manager {
                    Manager::Ftl(ftl) => ftl.erased(now, &mut self.flash, superblock),
                    Manager::Zones(zones) => {
                        while let Some(id) = zones.erased(superblock) {
                            self.front.finish(now, id, None);
                        }
                    }
                }
            }
            Work::Read { move_number, .. } => {
                if let (Some(number), Manager::Ftl(ftl)) = (move_number, &mut self.manager) {
                    ftl.move_read(now, &mut self.flash, number);
                }
            }
        }
    }

    /// Starts all work that can start now: collection, padding, the next piece
    /// of a write.
    fn go_on(&mut self, now: u64) {
        match &mut self.manager {
            Manager::Ftl(ftl) => ftl.collect(now, &mut self.flash, self.front.host_written_bytes),
            Manager::Zones(zones) => {
                while let Some(id) = zones.pad(now, &mut self.flash) {
                    self.front.finish(now, id, None);
                }
            }
        }
        if self.front.crossing.is_some() {
            return;
        }
        let Some(&number) = self.front.line.front() else {
            self.front.stalled(now, None);
            return;
        };
        let Some(write) = self.front.writes.get_mut(number) else {
            return;
        };
        let to_boundary = self.piece_bytes - write.next % self.piece_bytes;
        let bytes = to_boundary.min(write.end - write.next);
        let target = write.target;
        if self.front.buffer_used + bytes > self.front.buffer_bytes {
            self.front.stalled(now, Some(Stall::Buffer));
            return;
        }
        if let (Manager::Ftl(ftl), Target::Handle(handle)) = (&mut self.manager, target)
            && !ftl.admit(handle, bytes)
        {
            self.front.stalled(now, Some(Stall::Throttle));
            return;
        }
        self.front.cross(now, bytes);
    }

    fn land(&mut self, now: u64, number: u32, bytes: u64) {
        let Some(write) = self.front.writes.get_mut(number) else {
            return;
        };
        let offset = write.next;
        write.next += bytes;
        let (target, is_last) = (write.target, write.next == write.end);
        let (id, appended_at) = (write.id, write.appended_at);
        self.front.host_written_bytes += bytes;
        let delta = match (&mut self.manager, target) {
            (Manager::Ftl(ftl), Target::Handle(handle)) => {
                ftl.land(now, &mut self.flash, handle, offset, bytes)
            }
            (Manager::Zones(zones), Target::Zone(zone, resets)) => {
                match zones.land(now, &mut self.flash, zone, resets, bytes) {
                    true => 0,
                    false => -(bytes as i64),
                }
            }
            _ => 0,
        };
        self.front.buffer_used = self.front.buffer_used.saturating_add_signed(delta);
        if is_last {
            self.front.writes.remove(number);
            self.front.finish(now, id, appended_at);
        } else {
            self.front.line.push_back(number);
        }
    }

    fn read_done(&mut self, now: u64, read: Read) {
        let delivered = self.front.deliver(now, u64::from(read.bytes));
        let Some(command) = self.front.reads.get_mut(read.command) else {
            return;
        };
        command.delivered = delivered;
        command.under_way -= 1;
        command.under_way_bytes -= u64::from(read.bytes);
        if command.next < command.end || command.under_way == 0 {
            self.go_on_reading(now, read.command);
        }
    }

    /// Hands as much of a read to the dies as its window allows.
    fn go_on_reading(&mut self, now: u64, number: u32) {
        let Some(mut command) = self.front.reads.get_mut(number).copied() else {
            return;
        };
        let mut pages = std::mem::take(&mut self.pages);
        while command.next < command.end && command.under_way_bytes < self.front.read_window {
            // Pieces end at a boundary, so that one command reads no page
            // twice.
            let longest = self.piece_bytes - command.next % self.piece_bytes;
            let longest = longest.min(command.end - command.next);
            let extent = match &self.manager {
                Manager::Ftl(ftl) => ftl.find(command.next, longest),
                Manager::Zones(zones) => zones.find(command.next, longest),
            };
            command.next += extent.bytes;
            if let Some((superblock, offset)) = extent.place {
                let each = |read| pages.push(read);
                self.flash.reads(superblock, offset, extent.bytes, each);
            }
            let mut from_dies = 0;
            for Pages { die, pages, bytes } in pages.drain(..) {
                from_dies += u64::from(bytes);
                command.under_way += 1;
                let read = Read {
                    command: number,
                    pages,
                    bytes,
                };
                self.flash.nand.read(now, die, read);
            }
            command.under_way_bytes += from_dies;
            if from_dies < extent.bytes {
                command.delivered = self.front.deliver(now, extent.bytes - from_dies);
            }
        }
        self.pages = pages;
        if command.next == command.end && command.under_way == 0 {
            self.front.reads.remove(number);
            self.front.finish(command.delivered, command.id, None);
        } else if let Some(kept) = self.front.reads.get_mut(number) {
            *kept = command;
        }
    }
}
