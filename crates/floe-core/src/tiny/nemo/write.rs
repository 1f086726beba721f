//! Flushes set-groups: frees an extent, writes hot objects back, then writes
//! the set-group's pages and the filters.
//!
//! One task runs at a time. Each reads or writes many pages. What a task needs is made in pieces
//! of bounded length ([`Nemo::advance_flush`]), each of a few sets, also while the task before it
//! runs.

use super::buffer::SetGroup;
use super::config::WriteBack;
use super::directory::Nemo;
use super::extents::{Extent, Owner};
use super::filters::{Probe, probe_page};
use super::flush::{Phase, Read, Running, Suspect};
use super::hashes::{PageProbe, Rows};
use super::matches::{MatchCollector, MatchMask};
use super::page_filter::PageFilterShape;
use super::stripe::NemoStripe;
use crate::tiny::engine::{
    Cause, Discarded, Outcome, Page, Stripe as _, Summary, Task, TaskId, Work,
};
use crate::tiny::object::{Object, PAGE_BYTES, PageAddress};

/// Pages read per task when hot objects are collected.
const READ_PAGES: usize = 64;

/// Pages read per task to verify hot objects, or those of one object.
const SUSPECT_PAGES: usize = 256;

/// Pages written per task.
const APPEND_PAGES: u32 = 64;

/// Objects of which a piece of work makes pages and filters, or a few more.
const PIECE_OBJECTS: usize = 128;

/// Objects of a page that a piece of work judges.
const PIECE_HOT: usize = 16;

/// Sets that a piece of work searches for hot objects.
const PIECE_SETS: u32 = 512;

/// Hot objects are cooled each time this share of the flash has been written.
const COOLING_PERIOD: f64 = 0.1;

/// An index group ends early once the false-positive rate of its filters is
/// this many times that of filters sized for the current objects.
const RATE_TOLERANCE: f64 = 4.0;

impl Nemo {
    /// True if a set-group or an index group is on its way to flash.
    pub(super) fn is_flushing(&self, stripe: &NemoStripe) -> bool {
        stripe.sealed.is_some() || self.flush.is_busy()
    }

    pub(super) fn next_flush_task(&mut self, stripe: &mut NemoStripe) -> Option<Task> {
        if self.flush.running.is_some() {
            return None;
        }
        if let Some(zone) = self.extents.take_dead_zone() {
            return self.flush.start(Running::Reset(zone), Work::Reset(zone));
        }
        if std::mem::take(&mut self.flush.loads_next)
            && let Some(task) = self.load_task()
        {
            return Some(task);
        }
        loop {
            match self.flush.phase {
                Phase::Idle if stripe.sealed.is_some() => self.flush.phase = Phase::Room,
                Phase::Idle => return self.load_task(),
                Phase::Room => {
                    if !self.make_room(stripe) {
                        return None;
                    }
                }
                Phase::Collect { next } => {
                    if !self.flush.read.is_empty() {
                        return None;
                    }
                    let task = self.verify_task().or_else(|| self.index_task());
                    let task = task.or_else(|| self.collect_task());
                    if task.is_some() || (next < self.plan.sets && self.collects()) {
                        return task;
                    }
                    self.evict_oldest(stripe);
                    self.flush.phase = Phase::Room;
                    if let Some(zone) = self.extents.take_dead_zone() {
                        return self.flush.start(Running::Reset(zone), Work::Reset(zone));
                    }
                }
                Phase::Objects { extent, next } | Phase::Filters { extent, next } => {
                    return self.append_task(extent, next);
                }
                Phase::Seal { extent, of_index } => {
                    return self.seal_task(stripe, extent, of_index);
                }
            }
        }
    }

    /// Takes the extent that the next write needs, or begins to free one.
    /// Returns false if a reset under way has to free it.
    fn make_room(&mut self, stripe: &mut NemoStripe) -> bool {
        self.extents.readmit(stripe.full_at_seconds);
        self.resize_filters(stripe);
        let filters = self.index.open.is_full();
        // If the set-group completes an index group, that one is written right
        // after it.
        let completes = self.index.open.filled() + 1 == self.index.open.shape.columns;
        let needed = 1 + usize::from(completes);
        if self.extents.free() >= needed {
            let owner = if filters {
                Owner::IndexGroup(self.index.open_first)
            } else {
                Owner::SetGroup(self.pool.next())
            };
            let Some(extent) = self.extents.take(owner) else {
                return false;
            };
            self.flush.pages.clear();
            self.flush.made = 0;
            self.flush.phase = if filters {
                Phase::Filters { extent, next: 0 }
            } else {
                self.begin_objects(stripe);
                Phase::Objects { extent, next: 0 }
            };
            return true;
        }
        if self.extents.free() + self.extents.freeable() >= needed {
            return false;
        }
        if self.pool.is_empty() {
            self.drop_sealed(stripe);
        } else {
            self.flush.written_back_bytes = 0;
            self.flush.phase = Phase::Collect { next: 0 };
        }
        true
    }

    /// Ends the open index group early if the sealed set-group has far more
    /// objects than its filters are sized for, because searches would read too
    /// many pages.
    fn resize_filters(&mut self, stripe: &NemoStripe) {
        let (Some(sealed), open) = (&stripe.sealed, self.index.open.shape) else {
            return;
        };
        if self.index.open.is_full() {
            return;
        }
        let objects = self.plan.filter_objects(sealed.counts());
        let better = self.plan.shape_for(objects);
        let least = self.plan.config.filter_false_positive_rate;
        let tolerated = RATE_TOLERANCE * better.false_positives(objects).max(least);
        if open.false_positives(objects) <= tolerated {
            return;
        }
        if self.index.open.filled() == 0 {
            let discarded = self.index.start_over(better, self.index.open_first);
            self.discarded.push(discarded);
        } else if self.index.open.close() {
            self.filter_objects = objects;
        }
    }

    /// Drops the sealed set-group, because every zone has failed or none has
    /// space. No older copies remain on flash that a search could find.
    fn drop_sealed(&mut self, stripe: &mut NemoStripe) {
        self.dropped_sealed = true;
        self.dropped_unsettled_filters |=
            self.flush.may_be_whole || self.pool.settled() < self.pool.oldest();
        if stripe.sealed.is_some() {
            stripe.forget_sealed();
            stripe.end_sealed();
            // A part of it on flash must not be taken for the next set-group.
            self.pool.skip();
            stripe.sample.retired(self.pool.oldest());
        }
        let shape = self.index.open.shape;
        let discarded = self.index.start_over(shape, self.pool.oldest());
        self.discarded.push(discarded);
        self.flush.phase = Phase::Idle;
    }

    /// As [`Engine::advance`](crate::tiny::Engine::advance).
    pub(super) fn advance_flush(&mut self, stripe: &mut NemoStripe) -> Option<Discarded> {
        let discarded = self.discarded.pop().or_else(|| self.index.open.discard());
        if discarded.is_some() {
            return discarded;
        }
        let advanced = match self.flush.phase {
            Phase::Collect { next } => self.judge(stripe) || self.find_hot(next),
            Phase::Objects { .. } => self.make_objects(stripe),
            Phase::Filters { .. } => self.make_filters(),
            Phase::Idle | Phase::Room | Phase::Seal { .. } => false,
        };
        match advanced {
            true => Some(Discarded::nothing()),
            false => stripe.free_some(),
        }
    }

    /// True if hot objects may still be written back.
    fn collects(&self) -> bool {
        self.plan.config.write_back != WriteBack::Off && !self.write_back_is_enough()
    }

    /// Searches sets from `next` on for hot objects. Returns false if no more are needed now.
    fn find_hot(&mut self, next: u32) -> bool {
        if next == self.plan.sets || self.flush.hot.len() >= READ_PAGES || !self.collects() {
            return false;
        }
        let end = (next + PIECE_SETS).min(self.plan.sets);
        let mut searched = next;
        while searched < end && self.flush.hot.len() < READ_PAGES {
            if self.index.tracks_hits(searched) && self.pool.oldest_has_hot(searched) {
                self.flush.hot.push(searched);
            }
            searched += 1;
        }
        self.flush.phase = Phase::Collect { next: searched };
        true
    }

    /// Reads the sets that were found to have hot objects.
    fn collect_task(&mut self) -> Option<Task> {
        if self.flush.hot.is_empty() || !self.collects() {
            return None;
        }
        let hot = std::mem::take(&mut self.flush.hot);
        let extent = self.pool.get(self.pool.oldest())?.extent;
        let pages = hot
            .iter()
            .map(|set| self.extents.page(extent, *set))
            .collect();
        self.statistics.pages_maintained += hot.len() as u64;
        self.flush.start(Running::Collect(hot), Work::Read(pages))
    }

    fn write_back_is_enough(&self) -> bool {
        let share = self.plan.config.write_back_share;
        let most = share * f64::from(self.plan.sets) * PAGE_BYTES as f64;
        self.flush.written_back_bytes as f64 >= most
    }

    /// Reads the pages that may hold newer copies of hot objects.
    fn verify_task(&mut self) -> Option<Task> {
        if self.flush.suspect.is_empty() {
            return None;
        }
        let count = within(&self.flush.suspect, |suspect| suspect.pages.len());
        let suspects: Vec<Suspect> = self.flush.suspect.drain(..count).collect();
        let pages = suspects.iter().flat_map(|suspect| &suspect.pages);
        let pages: Vec<_> = pages.copied().collect();
        self.statistics.pages_maintained += pages.len() as u64;
        self.flush
            .start(Running::Verify(suspects), Work::Read(pages))
    }

    /// Reads the pages of the index that may name newer copies of hot objects.
    fn index_task(&mut self) -> Option<Task> {
        if self.flush.unindexed.is_empty() {
            return None;
        }
        let count = within(&self.flush.unindexed, |suspect| suspect.index.len());
        let suspects: Vec<Suspect> = self.flush.unindexed.drain(..count).collect();
        // Hot objects of a set share a page.
        let wanted = suspects.iter().flat_map(|suspect| suspect.index.iter());
        let mut wanted: Vec<(u64, u32)> = wanted.copied().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut pages = Vec::with_capacity(wanted.len());
        wanted.retain(|(first, home)| {
            let group = self.index.group(*first);
            pages.extend(group.map(|group| self.extents.page(group.extent, *home)));
            group.is_some()
        });
        self.statistics.pages_maintained += pages.len() as u64;
        self.flush
            .start(Running::Index(suspects, wanted), Work::ReadIndex(pages))
    }

    /// Reads pages of the index that memory is to have after a restart.
    fn load_task(&mut self) -> Option<Task> {
        let (group, sets) = self.index.to_load()?;
        let pages: Vec<_> = sets
            .map(|set| self.extents.page(group.extent, set))
            .collect();
        let running = Running::Load {
            first: group.first,
            pages: pages.len(),
        };
        self.statistics.pages_maintained += pages.len() as u64;
        self.flush.start(running, Work::ReadIndex(pages))
    }

    /// Judges the next objects that were read, or the next suspect. Returns false if there is none.
    fn judge(&mut self, stripe: &mut NemoStripe) -> bool {
        let Some(read) = self.flush.read.pop_front() else {
            return false;
        };
        match read {
            Read::Hot {
                set,
                slot,
                mut objects,
                now_seconds,
            } => {
                let piece = objects.by_ref().take(PIECE_HOT);
                for (slot, object) in (slot..).zip(piece) {
                    let keep = self.pool.oldest_is_hot(set, slot)
                        && !object.tombstone
                        && !object.expires.is_over(now_seconds);
                    if keep {
                        self.write_back_or_verify(stripe, object);
                    }
                }
                if objects.len() > 0 {
                    self.flush.read.push_front(Read::Hot {
                        set,
                        slot: slot + PIECE_HOT,
                        objects,
                        now_seconds,
                    });
                }
            }
            Read::Suspect(suspect, pages) => {
                // An unreadable page may hold a newer copy.
                let holds_it = |page: &Page| holds(page, &suspect.object);
                let is_superseded = pages.iter().any(|page| page.as_ref().is_none_or(holds_it));
                if !is_superseded {
                    let pages = Vec::new();
                    self.write_back_or_read(stripe, Suspect { pages, ..suspect });
                }
            }
            Read::Index(suspect, index_pages) => {
                if let Some(pages) = self.newer_in(&suspect, &index_pages) {
                    let (index, object) = (Vec::new(), suspect.object);
                    let suspect = Suspect {
                        object,
                        pages,
                        index,
                    };
                    self.write_back_or_read(stripe, suspect);
                }
            }
        }
        true
    }

    /// Writes a hot object back, or queues the reads that could show a newer copy.
    fn write_back_or_verify(&mut self, stripe: &mut NemoStripe, object: Object) {
        let homes = self.homes(object.hash);
        if !homes.iter().all(|home| self.index.tracks_hits(home)) {
            // With an index cache, an object outside it was not read recently (§4.4).
            return;
        }
        let probe = PageProbe::of(object.hash);
        let newer = self.pool.oldest() + 1;
        let unread = self.index.unread(homes, probe);
        let unread = unread.filter(|(group, _)| group.end() > newer);
        let index = unread.map(|(group, home)| (group.first, home));
        let suspect = Suspect {
            index: index.collect(),
            pages: self.newer_than(self.pool.oldest(), object.hash, homes),
            object,
        };
        self.write_back_or_read(stripe, suspect);
    }

    /// Writes a hot object back, unless pages are to be read first.
    fn write_back_or_read(&mut self, stripe: &mut NemoStripe, suspect: Suspect) {
        if !suspect.pages.is_empty() {
            self.flush.suspect.push(suspect);
        } else if !suspect.index.is_empty() {
            self.flush.unindexed.push(suspect);
        } else {
            self.write_back(stripe, suspect.object);
        }
    }

    /// The pages that may hold newer copies of a hot object, according to pages of the index;
    /// `None` if one of these is unreadable.
    fn newer_in(
        &self,
        suspect: &Suspect,
        index_pages: &[Option<Page>],
    ) -> Option<Vec<PageAddress>> {
        let rows = Rows::of(suspect.object.hash);
        let mut newer = Vec::new();
        let mut matches = MatchCollector::new(|mask: MatchMask| {
            let candidates = mask.since(self.pool.oldest() + 1).candidates();
            newer.extend(candidates.filter_map(|candidate| self.page_of(candidate)));
        });
        for ((first, home), page) in suspect.index.iter().zip(index_pages) {
            let Some(Page::Index(page)) = page else {
                return None;
            };
            if let Some(group) = self.index.group(*first) {
                matches.of(*first, *home);
                probe_page(&Probe::new(&rows, group.shape), page, &mut matches);
            }
        }
        matches.finish();
        Some(newer)
    }

    fn write_back(&mut self, stripe: &mut NemoStripe, object: Object) {
        let (hash, homes) = (object.hash, self.homes(object.hash));
        if self.write_back_is_enough() || stripe.in_memory(hash).is_some() {
            return;
        }
        let (bytes, stored) = (u64::from(object.bytes), object.stored_bytes() as u64);
        let Some(sealed) = &mut stripe.sealed else {
            return;
        };
        let group = match sealed.place(object, homes) {
            Ok(()) => sealed,
            Err(object) if self.plan.config.write_back == WriteBack::Everywhere => {
                let Ok(at) = stripe.place(object, homes) else {
                    return;
                };
                &mut stripe.groups[at]
            }
            Err(_) => return,
        };
        group.written_back_bytes += stored;
        stripe.sample.written_back(hash);
        self.flush.written_back_bytes += stored;
        self.statistics.written_back += 1;
        self.statistics.bytes_written_back += bytes;
    }

    fn evict_oldest(&mut self, stripe: &mut NemoStripe) {
        let Some(resident) = self.pool.pop() else {
            return;
        };
        self.statistics.evicted += resident.objects;
        self.extents.release(resident.extent);
        stripe.sample.retired(self.pool.oldest());
        if let Some(heat) = resident.into_heat() {
            self.discarded.push(heat);
        }
        while let Some((extent, discarded)) = self.index.forget_before(self.pool.oldest()) {
            self.extents.release(extent);
            self.discarded.push(discarded);
            self.dropped_unsettled_filters = true;
        }
        self.flush.hot.clear();
    }

    /// Handles that flash records durably which set-group is the oldest.
    fn settle_oldest(&mut self) {
        self.pool.settle();
        self.dropped_unsettled_filters = false;
    }

    /// The end of an append that begins at `next`. An append stays in its zone.
    fn append_end(&self, next: u32) -> u32 {
        let zone_pages = self.plan.flash.zone_pages;
        let zone_end = (next / zone_pages + 1) * zone_pages;
        (next + APPEND_PAGES).min(zone_end).min(self.plan.sets)
    }

    fn begin_objects(&mut self, stripe: &NemoStripe) {
        let objects = stripe.sealed.as_ref().map_or(0, SetGroup::objects);
        self.index.open.begin_column(objects);
        let bytes = self.index.open.shape.filters_bytes(self.plan.sets);
        // They are zeroed as they are added.
        self.flush.filters = match self.plan.summary_holds(bytes) {
            true => Vec::with_capacity(bytes),
            false => Vec::new(),
        };
    }

    /// The number of sets of which pages should have been made: up to the end of the append that
    /// begins with the first page that was made and not written yet.
    fn wanted(&self) -> u32 {
        self.append_end(self.flush.made - self.flush.pages.len() as u32)
    }

    /// Makes pages of objects, with their filters. Returns false if enough are there.
    fn make_objects(&mut self, stripe: &mut NemoStripe) -> bool {
        let (first, end, sequence) = (self.flush.made, self.wanted(), self.pool.next());
        let shape = self.index.open.shape;
        let mut objects = 0;
        while self.flush.made < end && objects < PIECE_OBJECTS {
            let at = self.flush.made;
            stripe.follow(at, sequence);
            let Some(sealed) = &stripe.sealed else {
                return false;
            };
            let set = sealed.set(at);
            let filters = &mut self.flush.filters;
            let keeps = filters.capacity() > 0;
            if keeps {
                filters.resize(shape.filters_bytes(at + 1), 0);
            }
            let rows = set.hashes().map(|hash| {
                let rows = Rows::of(hash);
                if keeps {
                    shape.add_to_filters(filters, at, &rows);
                }
                rows
            });
            self.index.open.add_set(at, rows);
            self.flush.pages.push(Page::Objects(set.objects().to_vec()));
            objects += 1 + set.len() + self.index.open.make(at + 1);
            self.flush.made += 1;
        }
        let made = self.flush.made - first;
        self.cool(made);
        made > 0
    }

    /// Makes pages of filters. Returns false if enough are there.
    fn make_filters(&mut self) -> bool {
        let (first, end) = (self.flush.made, self.wanted());
        let mut objects = 0;
        while self.flush.made < end && objects < PIECE_OBJECTS {
            let (page, made) = self.index.page(self.flush.made);
            self.flush.pages.push(Page::Index(page));
            // A page takes as long as some objects with their filters.
            objects += PIECE_OBJECTS / 8 + made;
            self.flush.made += 1;
        }
        self.flush.made > first
    }

    /// Writes the pages from `next` on, once all of them are made.
    fn append_task(&mut self, extent: Extent, next: u32) -> Option<Task> {
        let end = self.append_end(next);
        if self.flush.made < end {
            return None;
        }
        let pages = std::mem::take(&mut self.flush.pages);
        let first = self.extents.page(extent, next);
        self.flush
            .start(Running::Write(end), Work::Append { first, pages })
    }

    fn seal_task(&mut self, stripe: &NemoStripe, extent: Extent, of_index: bool) -> Option<Task> {
        let summary = if of_index {
            self.summary_of_index()
        } else {
            let filters = std::mem::take(&mut self.flush.filters);
            self.summary_of(stripe.sealed.as_ref()?, filters)
        };
        let pages = self.plan.summary_pages(summary.filters.len());
        let first = self.extents.page(extent, self.plan.sets);
        self.flush.start(
            Running::Seal(pages),
            Work::Seal {
                first,
                pages,
                ends_zone: self.plan.extent_pages >= self.plan.flash.zone_pages,
                summary,
            },
        )
    }

    fn summary_of_index(&self) -> Summary {
        let shape = self.index.open.shape.of_pages();
        let (rows, probes) = shape.rows_and_probes();
        Summary {
            of_index: true,
            sequence: self.index.open_first,
            oldest: self.pool.oldest(),
            objects: 0,
            columns: shape.columns,
            rows,
            probes,
            page_filter: shape.page_filter,
            filters: Box::default(),
        }
    }

    fn summary_of(&self, sealed: &SetGroup, filters: Vec<u8>) -> Summary {
        let shape = self.index.open.shape;
        Summary {
            of_index: false,
            sequence: self.pool.next(),
            oldest: self.pool.oldest(),
            objects: sealed.objects(),
            columns: shape.columns,
            rows: shape.rows,
            probes: shape.probes,
            page_filter: PageFilterShape::NONE,
            filters: filters.into_boxed_slice(),
        }
    }

    pub(super) fn flush_task_over(
        &mut self,
        stripe: &mut NemoStripe,
        id: TaskId,
        outcome: Outcome,
        now_seconds: u32,
    ) {
        let Some((_, running)) = self.flush.running.take_if(|(running, _)| *running == id) else {
            return;
        };
        match (running, outcome) {
            (Running::Reset(zone), outcome) => {
                self.statistics.resets += 1;
                let done = outcome == Outcome::Done;
                self.extents.was_reset(zone, done);
                if !done {
                    // The driver has recorded durably which set-groups were
                    // evicted.
                    self.settle_oldest();
                }
            }
            (Running::Collect(sets), Outcome::Read(pages)) => {
                let read = sets.into_iter().zip(pages);
                self.flush
                    .read
                    .extend(read.filter_map(|(set, page)| match page? {
                        Page::Objects(objects) => Some(Read::Hot {
                            set,
                            slot: 0,
                            objects: objects.into_iter(),
                            now_seconds,
                        }),
                        Page::Index(_) => None,
                    }));
            }
            (Running::Verify(suspects), Outcome::Read(pages)) => {
                let mut pages = pages.into_iter();
                let read = suspects.into_iter().map(|suspect| {
                    let pages = pages.by_ref().take(suspect.pages.len()).collect();
                    Read::Suspect(suspect, pages)
                });
                self.flush.read.extend(read);
            }
            (Running::Index(suspects, wanted), Outcome::Read(pages)) => {
                let page_of = |of: &(u64, u32)| {
                    let at = wanted.binary_search(of).ok()?;
                    pages.get(at)?.clone()
                };
                let read = suspects.into_iter().map(|suspect| {
                    let pages = suspect.index.iter().map(page_of).collect();
                    Read::Index(suspect, pages)
                });
                self.flush.read.extend(read);
            }
            (Running::Load { first, pages }, outcome) => {
                let pages = match outcome {
                    Outcome::Read(pages) => pages,
                    _ => vec![None; pages],
                };
                let pages = pages.iter().map(|page| match page {
                    Some(Page::Index(bytes)) => Some(&**bytes),
                    _ => None,
                });
                self.index.load(first, &pages.collect::<Vec<_>>());
            }
            // Unreadable objects are not written back.
            (Running::Collect(_) | Running::Verify(_) | Running::Index(..), _) => {}
            (Running::Write(end), Outcome::Done) => self.written_up_to(end),
            (Running::Seal(pages), Outcome::Done) => self.sealed_with(stripe, pages),
            (Running::Write(_) | Running::Seal(_), outcome) => {
                self.write_failed(outcome == Outcome::NoSpace, now_seconds);
            }
        }
    }

    fn written_up_to(&mut self, end: u32) {
        self.flush.loads_next = true;
        let whole = end == self.plan.sets;
        match &mut self.flush.phase {
            Phase::Objects { next, .. } | Phase::Filters { next, .. } if !whole => *next = end,
            Phase::Objects { extent, .. } => {
                self.flush.phase = Phase::Seal {
                    extent: *extent,
                    of_index: false,
                };
            }
            Phase::Filters { extent, .. } => {
                self.flush.phase = Phase::Seal {
                    extent: *extent,
                    of_index: true,
                };
            }
            Phase::Idle | Phase::Room | Phase::Collect { .. } | Phase::Seal { .. } => {}
        }
    }

    fn sealed_with(&mut self, stripe: &mut NemoStripe, pages: u32) {
        let Phase::Seal { extent, of_index } = self.flush.phase else {
            return;
        };
        let bytes = u64::from(pages) * PAGE_BYTES as u64;
        self.statistics.count_written(Cause::Index, bytes);
        // Every summary records the oldest set-group.
        self.settle_oldest();
        if of_index {
            self.filters_are_on_flash(extent);
        } else {
            self.set_group_is_on_flash(stripe, extent);
        }
    }

    /// Retires the extent, or excludes it for a while if its device had no
    /// space. The set-group or filters are written to another extent.
    fn write_failed(&mut self, no_space: bool, now_seconds: u32) {
        let extent = match self.flush.phase {
            Phase::Objects { extent, .. } | Phase::Filters { extent, .. } => extent,
            Phase::Seal { extent, of_index } => {
                self.flush.may_be_whole |= !of_index;
                extent
            }
            Phase::Idle | Phase::Room | Phase::Collect { .. } => return,
        };
        match no_space {
            true => self.extents.exclude(extent, now_seconds),
            false => self.extents.retire(extent),
        }
        self.flush.phase = Phase::Room;
    }

    fn set_group_is_on_flash(&mut self, stripe: &mut NemoStripe, extent: Extent) {
        let Some(sealed) = &stripe.sealed else {
            return;
        };
        let page_bytes = u64::from(self.plan.sets) * PAGE_BYTES as u64;
        let written_back = sealed.written_back_bytes.min(page_bytes);
        self.statistics
            .count_written(Cause::FirstWrite, page_bytes - written_back);
        self.statistics
            .count_written(Cause::WriteBack, written_back);
        self.statistics.object_pages_written += u64::from(self.plan.sets);
        self.statistics.bytes_filled += sealed.used_bytes();
        if !sealed.is_cut_short {
            self.filter_objects = self.plan.filter_objects(sealed.counts());
        }
        self.index.open.end_column();
        // A set-group that was dropped before superseded nothing on flash, and
        // this summary records that: see `settle_oldest`.
        self.dropped_sealed = false;
        self.flush.may_be_whole = false;
        let objects = sealed.objects();
        self.pool.push(extent, objects);
        stripe.end_sealed();
        self.durable = self.pool.next();
        self.index.open_wrong += self.wrong(self.index.open.shape, objects);
        self.update_candidates_max();
        self.begin_cooling_when_due();
        self.go_on();
    }

    fn filters_are_on_flash(&mut self, extent: Extent) {
        let bytes = u64::from(self.plan.sets) * PAGE_BYTES as u64;
        self.statistics.count_written(Cause::Index, bytes);
        let shape = self.plan.shape_for(self.filter_objects);
        let discarded = self.index.open_is_on_flash(extent, shape);
        self.discarded.push(discarded);
        self.go_on();
    }

    fn go_on(&mut self) {
        // If a set-group was sealed meanwhile, the next call of
        // `next_flush_task` begins with it.
        self.flush.phase = match self.index.open.is_full() {
            true => Phase::Room,
            false => Phase::Idle,
        };
    }

    fn begin_cooling_when_due(&mut self) {
        self.flush.since_cooling += 1;
        let period = COOLING_PERIOD * f64::from(self.plan.extents());
        if f64::from(self.flush.since_cooling) >= period {
            self.flush.since_cooling = 0;
            self.pool.begin_cooling();
        }
    }

    /// Cools objects, while pages of `sets` sets are made: so fast that a sweep ends before the
    /// next one is due.
    fn cool(&mut self, sets: u32) {
        let per_set = (self.plan.config.hotness_window / COOLING_PERIOD).ceil() as u32 + 1;
        let index = &self.index;
        self.pool.cool(sets * per_set, |set| index.tracks_hits(set));
    }
}

/// The number of the first suspects that together have [`SUSPECT_PAGES`] pages at most, or one.
fn within(suspects: &[Suspect], pages: impl Fn(&Suspect) -> usize) -> usize {
    let mut left = SUSPECT_PAGES;
    let fit = suspects.iter().take_while(|suspect| {
        let fits = pages(suspect) <= left;
        left = left.saturating_sub(pages(suspect));
        fits
    });
    fit.count().clamp(1, suspects.len())
}

fn holds(page: &Page, object: &Object) -> bool {
    matches!(page, Page::Objects(objects) if objects.iter().any(|other| other.hash == object.hash))
}
