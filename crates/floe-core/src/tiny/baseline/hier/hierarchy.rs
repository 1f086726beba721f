//! The state of the log and the sets: writes and searches.

use std::ops::Range;

use super::index::{LogIndex, Tag};
use super::merge::{Merge, Stage};
use super::sets::{PARTS_MAX, Ring, Sets};
use super::under_way::{Append, Cleaning, Collecting, Reset};
use crate::hash::{KeyHash, fast_range};
use crate::tiny::baseline::append::AppendLog;
use crate::tiny::engine::{Accepted, Cause, Found, Insert, Outcome, Search, Step, Task, TaskId};
use crate::tiny::object::{Flash, Object, PAGE_BYTES, PageAddress};
use crate::tiny::pins::Pins;
use crate::tiny::statistics::{Memory, Statistics, room_bytes};

/// A shape that can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct HierarchyPlan {
    pub(in super::super) flash: Flash,
    /// The log has the first zones.
    pub(in super::super) log_zones: u32,
    pub(in super::super) segment_pages: u32,
    pub(in super::super) segments_buffered: u32,
    /// Share of the log, in percent, that is kept free.
    pub(in super::super) log_free_percent: u32,
    /// Objects of a set in the log that make a rewrite worthwhile.
    pub(in super::super) threshold: u32,
    pub(in super::super) sets: u32,
    /// Parts of a set.
    pub(in super::super) parts: usize,
    /// Sets are rewritten in place, behind the log.
    pub(in super::super) in_place: bool,
    /// Zones of each part, where sets are not in place.
    pub(in super::super) rings: [Range<u32>; PARTS_MAX],
    /// Free zones at or below which a part's oldest is collected.
    pub(in super::super) collect_at: [u32; PARTS_MAX],
    /// Whether sets that are collected take along their objects from the log.
    pub(in super::super) collection_merges: bool,
    /// The hot part is rewritten one time in so many.
    pub(in super::super) hot_rewrite_interval: u32,
    pub(in super::super) filter_bytes: u32,
    pub(in super::super) objects_per_page: u32,
    /// Rewrites under way at a time.
    pub(in super::super) merges_max: u32,
}

/// The engine.
#[derive(Debug)]
pub(in super::super) struct Hierarchy {
    pub(super) plan: HierarchyPlan,
    pub(super) log: AppendLog,
    pub(super) index: LogIndex,
    pub(super) sets: Sets,
    pub(super) rings: [Ring; PARTS_MAX],
    pub(super) pins: Pins,
    pub(super) merges: Vec<Merge>,
    /// How many of them are under way.
    pub(super) merging: usize,
    /// A list of an earlier append, for the next one.
    pub(super) merges_spare: Vec<usize>,
    /// Appends under way, by part.
    pub(super) appends: [Option<Append>; PARTS_MAX],
    pub(super) collecting: [Option<Collecting>; PARTS_MAX],
    pub(super) cleaning: Option<Cleaning>,
    /// A set that is rewritten because its shelf of the index is full.
    pub(super) urgent: Option<u32>,
    pub(super) resets: Vec<Reset>,
    /// Rewrites begun; every so many take the hot part along.
    pub(super) rewrites: u64,
    pub(super) now_seconds: u32,
    pub(super) statistics: Statistics,
}

impl Hierarchy {
    pub(in super::super) fn new(plan: HierarchyPlan) -> Self {
        let flash = plan.flash;
        let log_pages = u64::from(plan.log_zones) * u64::from(flash.zone_pages);
        let ring = |part: usize| {
            Ring::new(
                plan.rings[part].clone(),
                flash.zone_pages,
                plan.collect_at[part],
            )
        };
        Hierarchy {
            log: AppendLog::new(
                flash,
                0,
                plan.log_zones,
                plan.segment_pages,
                plan.segments_buffered as usize,
            ),
            index: LogIndex::new(plan.sets, flash.first_page(0), log_pages),
            sets: Sets::new(
                plan.sets,
                plan.parts,
                plan.in_place.then(|| flash.first_page(plan.log_zones)),
                plan.filter_bytes,
                plan.objects_per_page,
            ),
            rings: [ring(0), ring(1)],
            pins: Pins::new(flash.zones),
            merges: std::iter::repeat_with(Merge::default)
                .take(plan.merges_max as usize)
                .collect(),
            merging: 0,
            merges_spare: Vec::new(),
            appends: [None, None],
            collecting: [None, None],
            cleaning: None,
            urgent: None,
            resets: Vec::new(),
            rewrites: 0,
            now_seconds: 0,
            statistics: Statistics::default(),
            plan,
        }
    }

    pub(super) fn set_of(&self, hash: KeyHash) -> u32 {
        set_of(hash, self.plan.sets)
    }

    /// Whether a set is being rewritten.
    pub(super) fn is_busy(&self, set: u32) -> bool {
        self.merging > 0
            && self
                .merges
                .iter()
                .any(|merge| merge.stage != Stage::Idle && merge.set == set)
    }

    pub(in super::super) fn insert(&mut self, object: Object, now_seconds: u32) -> Insert {
        self.now_seconds = now_seconds;
        let object = object.or_tombstone();
        let (hash, bytes, tombstone) = (object.hash, object.bytes, object.tombstone);
        let (set, tag) = (self.set_of(hash), Tag::of(hash));
        let mut older_open = None;
        let mut has_older = self.is_busy(set) || self.sets.any_may_hold(set, hash);
        let mut outdates_flash = has_older;
        for entry in self.index.chain(set).filter(|entry| entry.tag == tag) {
            if self.log.is_open(entry.page) && self.log.find(entry.page, hash).is_some() {
                older_open = Some(entry);
                continue;
            }
            has_older = true;
            outdates_flash |= !self.log.only_in_memory(entry.page);
        }
        if tombstone && older_open.is_none() && !has_older {
            self.statistics.count_insert(0, true);
            return Insert::Accepted(Accepted {
                outdates_flash,
                ..Accepted::default()
            });
        }
        if self.index.is_full(set) {
            self.urgent = self.urgent.or_else(|| self.set_to_relieve(set));
            return Insert::Busy(object);
        }
        if !self.log.has_room(object.stored_bytes()) {
            return Insert::Busy(object);
        }
        // In its segment an older copy may have been sealed just now. Then both
        // stay, in different pages.
        if let Some(entry) = older_open
            && self.log.remove(entry.page, hash).is_some()
        {
            self.index.remove(set, entry.id);
        }
        match self.log.push(object) {
            Ok(page) => self.index.push(set, tag, page),
            Err(object) => return Insert::Busy(object),
        }
        self.statistics.count_insert(bytes, tombstone);
        Insert::Accepted(Accepted {
            outdates_flash,
            ..Accepted::default()
        })
    }

    /// A set with sealed entries in the shelf of `set`.
    fn set_to_relieve(&self, set: u32) -> Option<u32> {
        let sealed = |set: &u32| {
            self.index
                .chain(*set)
                .any(|entry| !self.log.is_open(entry.page))
        };
        let neighbours = self.index.neighbours(set);
        let from_here = (set..neighbours.end).chain(neighbours.start..set);
        from_here
            .filter(|near| *near < self.plan.sets)
            .find(|near| !self.is_busy(*near) && sealed(near))
    }

    pub(in super::super) fn in_memory(&self, hash: KeyHash) -> Option<&Object> {
        let tag = Tag::of(hash);
        self.index
            .chain(self.set_of(hash))
            .filter(|entry| entry.tag == tag)
            .find_map(|entry| self.log.find(entry.page, hash))
    }

    pub(in super::super) fn begin_search(&mut self, hash: KeyHash, search: &mut Search) -> Step {
        search.restart(hash);
        let (set, tag) = (self.set_of(hash), Tag::of(hash));
        let mut in_memory = None;
        for entry in self.index.chain(set).filter(|entry| entry.tag == tag) {
            if self.log.find(entry.page, hash).is_some() {
                in_memory = Some(entry.id);
                break;
            }
            if !self.log.buffers(entry.page) && !search.pages.contains(&entry.page) {
                search.pages.push(entry.page);
            }
        }
        if let Some(id) = in_memory {
            self.index.hit(set, id);
            return Step::Memory;
        }
        for part in 0..self.sets.parts() {
            if self.sets.may_hold(part, set, hash)
                && let Some(page) = self.sets.page_of(part, set)
            {
                search.pages.push(page);
            }
        }
        if search.pages.is_empty() {
            return Step::Absent;
        }
        for page in &search.pages {
            self.pins.pin(self.plan.flash.zone_of(*page));
        }
        self.statistics.searches += 1;
        self.statistics.pages_searched += search.pages.len() as u64;
        Step::Pages
    }

    pub(in super::super) fn end_search(&mut self, search: &mut Search, found: Found) {
        for page in &search.pages {
            self.pins.unpin(self.plan.flash.zone_of(*page));
        }
        match found {
            Found::Flash { rank, slot } => {
                self.statistics.false_positives += rank as u64;
                if let Some(page) = search.pages.get(rank) {
                    self.count_hit(search.hash, *page, slot);
                }
            }
            Found::Nowhere | Found::Unknown => {
                self.statistics.false_positives += search.pages.len() as u64
            }
        }
        search.pages.clear();
    }

    fn count_hit(&mut self, hash: KeyHash, page: PageAddress, slot: usize) {
        let (set, tag) = (self.set_of(hash), Tag::of(hash));
        for part in 0..self.sets.parts() {
            if self.sets.page_of(part, set) == Some(page) {
                self.sets.hit(part, set, slot);
                return;
            }
        }
        let mut chain = self.index.chain(set);
        let entry = chain.find(|entry| entry.tag == tag && entry.page == page);
        drop(chain);
        if let Some(entry) = entry {
            self.index.hit(set, entry.id);
        }
    }

    pub(in super::super) fn next_task(&mut self) -> Option<Task> {
        self.work()
    }

    pub(in super::super) fn complete(&mut self, id: TaskId, outcome: Outcome, now_seconds: u32) {
        self.now_seconds = now_seconds;
        self.work_done(id, outcome);
    }

    pub(super) fn log_appended(&mut self, outcome: &Outcome) {
        if *outcome != Outcome::Done {
            self.log.failed();
            return;
        }
        let written = self.log.written();
        let bytes = written.pages * PAGE_BYTES as u64;
        self.statistics.count_written(Cause::Log, bytes);
        self.statistics.object_pages_written += written.pages;
        self.statistics.bytes_filled += written.bytes_filled;
    }

    pub(super) fn rehouse_log(&mut self) {
        let (index, sets) = (&mut self.index, self.plan.sets);
        self.log.rehouse(|object, old, new| {
            index.relocate(set_of(object.hash, sets), Tag::of(object.hash), old, new);
        });
    }

    pub(in super::super) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    pub(in super::super) fn memory(&self) -> Memory {
        let in_log = self.index.len().saturating_sub(self.log.objects_buffered());
        let buffers = |of: fn(&Merge) -> u64| self.merges.iter().map(of).sum::<u64>();
        let cleaning = |of: fn(&Cleaning) -> u64| self.cleaning.as_ref().map_or(0, of);
        let collecting = self.collecting.iter().flatten();
        Memory {
            objects_on_flash: in_log + self.sets.objects(),
            index_bytes: self.index.memory_bytes() + self.sets.index_bytes(),
            hotness_bytes: self.sets.hotness_bytes(),
            buffer_bytes: self.log.buffer_bytes()
                + buffers(Merge::buffer_bytes)
                + cleaning(Cleaning::buffer_bytes),
            payload_bytes: self.log.payload_bytes()
                + buffers(Merge::payload_bytes)
                + cleaning(Cleaning::payload_bytes),
            index_buffer_bytes: 0,
            other_bytes: self.pins.memory_bytes()
                + room_bytes::<Merge>(self.merges.capacity())
                + self.rings.iter().map(Ring::memory_bytes).sum::<u64>()
                + collecting.map(Collecting::memory_bytes).sum::<u64>()
                + size_of::<Hierarchy>() as u64,
        }
    }
}

/// The set of a hash: its highest bits.
pub(super) fn set_of(hash: KeyHash, sets: u32) -> u32 {
    fast_range(hash.0, sets as usize) as u32
}
