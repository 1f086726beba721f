//! The store as the owner of its tables.

use floe_core::ZoneId;
use floe_core::hash::KeyHash;
use floe_core::layout::{Note, ValueKind, ZoneLife};
use floe_core::slots::SlotId;

use super::{SlotStore, place};
use crate::error::CacheError;
use crate::slots::{DeadValues, TableOwner, Tables};

impl TableOwner for SlotStore {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn life(&self, zone: ZoneId) -> ZoneLife {
        self.base.index.states().life(zone)
    }

    fn is_stopped(&self) -> bool {
        self.base.env.is_stopped()
    }

    fn free(&self, slots: &[SlotId]) {
        self.give_back(slots);
    }

    fn withdraw(&self, zone: ZoneId, block: u32) {
        self.map.lock().withdraw_block(zone, block);
        // A write may wait for a slot that will never be free.
        self.base.zones.notify_changed();
    }

    fn forget(&self, slot: SlotId, hash: KeyHash, kind: ValueKind, is_recent: &dyn Fn() -> bool) {
        let mut shard = self.base.index.shard_of(hash).lock();
        if !is_recent() {
            let place = place(&self.geometry, slot, kind);
            shard.index.forget_ghost(hash, place);
        }
    }

    async fn write_tombstones(&self, dead: Vec<DeadValues>) -> Result<(), CacheError> {
        let states = self.base.index.states();
        let note = |dead: DeadValues| {
            states.add_tombstone(dead.zone);
            Note::Tombstone {
                life: states.life(dead.zone),
                hash: dead.hash,
                sequence: dead.up_to,
            }
        };
        self.base
            .journal
            .commit(dead.into_iter().map(note).collect())
            .await
    }
}
