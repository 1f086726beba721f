//! Empties the log's oldest zone, so that it can be reset.
//!
//! Its pages are read a segment at a time, oldest first. An object there that
//! is still in the index joins its set, is appended to the log again, or is
//! evicted.

use super::hierarchy::{Front, Hierarchy, set_of};
use super::index::{Entry, Tag};
use super::merge::Why;
use super::under_way::{Cleaning, Reset};
use super::work::Progress;
use crate::tiny::engine::{Outcome, Page};
use crate::tiny::object::{Object, PageAddress};

/// The outcome for an object of the oldest zone.
enum Fate {
    /// The index has it no more.
    Gone,
    /// Its set is being rewritten.
    Moving,
    /// Its set must be rewritten.
    Joins,
    /// It is appended to the log again.
    Stays(Entry),
    /// It is evicted.
    Dropped(Entry),
}

impl Hierarchy {
    /// Continues to empty the oldest zone, if the log needs room.
    pub(super) fn clean(&mut self, front: &mut Front) -> Progress {
        let is_quiet = self.merging == 0;
        let Some(cleaning) = &mut self.cleaning else {
            return self.begin_cleaning(front);
        };
        if cleaning.is_reading || cleaning.waits {
            return Progress::Idle;
        }
        if cleaning.at.0 < cleaning.batch.len() {
            return self.clean_page(front);
        }
        if cleaning.is_incomplete {
            // Scan the batch again after the active rewrites.
            cleaning.at = (0, 0);
            cleaning.is_incomplete = false;
            cleaning.waits = !is_quiet;
            return Progress::Step;
        }
        let (zone, pages) = (cleaning.zone, cleaning.pages);
        let first = self.plan.flash.first_page(zone);
        if cleaning.read_started < pages {
            let count = self.plan.segment_pages.min(pages - cleaning.read_started);
            let from = first.0 + cleaning.read_started;
            cleaning.read_started += count;
            cleaning.is_reading = true;
            cleaning.first = PageAddress(from);
            cleaning.batch.clear();
            cleaning.at = (0, 0);
            let pages = (from..from + count).map(PageAddress).collect();
            return Progress::Task(Hierarchy::cleaning_task(pages));
        }
        debug_assert!(
            front
                .index
                .buckets_in(first.0..first.0 + self.plan.flash.zone_pages)
                .is_empty(),
            "zone {zone} of the log is emptied and named by the index"
        );
        self.cleaning = None;
        self.resets.push(Reset {
            zone,
            part: None,
            is_sent: false,
        });
        Progress::Step
    }

    fn begin_cleaning(&mut self, front: &mut Front) -> Progress {
        // Zones that wait for their reset count as free.
        let waiting = self.resets.iter().filter(|reset| reset.part.is_none());
        let free =
            front.log.pages_free() + waiting.count() as u64 * u64::from(self.plan.flash.zone_pages);
        if free * 100 > front.log.pages() * u64::from(self.plan.log_free_percent) {
            return Progress::Idle;
        }
        let Some((zone, pages)) = front.log.take_oldest() else {
            return Progress::Idle;
        };
        self.cleaning = Some(Cleaning {
            zone,
            pages,
            read_started: 0,
            is_reading: false,
            first: self.plan.flash.first_page(zone),
            batch: Vec::new(),
            at: (0, 0),
            is_incomplete: false,
            waits: false,
        });
        Progress::Step
    }

    pub(super) fn cleaning_read(&mut self, outcome: Outcome) {
        let Some(cleaning) = &mut self.cleaning else {
            return;
        };
        cleaning.is_reading = false;
        let Outcome::Read(pages) = outcome else {
            // All pages of the batch are unreadable. The index has their
            // objects.
            let from = self.plan.flash.first_page(cleaning.zone).0 + cleaning.read_started;
            cleaning.batch = vec![None; (from - cleaning.first.0) as usize];
            return;
        };
        self.statistics.pages_maintained += pages.len() as u64;
        let objects = |page| match page {
            Some(Page::Objects(objects)) => Some(objects),
            _ => None,
        };
        cleaning.batch.extend(pages.into_iter().map(objects));
    }

    /// Handles the next object of the batch.
    fn clean_page(&mut self, front: &mut Front) -> Progress {
        let Some(cleaning) = &self.cleaning else {
            return Progress::Idle;
        };
        let (number, slot) = cleaning.at;
        let page = PageAddress(cleaning.first.0 + number as u32);
        let Some(objects) = &cleaning.batch[number] else {
            return self.clean_unreadable(front, page);
        };
        let Some(object) = objects.get(slot) else {
            self.move_to((number + 1, 0));
            return Progress::Step;
        };
        let set = set_of(object.hash, self.plan.sets);
        match self.fate(front, object, set, page) {
            Fate::Gone => {}
            Fate::Moving => self.mark_incomplete(),
            Fate::Joins => return self.join(front, set),
            Fate::Stays(entry) => {
                let (object, bytes) = (object.clone(), u64::from(object.bytes));
                let Ok(new) = front.log.push(object) else {
                    return self.join(front, set);
                };
                front.index.remove(set, entry.id);
                front.index.push(set, entry.tag, new);
                self.statistics.written_back += 1;
                self.statistics.bytes_written_back += bytes;
            }
            Fate::Dropped(entry) => {
                self.statistics.evicted += u64::from(!object.tombstone);
                front.index.remove(set, entry.id);
            }
        }
        self.move_to((number, slot + 1));
        Progress::Step
    }

    fn move_to(&mut self, at: (usize, usize)) {
        if let Some(cleaning) = &mut self.cleaning {
            cleaning.at = at;
        }
    }

    /// Rewrites a set for the current object, which is checked again
    /// afterwards.
    fn join(&mut self, front: &mut Front, set: u32) -> Progress {
        let progress = self.begin(front, set, Why::Passive);
        if progress.is_some() {
            self.mark_incomplete();
        }
        progress.unwrap_or(Progress::Idle)
    }

    fn mark_incomplete(&mut self) {
        if let Some(cleaning) = &mut self.cleaning {
            cleaning.is_incomplete = true;
        }
    }

    /// Rewrites the sets with objects on an unreadable page.
    fn clean_unreadable(&mut self, front: &mut Front, page: PageAddress) -> Progress {
        let sets = front.index.buckets_in(page.0..page.0 + 1);
        if let Some(set) = sets.iter().find(|set| !self.is_busy(**set)) {
            return self.join(front, *set);
        }
        if !sets.is_empty() {
            self.mark_incomplete();
        }
        if let Some(cleaning) = &mut self.cleaning {
            cleaning.at.0 += 1;
        }
        Progress::Step
    }

    fn fate(&self, front: &Front, object: &Object, set: u32, page: PageAddress) -> Fate {
        let tag = Tag::of(object.hash);
        let mut entry = None;
        let (mut sealed, mut of_tag) = (0, 0);
        for other in front.index.chain(set) {
            if other.tag == tag {
                of_tag += 1;
                if other.page == page {
                    entry = Some(other);
                }
            }
            sealed += u32::from(!front.log.is_open(other.page));
        }
        let Some(entry) = entry else {
            return Fate::Gone;
        };
        if self.is_busy(set) {
            return Fate::Moving;
        }
        if sealed >= self.plan.threshold || of_tag > 1 {
            return Fate::Joins;
        }
        let lives = !object.tombstone && !object.expires.is_over(front.now_seconds);
        if lives && entry.hits > 0 {
            Fate::Stays(entry)
        } else if self.sets.any_may_hold(set, object.hash) {
            Fate::Joins
        } else {
            Fate::Dropped(entry)
        }
    }
}
