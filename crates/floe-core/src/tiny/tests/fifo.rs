//! A sixth engine, the smallest that obeys the law: it writes pages in turn and
//! finds them by an exact index. It shows the minimum that an engine needs.

use std::collections::BTreeMap;

use crate::hash::KeyHash;
use crate::tiny::pins::Pins;
use crate::tiny::{
    Accepted, Cause, Engine, Flash, Found, Insert, Memory, Object, Outcome, PAGE_BYTES,
    PAGE_ROOM_BYTES, Page, PageAddress, Search, Statistics, Step, Stripe, Task, TaskId, Work,
};

/// The directory: the page of every object on flash.
pub(super) struct Fifo {
    flash: Flash,
    index: BTreeMap<KeyHash, PageAddress>,
    /// The page that is written next, and whether its zone was reset for it.
    next: PageAddress,
    is_reset: bool,
    is_busy: bool,
    pins: Pins,
    statistics: Statistics,
}

/// The stripe: the page being filled, and the page being written.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    open: Vec<Object>,
    sealed: Vec<Object>,
    statistics: Statistics,
}

impl Stripe for Buffer {
    fn in_memory(&self, hash: KeyHash) -> Option<&Object> {
        let mut newest_first = self.open.iter().chain(&self.sealed);
        newest_first.find(|object| object.hash == hash)
    }
}

impl Fifo {
    pub(super) fn new(flash: Flash) -> Self {
        Fifo {
            flash,
            index: BTreeMap::new(),
            next: PageAddress(0),
            is_reset: false,
            is_busy: false,
            pins: Pins::new(flash.zones),
            statistics: Statistics::default(),
        }
    }

    fn turn_to_zone(&mut self, zone: u32) {
        self.next = self.flash.first_page(zone % self.flash.zones);
        self.is_reset = false;
    }
}

impl Engine for Fifo {
    type Scratch = ();
    type Stripe = Buffer;

    fn insert(&self, buffer: &mut Buffer, object: Object, _: u32) -> Insert {
        let object = object.or_tombstone();
        let others = buffer.open.iter().filter(|open| open.hash != object.hash);
        let used: usize = others.map(Object::stored_bytes).sum();
        let is_full = used + object.stored_bytes() > PAGE_ROOM_BYTES;
        if is_full && !buffer.sealed.is_empty() {
            return Insert::Busy(object);
        }
        buffer.open.retain(|open| open.hash != object.hash);
        if is_full {
            buffer.sealed = std::mem::take(&mut buffer.open);
        }
        let is_sealed = buffer.sealed.iter().any(|older| older.hash == object.hash);
        let supersedes_flash = is_sealed || self.index.contains_key(&object.hash);
        buffer
            .statistics
            .count_insert(object.bytes, object.tombstone);
        if supersedes_flash || !object.tombstone {
            buffer.open.push(object);
        }
        let accepted = Accepted {
            supersedes_flash,
            fenced_before: false,
        };
        Insert::Accepted(accepted)
    }

    fn begin_search(
        &mut self,
        buffer: &mut Buffer,
        hash: KeyHash,
        search: &mut Search,
        _: &mut (),
    ) -> Step {
        let page = self.index.get(&hash).copied();
        search.restart(hash);
        match page {
            _ if buffer.in_memory(hash).is_some() => Step::Memory,
            None => Step::Absent,
            Some(page) => {
                self.pins.pin(self.flash.zone_of(page));
                search.pages.push(page);
                Step::Pages
            }
        }
    }

    fn end_search(&mut self, _: &mut Buffer, search: &mut Search, _: &mut (), _: Found) {
        for page in &search.pages {
            self.pins.unpin(self.flash.zone_of(*page));
        }
    }

    fn next_task(&mut self, buffer: &mut Buffer) -> Option<Task> {
        if self.is_busy || buffer.sealed.is_empty() {
            return None;
        }
        let zone = self.flash.zone_of(self.next);
        let work = if self.is_reset {
            Work::Append {
                first: self.next,
                pages: vec![Page::Objects(buffer.sealed.clone())],
            }
        } else {
            let flash = self.flash;
            self.index.retain(|_, page| flash.zone_of(*page) != zone);
            if !self.pins.is_free(zone) {
                return None;
            }
            Work::Reset(zone)
        };
        self.is_busy = true;
        let id = TaskId(0);
        Some(Task { id, work })
    }

    fn complete(&mut self, buffer: &mut Buffer, _: TaskId, outcome: Outcome, _: u32) {
        self.is_busy = false;
        let zone = self.flash.zone_of(self.next);
        match outcome {
            Outcome::Done if !self.is_reset => self.is_reset = true,
            Outcome::Done => {
                for object in buffer.sealed.drain(..) {
                    match object.tombstone {
                        true => self.index.remove(&object.hash),
                        false => self.index.insert(object.hash, self.next),
                    };
                }
                self.statistics.count_written(Cause::Log, PAGE_BYTES as u64);
                self.next.0 += 1;
                if self.next.0.is_multiple_of(self.flash.zone_pages) {
                    self.turn_to_zone(zone + 1);
                }
            }
            // The zone is not used until its turn comes again.
            Outcome::Failed | Outcome::NoSpace | Outcome::Read(_) => self.turn_to_zone(zone + 1),
        }
    }

    fn stripe(&self) -> Buffer {
        Buffer::default()
    }

    fn statistics(&self, buffer: &Buffer) -> Statistics {
        self.statistics.plus(&buffer.statistics)
    }

    fn memory(&self, _: &Buffer) -> Memory {
        Memory {
            objects_on_flash: self.index.len() as u64,
            ..Memory::default()
        }
    }
}
