use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use floe_core::hash::KeyHash;
use floe_core::layout::{
    CacheId, Generation, Sequence, SlotEntry, SlotGeometry, ValueKind, ZoneLife,
};
use floe_core::slots::SlotId;
use floe_core::{ByteSize, ZoneId};
use floe_device::faulty::{Faults, Faulty};
use floe_device::{Clock, DeviceConfig, MemoryDevice, SharedDevice};
use parking_lot::Mutex;

use super::tables::run;
use super::{Change, DeadValues, Settled, TableBlocks, TableOwner, Tables};
use crate::error::CacheError;

const ZONE: ZoneId = ZoneId(2);

/// An owner that records its calls.
struct Owner {
    tables: Tables,
    is_stopped: AtomicBool,
    free: Mutex<Vec<SlotId>>,
    withdrawn: Mutex<Vec<(ZoneId, u32)>>,
    forgotten: Mutex<Vec<SlotId>>,
    tombstones: Mutex<Vec<DeadValues>>,
}

impl TableOwner for Owner {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn life(&self, zone: ZoneId) -> ZoneLife {
        ZoneLife::new(zone, Generation(1))
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(SeqCst)
    }

    fn free(&self, slots: &[SlotId]) {
        self.free.lock().extend(slots);
    }

    fn withdraw(&self, zone: ZoneId, block: u32) {
        self.withdrawn.lock().push((zone, block));
    }

    fn forget(&self, slot: SlotId, _: KeyHash, _: ValueKind, is_recent: &dyn Fn() -> bool) {
        if !is_recent() {
            self.forgotten.lock().push(slot);
        }
    }

    async fn write_tombstones(&self, dead: Vec<DeadValues>) -> Result<(), CacheError> {
        self.tombstones.lock().extend(dead);
        Ok(())
    }
}

/// An owner over a device that can fail, with an empty table in [`ZONE`].
async fn owner() -> (Arc<Owner>, Arc<Faulty>) {
    let config = DeviceConfig {
        zone_size: Some(ByteSize::mib(4)),
        ..DeviceConfig::memory(ByteSize::mib(16))
    };
    let memory: SharedDevice = Arc::new(MemoryDevice::open(&config).unwrap());
    let faulty = Arc::new(Faulty::new(memory, Clock::real(), 1, Faults::default()));
    let slots = SlotGeometry::new(4 << 20, 4096, 16 << 10).unwrap();
    let device: SharedDevice = Arc::<Faulty>::clone(&faulty);
    let blocks = TableBlocks::new(device, CacheId([7; 16]), slots);
    let owner = Arc::new(Owner {
        tables: Tables::new(blocks, true),
        is_stopped: AtomicBool::new(false),
        free: Mutex::default(),
        withdrawn: Mutex::default(),
        forgotten: Mutex::default(),
        tombstones: Mutex::default(),
    });
    let blocks = owner.tables.blocks();
    blocks.write_empty_table(owner.life(ZONE)).await.unwrap();
    (owner, faulty)
}

/// The same with a running task, and a value of key hash 10 in the first slot.
async fn owner_of_a_value() -> (Arc<Owner>, Arc<Faulty>) {
    let (owner, device) = owner().await;
    tokio::spawn(run(Arc::clone(&owner)));
    owner.change(set(0, 10, 1), Settled::Durable).await;
    (owner, device)
}

impl Owner {
    async fn change(&self, change: Change, settled: Settled) {
        self.tables.push(change);
        self.tables.settle(settled).await.unwrap();
    }
}

fn slot(slot: u32) -> SlotId {
    SlotId { zone: ZONE, slot }
}

fn set(number: u32, hash: u64, sequence: u64) -> Change {
    let entry = SlotEntry {
        hash: KeyHash(hash),
        sequence: Sequence(sequence),
        value_bytes: 10,
        checksum: 1,
        expiry_unix_s: 0,
        kind: ValueKind::Small,
        key_bytes: 3,
    };
    Change::Set {
        slot: slot(number),
        entry,
    }
}

fn clear(number: u32, hash: u64, up_to: u64) -> Change {
    Change::Clear {
        slot: slot(number),
        hash: KeyHash(hash),
        up_to: Sequence(up_to),
        frees: true,
    }
}

/// The hashes in the first block on flash, by slot.
async fn on_flash(owner: &Owner) -> Vec<(u32, u64)> {
    let block = owner.tables.blocks().read(owner.life(ZONE), 0).await;
    let block = block.unwrap().into_iter();
    let named = block.filter_map(|(slot, entry)| Some((slot, entry?.hash.0)));
    named.collect()
}

#[tokio::test]
async fn changes_of_one_block_share_a_write() {
    let (owner, _) = owner().await;
    let written = owner.tables.blocks().writes();
    let task = tokio::spawn(run(Arc::clone(&owner)));
    for number in 0..3 {
        owner.tables.push(set(number, 10 + u64::from(number), 1));
    }
    owner.tables.settle(Settled::Written).await.unwrap();
    assert_eq!(on_flash(&owner).await, [(0, 10), (1, 11), (2, 12)]);
    assert_eq!(owner.tables.blocks().writes(), written + 1);
    owner.is_stopped.store(true, SeqCst);
    owner.tables.wake();
    task.await.unwrap();
    let late = owner.tables.settle(Settled::Written).await;
    assert!(matches!(late, Err(CacheError::Closed)));
}

#[tokio::test]
async fn a_cleared_slot_is_free_once_that_is_written_and_forgotten_once_it_is_stable() {
    let (owner, _) = owner_of_a_value().await;
    // A sequence below the entry's refers to an older value.
    owner.change(clear(0, 10, 0), Settled::Durable).await;
    assert_eq!(on_flash(&owner).await, [(0, 10)]);
    owner.change(clear(0, 10, 1), Settled::Written).await;
    assert!(on_flash(&owner).await.is_empty());
    assert_eq!(owner.free.lock().last(), Some(&slot(0)));
    assert!(owner.forgotten.lock().is_empty());
    owner.tables.settle(Settled::Durable).await.unwrap();
    assert_eq!(*owner.forgotten.lock(), [slot(0)]);
}

#[tokio::test]
async fn a_ghost_stays_while_a_younger_value_is_on_its_way_into_its_slot() {
    let (owner, _) = owner_of_a_value().await;
    owner.change(clear(0, 10, 1), Settled::Written).await;
    owner.change(set(0, 10, 2), Settled::Durable).await;
    assert!(owner.forgotten.lock().is_empty());
    assert_eq!(on_flash(&owner).await, [(0, 10)]);
}

#[tokio::test]
async fn a_block_that_cannot_be_written_is_buried_and_withdrawn() {
    let (owner, device) = owner_of_a_value().await;
    device.set(Faults {
        bad_zones: vec![ZONE],
        ..Faults::default()
    });
    owner.change(clear(0, 10, 1), Settled::Durable).await;
    assert_eq!(*owner.withdrawn.lock(), [(ZONE, 0)]);
    let dead = |hash, up_to| DeadValues {
        zone: ZONE,
        hash: KeyHash(hash),
        up_to: Sequence(up_to),
    };
    assert!(owner.tombstones.lock().contains(&dead(10, 1)));
    // Later changes of the block get tombstones too.
    owner.change(clear(1, 11, 5), Settled::Durable).await;
    assert_eq!(owner.tombstones.lock().last(), Some(&dead(11, 5)));
    assert!(owner.tables.blocks().write_errors() > 0);
}

#[tokio::test]
async fn waits_fail_when_the_task_is_gone() {
    let (owner, _) = owner().await;
    let task = tokio::spawn(run(Arc::clone(&owner)));
    tokio::task::yield_now().await;
    task.abort();
    let _ = task.await;
    owner.tables.push(clear(0, 10, 1));
    let settled = owner.tables.settle(Settled::Durable).await;
    assert!(matches!(settled, Err(CacheError::Closed)));
}
