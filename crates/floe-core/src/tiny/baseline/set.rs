//! `set`: a set-associative cache, after CacheLib's big hash (Berg et al., OSDI '20).
//!
//! A key's hash selects its set, a page that is rewritten in place for every
//! object that joins it. So about a page is written per object. Memory holds a
//! Bloom filter per set and the objects that wait to be written.
//!
//! Deviations from CacheLib, and why:
//! * Filters are larger by default. With the published 8 bytes per set (4 bits
//!   per object, as in Nemo §5.2), 17 % of searches for absent objects read a
//!   page in vain; with 24 bytes, 0.4 %. [`SetConfig::published`] has 8.
//! * A delete reads the set's page only if the filter matches, and writes it
//!   only if it held the object.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::filter::PageFilters;
pub use super::rrip::SetPolicy;
use super::rrip::{self, HitBits};
use crate::hash::{KeyHash, fast_range};
use crate::tiny::engine::{
    Accepted, Cause, Engine, Found, Insert, Outcome, Page, Search, Step, Stripe, Task, TaskId, Work,
};
use crate::tiny::object::{Flash, Object, PAGE_BYTES, PageAddress};
use crate::tiny::plan::{PlanError, check_flash, check_in_place, check_range, nearest};
use crate::tiny::statistics::{Memory, Statistics, payload_bytes, room_bytes};

/// Most objects that wait to be written.
const WRITES_BUFFERED: usize = 64;

/// Settings of `set`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SetConfig {
    /// Share of the flash, in percent, left unused to make the device's garbage
    /// collection cheap. CacheLib uses 50 in production.
    pub over_provisioning_percent: u32,
    /// Bytes of each set's filter: a multiple of 8, up to 512.
    pub filter_bytes: u32,
    /// Expected objects in a set, which filters are optimized for.
    pub objects_per_set: u32,
    /// The eviction policy of a full set.
    pub eviction: SetPolicy,
}

impl Default for SetConfig {
    fn default() -> Self {
        SetConfig {
            over_provisioning_percent: 50,
            filter_bytes: 24,
            objects_per_set: 16,
            eviction: SetPolicy::Fifo,
        }
    }
}

impl SetConfig {
    /// The published size of filters: 8 bytes per set, 4 bits per object.
    pub fn published() -> Self {
        SetConfig {
            filter_bytes: 8,
            ..SetConfig::default()
        }
    }
}

/// A validated configuration of `set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetPlan {
    config: SetConfig,
    sets: u32,
}

impl SetPlan {
    /// Checks `config` against `flash`.
    ///
    /// # Errors
    /// [`PlanError`] names the setting that does not fit and the nearest value
    /// that does.
    pub fn new(config: &SetConfig, flash: &Flash) -> Result<SetPlan, PlanError> {
        check_flash(flash, 1)?;
        check_in_place(flash, "tiny.engine", "set", "nemo, log and fairywren work")?;
        check_range(
            "tiny.set.over_provisioning_percent",
            config.over_provisioning_percent,
            0,
            95,
        )?;
        check_filter("tiny.set.filter_bytes", config.filter_bytes)?;
        check_range("tiny.set.objects_per_set", config.objects_per_set, 1, 1024)?;
        let sets = flash.pages() * u64::from(100 - config.over_provisioning_percent) / 100;
        Ok(SetPlan {
            config: config.clone(),
            // `check_flash` ensures that page numbers fit 31 bits.
            sets: sets.max(1) as u32,
        })
    }

    /// Number of sets.
    pub fn sets(&self) -> u32 {
        self.sets
    }
}

/// Checks the size of a page's filter.
pub(super) fn check_filter(setting: &'static str, bytes: u32) -> Result<(), PlanError> {
    check_range(setting, bytes, 8, 512)?;
    if bytes.is_multiple_of(8) {
        return Ok(());
    }
    Err(PlanError::new(
        setting,
        bytes,
        "filters are made of words of 8 bytes",
        nearest(bytes.next_multiple_of(8)),
    ))
}

/// The directory: filters and hits of the sets on flash.
#[derive(Debug)]
pub struct Set {
    plan: SetPlan,
    filters: PageFilters,
    /// The used objects of each set, for RRIP. Empty for FIFO.
    hits: Vec<HitBits>,
    /// Sets whose page could not be written. They stay empty.
    dead: BTreeSet<u32>,
    objects: u64,
    /// Memory that writes reuse.
    evicted: Vec<Object>,
    hashes_spare: Vec<Vec<KeyHash>>,
    statistics: Statistics,
}

/// The stripe: objects that wait to be written or are being written.
#[derive(Debug)]
pub struct Writes {
    /// Oldest first.
    pending: VecDeque<Pending>,
    /// The number of the first pending write.
    first: u32,
    statistics: Statistics,
}

#[derive(Debug)]
struct Pending {
    set: u32,
    object: Object,
    state: State,
    /// The new content of the page.
    page: Vec<Object>,
    /// Objects on the page before the rewrite.
    objects_before: usize,
    /// Hashes of the page's objects, while it is being written.
    hashes: Vec<KeyHash>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Queued,
    Reading,
    Ready,
    Writing,
    Over,
}

impl Stripe for Writes {
    fn in_memory(&self, hash: KeyHash) -> Option<&Object> {
        let mut newest_first = self.pending.iter().rev();
        newest_first
            .find(|pending| pending.state != State::Over && pending.object.hash == hash)
            .map(|pending| &pending.object)
    }
}

impl Writes {
    /// True if `pending[at]` is the oldest unfinished write of its set.
    fn is_next_of_its_set(&self, at: usize) -> bool {
        let set = self.pending[at].set;
        let mut earlier = self.pending.range(..at);
        !earlier.any(|other| other.set == set && other.state != State::Over)
    }

    /// Ends a write, and removes finished ones at the front.
    fn end(&mut self, at: usize) {
        self.pending[at].state = State::Over;
        while self
            .pending
            .front()
            .is_some_and(|pending| pending.state == State::Over)
        {
            self.pending.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    fn task(&self, at: usize, work: Work) -> Task {
        Task {
            id: TaskId(self.first.wrapping_add(at as u32)),
            work,
        }
    }
}

impl Set {
    /// An engine on empty flash.
    pub fn new(plan: SetPlan) -> Self {
        let sets = plan.sets as usize;
        let tracked = if plan.config.eviction == SetPolicy::Rrip {
            sets
        } else {
            0
        };
        Set {
            filters: PageFilters::new(sets, plan.config.filter_bytes, plan.config.objects_per_set),
            hits: vec![0; tracked],
            dead: BTreeSet::new(),
            objects: 0,
            evicted: Vec::new(),
            hashes_spare: Vec::new(),
            statistics: Statistics::default(),
            plan,
        }
    }

    fn set_of(&self, hash: KeyHash) -> u32 {
        fast_range(hash.0, self.plan.sets as usize) as u32
    }

    /// Adds the object to its page. Returns the new content, or `None` if
    /// nothing changes.
    fn rewrite(
        &mut self,
        pending: &mut Pending,
        mut page: Vec<Object>,
        now_seconds: u32,
    ) -> Option<Vec<Object>> {
        pending.objects_before = page.len();
        if self.plan.config.eviction == SetPolicy::Rrip {
            rrip::promote(&mut page, self.hits[pending.set as usize]);
        }
        let hash = pending.object.hash;
        if pending.object.tombstone && page.iter().all(|object| object.hash != hash) {
            return None;
        }
        page.retain(|object| object.hash != hash && !object.expires.is_over(now_seconds));
        if !pending.object.tombstone {
            let object = pending.object.clone();
            match self.plan.config.eviction {
                SetPolicy::Fifo => rrip::queue(&mut page, object, &mut self.evicted),
                SetPolicy::Rrip => {
                    let mut incoming = vec![Object {
                        prediction: rrip::prediction_after(0),
                        ..object
                    }];
                    rrip::merge(&mut page, &mut incoming, &mut self.evicted);
                }
            }
            self.statistics.evicted += self.evicted.len() as u64;
            self.evicted.clear();
        }
        Some(page)
    }

    /// Handles the current content of a page, read or known to be empty.
    fn got(&mut self, writes: &mut Writes, at: usize, page: Vec<Object>, now_seconds: u32) {
        let pending = &mut writes.pending[at];
        match self.rewrite(pending, page, now_seconds) {
            Some(page) => {
                pending.page = page;
                pending.state = State::Ready;
            }
            None => writes.end(at),
        }
    }

    fn write(&mut self, writes: &mut Writes, at: usize) -> Task {
        let pending = &mut writes.pending[at];
        let page = std::mem::take(&mut pending.page);
        let mut hashes = self.hashes_spare.pop().unwrap_or_default();
        hashes.clear();
        hashes.extend(page.iter().map(|object| object.hash));
        pending.hashes = hashes;
        pending.state = State::Writing;
        self.statistics.object_pages_written += 1;
        self.statistics.bytes_filled += rrip::bytes_of(&page) as u64;
        let at_page = PageAddress(pending.set);
        writes.task(
            at,
            Work::Write {
                at: at_page,
                page: Page::Objects(page),
            },
        )
    }

    fn written(&mut self, writes: &mut Writes, at: usize, outcome: &Outcome) {
        let pending = &mut writes.pending[at];
        let set = pending.set as usize;
        let hashes = std::mem::take(&mut pending.hashes);
        self.objects -= pending.objects_before as u64;
        if *outcome == Outcome::Done {
            self.objects += hashes.len() as u64;
            self.filters.rebuild(set, hashes.iter().copied());
            self.statistics.count_written(Cause::Set, PAGE_BYTES as u64);
        } else {
            self.filters.rebuild(set, std::iter::empty());
            self.dead.insert(set as u32);
        }
        if let Some(hits) = self.hits.get_mut(set) {
            *hits = 0;
        }
        self.hashes_spare.push(hashes);
        writes.end(at);
    }
}

impl Engine for Set {
    type Stripe = Writes;
    type Scratch = ();

    fn stripe(&self) -> Writes {
        Writes {
            pending: VecDeque::with_capacity(WRITES_BUFFERED),
            first: 0,
            statistics: Statistics::default(),
        }
    }

    fn insert(&self, writes: &mut Writes, object: Object, _now_seconds: u32) -> Insert {
        let object = object.or_tombstone();
        let set = self.set_of(object.hash);
        let of_hash = |pending: &&mut Pending| {
            pending.state != State::Over && pending.object.hash == object.hash
        };
        let newest = writes.pending.iter_mut().rev().find(of_hash);
        let supersedes_flash = self.filters.may_hold(set as usize, object.hash)
            || newest
                .as_ref()
                .is_some_and(|older| older.state != State::Queued);
        let (bytes, tombstone) = (object.bytes, object.tombstone);
        if let Some(older) = newest
            && older.state == State::Queued
        {
            // Its write has not begun, so the newer object replaces it.
            older.object = object;
        } else if self.dead.contains(&set) || (tombstone && !supersedes_flash) {
            // There is nothing to delete, or the set cannot be written.
        } else if writes.pending.len() >= WRITES_BUFFERED {
            return Insert::Busy(object);
        } else {
            writes.pending.push_back(Pending {
                set,
                object,
                state: State::Queued,
                page: Vec::new(),
                objects_before: 0,
                hashes: Vec::new(),
            });
        }
        writes.statistics.count_insert(bytes, tombstone);
        Insert::Accepted(Accepted {
            supersedes_flash,
            ..Accepted::default()
        })
    }

    fn begin_search(
        &mut self,
        writes: &mut Writes,
        hash: KeyHash,
        search: &mut Search,
        _: &mut (),
    ) -> Step {
        let set = self.set_of(hash);
        search.restart(hash);
        if writes.in_memory(hash).is_some() {
            return Step::Memory;
        }
        if !self.filters.may_hold(set as usize, hash) {
            return Step::Absent;
        }
        search.pages.push(PageAddress(set));
        self.statistics.searches += 1;
        self.statistics.pages_searched += 1;
        Step::Pages
    }

    fn end_search(&mut self, _: &mut Writes, search: &mut Search, _: &mut (), found: Found) {
        match found {
            Found::Flash { slot, .. } => {
                let set = self.set_of(search.hash) as usize;
                if let Some(hits) = self.hits.get_mut(set) {
                    rrip::mark(hits, slot);
                }
            }
            Found::Nowhere | Found::Unknown => {
                self.statistics.false_positives += search.pages.len() as u64
            }
        }
        search.pages.clear();
    }

    fn next_task(&mut self, writes: &mut Writes) -> Option<Task> {
        for at in 0..writes.pending.len() {
            match writes.pending[at].state {
                State::Ready => return Some(self.write(writes, at)),
                State::Queued if writes.is_next_of_its_set(at) => {
                    let set = writes.pending[at].set;
                    if self.dead.contains(&set) {
                        // If this object were written, a later one that
                        // replaces it might not be.
                        writes.end(at);
                        return self.next_task(writes);
                    }
                    if self.filters.is_empty(set as usize) {
                        // The page is empty: no read, and no expiry to check.
                        self.got(writes, at, Vec::new(), 0);
                        return self.next_task(writes);
                    }
                    writes.pending[at].state = State::Reading;
                    return Some(writes.task(at, Work::Read(vec![PageAddress(set)])));
                }
                _ => {}
            }
        }
        None
    }

    fn complete(&mut self, writes: &mut Writes, id: TaskId, outcome: Outcome, now_seconds: u32) {
        let at = id.0.wrapping_sub(writes.first) as usize;
        match writes.pending.get(at).map(|pending| pending.state) {
            Some(State::Reading) => {
                self.statistics.pages_maintained += 1;
                let page = match outcome {
                    Outcome::Read(mut pages) => pages.pop().flatten(),
                    _ => None,
                };
                if let Some(Page::Objects(objects)) = page {
                    self.got(writes, at, objects, now_seconds);
                } else {
                    // The set's objects are lost. The page is rewritten, which
                    // may make it readable again.
                    let pending = &mut writes.pending[at];
                    self.filters
                        .rebuild(pending.set as usize, std::iter::empty());
                    let page = self.rewrite(pending, Vec::new(), now_seconds);
                    pending.page = page.unwrap_or_default();
                    pending.state = State::Ready;
                }
            }
            Some(State::Writing) => self.written(writes, at, &outcome),
            _ => debug_assert!(false, "unknown task {id:?}"),
        }
    }

    fn statistics(&self, writes: &Writes) -> Statistics {
        self.statistics.plus(&writes.statistics)
    }

    fn memory(&self, writes: &Writes) -> Memory {
        let of_pending = |pending: &Pending| {
            room_bytes::<Object>(pending.page.capacity())
                + room_bytes::<KeyHash>(pending.hashes.capacity())
        };
        let spare = self.hashes_spare.iter();
        let spare = spare.map(|hashes| room_bytes::<KeyHash>(hashes.capacity()));
        let pages = writes.pending.iter().flat_map(|pending| &pending.page);
        let waiting = writes.pending.iter().map(|pending| &pending.object);
        Memory {
            objects_on_flash: self.objects,
            index_bytes: self.filters.memory_bytes(),
            hotness_bytes: (self.hits.capacity() * size_of::<HitBits>()) as u64,
            buffer_bytes: room_bytes::<Pending>(writes.pending.capacity())
                + writes.pending.iter().map(of_pending).sum::<u64>()
                + room_bytes::<Object>(self.evicted.capacity())
                + room_bytes::<Vec<KeyHash>>(self.hashes_spare.capacity())
                + spare.sum::<u64>(),
            payload_bytes: payload_bytes(pages.chain(waiting)),
            index_buffer_bytes: 0,
            other_bytes: (size_of::<Set>() + size_of::<Writes>()) as u64,
        }
    }
}
