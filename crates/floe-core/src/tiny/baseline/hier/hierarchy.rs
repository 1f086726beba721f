//! The state of the log and the sets; inserts and searches.

use std::ops::Range;

use super::index::{LogIndex, Tag};
use super::merge::{Merge, Stage};
use super::sets::{PARTS_MAX, Ring, Sets};
use super::under_way::{Append, Cleaning, Collecting, Reset};
use crate::hash::{KeyHash, fast_range};
use crate::tiny::baseline::append::AppendLog;
use crate::tiny::engine::{
    Accepted, Cause, Found, Insert, Outcome, Search, Step, Stripe, Task, TaskId,
};
use crate::tiny::object::{Flash, Object, PAGE_BYTES, PageAddress};
use crate::tiny::pins::Pins;
use crate::tiny::statistics::{Memory, Statistics, room_bytes};

/// A validated configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct HierarchyPlan {
    pub(in super::super) flash: Flash,
    /// Zones of the log: the first ones.
    pub(in super::super) log_zones: u32,
    pub(in super::super) segment_pages: u32,
    pub(in super::super) segments_buffered: u32,
    /// Free share of the log, in percent, at or below which its oldest zone is
    /// emptied.
    pub(in super::super) log_free_percent: u32,
    /// Objects of a set in the log from which on a rewrite is worthwhile.
    pub(in super::super) threshold: u32,
    pub(in super::super) sets: u32,
    /// Parts of a set.
    pub(in super::super) parts: usize,
    /// Sets are rewritten in place, in the zones after the log's.
    pub(in super::super) in_place: bool,
    /// Zones of each part, if sets are not in place.
    pub(in super::super) rings: [Range<u32>; PARTS_MAX],
    /// Free zones of a part at or below which its oldest zone is collected.
    pub(in super::super) collect_at: [u32; PARTS_MAX],
    /// Collected sets take their objects in the log along.
    pub(in super::super) collection_merges: bool,
    /// One in this many rewrites includes the hot part.
    pub(in super::super) hot_rewrite_interval: u32,
    pub(in super::super) filter_bytes: u32,
    pub(in super::super) objects_per_page: u32,
    /// Most concurrent rewrites.
    pub(in super::super) merges_max: u32,
}

/// The directory: the sets, and their rewrites.
#[derive(Debug)]
pub(in super::super) struct Hierarchy {
    pub(super) plan: HierarchyPlan,
    pub(super) sets: Sets,
    pub(super) rings: [Ring; PARTS_MAX],
    pub(super) pins: Pins,
    pub(super) merges: Vec<Merge>,
    /// Number of active rewrites in `merges`.
    pub(super) merging: usize,
    /// The list of an earlier append, for reuse.
    pub(super) merges_spare: Vec<usize>,
    /// Appends in flight, by part.
    pub(super) appends: [Option<Append>; PARTS_MAX],
    pub(super) collecting: [Option<Collecting>; PARTS_MAX],
    pub(super) cleaning: Option<Cleaning>,
    pub(super) resets: Vec<Reset>,
    /// Number of rewrites begun. It decides which ones include the hot part.
    pub(super) rewrites: u64,
    pub(super) statistics: Statistics,
}

/// The stripe: the log's segments in memory, and the log's index.
#[derive(Debug)]
pub struct Front {
    sets: u32,
    pub(super) log: AppendLog,
    pub(super) index: LogIndex,
    /// A set to rewrite because its shelf of the index is full.
    pub(super) urgent: Option<u32>,
    pub(super) now_seconds: u32,
    statistics: Statistics,
}

impl Stripe for Front {
    fn in_memory(&self, hash: KeyHash) -> Option<&Object> {
        let tag = Tag::of(hash);
        self.index
            .chain(set_of(hash, self.sets))
            .filter(|entry| entry.tag == tag)
            .find_map(|entry| self.log.find(entry.page, hash))
    }
}

impl Hierarchy {
    pub(in super::super) fn new(plan: HierarchyPlan) -> Self {
        let flash = plan.flash;
        let ring = |part: usize| {
            Ring::new(
                plan.rings[part].clone(),
                flash.zone_pages,
                plan.collect_at[part],
            )
        };
        Hierarchy {
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
            resets: Vec::new(),
            rewrites: 0,
            statistics: Statistics::default(),
            plan,
        }
    }

    pub(in super::super) fn front(&self) -> Front {
        let plan = &self.plan;
        let flash = plan.flash;
        let log_pages = u64::from(plan.log_zones) * u64::from(flash.zone_pages);
        Front {
            sets: plan.sets,
            log: AppendLog::new(
                flash,
                0,
                plan.log_zones,
                plan.segment_pages,
                plan.segments_buffered as usize,
            ),
            index: LogIndex::new(plan.sets, flash.first_page(0), log_pages),
            urgent: None,
            now_seconds: 0,
            statistics: Statistics::default(),
        }
    }

    pub(super) fn set_of(&self, hash: KeyHash) -> u32 {
        set_of(hash, self.plan.sets)
    }

    /// True if a set is being rewritten.
    pub(super) fn is_busy(&self, set: u32) -> bool {
        self.merging > 0
            && self
                .merges
                .iter()
                .any(|merge| merge.stage != Stage::Idle && merge.set == set)
    }

    pub(in super::super) fn insert(
        &self,
        front: &mut Front,
        object: Object,
        now_seconds: u32,
    ) -> Insert {
        front.now_seconds = now_seconds;
        let object = object.or_tombstone();
        let (hash, bytes, tombstone) = (object.hash, object.bytes, object.tombstone);
        let (set, tag) = (self.set_of(hash), Tag::of(hash));
        let mut older_open = None;
        let mut has_older = self.is_busy(set) || self.sets.any_may_hold(set, hash);
        let mut supersedes_flash = has_older;
        for entry in front.index.chain(set).filter(|entry| entry.tag == tag) {
            if front.log.is_open(entry.page) && front.log.find(entry.page, hash).is_some() {
                older_open = Some(entry);
                continue;
            }
            has_older = true;
            supersedes_flash |= !front.log.only_in_memory(entry.page);
        }
        if tombstone && older_open.is_none() && !has_older {
            front.statistics.count_insert(0, true);
            return Insert::Accepted(Accepted {
                supersedes_flash,
                ..Accepted::default()
            });
        }
        if front.index.is_full(set) {
            front.urgent = front.urgent.or_else(|| self.set_to_relieve(front, set));
            return Insert::Busy(object);
        }
        if !front.log.has_room(object.stored_bytes()) {
            return Insert::Busy(object);
        }
        // `has_room` may have sealed the older copy's segment just now. Then
        // both copies stay, in different pages.
        if let Some(entry) = older_open
            && front.log.remove(entry.page, hash).is_some()
        {
            front.index.remove(set, entry.id);
        }
        match front.log.push(object) {
            Ok(page) => front.index.push(set, tag, page),
            Err(object) => return Insert::Busy(object),
        }
        front.statistics.count_insert(bytes, tombstone);
        Insert::Accepted(Accepted {
            supersedes_flash,
            ..Accepted::default()
        })
    }

    /// A set with sealed entries in the same shelf as `set`.
    fn set_to_relieve(&self, front: &Front, set: u32) -> Option<u32> {
        let sealed = |set: &u32| {
            front
                .index
                .chain(*set)
                .any(|entry| !front.log.is_open(entry.page))
        };
        let neighbours = front.index.neighbours(set);
        let from_here = (set..neighbours.end).chain(neighbours.start..set);
        from_here
            .filter(|near| *near < self.plan.sets)
            .find(|near| !self.is_busy(*near) && sealed(near))
    }

    pub(in super::super) fn begin_search(
        &mut self,
        front: &mut Front,
        hash: KeyHash,
        search: &mut Search,
    ) -> Step {
        search.restart(hash);
        let (set, tag) = (self.set_of(hash), Tag::of(hash));
        let mut in_memory = None;
        for entry in front.index.chain(set).filter(|entry| entry.tag == tag) {
            if front.log.find(entry.page, hash).is_some() {
                in_memory = Some(entry.id);
                break;
            }
            if !front.log.buffers(entry.page) && !search.pages.contains(&entry.page) {
                search.pages.push(entry.page);
            }
        }
        if let Some(id) = in_memory {
            front.index.hit(set, id);
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

    pub(in super::super) fn end_search(
        &mut self,
        front: &mut Front,
        search: &mut Search,
        found: Found,
    ) {
        for page in &search.pages {
            self.pins.unpin(self.plan.flash.zone_of(*page));
        }
        match found {
            Found::Flash { rank, slot } => {
                self.statistics.false_positives += rank as u64;
                if let Some(page) = search.pages.get(rank) {
                    self.count_hit(front, search.hash, *page, slot);
                }
            }
            Found::Nowhere | Found::Unknown => {
                self.statistics.false_positives += search.pages.len() as u64
            }
        }
        search.pages.clear();
    }

    fn count_hit(&mut self, front: &mut Front, hash: KeyHash, page: PageAddress, slot: usize) {
        let (set, tag) = (self.set_of(hash), Tag::of(hash));
        for part in 0..self.sets.parts() {
            if self.sets.page_of(part, set) == Some(page) {
                self.sets.hit(part, set, slot);
                return;
            }
        }
        let mut chain = front.index.chain(set);
        let entry = chain.find(|entry| entry.tag == tag && entry.page == page);
        drop(chain);
        if let Some(entry) = entry {
            front.index.hit(set, entry.id);
        }
    }

    pub(in super::super) fn next_task(&mut self, front: &mut Front) -> Option<Task> {
        self.work(front)
    }

    pub(in super::super) fn complete(
        &mut self,
        front: &mut Front,
        id: TaskId,
        outcome: Outcome,
        now_seconds: u32,
    ) {
        front.now_seconds = now_seconds;
        self.work_done(front, id, outcome);
    }

    pub(super) fn log_appended(&mut self, front: &mut Front, outcome: &Outcome) {
        if *outcome != Outcome::Done {
            front.log.failed();
            return;
        }
        let written = front.log.written();
        let bytes = written.pages * PAGE_BYTES as u64;
        self.statistics.count_written(Cause::Log, bytes);
        self.statistics.object_pages_written += written.pages;
        self.statistics.bytes_filled += written.bytes_filled;
    }

    pub(super) fn place_displaced_log(&self, front: &mut Front) {
        let (index, sets) = (&mut front.index, self.plan.sets);
        front.log.place_displaced(|object, old, new| {
            index.relocate(set_of(object.hash, sets), Tag::of(object.hash), old, new);
        });
    }

    pub(in super::super) fn statistics(&self, front: &Front) -> Statistics {
        self.statistics.plus(&front.statistics)
    }

    pub(in super::super) fn memory(&self, front: &Front) -> Memory {
        let in_log = front
            .index
            .len()
            .saturating_sub(front.log.objects_buffered());
        let buffers = |of: fn(&Merge) -> u64| self.merges.iter().map(of).sum::<u64>();
        let cleaning = |of: fn(&Cleaning) -> u64| self.cleaning.as_ref().map_or(0, of);
        let collecting = self.collecting.iter().flatten();
        Memory {
            objects_on_flash: in_log + self.sets.objects(),
            index_bytes: front.index.memory_bytes() + self.sets.index_bytes(),
            hotness_bytes: self.sets.hotness_bytes(),
            buffer_bytes: front.log.buffer_bytes()
                + buffers(Merge::buffer_bytes)
                + cleaning(Cleaning::buffer_bytes),
            payload_bytes: front.log.payload_bytes()
                + buffers(Merge::payload_bytes)
                + cleaning(Cleaning::payload_bytes),
            index_buffer_bytes: 0,
            other_bytes: self.pins.memory_bytes()
                + room_bytes::<Merge>(self.merges.capacity())
                + self.rings.iter().map(Ring::memory_bytes).sum::<u64>()
                + collecting.map(Collecting::memory_bytes).sum::<u64>()
                + (size_of::<Hierarchy>() + size_of::<Front>()) as u64,
        }
    }
}

/// The set of a hash, chosen by its highest bits.
pub(super) fn set_of(hash: KeyHash, sets: u32) -> u32 {
    fast_range(hash.0, sets as usize) as u32
}
