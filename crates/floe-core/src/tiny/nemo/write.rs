//! From memory to flash: room is made, hot objects are kept, pages are
//! written, and filters after them.
//!
//! One task at a time; reads and writes are of many pages each.

use super::buffer::{Set, SetGroup};
use super::config::WriteBack;
use super::directory::Nemo;
use super::extents::{Extent, Owner};
use super::filling::Filling;
use super::flush::{Doing, Phase};
use crate::tiny::engine::{Cause, Outcome, Page, Stripe as _, Summary, Task, TaskId, Work};
use crate::tiny::object::{Object, PAGE_BYTES};

/// Pages read at once when hot objects are collected.
const READ_PAGES: usize = 64;

/// Pages written at once.
const APPEND_PAGES: u32 = 64;

/// How many times as often as they may be filters of an index group may be
/// wrong before it is ended for one that is made for the objects that come.
const WRONG_TOLERATED: f64 = 4.0;

impl Nemo {
    /// Whether a set-group or an index group is on its way to flash.
    pub(super) fn is_flushing(&self, filling: &Filling) -> bool {
        filling.sealed.is_some() || self.flush.is_busy()
    }

    pub(super) fn next_flush_task(&mut self, filling: &mut Filling) -> Option<Task> {
        if self.flush.doing.is_some() {
            return None;
        }
        if let Some(zone) = self.extents.take_dead_zone() {
            return self.flush.start(Doing::Reset(zone), Work::Reset(zone));
        }
        loop {
            match self.flush.phase {
                Phase::Idle if filling.sealed.is_some() => self.flush.phase = Phase::Room,
                Phase::Idle => return None,
                Phase::Room => {
                    if !self.make_room(filling) {
                        return None;
                    }
                }
                Phase::Collect { next } => {
                    if let Some(task) = self.verify_task().or_else(|| self.collect_task(next)) {
                        return Some(task);
                    }
                    self.retire_oldest(filling);
                    self.flush.phase = Phase::Room;
                    if let Some(zone) = self.extents.take_dead_zone() {
                        return self.flush.start(Doing::Reset(zone), Work::Reset(zone));
                    }
                }
                Phase::Objects { extent, next } => return self.objects_task(filling, extent, next),
                Phase::Filters { extent, next } => return self.filters_task(extent, next),
                Phase::Seal { extent, of_index } => {
                    return self.seal_task(filling, extent, of_index);
                }
            }
        }
    }

    /// Takes the extent that is needed, or begins to free one; says whether
    /// there is something to go on with.
    fn make_room(&mut self, filling: &mut Filling) -> bool {
        self.extents.take_in_again(filling.full_at_seconds);
        self.fit_filters(filling);
        let filters = self.index.open.is_full();
        // An index group that the set-group completes is written right after it.
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
            self.flush.phase = if filters {
                Phase::Filters { extent, next: 0 }
            } else {
                Phase::Objects { extent, next: 0 }
            };
            return true;
        }
        if self.extents.free() + self.extents.coming() >= needed {
            return false;
        }
        if self.pool.is_empty() {
            self.give_up(filling);
        } else {
            self.flush.written_back_bytes = 0;
            self.flush.phase = Phase::Collect { next: 0 };
        }
        true
    }

    /// Ends the open index group where the set-group that is due has so many
    /// more objects than its filters are made for that searches would read far
    /// more pages than they need to.
    fn fit_filters(&mut self, filling: &Filling) {
        let (Some(sealed), open) = (&filling.sealed, self.index.open.shape) else {
            return;
        };
        if self.index.open.is_full() {
            return;
        }
        let objects = self.plan.filter_objects(sealed.sets().iter().map(Set::len));
        let better = self.plan.shape_for(objects);
        let least = self.plan.config.filter_false_positive_rate;
        let tolerated = WRONG_TOLERATED * better.false_positives(objects).max(least);
        if open.false_positives(objects) <= tolerated {
            return;
        }
        if self.index.open.filled() == 0 {
            self.index.start_over(better, self.index.open_first);
        } else if self.index.open.close() {
            self.filter_objects = objects;
        }
    }

    /// Every zone has failed, or there is no space for any: what was to be
    /// written is forgotten. Nothing older is on flash that could be found now.
    fn give_up(&mut self, filling: &mut Filling) {
        self.gave_up = true;
        self.forgot_leaving |= self.flush.may_be_whole || self.pool.settled() < self.pool.oldest();
        if let Some(sealed) = filling.sealed.take() {
            filling.follow(&sealed, None);
            // A part of it that is on flash must not be taken for the next one.
            self.pool.skip();
        }
        let shape = self.index.open.shape;
        self.index.start_over(shape, self.pool.oldest());
        self.flush.phase = Phase::Idle;
    }

    /// Reads the next sets of the oldest set-group that have hot objects.
    fn collect_task(&mut self, next: u32) -> Option<Task> {
        if self.plan.config.write_back == WriteBack::Off || self.write_back_is_enough() {
            return None;
        }
        let hot: Vec<u32> = (next..self.plan.sets)
            .filter(|set| self.index.knows(*set) && self.pool.oldest_has_hot(*set))
            .take(READ_PAGES)
            .collect();
        let last = *hot.last()?;
        let extent = self.pool.get(self.pool.oldest())?.extent;
        let pages = hot
            .iter()
            .map(|set| self.extents.page(extent, *set))
            .collect();
        self.flush.phase = Phase::Collect { next: last + 1 };
        self.statistics.pages_maintained += hot.len() as u64;
        self.flush.start(Doing::Collect(hot), Work::Read(pages))
    }

    fn write_back_is_enough(&self) -> bool {
        let share = self.plan.config.write_back_share;
        let most = share * f64::from(self.plan.sets) * PAGE_BYTES as f64;
        self.flush.written_back_bytes as f64 >= most
    }

    /// Reads the pages that may hold newer copies of hot objects.
    fn verify_task(&mut self) -> Option<Task> {
        if self.flush.doubtful.is_empty() {
            return None;
        }
        let mut pages = Vec::new();
        let mut objects = Vec::new();
        for (object, places) in self.flush.doubtful.drain(..) {
            objects.push((object, places.len()));
            pages.extend(places);
        }
        self.statistics.pages_maintained += pages.len() as u64;
        self.flush.start(Doing::Verify(objects), Work::Read(pages))
    }

    /// Sorts out the objects of the sets that were read.
    fn collected(
        &mut self,
        filling: &mut Filling,
        sets: &[u32],
        pages: Vec<Option<Page>>,
        now_seconds: u32,
    ) {
        for (set, page) in sets.iter().zip(pages) {
            let Some(Page::Objects(objects)) = page else {
                continue;
            };
            for (slot, object) in objects.into_iter().enumerate() {
                let keep = self.pool.oldest_is_hot(*set, slot)
                    && !object.tombstone
                    && !object.expires.is_over(now_seconds);
                if keep {
                    self.consider(filling, object);
                }
            }
        }
    }

    /// Writes a hot object back, unless there is a newer copy of it.
    fn consider(&mut self, filling: &mut Filling, object: Object) {
        let homes = self.homes(object.hash);
        if !self.knows(homes) {
            // Not looked for of late: not hot (§4.4).
            return;
        }
        let newer = self.newer_than(self.pool.oldest(), object.hash, homes);
        if newer.is_empty() {
            self.write_back(filling, object);
        } else {
            self.flush.doubtful.push((object, newer));
        }
    }

    /// Writes back those of which no newer copy was found.
    fn verified(
        &mut self,
        filling: &mut Filling,
        objects: Vec<(Object, usize)>,
        pages: Vec<Option<Page>>,
    ) {
        let mut pages = pages.into_iter();
        for (object, count) in objects {
            let superseded = pages
                .by_ref()
                .take(count)
                // A page that cannot be read may hold a newer copy.
                .fold(false, |any, page| {
                    any | page.is_none_or(|page| holds(&page, &object))
                });
            if !superseded {
                self.write_back(filling, object);
            }
        }
    }

    fn write_back(&mut self, filling: &mut Filling, object: Object) {
        let (hash, homes) = (object.hash, self.homes(object.hash));
        if self.write_back_is_enough() || filling.in_memory(hash).is_some() {
            return;
        }
        let (bytes, stored) = (u64::from(object.bytes), object.stored_bytes() as u64);
        let Some(sealed) = &mut filling.sealed else {
            return;
        };
        let group = match sealed.place(object, homes) {
            Ok(()) => sealed,
            Err(object) if self.plan.config.write_back == WriteBack::Everywhere => {
                let Ok(at) = filling.place(object, homes) else {
                    return;
                };
                &mut filling.groups[at]
            }
            Err(_) => return,
        };
        group.written_back_bytes += stored;
        filling.sample.written_back(hash);
        self.flush.written_back_bytes += stored;
        self.statistics.written_back += 1;
        self.statistics.bytes_written_back += bytes;
    }

    fn retire_oldest(&mut self, filling: &mut Filling) {
        let Some(resident) = self.pool.pop() else {
            return;
        };
        self.statistics.evicted += resident.objects;
        self.extents.release(resident.extent);
        filling.sample.retired(self.pool.oldest());
        while let Some(extent) = self.index.forget_before(self.pool.oldest()) {
            self.extents.release(extent);
            self.forgot_leaving = true;
        }
    }

    /// Flash says durably what the oldest is.
    fn settle_oldest(&mut self) {
        self.pool.settle();
        self.forgot_leaving = false;
    }

    /// The end of an append that begins with `next`: not beyond its zone.
    fn append_end(&self, next: u32) -> u32 {
        let zone_pages = self.plan.flash.zone_pages;
        let zone_end = (next / zone_pages + 1) * zone_pages;
        (next + APPEND_PAGES).min(zone_end).min(self.plan.sets)
    }

    fn objects_task(&mut self, filling: &Filling, extent: Extent, next: u32) -> Option<Task> {
        let end = self.append_end(next);
        self.index.open.make(end);
        let sealed = filling.sealed.as_ref()?;
        let pages = sealed.sets()[next as usize..end as usize]
            .iter()
            .map(|set| Page::Objects(set.objects().to_vec()))
            .collect();
        let first = self.extents.page(extent, next);
        self.flush
            .start(Doing::Write(end), Work::Append { first, pages })
    }

    fn filters_task(&mut self, extent: Extent, next: u32) -> Option<Task> {
        let end = self.append_end(next);
        self.index.open.make(end);
        let pages = (next..end)
            .map(|set| Page::Index(self.index.open.page(set)))
            .collect();
        let first = self.extents.page(extent, next);
        self.flush
            .start(Doing::Write(end), Work::Append { first, pages })
    }

    fn seal_task(&mut self, filling: &Filling, extent: Extent, of_index: bool) -> Option<Task> {
        let summary = if of_index {
            self.summary_of_index()
        } else {
            self.summary_of(filling.sealed.as_ref()?)
        };
        let pages = self.plan.summary_pages(summary.filters.len());
        let first = self.extents.page(extent, self.plan.sets);
        self.flush.start(
            Doing::Seal(pages),
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
            filters: Box::default(),
        }
    }

    fn summary_of(&self, sealed: &SetGroup) -> Summary {
        let shape = self.index.open.shape;
        let filters = if self.plan.summary_holds(shape.filters_bytes(self.plan.sets)) {
            shape.filters_of(sealed.sets().iter().map(|set| set.hashes()))
        } else {
            Box::default()
        };
        Summary {
            of_index: false,
            sequence: self.pool.next(),
            oldest: self.pool.oldest(),
            objects: sealed.objects(),
            columns: shape.columns,
            rows: shape.rows,
            probes: shape.probes,
            filters,
        }
    }

    pub(super) fn flush_task_over(
        &mut self,
        filling: &mut Filling,
        id: TaskId,
        outcome: Outcome,
        now_seconds: u32,
    ) {
        let Some((_, doing)) = self.flush.doing.take_if(|(doing, _)| *doing == id) else {
            return;
        };
        match (doing, outcome) {
            (Doing::Reset(zone), outcome) => {
                self.statistics.resets += 1;
                let done = outcome == Outcome::Done;
                self.extents.was_reset(zone, done);
                if !done {
                    // It was noted what is gone.
                    self.settle_oldest();
                }
            }
            (Doing::Collect(sets), Outcome::Read(pages)) => {
                self.collected(filling, &sets, pages, now_seconds);
            }
            (Doing::Verify(objects), Outcome::Read(pages)) => {
                self.verified(filling, objects, pages)
            }
            // Objects that cannot be read are not written back.
            (Doing::Collect(_) | Doing::Verify(_), _) => {}
            (Doing::Write(end), Outcome::Done) => self.written_up_to(end),
            (Doing::Seal(pages), Outcome::Done) => self.sealed_with(filling, pages),
            (Doing::Write(_) | Doing::Seal(_), outcome) => {
                self.write_failed(outcome == Outcome::NoSpace, now_seconds);
            }
        }
    }

    fn written_up_to(&mut self, end: u32) {
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

    fn sealed_with(&mut self, filling: &mut Filling, pages: u32) {
        let Phase::Seal { extent, of_index } = self.flush.phase else {
            return;
        };
        let bytes = u64::from(pages) * PAGE_BYTES as u64;
        self.statistics.count_written(Cause::Index, bytes);
        // Summaries say what the oldest is.
        self.settle_oldest();
        if of_index {
            self.filters_are_on_flash(extent);
        } else {
            self.set_group_is_on_flash(filling, extent);
        }
    }

    /// The zones are given up, or left out for a while if there was no space
    /// below them; the set-group or the filters go elsewhere.
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
            true => self.extents.leave_out(extent, now_seconds),
            false => self.extents.retire(extent),
        }
        self.flush.phase = Phase::Room;
    }

    fn set_group_is_on_flash(&mut self, filling: &mut Filling, extent: Extent) {
        let Some(sealed) = filling.sealed.take() else {
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
        let sets = sealed.sets().iter();
        if !sealed.is_cut_short {
            self.filter_objects = self.plan.filter_objects(sets.clone().map(Set::len));
        }
        self.index.open.push(sets.map(|set| set.hashes()));
        filling.follow(&sealed, Some(self.pool.next()));
        // What may have been forgotten before was newer than nothing on flash,
        // and this says so: see `settle_oldest`.
        self.gave_up = false;
        self.flush.may_be_whole = false;
        self.pool.push(extent, sealed.objects());
        self.durable = self.pool.next();
        self.allow_for_false_positives();
        self.cool_when_due();
        self.go_on();
    }

    fn filters_are_on_flash(&mut self, extent: Extent) {
        let bytes = u64::from(self.plan.sets) * PAGE_BYTES as u64;
        self.statistics.count_written(Cause::Index, bytes);
        let shape = self.plan.shape_for(self.filter_objects);
        self.index.open_is_on_flash(extent, shape);
        self.go_on();
    }

    fn go_on(&mut self) {
        // A set-group that was sealed meanwhile begins when a task is asked for.
        self.flush.phase = match self.index.open.is_full() {
            true => Phase::Room,
            false => Phase::Idle,
        };
    }

    fn cool_when_due(&mut self) {
        self.flush.since_cooling += 1;
        let period = self.plan.config.cooling_period * f64::from(self.plan.extents());
        if f64::from(self.flush.since_cooling) >= period {
            self.flush.since_cooling = 0;
            let index = &self.index;
            self.pool.cool(|set| index.knows(set));
        }
    }
}

fn holds(page: &Page, object: &Object) -> bool {
    matches!(page, Page::Objects(objects) if objects.iter().any(|other| other.hash == object.hash))
}
