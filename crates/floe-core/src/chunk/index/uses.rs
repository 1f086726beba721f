//! Reports coarsely how recently each live record was used, to be stored on
//! flash.

use super::{GHOST_BIT, PAGE, Place, ShardIndex, place_of};
use crate::layout::SlotUse;

/// Entries scanned per call, which holds the shard's lock.
const ENTRIES_AT_ONCE: usize = 128 * PAGE;

/// The epochs between which a shard's records count as warm.
#[derive(Clone, Copy, Debug)]
pub struct UseBounds {
    coldest_eighth: u16,
    colder_half: u16,
}

impl ShardIndex {
    /// The current bounds of cold and warm; `None` without recency.
    pub fn use_bounds(&self) -> Option<UseBounds> {
        let (coldest_eighth, colder_half) = self.recency.as_ref()?.quantiles();
        Some(UseBounds {
            coldest_eighth,
            colder_half,
        })
    }

    /// Reports some live records to `each`, from entry number `from` on.
    /// Returns the number to continue with, or `None` at the end.
    pub fn for_each_use(
        &self,
        bounds: UseBounds,
        from: usize,
        mut each: impl FnMut(Place, SlotUse),
    ) -> Option<usize> {
        let recency = self.recency.as_ref()?;
        let end = (from + ENTRIES_AT_ONCE).min(self.pages.len() * PAGE);
        for id in from..end {
            let slot = &self.pages[id / PAGE][id % PAGE];
            if slot.len & GHOST_BIT != 0 {
                continue;
            }
            let slot_use = if recency.is_at_or_before(slot.epoch, bounds.coldest_eighth) {
                SlotUse::Cold
            } else if recency.is_at_or_before(slot.epoch, bounds.colder_half) {
                SlotUse::Warm
            } else {
                SlotUse::Hot
            };
            each(
                place_of(slot.block, self.block_size, self.zone_blocks),
                slot_use,
            );
        }
        (end < self.pages.len() * PAGE).then_some(end)
    }
}
