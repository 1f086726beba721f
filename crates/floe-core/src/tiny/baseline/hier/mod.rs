//! A small log in front of sets: what Kangaroo and FairyWREN share.
//!
//! Objects are appended to the log and indexed there by set. When the log
//! needs room, its oldest zone is emptied: a set's objects in the log join the
//! set together, in one rewrite (passive migration). Where sets live in zones,
//! the oldest of those is collected when few are free: sets that still are
//! there move, and FairyWREN lets them take their objects along from the log
//! (active migration).
//!
//! | file | for |
//! |---|---|
//! | `hierarchy` | the state: writes and searches |
//! | `index` | the log's index |
//! | `sets` | places, filters and hits of sets; rings of zones |
//! | `merge` | one rewrite of a set |
//! | `work` | which rewrites are begun, and their reads and writes |
//! | `under_way` | appends, resets, zones that are emptied |
//! | `clean` | emptying the log's oldest zone |
//!
//! Why nothing old comes back:
//! * A chain lists a set's objects in the log, the newest first, and is asked
//!   before the set. It names objects by 9 bits, so a search reads the pages of
//!   all candidates, and a rewrite takes all of a set's sealed entries.
//! * An object leaves the log without joining its set only when no other entry
//!   of the set has its tag, and the set's filters say that the set has no
//!   older copy. Otherwise its set is rewritten, whatever the threshold says.
//! * What a rewrite cannot read it must assume to be newer than what it can:
//!   objects with the lost entries' tags, or the whole hot part, are forgotten.
//! * A page of log or set is found until its replacement is on flash, and its
//!   zone is reset when no index names it and no search is inside.

mod clean;
mod hierarchy;
mod index;
mod merge;
mod sets;
mod under_way;
mod work;

pub use self::hierarchy::Front;
pub(super) use self::hierarchy::{Hierarchy, HierarchyPlan};
pub(super) use self::index::LOG_PAGES_MAX;

/// Makes a newtype of [`Hierarchy`] an engine.
macro_rules! delegate_engine {
    ($engine:ty) => {
        impl Engine for $engine {
            type Stripe = Front;
            type Scratch = ();

            fn stripe(&self) -> Front {
                self.0.front()
            }

            fn insert(&self, front: &mut Front, object: Object, now_seconds: u32) -> Insert {
                self.0.insert(front, object, now_seconds)
            }

            fn begin_search(
                &mut self,
                front: &mut Front,
                hash: KeyHash,
                search: &mut Search,
                _: &mut (),
            ) -> Step {
                self.0.begin_search(front, hash, search)
            }

            fn end_search(
                &mut self,
                front: &mut Front,
                search: &mut Search,
                _: &mut (),
                found: Found,
            ) {
                self.0.end_search(front, search, found);
            }

            fn next_task(&mut self, front: &mut Front) -> Option<Task> {
                self.0.next_task(front)
            }

            fn complete(
                &mut self,
                front: &mut Front,
                id: TaskId,
                outcome: Outcome,
                now_seconds: u32,
            ) {
                self.0.complete(front, id, outcome, now_seconds);
            }

            fn statistics(&self, front: &Front) -> Statistics {
                self.0.statistics(front)
            }

            fn memory(&self, front: &Front) -> Memory {
                self.0.memory(front)
            }
        }
    };
}
pub(super) use delegate_engine;
