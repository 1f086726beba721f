//! Emptying the log's oldest zone, so that it can be written again.
//!
//! Its pages are read a segment at a time, the oldest first. What is found
//! there and is still in the index joins its set, goes to the log's end, or is
//! forgotten.

use super::hierarchy::{Front, Hierarchy, set_of};
use super::index::{Entry, Tag};
use super::merge::Why;
use super::under_way::{Cleaning, Reset};
use super::work::Progress;
use crate::tiny::engine::{Outcome, Page};
use crate::tiny::object::{Object, PageAddress};

/// The fate of an object of the oldest zone.
enum Fate {
    /// It left the log before.
    Gone,
    /// Its set is being rewritten.
    Moving,
    /// Its set is to be rewritten.
    Joins,
    /// It goes to the log's end.
    Stays(Entry),
    /// It is forgotten.
    Dropped(Entry),
}

impl Hierarchy {
    /// Goes on emptying the oldest zone, if the log needs room.
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
        if cleaning.some_left {
            // Look once more, when rewrites under way are over.
            cleaning.at = (0, 0);
            cleaning.some_left = false;
            cleaning.waits = !is_quiet;
            return Progress::Step;
        }
        let (zone, pages) = (cleaning.zone, cleaning.pages);
        let first = self.plan.flash.first_page(zone);
        if cleaning.asked < pages {
            let count = self.plan.segment_pages.min(pages - cleaning.asked);
            let from = first.0 + cleaning.asked;
            cleaning.asked += count;
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
        // Zones that wait for their reset are as good as free.
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
            asked: 0,
            is_reading: false,
            first: self.plan.flash.first_page(zone),
            batch: Vec::new(),
            at: (0, 0),
            some_left: false,
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
            // Nothing could be read: the index knows what was there.
            let from = self.plan.flash.first_page(cleaning.zone).0 + cleaning.asked;
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

    /// Goes on with a page of the batch.
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
            self.look_at((number + 1, 0));
            return Progress::Step;
        };
        let set = set_of(object.hash, self.plan.sets);
        match self.fate(front, object, set, page) {
            Fate::Gone => {}
            Fate::Moving => self.note_left(),
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
        self.look_at((number, slot + 1));
        Progress::Step
    }

    fn look_at(&mut self, at: (usize, usize)) {
        if let Some(cleaning) = &mut self.cleaning {
            cleaning.at = at;
        }
    }

    /// Rewrites a set for the object that is looked at; it is looked at again.
    fn join(&mut self, front: &mut Front, set: u32) -> Progress {
        let progress = self.begin(front, set, Why::Passive);
        if progress.is_some() {
            self.note_left();
        }
        progress.unwrap_or(Progress::Idle)
    }

    fn note_left(&mut self) {
        if let Some(cleaning) = &mut self.cleaning {
            cleaning.some_left = true;
        }
    }

    /// Rewrites the sets that have objects on a page which cannot be read.
    fn clean_unreadable(&mut self, front: &mut Front, page: PageAddress) -> Progress {
        let sets = front.index.buckets_in(page.0..page.0 + 1);
        if let Some(set) = sets.iter().find(|set| !self.is_busy(**set)) {
            return self.join(front, *set);
        }
        if !sets.is_empty() {
            self.note_left();
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
