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
//! | `filling` | the stripe: set-groups that take in objects |
//! | `buffer`, `absences` | a set-group in memory; keys that are nowhere |
//! | `directory` | the directory: set-groups on flash |
//! | `filters`, `fingerprints` | filters of sets: Bloom filters by bit slices, or more compact ones |
//! | `open`, `index` | the index group that is being filled; those on flash and their cache |
//! | `matches`, `search` | from filters to the pages that are read, newest first |
//! | `extents`, `pool` | what lies where on flash; the FIFO and its heat |
//! | `flush`, `write` | from memory to flash |
//! | `recovery` | the engine after a restart |
//! | `living` | how many keys a get finds |

mod absences;
mod buffer;
mod config;
mod directory;
mod extents;
mod filling;
mod filters;
mod fingerprints;
mod flush;
mod hashes;
mod index;
mod living;
mod matches;
mod open;
mod pool;
mod recovery;
mod search;
mod set_filters;
#[cfg(test)]
mod tests;
mod write;

use super::engine::{
    Due, Durability, Engine, Found, Insert, Label, Outcome, Search, Step, Stripe as _, Task, TaskId,
};
use super::object::{Object, PageAddress};
use super::statistics::{Living, Memory, Statistics};
use crate::hash::KeyHash;
use buffer::SetGroup;
use filters::{Probe, Shape, probe_page};
use hashes::Rows;
use living::Sample;
use matches::{MatchCollector, MatchMask};

pub use config::{FilterKind, FilterSizing, IndexCache, NemoConfig, NemoPlan, WriteBack};
pub use directory::Nemo;
pub use filling::Filling;
pub use recovery::{Known, Recovery, Survivor};
pub use search::Scratch;
pub use set_filters::SetFilters;

/// Whether there are pages of fingerprints of so many set-groups, in so many
/// buckets.
pub(crate) fn lays_out_fingerprints(columns: u32, buckets: u32) -> bool {
    Shape::of_index_group(columns, buckets, 0).is_sane()
}

impl Engine for Nemo {
    type Stripe = Filling;
    type Scratch = Scratch;

    fn stripe(&self) -> Filling {
        let sample = Sample::recovered(self.durable, self.pool.objects());
        Filling::new(self.plan.clone(), sample)
    }

    fn durability(&self) -> Durability {
        self.plan.durability()
    }

    fn insert(&self, filling: &mut Filling, object: Object, now_seconds: u32) -> Insert {
        filling.insert(self, object, now_seconds)
    }

    fn begin_search(
        &mut self,
        filling: &mut Filling,
        hash: KeyHash,
        search: &mut Search,
        scratch: &mut Scratch,
    ) -> Step {
        search.restart(hash);
        scratch.clear();
        if filling.in_memory(hash).is_some() {
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
        let mut probe = Probe::new(&rows, self.index.open.shape);
        let found = &mut scratch.matches;
        let mut matches = MatchCollector::new(|mask: MatchMask| found.add(mask));
        for ((first, home), page) in scratch.asked.iter().zip(pages) {
            let (Some(group), Some(page)) = (self.index.group(*first), page) else {
                // A group that went in the meantime speaks of nothing that is left.
                continue;
            };
            if group.shape != probe.shape {
                probe = Probe::new(&rows, group.shape);
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

    fn end_search(
        &mut self,
        filling: &mut Filling,
        search: &mut Search,
        scratch: &mut Scratch,
        found: Found,
    ) {
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
            self.note_absence(filling, search.hash, scratch);
        }
    }

    fn next_task(&mut self, filling: &mut Filling) -> Option<Task> {
        self.next_flush_task(filling)
    }

    fn complete(&mut self, filling: &mut Filling, id: TaskId, outcome: Outcome, now_seconds: u32) {
        self.flush_task_over(filling, id, outcome, now_seconds);
    }

    fn due(&self, filling: &Filling) -> Due {
        match self.is_flushing(filling) || self.extents.waits_for_readers() {
            true => Due::Yes,
            false => Due::No,
        }
    }

    fn waits_for_readers(&self) -> bool {
        self.extents.waits_for_readers()
    }

    fn waits_for_space(&self) -> bool {
        self.extents.any_left_out()
    }

    fn statistics(&self, filling: &Filling) -> Statistics {
        self.statistics.plus(&filling.statistics)
    }

    fn memory(&self, filling: &Filling) -> Memory {
        Memory {
            objects_on_flash: self.pool.objects(),
            index_bytes: self.index.memory_bytes(),
            hotness_bytes: self.pool.hotness_bytes(),
            buffer_bytes: filling.all().map(SetGroup::memory_bytes).sum::<u64>()
                + self.flush.memory_bytes(),
            payload_bytes: filling.all().map(SetGroup::payload_bytes).sum::<u64>()
                + self.flush.payload_bytes(),
            index_buffer_bytes: self.index.open.memory_bytes(),
            other_bytes: self.pool.memory_bytes()
                + self.extents.memory_bytes()
                + filling.absences.memory_bytes()
                + filling.sample.memory_bytes(),
        }
    }

    fn living(&self, filling: &Filling, now_seconds: u32) -> Living {
        filling
            .sample
            .living(&self.pool, self.plan.sets, now_seconds)
    }

    fn label(&self, page: PageAddress) -> Label {
        self.extents.label(page)
    }

    fn may_outdate(&self, filling: &Filling, hash: KeyHash) -> bool {
        let homes = self.homes(hash);
        let replaced = filling
            .groups
            .iter()
            .find_map(|group| group.find(hash, homes));
        if filling.in_sealed(hash, homes).is_some() {
            return true;
        }
        let alone = replaced.is_some_and(|object| object.alone) || filling.absences.has(hash);
        !alone && self.may_be_on_flash(hash, homes)
    }

    fn could_be_absent(&self, filling: &Filling, hash: KeyHash) -> bool {
        // Only filters on flash know.
        let is_unknown = !self.knows(self.homes(hash));
        is_unknown && filling.in_memory(hash).is_none() && self.may_outdate(filling, hash)
    }

    fn drain(&mut self, filling: &mut Filling) -> bool {
        filling.drain();
        self.is_flushing(filling)
    }

    fn is_drained(&self, filling: &Filling) -> bool {
        filling.is_empty() && !self.is_flushing(filling) && !self.gave_up
    }

    fn durable_when(&self, filling: &Filling) -> u64 {
        self.pool.next() + u64::from(filling.sealed.is_some()) + filling.groups.len() as u64
    }

    fn durable(&self) -> u64 {
        self.durable
    }

    fn oldest(&self) -> u64 {
        self.pool.oldest()
    }

    fn draw(&self, filling: &Filling, random: u64) -> Option<(PageAddress, Label)> {
        let (sequence, nth) = filling.sample.draw(&self.pool, random)?;
        let set = (nth % u64::from(self.plan.sets)) as u32;
        let page = self.extents.page(self.pool.get(sequence)?.extent, set);
        Some((page, self.label(page)))
    }

    fn surveyed(&self, filling: &mut Filling, object: &Object, label: Label, is_found: bool) {
        let is_found = is_found
            && filling.in_memory(object.hash).is_none()
            && label.sequence >= self.pool.oldest();
        filling
            .sample
            .surveyed(object, is_found.then_some(label.sequence));
    }
}
