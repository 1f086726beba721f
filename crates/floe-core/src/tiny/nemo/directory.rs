//! Nemo's state, and objects in memory.

use std::collections::VecDeque;

use super::absences::Absences;
use super::buffer::SetGroup;
use super::config::NemoPlan;
use super::extents::Extents;
use super::flush::Flush;
use super::hashes::Homes;
use super::index::Index;
use super::living::Sample;
use super::matches::{Candidate, candidates_max};
use super::pool::Pool;
use crate::hash::KeyHash;
use crate::tiny::object::{Object, PageAddress};
use crate::tiny::statistics::Statistics;

/// The engine.
#[derive(Debug)]
pub struct Nemo {
    pub(super) plan: NemoPlan,
    /// Set-groups that take in objects, oldest first. There is always one.
    pub(super) filling: VecDeque<SetGroup>,
    /// The one that is being flushed. It still answers, and takes in only
    /// what is written back.
    pub(super) sealed: Option<SetGroup>,
    /// Objects turned out of full sets since the last flush.
    pub(super) turned_out: u32,
    /// Objects in a set that the next filters are made for.
    pub(super) filter_objects: f64,
    pub(super) index: Index,
    pub(super) pool: Pool,
    /// Filters of set-groups that a crash could bring back are forgotten.
    pub(super) forgot_leaving: bool,
    /// What was to be written was forgotten: no zone takes it.
    pub(super) gave_up: bool,
    /// As [`Engine::durable`]: not beyond what was given up.
    pub(super) durable: u64,
    pub(super) extents: Extents,
    pub(super) flush: Flush,
    pub(super) absences: Absences,
    /// Most pages that a search reads: see [`candidates_max`].
    pub(super) candidates_max: usize,
    /// For [`Engine::living`].
    pub(super) sample: Sample,
    pub(super) statistics: Statistics,
}

impl Nemo {
    /// An engine on empty flash.
    pub fn new(plan: NemoPlan) -> Self {
        let (config, sets) = (&plan.config, plan.sets);
        let filter_objects = plan.expected_objects();
        let shape = plan.shape_for(filter_objects);
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
            candidates_max: candidates_max(0.0),
            sample: Sample::default(),
            statistics: Statistics::default(),
            plan,
        }
    }

    pub(super) fn homes(&self, hash: KeyHash) -> Homes {
        Homes::of(hash, self.plan.sets, self.plan.config.candidates)
    }

    /// Where a candidate is on flash, if it still is.
    pub(super) fn page_of(&self, candidate: Candidate) -> Option<PageAddress> {
        let resident = self.pool.get(candidate.sequence)?;
        Some(self.extents.page(resident.extent, candidate.home))
    }

    /// Whether the filters of all its sets are in memory.
    pub(super) fn knows(&self, homes: Homes) -> bool {
        homes.iter().all(|home| self.index.knows(home))
    }

    pub(super) fn in_sealed(&self, hash: KeyHash, homes: Homes) -> Option<&Object> {
        self.sealed.as_ref()?.find(hash, homes)
    }

    /// Puts an object into a set-group that takes objects in, oldest first;
    /// says into which.
    pub(super) fn place(&mut self, mut object: Object, homes: Homes) -> Result<usize, Object> {
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
    pub(super) fn puts_off_flush(&self) -> bool {
        self.turned_out < self.plan.turned_out_max
            && self.filling[0].used_bytes() < self.plan.flush_bytes
    }

    pub(super) fn relocates(&self) -> bool {
        self.plan.config.relocate && self.plan.config.candidates == 2
    }

    /// Makes room in the oldest set-group by turning objects out (§4.2).
    pub(super) fn turn_out_for(&mut self, object: Object, homes: Homes) -> Result<(), Object> {
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
    pub(super) fn turn_out_one(&mut self, home: u32) -> bool {
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
    pub(super) fn seal(&mut self) -> bool {
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
