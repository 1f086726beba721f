//! A small log in front of sets, which Kangaroo and FairyWREN share.
//!
//! Objects are appended to the log and indexed there by set. When the log needs
//! room, its oldest zone is emptied: all of a set's objects in the log join the
//! set in one rewrite (passive migration). If sets live in zones, the oldest of
//! these is collected when few are free: valid sets move, and in FairyWREN they
//! take their objects in the log along (active migration).
//!
//! | file | for |
//! |---|---|
//! | `hierarchy` | the state: writes and searches |
//! | `index` | the log's index |
//! | `sets` | pages, filters and hits of sets; rings of zones |
//! | `merge` | one rewrite of a set |
//! | `work` | scheduling of rewrites, and their reads and writes |
//! | `under_way` | appends, resets, and zones being emptied |
//! | `clean` | emptying the log's oldest zone |
//!
//! No stale object is returned, because:
//! * A chain lists a set's objects in the log, newest first. Searches read it
//!   before the set. Its entries have 9-bit tags, so a search reads the pages
//!   of all candidates, and a rewrite takes all of a set's sealed entries.
//! * An object is evicted from the log without joining its set only if no other
//!   entry of the set has its tag, and the set's filters exclude an older copy.
//!   Otherwise its set is rewritten, even below the threshold.
//! * A rewrite assumes that unreadable objects are newer than readable ones. It
//!   drops objects with the lost entries' tags, or the whole hot part.
//! * Searches find a page of the log or a set until its replacement is on
//!   flash. Its zone is reset once no index refers to it and no search reads
//!   it.

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

/// Implements the engine for a newtype of [`Hierarchy`].
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
