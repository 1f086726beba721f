//! Nemo: set-groups filled in memory, written once, found by filters.
//!
//! After "Nemo: A Low-Write-Amplification Cache for Tiny Objects on
//! Log-Structured Flash Devices" (ASPLOS '26). Objects hash to a set; the sets
//! of a set-group fill up in memory and are written together; set-groups on
//! flash are a FIFO; where an object is, filters tell, most of which lie on
//! flash themselves. [`NemoConfig::published`] is the paper's; the default
//! goes beyond it (`docs/tiny-results.md` has the curves):
//!
//! * two sets per object, and moving one object to its other set while both
//!   are in memory: a set-group fills nearly whole before it is written;
//! * filters sized for the objects that sets hold, and of another kind, which
//!   takes less room;
//! * hot objects go on living wherever there is room, not only where the
//!   flushed set-group has some.
//!
//! And it does what the published code does not: deletes, overwrites, newest
//! first, bounded back-pressure, no reset under a reader. What keeps it
//! honest:
//!
//! * Of one object there is at most one copy in the set-groups that take in
//!   objects; a newer one takes its place, wherever it was.
//! * A copy that leaves memory without reaching flash, while an older one may
//!   be on flash, leaves a tombstone.
//! * A hot object is written back only when no newer copy can be anywhere:
//!   where filters leave doubt, the page is read.
//!
//! | file | for |
//! |---|---|
//! | `config` | settings and plan |
//! | `hashes` | which sets, which bits of filters |
//! | `buffer` | set-groups in memory |
//! | `filters`, `fingerprints` | filters of sets: Bloom filters by bit slices, or more compact ones |
//! | `open`, `index` | the index group that is being filled; those on flash and their cache |
//! | `search` | from filters to the pages that are read, newest first |
//! | `extents`, `pool` | what lies where on flash; the FIFO and its heat |
//! | `flush` | from memory to flash |
//! | `living` | how many keys a get finds |

mod buffer;
mod config;
mod extents;
mod filters;
mod fingerprints;
mod flush;
mod hashes;
mod index;
mod living;
mod open;
mod pool;
mod recovery;
mod search;
mod set_filters;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::engine::{
    Accepted, Durability, Engine, Found, Insert, Label, Outcome, Search, Step, Task, TaskId,
};
use super::object::{Object, PageAddress};
use super::statistics::{Living, Memory, Statistics};
use crate::hash::KeyHash;
use buffer::SetGroup;
use extents::Extents;
use filters::{Shape, probe_page};
use flush::Flush;
use hashes::{Homes, Rows};
use index::Index;
use living::Sample;
use pool::Pool;
use search::{Absences, Candidate, MatchCollector, MatchMask};

pub use config::{FilterKind, FilterSizing, IndexCache, NemoConfig, NemoPlan, WriteBack};
pub use recovery::{Known, Recovery, Survivor};
pub use search::Scratch;
pub use set_filters::SetFilters;

/// Whether there are pages of fingerprints of so many set-groups, in so many
/// buckets.
pub(crate) fn lays_out_fingerprints(columns: u32, buckets: u32) -> bool {
    Shape::of_index_group(columns, buckets, 0).is_sane()
}

/// The engine.
#[derive(Debug)]
pub struct Nemo {
    plan: NemoPlan,
    /// Set-groups that take in objects, oldest first. There is always one.
    filling: VecDeque<SetGroup>,
    /// The one that is being flushed. It still answers, and takes in only
    /// what is written back.
    sealed: Option<SetGroup>,
    /// Objects turned out of full sets since the last flush.
    turned_out: u32,
    /// Objects in a set that the next filters are made for.
    filter_objects: f64,
    index: Index,
    pool: Pool,
    /// Filters of set-groups that a crash could bring back are forgotten.
    forgot_leaving: bool,
    /// What was to be written was forgotten: no zone takes it.
    gave_up: bool,
    /// As [`Engine::durable`]: not beyond what was given up.
    durable: u64,
    extents: Extents,
    flush: Flush,
    absences: Absences,
    /// Most pages that a search reads: see [`search::candidates_max`].
    candidates_max: usize,
    /// For [`Engine::living`].
    sample: Sample,
    statistics: Statistics,
}

impl Nemo {
    /// An engine on empty flash.
    pub fn new(plan: NemoPlan) -> Self {
        let (config, sets) = (&plan.config, plan.sets);
        let filter_objects = plan.expected_objects();
        let shape = shape_for(&plan, filter_objects);
        Nemo {
            filling: (0..config.memory_set_groups)
                .map(|_| SetGroup::new(sets, 0))
                .collect(),
            sealed: None,
            turned_out: 0,
            filter_objects,
            index: Index::new(shape, sets, config),
            pool: Pool::new(sets, plan.extents(), config.hotness_window),
            forgot_leaving: false,
            gave_up: false,
            durable: 0,
            extents: Extents::new(plan.flash, plan.extent_pages),
            flush: Flush::new(),
            absences: Absences::new(),
            candidates_max: search::candidates_max(0.0),
            sample: Sample::default(),
            statistics: Statistics::default(),
            plan,
        }
    }

    fn homes(&self, hash: KeyHash) -> Homes {
        Homes::of(hash, self.plan.sets, self.plan.config.candidates)
    }

    /// Where a candidate is on flash, if it still is.
    fn page_of(&self, candidate: Candidate) -> Option<PageAddress> {
        let resident = self.pool.get(candidate.sequence)?;
        Some(self.extents.page(resident.extent, candidate.home))
    }

    /// Whether the filters of all its sets are in memory.
    fn knows(&self, homes: Homes) -> bool {
        homes.iter().all(|home| self.index.knows(home))
    }

    fn in_sealed(&self, hash: KeyHash, homes: Homes) -> Option<&Object> {
        self.sealed.as_ref()?.find(hash, homes)
    }

    /// Puts an object into a set-group that takes objects in, oldest first;
    /// says into which.
    fn place(&mut self, mut object: Object, homes: Homes) -> Result<usize, Object> {
        let relocates = self.relocates();
        for (at, group) in self.filling.iter_mut().enumerate() {
            object = match group.place(object, homes) {
                Ok(()) => return Ok(at),
                Err(object) => object,
            };
            if relocates {
                object = match group.place_by_moving(object, homes) {
                    Ok(()) => return Ok(at),
                    Err(object) => object,
                };
            }
        }
        if relocates {
            for (at, group) in self.filling.iter_mut().enumerate() {
                object = match group.place_by_moving_several(object, homes) {
                    Ok(()) => return Ok(at),
                    Err(object) => object,
                };
            }
        }
        Err(object)
    }

    /// Whether an object is to be turned out rather than the oldest set-group
    /// flushed.
    fn puts_off_flush(&self) -> bool {
        self.turned_out < self.plan.turned_out_max
            && self.filling[0].used_bytes() < self.plan.flush_bytes
    }

    fn relocates(&self) -> bool {
        self.plan.config.relocate && self.plan.config.candidates == 2
    }

    /// Makes room in the oldest set-group by turning objects out (§4.2).
    fn turn_out_for(&mut self, object: Object, homes: Homes) -> Result<(), Object> {
        let mut object = object;
        for home in homes.iter() {
            while !self.filling[0].fits(home, object.stored_bytes()) {
                if !self.turn_out_one(home) {
                    break;
                }
            }
            object = match self.filling[0].place(object, homes) {
                Ok(()) => return Ok(()),
                Err(object) => object,
            };
        }
        Err(object)
    }

    /// Turns out the oldest object of a set; says whether there was one that
    /// could go. Tombstones stay: they keep something older from coming back.
    fn turn_out_one(&mut self, home: u32) -> bool {
        let Some(object) = self.filling[0].turn_out(home) else {
            return false;
        };
        let (hash, homes) = (object.hash, self.homes(object.hash));
        self.statistics.dropped_early += 1;
        self.statistics.bytes_dropped_early += u64::from(object.bytes);
        let older = !object.alone
            && (self.in_sealed(object.hash, homes).is_some()
                || self.may_be_on_flash(object.hash, homes));
        if older {
            let tombstone = Object::tombstone(object.hash);
            // It takes no more room than what it stands for, unless that is tiny.
            if tombstone.stored_bytes() > object.stored_bytes() {
                self.filling[0].put_back(home, object, homes);
                return false;
            }
            self.filling[0].put_back(home, tombstone, homes);
        }
        self.sample.removed(hash);
        true
    }

    /// Begins to flush the oldest set-group; says whether it could.
    fn seal(&mut self) -> bool {
        if self.sealed.is_some() {
            return false;
        }
        self.sealed = self.filling.pop_front();
        let objects = self.sealed.as_ref().map_or(0, SetGroup::objects);
        let next = SetGroup::new(self.plan.sets, objects);
        self.filling.push_back(next);
        self.turned_out = 0;
        self.flush.begin();
        true
    }
}

/// How the filters of an index group are laid out that are made for sets of
/// `objects` objects.
fn shape_for(plan: &NemoPlan, objects: f64) -> Shape {
    let columns = plan.index_group_columns(objects);
    match plan.config.filter_kind {
        FilterKind::Bloom => Shape::new(columns, objects),
        FilterKind::Fingerprints => Shape::of_fingerprints(columns, objects),
    }
}

impl Engine for Nemo {
    type Scratch = Scratch;

    fn insert(&mut self, object: Object, now_seconds: u32) -> Insert {
        let object = object.or_tombstone();
        let homes = self.homes(object.hash);
        let was_absent = self.absences.take(object.hash);
        let replaced = self
            .filling
            .iter_mut()
            .enumerate()
            .find_map(|(at, group)| Some((at, group.remove(object.hash, homes)?)));
        let alone = was_absent || matches!(&replaced, Some((_, replaced)) if replaced.alone);
        let older = self.in_sealed(object.hash, homes).is_some()
            || (!alone && self.may_be_on_flash(object.hash, homes));
        let (hash, tombstone, bytes) = (object.hash, object.tombstone, object.bytes);
        let expires = object.expires;
        let object = Object {
            noted: older,
            alone: !older,
            ..object
        };
        if tombstone && !older {
            self.sample.removed(hash);
            self.statistics.count_insert(bytes, tombstone);
            return Insert::Accepted(Accepted::default());
        }
        let mut placed = self.place(object, homes);
        if self.puts_off_flush() {
            placed = placed.or_else(|object| {
                self.turned_out += 1;
                self.turn_out_for(object, homes).map(|()| 0)
            });
        }
        // Everything is full: the flush is due.
        let mut sealed_now = false;
        placed = placed.or_else(|object| {
            self.extents.take_in_again(now_seconds);
            sealed_now = self.seal();
            if sealed_now {
                self.place(object, homes)
            } else {
                Err(object)
            }
        });
        let at = match placed {
            Ok(at) => at,
            Err(object) => {
                if let Some((at, replaced)) = replaced {
                    self.filling[at].restore(replaced, homes);
                }
                if was_absent {
                    self.absences.add(hash);
                }
                return Insert::Busy(object);
            }
        };
        self.statistics.count_insert(bytes, tombstone);
        match tombstone {
            true => self.sample.removed(hash),
            false => self.sample.inserted(hash, bytes, expires),
        }
        // What took the place of another in the same set-group outdates no
        // more than that one did.
        let noted = !sealed_now
            && replaced.is_some_and(|(before, replaced)| replaced.noted && before == at);
        Insert::Accepted(Accepted {
            outdates_flash: older,
            noted_before: older && noted,
        })
    }

    fn in_memory(&self, hash: KeyHash) -> Option<&Object> {
        let homes = self.homes(hash);
        self.filling
            .iter()
            .find_map(|group| group.find(hash, homes))
            .or_else(|| self.in_sealed(hash, homes))
    }

    fn begin_search(&mut self, hash: KeyHash, search: &mut Search, scratch: &mut Scratch) -> Step {
        search.restart(hash);
        scratch.clear();
        if self.in_memory(hash).is_some() {
            return Step::Memory;
        }
        let homes = self.homes(hash);
        self.index
            .probe(homes, &Rows::of(hash), |mask| scratch.matches.add(mask));
        for home in homes.iter() {
            self.index.touch(home);
            if self.index.knows(home) {
                continue;
            }
            for group in self.index.groups() {
                let page = self.extents.page(group.extent, home);
                search.index_pages.push(page);
                scratch.asked.push((group.first, home));
                scratch.pins.push(group.extent);
            }
        }
        for extent in &scratch.pins {
            self.extents.pin(*extent);
        }
        scratch.asked_all_at = Some(self.pool.next());
        if search.index_pages.is_empty() {
            return self.settle(search, scratch);
        }
        self.statistics.index_searches += 1;
        self.statistics.index_pages_searched += search.index_pages.len() as u64;
        Step::Index
    }

    fn index_read(
        &mut self,
        search: &mut Search,
        scratch: &mut Scratch,
        pages: &[Option<&[u8]>],
    ) -> Step {
        search.index_pages.clear();
        if pages.iter().any(Option::is_none) {
            // It may have spoken of the newest copy: an older one, that others
            // speak of, must not be taken for it.
            scratch.asked_all_at = None;
            return Step::Absent;
        }
        let rows = Rows::of(search.hash);
        let mut probe = rows.within(self.index.open.shape);
        let found = &mut scratch.matches;
        let mut matches = MatchCollector::new(|mask: MatchMask| found.add(mask));
        for ((first, home), page) in scratch.asked.iter().zip(pages) {
            let (Some(group), Some(page)) = (self.index.group(*first), page) else {
                // A group that went in the meantime speaks of nothing that is left.
                continue;
            };
            if group.shape != probe.shape {
                probe = rows.within(group.shape);
            }
            matches.of(*first, *home);
            probe_page(&probe, page, &mut matches);
        }
        matches.finish();
        let mut left = pages;
        for asked in scratch.asked.chunk_by(|a, b| a.1 == b.1) {
            let (column, others) = left.split_at(asked.len().min(left.len()));
            left = others;
            self.index.cache(
                asked[0].1,
                asked.iter().map(|(first, _)| *first),
                column.iter().copied().flatten(),
            );
        }
        self.settle(search, scratch)
    }

    fn end_search(&mut self, search: &mut Search, scratch: &mut Scratch, found: Found) {
        for extent in scratch.pins.drain(..) {
            self.extents.unpin(extent);
        }
        let read = search.read as u64;
        self.statistics.pages_searched += read;
        match found {
            Found::Flash { rank, slot } => {
                self.statistics.false_positives += read.saturating_sub(1);
                if let Some(candidate) = scratch.candidates.get(rank) {
                    self.pool.hit(candidate.sequence, candidate.home, slot);
                }
            }
            Found::Nowhere | Found::Unknown => self.statistics.false_positives += read,
        }
        if found == Found::Nowhere {
            self.statistics.searches_cut += u64::from(scratch.is_cut);
            self.note_absence(search.hash, scratch);
        }
    }

    fn durability(&self) -> Durability {
        self.plan.durability()
    }

    fn next_task(&mut self) -> Option<Task> {
        self.next_flush_task()
    }

    fn has_work(&self) -> Option<bool> {
        Some(self.flush.is_busy() || self.extents.waits_for_readers())
    }

    fn waits_for_readers(&self) -> bool {
        self.extents.waits_for_readers()
    }

    fn waits_for_space(&self) -> bool {
        self.extents.any_left_out()
    }

    fn drain(&mut self) -> bool {
        let filled = |group: &SetGroup| group.objects() > 0;
        if self.sealed.is_none()
            && let Some(at) = self.filling.iter().position(filled)
        {
            // Empty ones in front would be written for nothing.
            self.filling.rotate_left(at);
            self.filling[0].is_cut_short = true;
            self.seal();
        }
        self.sealed.is_some() || self.flush.is_busy()
    }

    fn is_drained(&self) -> bool {
        let is_empty = self.filling.iter().all(|group| group.objects() == 0);
        is_empty && self.sealed.is_none() && !self.flush.is_busy() && !self.gave_up
    }

    fn complete(&mut self, id: TaskId, outcome: Outcome, now_seconds: u32) {
        self.flush_task_over(id, outcome, now_seconds);
    }

    fn label(&self, page: PageAddress) -> Label {
        self.extents.label(page)
    }

    fn epoch(&self) -> u64 {
        self.pool.next() + u64::from(self.sealed.is_some())
    }

    fn durable_when(&self) -> u64 {
        self.epoch() + self.filling.len() as u64
    }

    fn durable(&self) -> u64 {
        self.durable
    }

    fn oldest(&self) -> u64 {
        self.pool.oldest()
    }

    fn may_outdate(&self, hash: KeyHash) -> bool {
        let homes = self.homes(hash);
        let mut filling = self.filling.iter();
        let replaced = filling.find_map(|group| group.find(hash, homes));
        if self.in_sealed(hash, homes).is_some() {
            return true;
        }
        let alone = replaced.is_some_and(|object| object.alone) || self.absences.has(hash);
        !alone && self.may_be_on_flash(hash, homes)
    }

    fn could_be_absent(&self, hash: KeyHash) -> bool {
        // Only filters on flash know.
        let is_unknown = !self.knows(self.homes(hash));
        is_unknown && self.in_memory(hash).is_none() && self.may_outdate(hash)
    }

    fn draw(&self, random: u64) -> Option<(PageAddress, Label)> {
        self.draw_recovered(random)
    }

    fn surveyed(&mut self, object: &Object, label: Label, is_found: bool) {
        self.count_surveyed(object, label, is_found);
    }

    fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    fn memory(&self) -> Memory {
        let groups = || self.filling.iter().chain(&self.sealed);
        Memory {
            objects_on_flash: self.pool.objects(),
            index_bytes: self.index.memory_bytes(),
            hotness_bytes: self.pool.hotness_bytes(),
            buffer_bytes: groups().map(SetGroup::memory_bytes).sum::<u64>()
                + self.flush.memory_bytes(),
            payload_bytes: groups().map(SetGroup::payload_bytes).sum::<u64>()
                + self.flush.payload_bytes(),
            index_buffer_bytes: self.index.open.memory_bytes(),
            other_bytes: self.pool.memory_bytes()
                + self.extents.memory_bytes()
                + self.absences.memory_bytes()
                + self.sample.memory_bytes(),
        }
    }

    fn living(&self, now_seconds: u32) -> Living {
        self.count_living(now_seconds)
    }
}
