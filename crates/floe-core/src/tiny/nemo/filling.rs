//! The stripe: set-groups that take in objects.

use std::collections::VecDeque;

use super::absences::Absences;
use super::buffer::SetGroup;
use super::config::NemoPlan;
use super::directory::Nemo;
use super::hashes::Homes;
use super::living::{IN_MEMORY, Sample};
use crate::hash::KeyHash;
use crate::tiny::engine::{Accepted, Insert, Stripe};
use crate::tiny::object::Object;
use crate::tiny::statistics::Statistics;

/// Set-groups in memory.
#[derive(Debug)]
pub struct Filling {
    plan: NemoPlan,
    /// Set-groups that take in objects, oldest first. There is always one.
    pub(super) groups: VecDeque<SetGroup>,
    /// The set-group that is being flushed. It still answers, and takes in only
    /// objects that are written back.
    pub(super) sealed: Option<SetGroup>,
    /// Objects turned out of full sets since the last flush.
    turned_out: u32,
    /// When a write last found every set-group full.
    pub(super) full_at_seconds: u32,
    pub(super) absences: Absences,
    /// For [`Engine::living`](crate::tiny::Engine::living).
    pub(super) sample: Sample,
    pub(super) statistics: Statistics,
}

impl Stripe for Filling {
    fn in_memory(&self, hash: KeyHash) -> Option<&Object> {
        let homes = self.homes(hash);
        self.groups
            .iter()
            .find_map(|group| group.find(hash, homes))
            .or_else(|| self.in_sealed(hash, homes))
    }
}

impl Filling {
    pub(super) fn new(plan: NemoPlan, sample: Sample) -> Self {
        Filling {
            groups: (0..plan.config.memory_set_groups)
                .map(|_| SetGroup::new(plan.sets, 0))
                .collect(),
            sealed: None,
            turned_out: 0,
            full_at_seconds: 0,
            absences: Absences::new(),
            sample,
            statistics: Statistics::default(),
            plan,
        }
    }

    pub(super) fn homes(&self, hash: KeyHash) -> Homes {
        Homes::of(hash, self.plan.sets, self.plan.config.candidates)
    }

    pub(super) fn in_sealed(&self, hash: KeyHash, homes: Homes) -> Option<&Object> {
        self.sealed.as_ref()?.find(hash, homes)
    }

    /// As [`Engine::insert`](crate::tiny::Engine::insert).
    pub(super) fn insert(&mut self, directory: &Nemo, object: Object, now_seconds: u32) -> Insert {
        let object = object.or_tombstone();
        let homes = self.homes(object.hash);
        let was_absent = self.absences.take(object.hash);
        let replaced = self
            .groups
            .iter_mut()
            .enumerate()
            .find_map(|(at, group)| Some((at, group.remove(object.hash, homes)?)));
        let alone = was_absent || matches!(&replaced, Some((_, replaced)) if replaced.alone);
        let older = self.in_sealed(object.hash, homes).is_some()
            || (!alone && directory.may_be_on_flash(object.hash, homes));
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
        let (at, sealed_now) = match self.make_place(directory, object, homes, now_seconds) {
            Ok(placed) => placed,
            Err(object) => {
                if let Some((at, replaced)) = replaced {
                    self.groups[at].restore(replaced, homes);
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
        // An object that replaces another in the same set-group outdates no more
        // than that one did.
        let noted = !sealed_now
            && replaced.is_some_and(|(before, replaced)| replaced.noted && before == at);
        Insert::Accepted(Accepted {
            outdates_flash: older,
            noted_before: older && noted,
        })
    }

    /// Puts an object into a set-group, if need be by turning others out or by
    /// sealing the oldest set-group. Says into which it went, and whether one was
    /// sealed.
    fn make_place(
        &mut self,
        directory: &Nemo,
        object: Object,
        homes: Homes,
        now_seconds: u32,
    ) -> Result<(usize, bool), Object> {
        let mut object = match self.place(object, homes) {
            Ok(at) => return Ok((at, false)),
            Err(object) => object,
        };
        if self.puts_off_flush() {
            self.turned_out += 1;
            object = match self.turn_out_for(directory, object, homes) {
                Ok(()) => return Ok((0, false)),
                Err(object) => object,
            };
        }
        // Everything is full: the flush is due.
        self.full_at_seconds = now_seconds;
        match self.seal() {
            true => self.place(object, homes).map(|at| (at, true)),
            false => Err(object),
        }
    }

    /// Puts an object into a set-group that takes objects in, oldest first;
    /// says into which.
    pub(super) fn place(&mut self, mut object: Object, homes: Homes) -> Result<usize, Object> {
        let relocates = self.plan.config.relocate && self.plan.config.candidates == 2;
        for (at, group) in self.groups.iter_mut().enumerate() {
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
            for (at, group) in self.groups.iter_mut().enumerate() {
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
            && self.groups[0].used_bytes() < self.plan.flush_bytes
    }

    /// Makes room in the oldest set-group by turning objects out (§4.2).
    fn turn_out_for(
        &mut self,
        directory: &Nemo,
        mut object: Object,
        homes: Homes,
    ) -> Result<(), Object> {
        for home in homes.iter() {
            while !self.groups[0].fits(home, object.stored_bytes()) {
                if !self.turn_out_one(directory, home) {
                    break;
                }
            }
            object = match self.groups[0].place(object, homes) {
                Ok(()) => return Ok(()),
                Err(object) => object,
            };
        }
        Err(object)
    }

    /// Turns out the oldest object of a set; says whether there was one that
    /// could go. Tombstones stay: they keep something older from coming back.
    fn turn_out_one(&mut self, directory: &Nemo, home: u32) -> bool {
        let Some(object) = self.groups[0].turn_out(home) else {
            return false;
        };
        let (hash, homes) = (object.hash, self.homes(object.hash));
        self.statistics.dropped_early += 1;
        self.statistics.bytes_dropped_early += u64::from(object.bytes);
        let older = !object.alone
            && (self.in_sealed(hash, homes).is_some() || directory.may_be_on_flash(hash, homes));
        if older {
            let tombstone = Object::tombstone(hash);
            // A tombstone takes no more room than its object, unless that is tiny.
            if tombstone.stored_bytes() > object.stored_bytes() {
                self.groups[0].put_back(home, object, homes);
                return false;
            }
            self.groups[0].put_back(home, tombstone, homes);
        }
        self.sample.removed(hash);
        true
    }

    /// Seals the oldest set-group, for the directory to flush; says whether it could.
    fn seal(&mut self) -> bool {
        if self.sealed.is_some() {
            return false;
        }
        self.sealed = self.groups.pop_front();
        let objects = self.sealed.as_ref().map_or(0, SetGroup::objects);
        let next = SetGroup::new(self.plan.sets, objects);
        self.groups.push_back(next);
        self.turned_out = 0;
        true
    }

    /// Seals the oldest set-group that has objects, full or not.
    pub(super) fn drain(&mut self) {
        let filled = |group: &SetGroup| group.objects() > 0;
        if self.sealed.is_none()
            && let Some(at) = self.groups.iter().position(filled)
        {
            // Empty ones in front would be written for nothing.
            self.groups.rotate_left(at);
            self.groups[0].is_cut_short = true;
            self.seal();
        }
    }

    /// `sealed`, which was the sealed set-group, is on flash as number `sequence`,
    /// or given up.
    pub(super) fn follow(&mut self, sealed: &SetGroup, sequence: Option<u64>) {
        let (plan, groups) = (&self.plan, &self.groups);
        self.sample.follow(|hash| {
            let homes = Homes::of(hash, plan.sets, plan.config.candidates);
            let is_filling = groups.iter().any(|group| group.find(hash, homes).is_some());
            match sealed.find(hash, homes) {
                Some(_) if !is_filling => sequence,
                _ => Some(IN_MEMORY),
            }
        });
    }

    /// Whether no set-group has objects.
    pub(super) fn is_empty(&self) -> bool {
        self.sealed.is_none() && self.groups.iter().all(|group| group.objects() == 0)
    }

    /// Set-groups in memory, the sealed one last.
    pub(super) fn all(&self) -> impl Iterator<Item = &SetGroup> {
        self.groups.iter().chain(&self.sealed)
    }
}
