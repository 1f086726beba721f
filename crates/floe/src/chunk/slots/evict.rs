//! Eviction between the watermarks, chunk by chunk. It writes nothing.

use floe_core::chunk::Entry;
use floe_core::slots::slot_at;

use super::SlotStore;
use crate::chunk::shard::ShardLock;
use crate::chunk::stats::add;

/// Slots to evict under one lock.
const EVICT_AT_ONCE: u64 = 64;

impl SlotStore {
    /// Evicts the least recently used chunks, if free slots are few.
    pub(crate) fn evict_to_low_water(&self) {
        if self.free_slots() > self.high_water {
            return;
        }
        // If many slots are out of use, a watermark must not empty the rest.
        let enough = self.low_water.min(self.usable_slots() / 2).max(1);
        loop {
            let free = self.free_slots();
            if free >= enough || !self.evict_some(enough - free) {
                return;
            }
        }
    }

    /// Evicts about `wanted` chunks, from each shard in proportion to its size.
    fn evict_some(&self, wanted: u64) -> bool {
        let shards = self.base.index.shards();
        let live = |shard: &ShardLock| shard.lock().index.live() as u64;
        let live: Vec<u64> = shards.iter().map(live).collect();
        let all = live.iter().sum::<u64>().max(1);
        let mut evicted_any = false;
        for (shard, live) in shards.iter().zip(live) {
            let mut share = (wanted * live).div_ceil(all);
            while share > 0 {
                let evicted = self.evict_from(shard, share.min(EVICT_AT_ONCE));
                if evicted == 0 {
                    break;
                }
                evicted_any = true;
                share = share.saturating_sub(evicted);
            }
        }
        evicted_any
    }

    /// Evicts up to `most` chunks from `shard`. Returns their number.
    fn evict_from(&self, shard: &ShardLock, most: u64) -> u64 {
        let mut slots = Vec::new();
        let mut evicted = 0;
        let mut release = |entry: Entry| {
            self.base.index.states().remove_live(&entry);
            slots.extend(slot_at(&self.geometry, entry.place));
            evicted += 1;
        };
        let mut shard = shard.lock();
        shard.index.evict_least_recent_records(most, &mut release);
        drop(shard);
        add(&self.base.env.counters.chunks_evicted, evicted);
        self.uses.changed(evicted);
        self.give_back(&slots);
        evicted
    }
}
