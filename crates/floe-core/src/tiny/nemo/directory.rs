//! The directory: set-groups on flash, and their filters.

use super::config::NemoPlan;
use super::extents::Extents;
use super::flush::Flush;
use super::hashes::Homes;
use super::index::Index;
use super::matches::{Candidate, candidates_max};
use super::pool::Pool;
use crate::hash::KeyHash;
use crate::tiny::engine::Discarded;
use crate::tiny::object::PageAddress;
use crate::tiny::statistics::Statistics;

/// The directory of the engine. It knows what is on flash.
#[derive(Debug)]
pub struct Nemo {
    pub(super) plan: NemoPlan,
    /// Objects per set that the next index group is sized for.
    pub(super) filter_objects: f64,
    pub(super) index: Index,
    pub(super) pool: Pool,
    /// The index dropped filters of set-groups that a crash could bring back.
    pub(super) dropped_unsettled_filters: bool,
    /// The last sealed set-group was dropped because no zone could take it.
    pub(super) dropped_sealed: bool,
    /// As [`Engine::durable`](crate::tiny::Engine::durable). It does not count
    /// a set-group that was dropped.
    pub(super) durable: u64,
    pub(super) extents: Extents,
    pub(super) flush: Flush,
    /// Memory that is no longer needed.
    pub(super) discarded: Vec<Discarded>,
    /// Most pages that a search reads; see [`candidates_max`].
    pub(super) candidates_max: usize,
    pub(super) statistics: Statistics,
}

impl Nemo {
    /// An engine on empty flash.
    pub fn new(plan: NemoPlan) -> Self {
        let (config, sets) = (&plan.config, plan.sets);
        let filter_objects = plan.expected_objects();
        let shape = plan.shape_for(filter_objects);
        Nemo {
            filter_objects,
            index: Index::new(shape, sets, config, plan.page_filter_bytes()),
            pool: Pool::new(sets, plan.extents(), config.hotness_window),
            dropped_unsettled_filters: false,
            dropped_sealed: false,
            durable: 0,
            extents: Extents::new(plan.flash, plan.extent_pages),
            flush: Flush::new(),
            discarded: Vec::new(),
            candidates_max: candidates_max(0.0),
            statistics: Statistics::default(),
            plan,
        }
    }

    pub(super) fn homes(&self, hash: KeyHash) -> Homes {
        Homes::of(hash, self.plan.sets, self.plan.config.candidates)
    }

    /// The page of a candidate, if it is still on flash.
    pub(super) fn page_of(&self, candidate: Candidate) -> Option<PageAddress> {
        let resident = self.pool.get(candidate.sequence)?;
        Some(self.extents.page(resident.extent, candidate.home))
    }
}
