//! A shard: the index, pending values and RAM tier of the same keys, under one
//! short lock, so that a change of a key changes all three together.
//!
//! No code of a caller runs under that lock. Values that leave the shard are
//! released when it is unlocked, because a caller may own their bytes.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::Bytes;
use floe_core::chunk::ShardIndex;
use floe_core::hash::{ByKeyHash, KeyHash};
use floe_core::layout::{Sequence, ZoneLife};
use floe_device::Clock;
use parking_lot::{Mutex, MutexGuard};
use quick_cache::unsync::Cache;
use quick_cache::{Lifecycle, Weighter};
use tokio::sync::oneshot;

use super::held_bytes::HeldBytes;
use super::write_buffer::BufferRoom;

/// A small value waiting for its write, or being written.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) hash: KeyHash,
    pub(crate) key: Box<[u8]>,
    pub(crate) value: HeldBytes,
    pub(crate) sequence: Sequence,
    pub(crate) expiry_unix_s: u32,
    /// Room in the write buffer, returned when the last holder is dropped.
    pub(crate) _room: BufferRoom,
    /// Held until the value is published or dropped; see `WriteQueue::drain`.
    pub(crate) _unwritten: Arc<oneshot::Sender<()>>,
}

/// Small values that are written together.
pub(crate) type Batch = Vec<Arc<Pending>>;

/// The newest pending value of a key.
#[derive(Debug)]
pub(crate) struct PendingSlot {
    pub(crate) record: Arc<Pending>,
    /// The zone life that it is being written in. Its bytes may reach flash
    /// from then on, so replacing or deleting it needs a tombstone.
    pub(crate) life: Option<ZoneLife>,
}

/// Overhead of a pending record in bytes.
pub(crate) const PENDING_BYTES: u64 = size_of::<Pending>() as u64 + 64;

/// A value in the RAM tier.
#[derive(Debug)]
pub(crate) struct RamValue {
    pub(crate) key: Box<[u8]>,
    pub(crate) value: HeldBytes,
    pub(crate) expiry_unix_s: u32,
}

/// Overhead of an entry in the RAM tier in bytes: quick_cache's slot and table,
/// two allocations, and the `Bytes` handle.
pub(crate) const RAM_ENTRY_BYTES: u64 = 160;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteWeight;

impl Weighter<KeyHash, RamValue> for ByteWeight {
    fn weight(&self, _: &KeyHash, entry: &RamValue) -> u64 {
        (entry.key.len() + entry.value.len()) as u64 + RAM_ENTRY_BYTES
    }
}

/// Passes evicted values on, to be released later.
#[derive(Debug)]
pub(crate) struct Evictions;

impl Lifecycle<KeyHash, RamValue> for Evictions {
    type RequestState = Vec<HeldBytes>;

    fn on_evict(&self, released: &mut Vec<HeldBytes>, _: KeyHash, evicted: RamValue) {
        released.push(evicted.value);
    }
}

/// A shard behind its lock.
#[derive(Debug)]
pub(crate) struct ShardLock(Mutex<Shard>);

impl ShardLock {
    pub(crate) fn new(shard: Shard) -> Self {
        ShardLock(Mutex::new(shard))
    }

    pub(crate) fn lock(&self) -> ShardGuard<'_> {
        ShardGuard {
            shard: self.0.lock(),
            released: Vec::new(),
        }
    }
}

/// A locked shard. Dropping it unlocks the shard, then releases the values that
/// left the shard.
pub(crate) struct ShardGuard<'a> {
    // Fields are dropped in this order.
    shard: MutexGuard<'a, Shard>,
    released: Vec<HeldBytes>,
}

impl Deref for ShardGuard<'_> {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for ShardGuard<'_> {
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl Drop for ShardGuard<'_> {
    fn drop(&mut self) {
        self.released = std::mem::take(&mut self.shard.released);
    }
}

/// One shard.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) index: ShardIndex,
    /// Entries leave it through methods of the shard.
    pub(crate) pending: HashMap<KeyHash, PendingSlot, ByKeyHash>,
    ram: Option<Cache<KeyHash, RamValue, ByteWeight, ByKeyHash, Evictions>>,
    /// Values that left the shard since it was locked.
    released: Vec<HeldBytes>,
}

impl Shard {
    /// Creates a shard whose RAM tier holds `ram_bytes`, in items of about `item_bytes`.
    pub(crate) fn new(index: ShardIndex, ram_bytes: u64, item_bytes: u64) -> Self {
        let items = (ram_bytes / item_bytes.max(1)).clamp(16, 1 << 20) as usize;
        let ram = (ram_bytes > RAM_ENTRY_BYTES).then(|| {
            Cache::with(
                items,
                ram_bytes,
                ByteWeight,
                ByKeyHash::default(),
                Evictions,
            )
        });
        Shard {
            index,
            pending: HashMap::default(),
            ram,
            released: Vec::new(),
        }
    }

    /// True if `record` is the newest value of its key and still pending.
    pub(crate) fn is_newest(&self, record: &Arc<Pending>) -> bool {
        let slot = self.pending.get(&record.hash);
        slot.is_some_and(|slot| Arc::ptr_eq(&slot.record, record))
    }

    /// Records the life that `record` is written in; false if it is no longer
    /// the newest value of its key.
    pub(crate) fn assign_zone(&mut self, record: &Arc<Pending>, life: ZoneLife) -> bool {
        match self.pending.get_mut(&record.hash) {
            Some(slot) if Arc::ptr_eq(&slot.record, record) => {
                slot.life = Some(life);
                true
            }
            _ => false,
        }
    }

    /// Releases a value when the shard is unlocked.
    pub(crate) fn release(&mut self, value: HeldBytes) {
        self.released.push(value);
    }

    /// Removes the pending value of a key.
    pub(crate) fn remove_pending(&mut self, hash: KeyHash) -> Option<PendingSlot> {
        let slot = self.pending.remove(&hash)?;
        self.release(slot.record.value.bytes().into());
        Some(slot)
    }

    /// Removes `record` from the pending ones; false if it is no longer the
    /// newest value of its key.
    pub(crate) fn take_pending(&mut self, record: &Arc<Pending>) -> bool {
        let is_newest = self.is_newest(record);
        if is_newest {
            self.pending.remove(&record.hash);
        }
        is_newest
    }

    /// The same for the record of this key and sequence.
    pub(crate) fn take_pending_at(
        &mut self,
        hash: KeyHash,
        sequence: Sequence,
    ) -> Option<PendingSlot> {
        let slot = self.pending.get(&hash)?;
        let is_newest = slot.record.sequence == sequence;
        is_newest.then(|| self.remove_pending(hash)).flatten()
    }

    /// Resizes the RAM tier; returns whether there is one.
    pub(crate) fn resize_ram(&mut self, ram_bytes: u64) -> bool {
        let Some(ram) = self.ram.as_mut().filter(|_| ram_bytes > RAM_ENTRY_BYTES) else {
            return false;
        };
        // The tier drops what it evicts here: not the last references.
        let values = ram.iter().map(|(_, entry)| entry.value.bytes().into());
        self.released.extend(values);
        ram.set_capacity(ram_bytes);
        true
    }

    pub(crate) fn ram_get(&mut self, hash: KeyHash, key: &[u8], clock: &Clock) -> Option<Bytes> {
        let ram = self.ram.as_mut()?;
        let found = ram.get(&hash)?;
        if *found.key != *key {
            return None;
        }
        if has_expired(found.expiry_unix_s, clock) {
            self.ram_remove(hash);
            return None;
        }
        Some(found.value.bytes())
    }

    /// True if [`ram_get`](Self::ram_get) would find it, without counting as a use.
    pub(crate) fn ram_contains(&self, hash: KeyHash, key: &[u8], clock: &Clock) -> bool {
        let found = self.ram.as_ref().and_then(|ram| ram.peek(&hash));
        found.is_some_and(|found| *found.key == *key && !has_expired(found.expiry_unix_s, clock))
    }

    pub(crate) fn ram_insert(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        value: HeldBytes,
        expiry_unix_s: u32,
    ) {
        let Some(ram) = &mut self.ram else {
            return self.release(value);
        };
        let entry = RamValue {
            key: key.into(),
            value,
            expiry_unix_s,
        };
        // A write has removed the key's older value. A promotion replaces at most
        // another promotion, whose bytes no caller owns.
        ram.insert_with_lifecycle(hash, entry, &mut self.released);
    }

    pub(crate) fn ram_remove(&mut self, hash: KeyHash) -> bool {
        let removed = self.ram.as_mut().and_then(|ram| ram.remove(&hash));
        let was_there = removed.is_some();
        self.released.extend(removed.map(|(_, entry)| entry.value));
        was_there
    }

    pub(crate) fn ram_bytes(&self) -> u64 {
        self.ram.as_ref().map_or(0, Cache::weight)
    }

    pub(crate) fn ram_len(&self) -> usize {
        self.ram.as_ref().map_or(0, Cache::len)
    }
}

/// True if a value that expires at `expiry` (0 = never) has expired. Reads the
/// clock only if the value expires at all.
pub(crate) fn has_expired(expiry_unix_s: u32, clock: &Clock) -> bool {
    expiry_unix_s != 0 && is_expired(expiry_unix_s, clock.unix_seconds())
}

/// True if a value that expires at `expiry` (0 = never) has expired at `now`.
pub(crate) fn is_expired(expiry_unix_s: u32, now_unix_s: u64) -> bool {
    expiry_unix_s != 0 && u64::from(expiry_unix_s) <= now_unix_s
}
