//! The records of a zone that host GC copies, and those that it evicts.
//!
//! A chunk among the oldest eighth of its shard will be evicted soon. Copying
//! it costs a whole write for little time, so GC evicts it with its zone, and
//! prefers zones with few other chunks. Where chunks are copied, LRU is
//! therefore exact to within an eighth of the cache.

use super::{Entry, GHOST_BIT, NONE, ShardIndex};
use crate::ZoneId;

impl ShardIndex {
    /// Bytes of the live records in `zone` that host GC would copy: those
    /// outside the oldest eighth of all records.
    pub fn warm_bytes(&self, zone: ZoneId) -> u64 {
        let Some(recency) = &self.recency else {
            return 0;
        };
        let (coldest, _) = recency.quantiles();
        let warm = self.served_in(zone).filter(|&id| {
            let slot = self.slot(id);
            !recency.is_at_or_before(slot.epoch, coldest)
        });
        warm.map(|id| u64::from(self.slot(id).len)).sum()
    }

    /// Makes those live records in `zone` ghosts that are among the oldest
    /// eighth of all, and passes each to `evicted`.
    pub fn evict_cold(&mut self, zone: ZoneId, mut evicted: impl FnMut(Entry)) {
        let Some(recency) = &self.recency else {
            return;
        };
        let (coldest, _) = recency.quantiles();
        let cold: Vec<u32> = self
            .served_in(zone)
            .filter(|&id| recency.is_at_or_before(self.slot(id).epoch, coldest))
            .collect();
        for id in cold {
            evicted(self.entry(id));
            self.ghost_entry(id);
        }
    }

    fn served_in(&self, zone: ZoneId) -> impl Iterator<Item = u32> + '_ {
        let head = self.heads.get(zone.index()).copied().unwrap_or(NONE);
        let listed = (head != NONE).then_some(head);
        std::iter::successors(listed, |&id| {
            let next = self.slot(id).next;
            (next != NONE).then_some(next)
        })
        .filter(|&id| self.slot(id).len & GHOST_BIT == 0)
    }
}
