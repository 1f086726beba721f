//! Writes: into the engine, with what they outdate fenced off.

use std::sync::atomic::Ordering::SeqCst;

use floe_core::hash::KeyHash;
use floe_core::layout::tiny::split_record;
use floe_core::tiny::{Engine as _, Insert, Object, Stripe as _};

use super::config::LookBeforeFence;
use super::instance::{Instance, State};
use super::journal::{Journal, Place, Wait};
use crate::error::CacheError;

/// An object that is to be taken in.
enum Write {
    /// Whether it is admitted has not been asked.
    Asked(Object),
    /// The object that goes to flash, and the one for the RAM tier instead.
    Decided(Object, Option<Object>),
}

/// The result of an attempt to take in an object.
enum Tried {
    Over(Result<Wait, CacheError>),
    /// There is no room now.
    Again(Write),
}

impl Instance {
    /// Takes in an object; waits while there is no room. With a `journal`
    /// what it outdates is fenced off; without one nothing outlives the
    /// process. Returns what must be waited for before it is acknowledged.
    pub(super) async fn insert(
        &self,
        object: Object,
        now_seconds: u32,
        journal: Option<&Journal>,
    ) -> Result<Wait, CacheError> {
        if journal.is_some() {
            self.look_before(&object, now_seconds).await;
        }
        let mut write = Write::Asked(object);
        loop {
            // Before the engine changes: from then on nothing may wait until
            // the fence is on its way, for this future may be dropped. And not
            // while there is no room: who makes it needs a place, too.
            let place = match journal {
                Some(journal) => Some(journal.place().await?),
                None => None,
            };
            // Before the engine is asked: a wake-up in between must not be lost.
            let room = self.room.notified();
            write = match self.try_insert(write, now_seconds, place) {
                Tried::Over(result) => return result,
                Tried::Again(write) => write,
            };
            self.work.notify_one();
            room.await;
        }
    }

    /// Looks whether flash holds the key of an object that is to be taken in. What
    /// is not there needs no fence, which costs a write and a place in the journal.
    async fn look_before(&self, object: &Object, now_seconds: u32) {
        if let Some((key, _)) = split_record(&object.record)
            && self.pays_to_look(object.hash)
        {
            // The value that it finds is about to be replaced.
            let _ = self.get(object.hash, key, now_seconds).await;
        }
    }

    fn pays_to_look(&self, hash: KeyHash) -> bool {
        let mut state = self.state.lock();
        if !self.durability.is_persistent() {
            return false;
        }
        let (engine, stripe) = (&state.engine, &state.stripe);
        let pays = match self.look_before_fence {
            LookBeforeFence::Never => false,
            LookBeforeFence::Many => {
                state.fences.are_many() && engine.could_be_absent(stripe, hash)
            }
            // Filters that are wrong cost a fence, too, unless an earlier one covers.
            LookBeforeFence::Always => {
                let covering = state.fences.covering(hash, engine.durable_when(stripe));
                covering.is_none()
                    && stripe.in_memory(hash).is_none()
                    && engine.may_outdate(stripe, hash)
            }
        };
        state.fences.lookups += u64::from(pays);
        pays
    }

    fn try_insert(&self, write: Write, now_seconds: u32, place: Option<Place<'_>>) -> Tried {
        let mut state = self.state.lock();
        // Under the lock: after `stop`, its next holder has seen every write.
        if self.stopping.load(SeqCst) {
            return Tried::Over(Err(CacheError::Closed));
        }
        let (object, ram_only) = match write {
            Write::Asked(object) if !state.admits(&object, now_seconds) => {
                // The copy on flash is outdated all the same.
                (Object::tombstone(object.hash), Some(object))
            }
            Write::Asked(object) => (object, None),
            Write::Decided(object, ram_only) => (object, ram_only),
        };
        let hash = object.hash;
        let place = match place {
            Some(place)
                if state.engine.may_outdate(&state.stripe, hash)
                    && self.has_too_many_fences(&mut state) =>
            {
                if self.retire_fences(&mut state, place.last()) {
                    place.settle();
                    self.room.notify_waiters();
                } else {
                    state.fences.delays += 1;
                    state.refused = true;
                }
                return Tried::Again(Write::Decided(object, ram_only));
            }
            place => place,
        };
        match state.insert(object, now_seconds) {
            Insert::Accepted(accepted) => {
                state.ram.changed(hash);
                if let Some(object) = ram_only {
                    state.ram.put_object(&object);
                }
                let wait = place.map_or(Wait::Nothing, |place| {
                    state.fence(self.number, hash, accepted, place)
                });
                let due = state.has_work();
                drop(state);
                if due {
                    self.work.notify_one();
                }
                Tried::Over(Ok(wait))
            }
            Insert::Busy(object) => {
                state.refused = true;
                Tried::Again(Write::Decided(object, ram_only))
            }
        }
    }

    /// Whether no further fence may be sent before some have ended. Then
    /// everything in memory is on its way to flash.
    fn has_too_many_fences(&self, state: &mut State) -> bool {
        if !state.fences.are_too_many(self.durable.load(SeqCst)) {
            return false;
        }
        // Nothing to flush, and not all of it flushed: zones are worn out, and
        // what they did not take is forgotten. Its fences hold for good.
        state.drain() || state.engine.is_drained(&state.stripe)
    }

    /// If all that was ever taken in is on flash, then no fence up to number
    /// `last`, the last one that was sent, holds any more; says whether that
    /// is so.
    pub(super) fn retire_fences(&self, state: &mut State, last: u64) -> bool {
        let is_drained = state.engine.is_drained(&state.stripe);
        if is_drained {
            self.moot_before.store(last + 1, SeqCst);
            state.fences.forget();
        }
        is_drained
    }
}
