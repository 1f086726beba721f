//! Schedules rewrites, and their reads and writes.

use super::hierarchy::{Front, Hierarchy, set_of};
use super::merge::{Computed, Merge, Stage, Why};
use super::sets::{COLD, HOT, Ring};
use super::under_way::{Append, Collecting, Reset};
use crate::tiny::baseline::rrip;
use crate::tiny::engine::{Cause, Outcome, Page, Task, TaskId, Work};
use crate::tiny::object::{PAGE_BYTES, PageAddress};

/// Most pages per append of sets.
const APPEND_PAGES_MAX: usize = 64;

/// The result of a step.
pub(super) enum Progress {
    Task(Task),
    /// The state changed; take another step.
    Step,
    /// Nothing can be done until a task completes.
    Idle,
}

const LOG_APPEND: u32 = 0;
const CLEANING_READ: u32 = 1;
const MERGE_READ: u32 = 2;
const MERGE_WRITE: u32 = 3;
const SETS_APPEND: u32 = 4;
const RESET: u32 = 5;
const KIND_SHIFT: u32 = 28;

fn task(kind: u32, number: usize, work: Work) -> Task {
    Task {
        // Numbers are merges, parts or zones. Zones are fewer than 2^28 if each
        // has at least eight pages.
        id: TaskId(kind << KIND_SHIFT | number as u32),
        work,
    }
}

impl Hierarchy {
    pub(super) fn work(&mut self, front: &mut Front) -> Option<Task> {
        loop {
            match self.step(front) {
                Progress::Task(task) => return Some(task),
                Progress::Step => {}
                Progress::Idle => return None,
            }
        }
    }

    /// Steps that free memory or flash for others come first.
    fn step(&mut self, front: &mut Front) -> Progress {
        if let Some(task) = self.reset() {
            return Progress::Task(task);
        }
        if let Some(task) = self.write(front) {
            return Progress::Task(task);
        }
        for part in (0..self.sets.parts()).rev() {
            match self.collect(front, part) {
                Progress::Idle => {}
                progress => return progress,
            }
        }
        if front.log.has_displaced() {
            self.place_displaced_log(front);
        }
        if let Some((first, pages)) = front.log.next_append() {
            return Progress::Task(task(LOG_APPEND, 0, Work::Append { first, pages }));
        }
        if let Some(set) = front.urgent {
            if self.is_busy(set) || front.index.chain(set).next().is_none() {
                front.urgent = None;
                return Progress::Step;
            }
            if let Some(progress) = self.begin(front, set, Why::Passive) {
                front.urgent = None;
                return progress;
            }
        }
        self.clean(front)
    }

    pub(super) fn work_done(&mut self, front: &mut Front, id: TaskId, outcome: Outcome) {
        let number = (id.0 & ((1 << KIND_SHIFT) - 1)) as usize;
        match id.0 >> KIND_SHIFT {
            LOG_APPEND => self.log_appended(front, &outcome),
            CLEANING_READ => self.cleaning_read(outcome),
            MERGE_READ => {
                let pages = match outcome {
                    Outcome::Read(pages) => pages,
                    _ => Vec::new(),
                };
                self.statistics.pages_maintained += pages.len() as u64;
                let sets = self.plan.sets;
                if let Some(merge) = self.merges.get_mut(number) {
                    let set = merge.set;
                    merge.take_pages(pages, |hash| set_of(hash, sets) == set);
                    self.compute(front, number);
                }
            }
            MERGE_WRITE => self.written_in_place(front, number, &outcome),
            SETS_APPEND => self.appended(front, number, &outcome),
            _ => self.was_reset(front, number as u32, &outcome),
        }
    }

    fn reset(&mut self) -> Option<Task> {
        let pins = &self.pins;
        let ready = |reset: &&mut Reset| !reset.is_sent && pins.is_free(reset.zone);
        let reset = self.resets.iter_mut().find(ready)?;
        reset.is_sent = true;
        let zone = reset.zone;
        Some(task(RESET, zone as usize, Work::Reset(zone)))
    }

    fn was_reset(&mut self, front: &mut Front, zone: u32, outcome: &Outcome) {
        let Some(at) = self.resets.iter().position(|reset| reset.zone == zone) else {
            return;
        };
        let reset = self.resets.swap_remove(at);
        if *outcome != Outcome::Done {
            // The zone is not used any more.
            return;
        }
        self.statistics.resets += 1;
        match reset.part {
            Some(part) => self.rings[part].give_back(zone),
            None => front.log.give_back(zone),
        }
    }

    /// Continues the collection of a part's oldest zone.
    fn collect(&mut self, front: &mut Front, part: usize) -> Progress {
        if self.sets.are_in_place() {
            return Progress::Idle;
        }
        let Some(collecting) = &mut self.collecting[part] else {
            let Some(zone) = self.rings[part].take_oldest() else {
                return Progress::Idle;
            };
            let mut sets = Vec::new();
            self.sets.sets_in(part, zone, &self.plan.flash, &mut sets);
            self.collecting[part] = Some(Collecting { zone, sets, at: 0 });
            return Progress::Step;
        };
        let zone = collecting.zone;
        if let Some(set) = collecting.sets.get(collecting.at).copied() {
            let page = self.sets.page_of(part, set);
            let is_there = page.is_some_and(|page| self.plan.flash.zone_of(page) == zone);
            if is_there && !self.is_busy(set) {
                return match self.begin(front, set, Why::Collect(part)) {
                    Some(progress) => {
                        if let Some(collecting) = &mut self.collecting[part] {
                            collecting.at += 1;
                        }
                        progress
                    }
                    None => Progress::Idle,
                };
            }
            if let Some(collecting) = &mut self.collecting[part] {
                collecting.at += 1;
            }
            return Progress::Step;
        }
        // Some sets were busy, and some writes failed. Scan the zone again once
        // no rewrite moves a set from it or to it.
        let is_here = |page: Option<PageAddress>| {
            page.is_some_and(|page| self.plan.flash.zone_of(page) == zone)
        };
        let involved = |merge: &Merge| {
            merge.stage != Stage::Idle
                && (is_here(self.sets.page_of(part, merge.set)) || is_here(merge.parts[part].at))
        };
        if self.merges.iter().any(involved) {
            return Progress::Idle;
        }
        let mut left = Vec::new();
        self.sets.sets_in(part, zone, &self.plan.flash, &mut left);
        if left.is_empty() {
            self.collecting[part] = None;
            self.resets.push(Reset {
                zone,
                part: Some(part),
                is_sent: false,
            });
        } else {
            self.collecting[part] = Some(Collecting {
                zone,
                sets: left,
                at: 0,
            });
        }
        Progress::Step
    }

    /// Begins a rewrite; `None` if there is no room for it now.
    pub(super) fn begin(&mut self, front: &mut Front, set: u32, why: Why) -> Option<Progress> {
        let number = self
            .merges
            .iter()
            .position(|merge| merge.stage == Stage::Idle)?;
        let is_reserved = self.reserve(why)?;
        self.merging += 1;
        let merge = &mut self.merges[number];
        merge.begin(set, why);
        for (part, is_reserved) in merge.parts.iter_mut().zip(is_reserved) {
            part.is_reserved = is_reserved;
        }
        if why == Why::Collect(HOT) {
            merge.parts[HOT].is_rewritten = true;
        } else {
            merge.parts[COLD].is_rewritten = true;
            if why == Why::Passive {
                self.rewrites += 1;
                let turn = u64::from(self.plan.hot_rewrite_interval);
                merge.parts[HOT].is_rewritten =
                    is_reserved[HOT] && self.rewrites.is_multiple_of(turn);
            }
            if why == Why::Passive || self.plan.collection_merges {
                let log = &front.log;
                merge.take_entries(&front.index, |page| log.is_open(page));
            }
        }
        let (log, cleaning) = (&front.log, &self.cleaning);
        let sets = self.plan.sets;
        let pages = merge.plan_reads(
            &self.sets,
            |hash| set_of(hash, sets) == set,
            |page| {
                log.page(page)
                    .or_else(|| cleaning.as_ref().and_then(|cleaning| cleaning.page(page)))
            },
        );
        if pages.is_empty() {
            self.compute(front, number);
            return Some(Progress::Step);
        }
        let work = Work::Read(pages);
        Some(Progress::Task(task(MERGE_READ, number, work)))
    }

    /// Reserves the pages that a rewrite needs, and those that it may need;
    /// returns which parts have one.
    fn reserve(&mut self, why: Why) -> Option<[bool; 2]> {
        let mut is_reserved = [false; 2];
        if self.sets.are_in_place() {
            return Some(is_reserved);
        }
        let parts = self.sets.parts();
        let collects = |part| why == Why::Collect(part);
        let can = |ring: &Ring, part| ring.can_reserve(collects(part));
        let needed = |part| why == Why::Passive || collects(part);
        if (0..parts).any(|part| needed(part) && !can(&self.rings[part], part)) {
            return None;
        }
        for (part, is_reserved) in is_reserved.iter_mut().enumerate().take(parts) {
            // The hot part moves alone. A rewrite of the cold one may have to
            // include it.
            *is_reserved = (part == HOT || why != Why::Collect(HOT))
                && self.rings[part].reserve(collects(part));
        }
        Some(is_reserved)
    }

    /// Computes the new pages once all reads are done, or starts another read.
    fn compute(&mut self, front: &mut Front, number: usize) {
        let merge = &mut self.merges[number];
        if self.sets.is_dead(merge.set) {
            self.finish(front, number);
            return;
        }
        match merge.compute(&self.sets, front.now_seconds) {
            Computed::Write => merge.stage = Stage::Writing,
            Computed::NeedsHot => merge.stage = Stage::NeedsHot,
            Computed::Nothing => self.finish(front, number),
        }
    }

    /// The next write of a set, or read of a hot part.
    fn write(&mut self, front: &mut Front) -> Option<Task> {
        let mut seen = 0;
        for number in 0..self.merges.len() {
            if seen == self.merging {
                // The remaining ones are idle.
                break;
            }
            let merge = &mut self.merges[number];
            seen += usize::from(merge.stage != Stage::Idle);
            match merge.stage {
                Stage::NeedsHot => {
                    if let Some(page) = merge.take_hot(&self.sets) {
                        return Some(task(MERGE_READ, number, Work::Read(vec![page])));
                    }
                    self.compute(front, number);
                    return self.write(front);
                }
                Stage::Writing if self.sets.are_in_place() && merge.parts[COLD].is_ready => {
                    let part = &mut merge.parts[COLD];
                    part.is_ready = false;
                    part.at = self.sets.place(merge.set);
                    let page = Page::Objects(part.objects.clone());
                    let at = part.at?;
                    return Some(task(MERGE_WRITE, number, Work::Write { at, page }));
                }
                _ => {}
            }
        }
        if self.merging == 0 {
            return None;
        }
        (0..self.sets.parts()).find_map(|part| self.append(part))
    }

    /// Active rewrites with their numbers. Stops after the last active one,
    /// because most are idle.
    fn under_way(&self) -> impl Iterator<Item = (usize, &Merge)> {
        let merges = self.merges.iter().enumerate();
        let active = merges.filter(|(_, merge)| merge.stage != Stage::Idle);
        active.take(self.merging)
    }

    /// Appends the ready pages of a part. One append per part is in flight at a
    /// time.
    fn append(&mut self, part: usize) -> Option<Task> {
        if self.sets.are_in_place() || self.appends[part].is_some() {
            return None;
        }
        let is_ready = |merge: &Merge| merge.stage == Stage::Writing && merge.parts[part].is_ready;
        let ready = self.under_way().filter(|(_, merge)| is_ready(merge));
        let count = ready.count();
        if count == 0 {
            return None;
        }
        let wanted = count.min(APPEND_PAGES_MAX) as u32;
        let (zone, next, is_rewritten) = self.rings[part].take(wanted)?;
        let first = PageAddress(self.plan.flash.first_page(zone).0 + next);
        let mut merges = std::mem::take(&mut self.merges_spare);
        let ready = self.under_way().filter(|(_, merge)| is_ready(merge));
        merges.extend(ready.take(is_rewritten as usize).map(|(number, _)| number));
        let mut pages = Vec::with_capacity(is_rewritten as usize);
        for (at, number) in (first.0..).zip(&merges) {
            let of_merge = &mut self.merges[*number].parts[part];
            of_merge.is_ready = false;
            of_merge.at = Some(PageAddress(at));
            // The zone must not be reset before the set's entry points to it.
            self.pins.pin(zone);
            if std::mem::take(&mut of_merge.is_reserved) {
                self.rings[part].release();
            }
            pages.push(Page::Objects(of_merge.objects.clone()));
        }
        self.appends[part] = Some(Append { zone, merges });
        Some(task(SETS_APPEND, part, Work::Append { first, pages }))
    }

    fn appended(&mut self, front: &mut Front, part: usize, outcome: &Outcome) {
        let Some(Append { zone, merges }) = self.appends[part].take() else {
            return;
        };
        if *outcome != Outcome::Done {
            // The zone takes no more writes and is collected in its turn.
            if self.rings[part].active_zone() == Some(zone) {
                self.rings[part].end_active();
            }
            for number in merges {
                self.pins.unpin(zone);
                let of_merge = &mut self.merges[number].parts[part];
                of_merge.at = None;
                of_merge.is_ready = true;
            }
            return;
        }
        for number in merges.iter().copied() {
            self.count_page(number, part);
            self.merges[number].writes_left -= 1;
            if self.merges[number].writes_left == 0 {
                self.finish(front, number);
            }
        }
        self.merges_spare = merges;
        self.merges_spare.clear();
    }

    fn written_in_place(&mut self, front: &mut Front, number: usize, outcome: &Outcome) {
        if *outcome == Outcome::Done {
            self.count_page(number, COLD);
        } else {
            let merge = &mut self.merges[number];
            merge.parts[COLD].at = None;
            self.sets.mark_dead(merge.set);
        }
        self.finish(front, number);
    }

    fn count_page(&mut self, number: usize, part: usize) {
        let merge = &self.merges[number];
        let cause = match merge.why {
            Why::Passive => Cause::Set,
            Why::Collect(_) => Cause::Gc,
        };
        let filled = rrip::bytes_of(&merge.parts[part].objects) as u64;
        self.statistics.count_written(cause, PAGE_BYTES as u64);
        self.statistics.object_pages_written += 1;
        self.statistics.bytes_filled += filled;
    }

    /// Ends a rewrite, with or without writes.
    fn finish(&mut self, front: &mut Front, number: usize) {
        let merge = &mut self.merges[number];
        let set = merge.set;
        let writes = merge.stage == Stage::Writing;
        for (part, of_merge) in merge.parts.iter_mut().enumerate() {
            if std::mem::take(&mut of_merge.is_reserved) {
                self.rings[part].release();
            }
            let Some(page) = of_merge.at.filter(|_| writes) else {
                continue;
            };
            self.sets.written(part, set, page, &of_merge.hashes);
            self.sets
                .count(of_merge.objects_after, of_merge.objects_before);
            if !self.sets.are_in_place() {
                self.pins.unpin(self.plan.flash.zone_of(page));
            }
        }
        if merge.drops_hot {
            self.sets.forget(HOT, set);
        }
        merge.remove_entries(&mut front.index);
        merge.stage = Stage::Idle;
        self.merging -= 1;
        self.statistics.evicted += merge.evicted_count;
        if writes && merge.parts[COLD].is_rewritten {
            let bytes = merge.bytes_migrated;
            match merge.why {
                Why::Passive => {
                    self.statistics.rewrites_passive += 1;
                    self.statistics.bytes_migrated_passive += bytes;
                }
                Why::Collect(_) if self.plan.collection_merges => {
                    self.statistics.rewrites_active += 1;
                    self.statistics.bytes_migrated_active += bytes;
                }
                Why::Collect(_) => {}
            }
        }
        if let Some(cleaning) = &mut self.cleaning {
            cleaning.resume();
        }
    }

    pub(super) fn cleaning_task(pages: Vec<PageAddress>) -> Task {
        task(CLEANING_READ, 0, Work::Read(pages))
    }
}
