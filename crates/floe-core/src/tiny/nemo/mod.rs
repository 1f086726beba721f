//! Nemo: set-groups filled in memory, written once, found by filters.
//!
//! After "Nemo: A Low-Write-Amplification Cache for Tiny Objects on
//! Log-Structured Flash Devices" (ASPLOS '26). An object hashes to a set. The
//! sets of a set-group fill up in memory and are written together. Set-groups
//! on flash form a FIFO. Filters, most of them on flash too, lead a lookup to
//! its object. [`NemoConfig::published`] has the paper's settings. The defaults
//! go beyond it (`docs/tiny-results.md` has the curves):
//!
//! * Each object has two sets to choose from and may move to the other one
//!   while in memory, so a set-group is nearly full when it is written.
//! * A filter in memory for each page of the index excludes nearly all reads of
//!   the index that would be in vain.
//! * Filters are sized for the objects that sets hold. A second kind of filter
//!   takes less room.
//! * Hot objects are written back into any set-group in memory that has room,
//!   not only into the one being flushed.
//!
//! Unlike the published code, this engine has deletes, overwrites, newest-first
//! searches, bounded back-pressure, and pins that keep a zone from being reset
//! while it is read. Invariants:
//!
//! * The open set-groups hold at most one copy of an object. A newer copy
//!   replaces it, whichever set-group it was in.
//! * A copy that is evicted from memory while an older one may be on flash
//!   leaves a tombstone.
//! * A hot object is written back only if no newer copy can exist. If filters
//!   match, the matching pages are read.
//!
//! | file | for |
//! |---|---|
//! | `config` | settings and plan |
//! | `hashes` | from a key's hash to its sets and filter bits |
//! | `stripe` | the stripe: set-groups in memory |
//! | `buffer`, `known_absent` | a set-group in memory; keys without any copy |
//! | `directory` | the directory: set-groups on flash |
//! | `filters`, `fingerprints` | filters of sets: bit-sliced Bloom filters, or more compact fingerprints |
//! | `open`, `index` | the open index group; the index groups on flash, and what memory has of them |
//! | `page_filter` | filters in memory that exclude pages of the index from a search |
//! | `matches`, `search` | from filter matches to the pages to read, newest first |
//! | `extents`, `pool` | allocation of flash; the FIFO and its heat |
//! | `flush`, `write` | from memory to flash |
//! | `recovery` | rebuilding the engine after a restart |
//! | `live_sample` | the estimate of live objects |

mod buffer;
mod config;
mod directory;
mod extents;
mod filters;
mod fingerprints;
mod flush;
mod hashes;
mod index;
mod known_absent;
mod live_sample;
mod matches;
mod open;
mod page_filter;
mod pool;
mod recovery;
mod search;
mod set_filters;
mod sizing;
mod stripe;
#[cfg(test)]
mod tests;
mod write;

use super::engine::{
    Discarded, Due, Durability, Engine, Found, Insert, Label, Outcome, Search, Step, Stripe as _,
    Task, TaskId,
};
use super::object::{Object, PageAddress};
use super::statistics::{LiveObjects, Memory, Statistics};
use crate::hash::KeyHash;
use buffer::SetGroup;
use filters::{Probe, Shape, probe_page};
use hashes::{PageProbe, Rows};
use live_sample::Sample;
use matches::{MatchCollector, MatchMask};

pub use config::{Costs, FilterKind, FilterSizing, IndexCache, NemoConfig, NemoPlan, WriteBack};
pub use directory::Nemo;
pub use page_filter::PageFilterShape;
pub use recovery::{LoggedBounds, Recovery, Survivor};
pub use search::Scratch;
use search::UnreadIndex;
pub use set_filters::SetFilters;
pub use sizing::Sizing;
pub use stripe::NemoStripe;

/// True if a page can have the filters of an index group: with `probes` zero, fingerprints in
/// `rows` buckets.
pub(crate) fn lays_out_filters(
    columns: u32,
    rows: u32,
    probes: u32,
    page_filter: PageFilterShape,
) -> bool {
    Shape::of_index_group(columns, rows, probes, page_filter).is_valid()
}

impl Engine for Nemo {
    type Stripe = NemoStripe;
    type Scratch = Scratch;

    fn stripe(&self) -> NemoStripe {
        let sample = Sample::recovered(self.durable, self.pool.objects());
        NemoStripe::new(self.plan.clone(), sample)
    }

    fn durability(&self) -> Durability {
        self.plan.durability()
    }

    fn insert(&self, stripe: &mut NemoStripe, object: Object, now_seconds: u32) -> Insert {
        stripe.insert(self, object, now_seconds)
    }

    fn begin_search(
        &mut self,
        stripe: &mut NemoStripe,
        hash: KeyHash,
        search: &mut Search,
        scratch: &mut Scratch,
    ) -> Step {
        search.restart(hash);
        scratch.clear();
        if stripe.in_memory(hash).is_some() {
            return Step::Memory;
        }
        let (homes, rows) = (self.homes(hash), Rows::of(hash));
        self.index
            .probe(homes, &rows, |mask| scratch.matches.add(mask));
        homes.iter().for_each(|home| self.index.touch(home));
        for (group, home) in self.index.unread(homes, rows.page) {
            scratch.unread.push(UnreadIndex {
                first: group.first,
                end: group.end(),
                home,
                page: self.extents.page(group.extent, home),
            });
            scratch.pins.push(group.extent);
        }
        for extent in &scratch.pins {
            self.extents.pin(*extent);
        }
        scratch.began_at = self.pool.next();
        scratch.pages_left = self.candidates_max;
        if !self.index.has_cache() {
            scratch.unread.sort_by_key(|unread| unread.first);
        }
        self.next_step(search, scratch)
    }

    fn pages_read(&mut self, search: &mut Search, scratch: &mut Scratch) -> Step {
        let read = std::mem::take(&mut search.read) as u64;
        self.statistics.pages_searched += read;
        self.statistics.false_positives += read;
        self.next_step(search, scratch)
    }

    fn index_read(
        &mut self,
        search: &mut Search,
        scratch: &mut Scratch,
        pages: &[Option<&[u8]>],
    ) -> Step {
        if pages.iter().any(Option::is_none) {
            // The unreadable page may match the newest copy. An older copy that
            // other pages match must not be returned.
            return Step::Absent;
        }
        let rows = Rows::of(search.hash);
        let mut probe = Probe::new(&rows, self.index.open.shape);
        let found = &mut scratch.matches;
        let mut matches = MatchCollector::new(|mask: MatchMask| found.add(mask));
        for ((first, home), page) in scratch.index_reads.iter().zip(pages) {
            let (Some(group), Some(page)) = (self.index.group(*first), page) else {
                // The group was dropped meanwhile, with all of its set-groups.
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
        for asked in scratch.index_reads.chunk_by(|a, b| a.1 == b.1) {
            let (column, others) = left.split_at(asked.len().min(left.len()));
            left = others;
            self.index.cache(
                asked[0].1,
                asked.iter().map(|(first, _)| *first),
                column.iter().copied().flatten(),
            );
        }
        self.next_step(search, scratch)
    }

    fn end_search(
        &mut self,
        stripe: &mut NemoStripe,
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
            self.remember_absent(stripe, search.hash, scratch);
        }
    }

    fn advance(&mut self, stripe: &mut NemoStripe) -> Option<Discarded> {
        self.advance_flush(stripe)
    }

    fn next_task(&mut self, stripe: &mut NemoStripe) -> Option<Task> {
        self.next_flush_task(stripe)
    }

    fn complete(
        &mut self,
        stripe: &mut NemoStripe,
        id: TaskId,
        outcome: Outcome,
        now_seconds: u32,
    ) {
        self.flush_task_over(stripe, id, outcome, now_seconds);
    }

    fn retire_zones(&mut self, is_unwritable: &dyn Fn(u32) -> bool) {
        self.extents.retire_zones(is_unwritable);
    }

    fn due(&self, stripe: &NemoStripe) -> Due {
        let has_work = self.is_flushing(stripe)
            || self.extents.waits_for_readers()
            || self.flush.running.is_some()
            || self.index.to_load().is_some();
        match has_work {
            true => Due::Yes,
            false => Due::No,
        }
    }

    fn stop_loading(&mut self) {
        self.index.stop_loading();
    }

    fn waits_for_readers(&self) -> bool {
        self.extents.waits_for_readers()
    }

    fn waits_for_space(&self) -> bool {
        self.extents.any_excluded()
    }

    fn statistics(&self, stripe: &NemoStripe) -> Statistics {
        self.statistics.plus(&stripe.statistics)
    }

    fn memory(&self, stripe: &NemoStripe) -> Memory {
        Memory {
            objects_on_flash: self.pool.objects(),
            index_bytes: self.index.memory_bytes(),
            hotness_bytes: self.pool.hotness_bytes(),
            buffer_bytes: stripe.all().map(SetGroup::memory_bytes).sum::<u64>()
                + self.flush.memory_bytes(),
            payload_bytes: stripe.all().map(SetGroup::payload_bytes).sum::<u64>()
                + self.flush.payload_bytes(),
            index_buffer_bytes: self.index.open.memory_bytes(),
            other_bytes: self.pool.memory_bytes()
                + self.extents.memory_bytes()
                + stripe.known_absent.memory_bytes()
                + stripe.sample.memory_bytes(),
        }
    }

    fn live_objects(&self, stripe: &NemoStripe, now_seconds: u32) -> LiveObjects {
        stripe
            .sample
            .live_objects(&self.pool, self.plan.sets, now_seconds)
    }

    fn label(&self, page: PageAddress) -> Label {
        self.extents.label(page)
    }

    fn may_supersede(&self, stripe: &NemoStripe, hash: KeyHash) -> bool {
        let homes = self.homes(hash);
        let replaced = stripe
            .groups
            .iter()
            .find_map(|group| group.find(hash, homes));
        if stripe.in_sealed(hash, homes).is_some() {
            return true;
        }
        let first_copy =
            replaced.is_some_and(|object| object.first_copy) || stripe.known_absent.has(hash);
        !first_copy && self.may_be_on_flash(hash, homes)
    }

    fn could_be_absent(&self, stripe: &NemoStripe, hash: KeyHash) -> bool {
        let probe = PageProbe::of(hash);
        let is_unknown = self.index.unread(self.homes(hash), probe).next().is_some();
        is_unknown && stripe.in_memory(hash).is_none() && self.may_supersede(stripe, hash)
    }

    fn drain(&mut self, stripe: &mut NemoStripe) -> bool {
        stripe.drain();
        self.is_flushing(stripe)
    }

    fn is_drained(&self, stripe: &NemoStripe) -> bool {
        stripe.is_empty() && !self.is_flushing(stripe) && !self.dropped_sealed
    }

    fn durable_when(&self, stripe: &NemoStripe) -> u64 {
        self.pool.next() + u64::from(stripe.sealed.is_some()) + stripe.groups.len() as u64
    }

    fn durable(&self) -> u64 {
        self.durable
    }

    fn oldest(&self) -> u64 {
        self.pool.oldest()
    }

    fn draw(&self, stripe: &NemoStripe, random: u64) -> Option<(PageAddress, Label)> {
        let (sequence, nth) = stripe.sample.draw(&self.pool, random)?;
        let set = (nth % u64::from(self.plan.sets)) as u32;
        let page = self.extents.page(self.pool.get(sequence)?.extent, set);
        Some((page, self.label(page)))
    }

    fn surveyed(&self, stripe: &mut NemoStripe, object: &Object, label: Label, is_found: bool) {
        let is_found = is_found
            && stripe.in_memory(object.hash).is_none()
            && label.sequence >= self.pool.oldest();
        stripe
            .sample
            .surveyed(object, is_found.then_some(label.sequence));
    }
}
