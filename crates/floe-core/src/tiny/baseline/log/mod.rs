//! `log`: a log-structured cache with an exact index in memory, after
//! CacheLib's block cache (Berg et al., OSDI '20).
//!
//! Objects are packed into pages, pages into segments, and segments are
//! appended to one zone after another. The oldest zone is evicted first.
//! Objects of it that were used since they were written can be appended again.
//!
//! Deviations from CacheLib, and why:
//! * The index has whole 64-bit hashes, where CacheLib has the lower half, so a
//!   lookup is exact and reads one page. Both cost more than 100 bits per
//!   object (Nemo §2.3 computes 15 bytes).
//! * A delete also appends a tombstone, so that the log alone shows which
//!   objects are deleted. In a FIFO log, a tombstone stays longer than the
//!   copies that it supersedes.

mod index;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use self::index::Index;
use super::append::AppendLog;
use crate::hash::KeyHash;
use crate::tiny::engine::{
    Accepted, Cause, Discarded, Engine, Found, Insert, Outcome, Page, Search, Step, Stripe, Task,
    TaskId, Work,
};
use crate::tiny::object::{Flash, Object, PAGE_BYTES, PageAddress};
use crate::tiny::pins::Pins;
use crate::tiny::plan::{PlanError, check_flash, check_range};
use crate::tiny::statistics::{Memory, Statistics, payload_bytes, room_bytes};

/// Settings of `log`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// Pages of a segment, the unit of appends; at most a zone's. 64 pages are
    /// 256 KiB.
    pub segment_pages: u32,
    /// Most segments in memory: one being filled, the others waiting to be
    /// appended.
    pub segments_buffered: u32,
    /// Used objects of the oldest zone are appended again, which costs
    /// reading the zone.
    pub readmit_hit: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig {
            segment_pages: 64,
            segments_buffered: 4,
            readmit_hit: false,
        }
    }
}

/// A validated configuration of `log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlan {
    flash: Flash,
    segment_pages: u32,
    segments_buffered: u32,
    readmit_hit: bool,
}

impl LogPlan {
    /// Checks `config` against `flash`.
    ///
    /// # Errors
    /// [`PlanError`] names the setting that does not fit and the nearest value
    /// that does.
    pub fn new(config: &LogConfig, flash: &Flash) -> Result<LogPlan, PlanError> {
        check_flash(flash, 3)?;
        check_range("tiny.log.segment_pages", config.segment_pages, 1, 4096)?;
        check_range(
            "tiny.log.segments_buffered",
            config.segments_buffered,
            2,
            1024,
        )?;
        Ok(LogPlan {
            flash: *flash,
            segment_pages: config.segment_pages.min(flash.zone_pages),
            segments_buffered: config.segments_buffered,
            readmit_hit: config.readmit_hit,
        })
    }
}

/// The directory: pins of zones, and the zones that are being evicted.
#[derive(Debug)]
pub struct Log {
    plan: LogPlan,
    pins: Pins,
    leaving: Option<Leaving>,
    statistics: Statistics,
}

/// The stripe: segments in memory, and the index of all objects, which every
/// write changes.
#[derive(Debug)]
pub struct Head {
    log: AppendLog,
    index: Index,
    statistics: Statistics,
}

impl Stripe for Head {
    fn in_memory(&self, hash: KeyHash) -> Option<&Object> {
        self.log.find(self.index.get(hash)?.page, hash)
    }
}

/// The oldest zones, while they are being evicted.
#[derive(Debug)]
struct Leaving {
    /// The zones that are not reset yet, oldest first.
    zones: Vec<u32>,
    /// Zones and their pages to read for hot objects.
    unread: VecDeque<(u32, u32)>,
    /// Pages of the first of `unread` whose read was started.
    asked: u32,
    /// Hot objects to append again, with their page, in reverse order.
    readmitted: Vec<(PageAddress, Object)>,
    state: Emptying,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emptying {
    /// Their hot objects are being read and appended again.
    Readmitting {
        reading: bool,
    },
    /// Their entries are being removed from the parts of the index, from this one on.
    Purging {
        part: usize,
    },
    /// The index has no entries in them any more. Searches may still read them.
    Purged,
    Resetting {
        zone: u32,
    },
}

/// The zones are evicted in as many turns, if there are as many. Each turn looks through the
/// whole index, so its cost for each object hardly grows with the number of zones.
const EVICTIONS: u32 = 256;

const APPEND: TaskId = TaskId(0);
const READMIT: TaskId = TaskId(1);
const RESET: TaskId = TaskId(2);

impl Leaving {
    /// The next pages to read for hot objects.
    fn read_next(&mut self, plan: &LogPlan) -> Option<Vec<PageAddress>> {
        let &(zone, pages) = loop {
            let front = self.unread.front()?;
            if self.asked < front.1 {
                break front;
            }
            self.unread.pop_front();
            self.asked = 0;
        };
        let from = plan.flash.first_page(zone).0 + self.asked;
        let count = plan.segment_pages.min(pages - self.asked);
        self.asked += count;
        Some((from..from + count).map(PageAddress).collect())
    }
}

impl Head {
    /// Packs an object and updates the index.
    fn append(&mut self, object: Object) -> Result<(), Object> {
        let (hash, tombstone) = (object.hash, object.tombstone);
        // An older copy or tombstone in the same page would be found first.
        let older = self.index.get(hash).map(|entry| entry.page);
        if let Some(page) = older.or_else(|| self.log.page_open()) {
            self.log.remove(page, hash);
        }
        let page = self.log.push(object)?;
        if tombstone {
            self.index.remove(hash);
        } else {
            self.index.set(hash, page);
        }
        Ok(())
    }

    fn appended(&mut self, outcome: Outcome) {
        if outcome == Outcome::Done {
            let written = self.log.written();
            let bytes = written.pages * PAGE_BYTES as u64;
            self.statistics.count_written(Cause::Log, bytes);
            self.statistics.object_pages_written += written.pages;
            self.statistics.bytes_filled += written.bytes_filled;
        } else {
            self.log.failed();
        }
    }

    fn place_displaced(&mut self) {
        let index = &mut self.index;
        self.log.place_displaced(|object, old, new| {
            if index
                .get(object.hash)
                .is_some_and(|entry| entry.page == old)
            {
                index.set(object.hash, new);
            }
        });
    }
}

impl Log {
    /// An engine on empty flash.
    pub fn new(plan: LogPlan) -> Self {
        Log {
            pins: Pins::new(plan.flash.zones),
            leaving: None,
            statistics: Statistics::default(),
            plan,
        }
    }

    /// Begins to evict the oldest zones if fewer are free than are evicted at once.
    fn begin_leaving(&mut self, head: &mut Head) {
        let at_once = self.plan.flash.zones.div_ceil(EVICTIONS);
        let enough = u64::from(at_once) * u64::from(self.plan.flash.zone_pages);
        if self.leaving.is_some() || head.log.pages_free() >= enough {
            return;
        }
        let oldest = std::iter::from_fn(|| head.log.take_oldest());
        let oldest: Vec<(u32, u32)> = oldest.take(at_once as usize).collect();
        if oldest.is_empty() {
            return;
        }
        self.leaving = Some(Leaving {
            zones: oldest.iter().map(|(zone, _)| *zone).collect(),
            unread: match self.plan.readmit_hit {
                true => oldest.into(),
                false => VecDeque::new(),
            },
            asked: 0,
            readmitted: Vec::new(),
            state: Emptying::Readmitting { reading: false },
        });
    }

    /// Advances the eviction; returns its next task.
    fn leave(&mut self, head: &mut Head) -> Option<Task> {
        self.begin_leaving(head);
        let leaving = self.leaving.as_mut()?;
        if leaving.state == (Emptying::Readmitting { reading: false }) {
            if self.readmit(head).is_err() {
                return None;
            }
            let leaving = self.leaving.as_mut()?;
            if let Some(pages) = leaving.read_next(&self.plan) {
                leaving.state = Emptying::Readmitting { reading: true };
                return Some(Task {
                    id: READMIT,
                    work: Work::Read(pages),
                });
            }
            leaving.state = Emptying::Purging { part: 0 };
        }
        let leaving = self.leaving.as_mut()?;
        if leaving.state == Emptying::Purged {
            let zone = leaving.zones.iter().find(|zone| self.pins.is_free(**zone));
            let zone = *zone?;
            leaving.state = Emptying::Resetting { zone };
            return Some(Task {
                id: RESET,
                work: Work::Reset(zone),
            });
        }
        None
    }

    /// Handles the end of a reset.
    fn reset(&mut self, head: &mut Head, outcome: Outcome) {
        let Some(leaving) = &mut self.leaving else {
            return;
        };
        let Emptying::Resetting { zone } = leaving.state else {
            return;
        };
        // A zone that cannot be reset is not used any more.
        if outcome == Outcome::Done {
            self.statistics.resets += 1;
            head.log.give_back(zone);
        }
        leaving.zones.retain(|left| *left != zone);
        leaving.state = Emptying::Purged;
        if leaving.zones.is_empty() {
            self.leaving = None;
        }
    }

    /// Removes the zones' objects from a part of the index. Returns false if there is none.
    fn purge_some(&mut self, head: &mut Head) -> bool {
        let Some(Leaving { zones, state, .. }) = &mut self.leaving else {
            return false;
        };
        let Emptying::Purging { part } = *state else {
            return false;
        };
        // Zones that follow each other are one range of pages.
        for zones in zones.chunk_by(|zone, next| zone + 1 == *next) {
            let first = self.plan.flash.first_page(zones[0]);
            let end = PageAddress(first.0 + zones.len() as u32 * self.plan.flash.zone_pages);
            self.statistics.evicted += head.index.purge(part, first, end);
        }
        let next = part + 1;
        *state = match next < head.index.parts() {
            true => Emptying::Purging { part: next },
            false => Emptying::Purged,
        };
        true
    }

    /// Appends the hot objects again that are still current.
    fn readmit(&mut self, head: &mut Head) -> Result<(), ()> {
        while let Some(leaving) = &mut self.leaving
            && let Some((page, object)) = leaving.readmitted.pop()
        {
            let current = head
                .index
                .get(object.hash)
                .is_some_and(|entry| entry.page == page);
            if !current {
                continue;
            }
            let bytes = u64::from(object.bytes);
            if let Err(object) = head.append(object) {
                if let Some(leaving) = &mut self.leaving {
                    // No append in flight will make room, so the rest is
                    // evicted.
                    if head.log.pages_free() == 0 {
                        leaving.readmitted.clear();
                        leaving.unread.clear();
                        return Ok(());
                    }
                    leaving.readmitted.push((page, object));
                }
                return Err(());
            }
            self.statistics.written_back += 1;
            self.statistics.bytes_written_back += bytes;
        }
        Ok(())
    }

    fn collect_hot(&mut self, head: &Head, outcome: Outcome, now_seconds: u32) {
        let Some(leaving) = &mut self.leaving else {
            return;
        };
        let Outcome::Read(pages) = outcome else {
            leaving.state = Emptying::Readmitting { reading: false };
            return;
        };
        self.statistics.pages_maintained += pages.len() as u64;
        let Some((zone, _)) = leaving.unread.front() else {
            return;
        };
        let first = self.plan.flash.first_page(*zone).0 + leaving.asked - pages.len() as u32;
        for (page, content) in (first..).map(PageAddress).zip(pages) {
            let Some(Page::Objects(objects)) = content else {
                continue;
            };
            let is_hot = |object: &Object| {
                let entry = head.index.get(object.hash);
                !object.tombstone
                    && !object.expires.is_over(now_seconds)
                    && entry.is_some_and(|entry| entry.hit && entry.page == page)
            };
            let hot = objects.into_iter().filter(is_hot);
            leaving.readmitted.extend(hot.map(|object| (page, object)));
        }
        leaving.readmitted.reverse();
        leaving.state = Emptying::Readmitting { reading: false };
    }
}

impl Engine for Log {
    type Stripe = Head;
    type Scratch = ();

    fn stripe(&self) -> Head {
        let plan = &self.plan;
        Head {
            log: AppendLog::new(
                plan.flash,
                0,
                plan.flash.zones,
                plan.segment_pages,
                plan.segments_buffered as usize,
            ),
            index: Index::new(plan.flash.pages()),
            statistics: Statistics::default(),
        }
    }

    fn insert(&self, head: &mut Head, object: Object, _now_seconds: u32) -> Insert {
        let object = object.or_tombstone();
        let older = head.index.get(object.hash);
        let supersedes_flash = older.is_some_and(|entry| !head.log.only_in_memory(entry.page));
        let accepted = Insert::Accepted(Accepted {
            supersedes_flash,
            ..Accepted::default()
        });
        let (bytes, tombstone) = (object.bytes, object.tombstone);
        if !(tombstone && older.is_none()) {
            if !head.log.has_room(object.stored_bytes()) {
                return Insert::Busy(object);
            }
            if let Err(object) = head.append(object) {
                return Insert::Busy(object);
            }
        }
        head.statistics.count_insert(bytes, tombstone);
        accepted
    }

    fn begin_search(
        &mut self,
        head: &mut Head,
        hash: KeyHash,
        search: &mut Search,
        _: &mut (),
    ) -> Step {
        search.restart(hash);
        let Some(entry) = head.index.get(hash) else {
            return Step::Absent;
        };
        if head.log.buffers(entry.page) {
            head.index.hit(hash, entry.page);
            return Step::Memory;
        }
        self.pins.pin(self.plan.flash.zone_of(entry.page));
        search.pages.push(entry.page);
        self.statistics.searches += 1;
        self.statistics.pages_searched += 1;
        Step::Pages
    }

    fn end_search(&mut self, head: &mut Head, search: &mut Search, _: &mut (), found: Found) {
        for page in &search.pages {
            self.pins.unpin(self.plan.flash.zone_of(*page));
        }
        if let Found::Flash { rank, .. } = found
            && let Some(page) = search.pages.get(rank)
        {
            head.index.hit(search.hash, *page);
        }
    }

    fn advance(&mut self, head: &mut Head) -> Option<Discarded> {
        // Writes wait for the memory of segments, and no append for the purge.
        let goes_on = !head.log.has_append() && self.purge_some(head);
        goes_on.then(Discarded::nothing)
    }

    fn next_task(&mut self, head: &mut Head) -> Option<Task> {
        if head.log.has_displaced() {
            head.place_displaced();
        }
        if let Some((first, pages)) = head.log.next_append() {
            return Some(Task {
                id: APPEND,
                work: Work::Append { first, pages },
            });
        }
        self.leave(head)
    }

    fn complete(&mut self, head: &mut Head, id: TaskId, outcome: Outcome, now_seconds: u32) {
        match id {
            APPEND => head.appended(outcome),
            READMIT => self.collect_hot(head, outcome, now_seconds),
            _ => self.reset(head, outcome),
        }
    }

    fn statistics(&self, head: &Head) -> Statistics {
        self.statistics.plus(&head.statistics)
    }

    fn memory(&self, head: &Head) -> Memory {
        let leaving = self.leaving.as_ref().map(|leaving| &leaving.readmitted);
        let readmitted = leaving.into_iter().flatten();
        Memory {
            objects_on_flash: head.index.len().saturating_sub(head.log.objects_buffered()),
            index_bytes: head.index.memory_bytes(),
            hotness_bytes: 0,
            buffer_bytes: head.log.buffer_bytes()
                + self.leaving.as_ref().map_or(0, |leaving| {
                    room_bytes::<u32>(leaving.zones.capacity())
                        + room_bytes::<(u32, u32)>(leaving.unread.capacity())
                })
                + leaving.map_or(0, |list| {
                    room_bytes::<(PageAddress, Object)>(list.capacity())
                }),
            payload_bytes: head.log.payload_bytes()
                + payload_bytes(readmitted.map(|(_, object)| object)),
            index_buffer_bytes: 0,
            other_bytes: self.pins.memory_bytes() + (size_of::<Log>() + size_of::<Head>()) as u64,
        }
    }
}
