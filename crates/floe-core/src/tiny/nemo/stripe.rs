//! The stripe: set-groups in memory.

use std::collections::VecDeque;

use super::buffer::SetGroup;
use super::config::NemoPlan;
use super::directory::Nemo;
use super::hashes::Homes;
use super::known_absent::KnownAbsent;
use super::live_sample::Sample;
use crate::hash::KeyHash;
use crate::tiny::engine::{Accepted, Discarded, Insert, Stripe};
use crate::tiny::object::Object;
use crate::tiny::statistics::Statistics;

/// Nemo's stripe: the set-groups in memory.
#[derive(Debug)]
pub struct NemoStripe {
    plan: NemoPlan,
    /// Open set-groups, oldest first. There is always one.
    pub(super) groups: VecDeque<SetGroup>,
    /// The set-group that is being flushed. Lookups still find its objects. It
    /// takes in only objects that are written back.
    pub(super) sealed: Option<SetGroup>,
    /// The next set-group to open; there while none is sealed.
    spare: Option<SetGroup>,
    /// Objects evicted from full sets since the last flush.
    early_evictions: u32,
    /// When a write last found every set-group full.
    pub(super) full_at_seconds: u32,
    pub(super) known_absent: KnownAbsent,
    /// For [`Engine::live_objects`](crate::tiny::Engine::live_objects).
    pub(super) sample: Sample,
    pub(super) statistics: Statistics,
}

impl Stripe for NemoStripe {
    fn in_memory(&self, hash: KeyHash) -> Option<&Object> {
        let homes = self.homes(hash);
        self.groups
            .iter()
            .find_map(|group| group.find(hash, homes))
            .or_else(|| self.in_sealed(hash, homes))
    }
}

impl NemoStripe {
    pub(super) fn new(plan: NemoPlan, sample: Sample) -> Self {
        NemoStripe {
            groups: (0..plan.config.memory_set_groups)
                .map(|_| SetGroup::new(plan.sets))
                .collect(),
            sealed: None,
            spare: Some(SetGroup::new(plan.sets)),
            early_evictions: 0,
            full_at_seconds: 0,
            known_absent: KnownAbsent::new(),
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
        let was_absent = self.known_absent.take(object.hash);
        let replaced = self
            .groups
            .iter_mut()
            .enumerate()
            .find_map(|(at, group)| Some((at, group.remove(object.hash, homes)?)));
        let first_copy =
            was_absent || matches!(&replaced, Some((_, replaced)) if replaced.first_copy);
        let supersedes = self.in_sealed(object.hash, homes).is_some()
            || (!first_copy && directory.may_be_on_flash(object.hash, homes));
        let (hash, tombstone, bytes) = (object.hash, object.tombstone, object.bytes);
        let expires = object.expires;
        let object = Object {
            fenced: supersedes,
            first_copy: !supersedes,
            ..object
        };
        if tombstone && !supersedes {
            self.sample.removed(hash);
            self.statistics.count_insert(bytes, tombstone);
            return Insert::Accepted(Accepted::default());
        }
        let (at, sealed_now) = match self.place_or_seal(directory, object, homes, now_seconds) {
            Ok(placed) => placed,
            Err(object) => {
                if let Some((at, replaced)) = replaced {
                    self.groups[at].restore(replaced, homes);
                }
                if was_absent {
                    self.known_absent.add(hash);
                }
                return Insert::Busy(object);
            }
        };
        self.statistics.count_insert(bytes, tombstone);
        match tombstone {
            true => self.sample.removed(hash),
            false => self.sample.inserted(hash, bytes, expires),
        }
        // An object that replaces a fenced one in the same set-group supersedes
        // no more than that one did.
        let fenced = !sealed_now
            && replaced.is_some_and(|(before, replaced)| replaced.fenced && before == at);
        Insert::Accepted(Accepted {
            supersedes_flash: supersedes,
            fenced_before: supersedes && fenced,
        })
    }

    /// Places an object, if necessary by evicting others or by sealing the
    /// oldest set-group. Returns the index of its set-group and whether one was
    /// sealed.
    fn place_or_seal(
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
        if self.delays_flush() {
            self.early_evictions += 1;
            object = match self.evict_for(directory, object, homes) {
                Ok(()) => return Ok((0, false)),
                Err(object) => object,
            };
        }
        self.full_at_seconds = now_seconds;
        match self.seal() {
            true => self.place(object, homes).map(|at| (at, true)),
            false => Err(object),
        }
    }

    /// Places an object in the oldest open set-group that has room for it.
    /// Returns the index of that set-group.
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

    /// True if an object is to be evicted instead of flushing the oldest set-group.
    fn delays_flush(&self) -> bool {
        self.early_evictions < self.plan.early_evictions_max
            && self.groups[0].used_bytes() < self.plan.flush_bytes
    }

    /// Makes room in the oldest set-group by evicting objects (§4.2).
    fn evict_for(
        &mut self,
        directory: &Nemo,
        mut object: Object,
        homes: Homes,
    ) -> Result<(), Object> {
        for home in homes.iter() {
            while !self.groups[0].fits(home, object.stored_bytes()) {
                if !self.evict_one(directory, home) {
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

    /// Evicts the oldest object of a set that is no tombstone; returns whether
    /// it could. Tombstones stay, because they hide older copies on flash.
    fn evict_one(&mut self, directory: &Nemo, home: u32) -> bool {
        let Some(object) = self.groups[0].evict(home) else {
            return false;
        };
        let (hash, homes) = (object.hash, self.homes(object.hash));
        self.statistics.dropped_early += 1;
        self.statistics.bytes_dropped_early += u64::from(object.bytes);
        let has_older = !object.first_copy
            && (self.in_sealed(hash, homes).is_some() || directory.may_be_on_flash(hash, homes));
        if has_older {
            let tombstone = Object::tombstone(hash);
            // Only a very small object takes less room than its tombstone.
            if tombstone.stored_bytes() > object.stored_bytes() {
                self.groups[0].put_back(home, object, homes);
                return false;
            }
            self.groups[0].put_back(home, tombstone, homes);
        }
        self.sample.removed(hash);
        true
    }

    /// Seals the oldest set-group, for the directory to flush. Returns false
    /// while another one is being flushed.
    fn seal(&mut self) -> bool {
        let Some(next) = self.spare.take() else {
            return false;
        };
        self.sealed = self.groups.pop_front();
        self.groups.push_back(next);
        self.early_evictions = 0;
        true
    }

    /// Takes some memory of the set-group that was sealed last, for the caller to drop without the
    /// lock: the allocator may return it to the kernel, which takes long. Returns `None` if there
    /// is none.
    pub(super) fn free_some(&mut self) -> Option<Discarded> {
        /// Sets that a piece of work frees.
        const SETS: u32 = 16;
        self.spare.as_mut()?.free(SETS)
    }

    /// Ends the sealed set-group: it is on flash, or was dropped. Its memory is for the next one.
    pub(super) fn end_sealed(&mut self) {
        if let Some(mut sealed) = self.sealed.take() {
            sealed.renew();
            self.spare = Some(sealed);
        }
    }

    /// Seals the oldest set-group that has objects, even if it is not full.
    pub(super) fn drain(&mut self) {
        let filled = |group: &SetGroup| group.objects() > 0;
        if self.sealed.is_none()
            && let Some(at) = self.groups.iter().position(filled)
        {
            // Empty set-groups in front of it need not be written.
            self.groups.rotate_left(at);
            self.groups[0].is_cut_short = true;
            self.seal();
        }
    }

    /// Tells the sample that a set of the sealed set-group goes to flash in the set-group
    /// `sequence`.
    pub(super) fn follow(&mut self, set: u32, sequence: u64) {
        let (plan, groups) = (&self.plan, &self.groups);
        let Some(sealed) = &self.sealed else {
            return;
        };
        for hash in sealed.set(set).hashes() {
            self.sample.flushed(hash, sequence, || {
                let homes = Homes::of(hash, plan.sets, plan.config.candidates);
                groups.iter().any(|group| group.find(hash, homes).is_some())
            });
        }
    }

    /// Tells the sample that the objects of the sealed set-group are gone.
    pub(super) fn forget_sealed(&mut self) {
        let (plan, groups) = (&self.plan, &self.groups);
        let Some(sealed) = &self.sealed else {
            return;
        };
        self.sample.dropped(|hash| {
            let homes = Homes::of(hash, plan.sets, plan.config.candidates);
            let is_open = groups.iter().any(|group| group.find(hash, homes).is_some());
            !is_open && sealed.find(hash, homes).is_some()
        });
    }

    /// True if no set-group in memory has objects.
    pub(super) fn is_empty(&self) -> bool {
        self.sealed.is_none() && self.groups.iter().all(|group| group.objects() == 0)
    }

    /// All memory of set-groups.
    pub(super) fn all(&self) -> impl Iterator<Item = &SetGroup> {
        self.groups.iter().chain(&self.sealed).chain(&self.spare)
    }
}
