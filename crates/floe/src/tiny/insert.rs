//! Writes into the engine, with fences for superseded copies on flash.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use floe_core::hash::KeyHash;
use floe_core::layout::tiny::split_record;
use floe_core::tiny::{Engine as _, Insert, Object, Stripe as _};

use super::config::LookBeforeFence;
use super::instance::{Instance, State};
use super::journal::{Journal, Place, Wait};
use crate::error::CacheError;

/// An object to insert.
#[derive(Debug)]
pub(super) enum Write {
    /// The admission policy has not decided yet.
    Undecided(Object),
    /// The object that goes to flash, and the declined one that stays in the RAM tier.
    Decided(Object, Option<Object>),
}

impl Write {
    fn object(&self) -> &Object {
        let (Write::Undecided(object) | Write::Decided(object, _)) = self;
        object
    }
}

/// The result of an attempt to insert.
#[derive(Debug)]
enum Attempt {
    /// Reads find the object. Its write is acknowledged after this.
    Inserted(Wait),
    /// The engine has no room now.
    Retry(Write),
    /// The key is to be looked up first: one without a copy on flash needs no fence, which costs
    /// a write and an entry in the journal.
    LookUp(Write),
}

/// A write that was begun.
#[derive(Debug)]
pub(super) enum Begun {
    /// Reads find the object. Its write is acknowledged after this.
    Inserted(Wait),
    /// The engine had no room, or too many fences hold.
    Waiting(Write),
}

impl Instance {
    /// Inserts an object if that needs no wait, as far as can be told. With a `journal`, a copy
    /// on flash that it supersedes gets a fence; volatile engines need none. Returns `None` if
    /// nothing was done.
    pub(super) fn begin_insert(
        &self,
        object: Object,
        now_seconds: u32,
        journal: Option<&Journal>,
    ) -> Result<Option<Begun>, CacheError> {
        let place = match journal.map(Journal::try_place).transpose()? {
            Some(None) => return Ok(None),
            place => place.flatten(),
        };
        let write = Write::Undecided(object);
        let may_look_up = journal.is_some();
        Ok(
            match self.try_insert(write, now_seconds, place, may_look_up)? {
                Attempt::Inserted(wait) => Some(Begun::Inserted(wait)),
                Attempt::LookUp(_) => None,
                Attempt::Retry(write) => {
                    self.work.notify_one();
                    Some(Begun::Waiting(write))
                }
            },
        )
    }

    /// Inserts an object, once there is room. Returns what must become durable before the
    /// acknowledgement.
    pub(super) async fn insert(
        &self,
        mut write: Write,
        now_seconds: u32,
        journal: Option<&Journal>,
    ) -> Result<Wait, CacheError> {
        let mut may_look_up = journal.is_some();
        loop {
            // Taken before the engine changes: after that nothing may wait
            // until the fence is queued, because this future may be dropped.
            // Not kept while waiting for room: the task that makes room may
            // need a place too.
            let place = match journal {
                Some(journal) => Some(journal.place().await?),
                None => None,
            };
            // Registered before the attempt, so no wake-up is lost.
            let room = self.room.notified();
            write = match self.try_insert(write, now_seconds, place, may_look_up)? {
                Attempt::Inserted(wait) => return Ok(wait),
                Attempt::LookUp(write) => {
                    may_look_up = false;
                    self.lock().fences.lookups += 1;
                    self.look_up(&write, now_seconds).await;
                    write
                }
                Attempt::Retry(write) => {
                    self.work.notify_one();
                    room.await;
                    write
                }
            };
        }
    }

    async fn look_up(&self, write: &Write, now_seconds: u32) {
        let object = write.object();
        if let Some((key, _)) = split_record(&object.record) {
            // The write replaces the value, so only the lookup's effect on filters matters.
            let _ = self.get(object.hash, key, now_seconds).await;
        }
    }

    fn pays_to_look_up(&self, state: &State, hash: KeyHash) -> bool {
        let (engine, stripe) = (&state.engine, &state.stripe);
        match self.look_before_fence {
            _ if !self.durability.is_persistent() => false,
            LookBeforeFence::Never => false,
            LookBeforeFence::Many => {
                state.fences.are_many() && engine.could_be_absent(stripe, hash)
            }
            // A false positive costs a fence too, unless an existing one covers the write.
            LookBeforeFence::Always => {
                let covering = state.fences.covering(hash, engine.durable_when(stripe));
                covering.is_none()
                    && stripe.in_memory(hash).is_none()
                    && engine.may_supersede(stripe, hash)
            }
        }
    }

    fn try_insert(
        &self,
        write: Write,
        now_seconds: u32,
        place: Option<Place<'_>>,
        may_look_up: bool,
    ) -> Result<Attempt, CacheError> {
        let mut state = self.lock();
        // Checked under the lock: its next holder after they were set has seen every write.
        let flags = [&self.closing, &self.stopping, &self.frozen];
        if flags.iter().any(|flag| flag.load(SeqCst)) {
            return Err(self.refusal());
        }
        let object = write.object();
        let is_value = !object.record.is_empty();
        if may_look_up && is_value && self.pays_to_look_up(&state, object.hash) {
            return Ok(Attempt::LookUp(write));
        }
        let (object, ram_only) = match write {
            Write::Undecided(object) if !self.ram.lock().admits(&object, now_seconds) => {
                // The write supersedes the copy on flash even if it is declined.
                (Object::tombstone(object.hash), Some(object))
            }
            Write::Undecided(object) => (object, None),
            Write::Decided(object, ram_only) => (object, ram_only),
        };
        let hash = object.hash;
        let place = match place {
            Some(place)
                if state.fences.are_too_many(self.fence_bounds.durable())
                    && state.engine.may_supersede(&state.stripe, hash)
                    && self.waits_for_fences(&mut state) =>
            {
                if self.retire_fences(&mut state, place.last()) {
                    place.settle();
                    self.room.notify_waiters();
                } else {
                    state.fences.delays += 1;
                    state.rejected = true;
                    self.is_short.store(true, Relaxed);
                }
                return Ok(Attempt::Retry(Write::Decided(object, ram_only)));
            }
            place => place,
        };
        match state.insert(object, now_seconds) {
            Insert::Accepted(accepted) => {
                if self.is_short.load(Relaxed) {
                    self.is_short.store(false, Relaxed);
                }
                let mut ram = self.ram.lock();
                ram.changed(hash);
                if let Some(object) = ram_only {
                    ram.put_object(&object);
                }
                drop(ram);
                let wait = place.map_or(Wait::Nothing, |place| {
                    state.fence(self.number, hash, accepted, place)
                });
                let due = state.has_work();
                drop(state);
                if due {
                    self.work.notify_one();
                }
                Ok(Attempt::Inserted(wait))
            }
            Insert::Busy(object) => {
                state.rejected = true;
                self.is_short.store(true, Relaxed);
                Ok(Attempt::Retry(Write::Decided(object, ram_only)))
            }
        }
    }

    /// True if fences can end. If so, starts to flush all objects in memory.
    fn waits_for_fences(&self, state: &mut State) -> bool {
        // If there is nothing to flush but not all was flushed, the zones are
        // worn out and objects were lost: their fences stay in force for good.
        state.drain() || state.engine.is_drained(&state.stripe)
    }

    /// If every object ever inserted is on flash, ends all fences up to number
    /// `last`, the last one sent. Returns whether that is so.
    pub(super) fn retire_fences(&self, state: &mut State, last: u64) -> bool {
        let is_drained = state.engine.is_drained(&state.stripe);
        if is_drained {
            self.fence_bounds.end_all(last);
            state.fences.forget(last);
        }
        is_drained
    }
}
