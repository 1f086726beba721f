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

impl Pending {
    /// True if lookups of `key` find it: another key may have the same hash.
    pub(crate) fn is_served(&self, key: &[u8], clock: &Clock) -> bool {
        *self.key == *key && !has_expired(self.expiry_unix_s, clock)
    }
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
#[derive(Debug, Default)]
struct Evictions {
    /// Values that a resize evicted; the tier drops its state for them.
    by_resize: Arc<Mutex<Vec<HeldBytes>>>,
}

impl Lifecycle<KeyHash, RamValue> for Evictions {
    type RequestState = Option<Vec<HeldBytes>>;

    fn on_evict(&self, inserts: &mut Self::RequestState, _: KeyHash, evicted: RamValue) {
        match inserts {
            Some(released) => released.push(evicted.value),
            None => self.by_resize.lock().push(evicted.value),
        }
    }
}

/// A shard's part of the RAM tier.
#[derive(Debug)]
struct RamTier {
    cache: Cache<KeyHash, RamValue, ByteWeight, ByKeyHash, Evictions>,
    by_resize: Arc<Mutex<Vec<HeldBytes>>>,
    /// Most bytes that the tier shrinks by at once.
    shrink_bytes: u64,
}

/// Values of the expected length that a step of shrinking the RAM tier evicts.
const SHRINK_VALUES: u64 = 16;

/// The state of a RAM tier that is being resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resize {
    /// The tier has the new size.
    Done,
    /// Call again, after unlocking the shard.
    Unfinished,
    /// There is no tier, or it would be too small.
    Rejected,
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
    ram: Option<RamTier>,
    /// Values that left the shard since it was locked.
    released: Vec<HeldBytes>,
}

impl Shard {
    /// Creates a shard whose RAM tier holds `ram_bytes`, in items of about `item_bytes`.
    pub(crate) fn new(index: ShardIndex, ram_bytes: u64, item_bytes: u64) -> Self {
        let items = (ram_bytes / item_bytes.max(1)).clamp(16, 1 << 20) as usize;
        let ram = (ram_bytes > RAM_ENTRY_BYTES).then(|| {
            let evictions = Evictions::default();
            RamTier {
                by_resize: Arc::clone(&evictions.by_resize),
                shrink_bytes: SHRINK_VALUES * item_bytes.max(RAM_ENTRY_BYTES),
                cache: Cache::with(
                    items,
                    ram_bytes,
                    ByteWeight,
                    ByKeyHash::default(),
                    evictions,
                ),
            }
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

    /// Resizes the RAM tier, or shrinks it by one step. The work of a step is
    /// independent of the shard's size.
    pub(crate) fn resize_ram(&mut self, ram_bytes: u64) -> Resize {
        let Some(ram) = self.ram.as_mut().filter(|_| ram_bytes > RAM_ENTRY_BYTES) else {
            return Resize::Rejected;
        };
        let next = ram_bytes.max(ram.cache.capacity().saturating_sub(ram.shrink_bytes));
        ram.cache.set_capacity(next);
        self.released.append(&mut ram.by_resize.lock());
        match next == ram_bytes {
            true => Resize::Done,
            false => Resize::Unfinished,
        }
    }

    pub(crate) fn ram_get(&mut self, hash: KeyHash, key: &[u8], clock: &Clock) -> Option<Bytes> {
        let ram = self.ram.as_mut()?;
        let found = ram.cache.get(&hash)?;
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
        let found = self.ram.as_ref().and_then(|ram| ram.cache.peek(&hash));
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
        let mut released = Some(std::mem::take(&mut self.released));
        ram.cache.insert_with_lifecycle(hash, entry, &mut released);
        self.released = released.unwrap_or_default();
    }

    /// Replaces the bytes `old` of a value in the RAM tier by equal ones elsewhere.
    pub(crate) fn ram_move(&mut self, hash: KeyHash, old: &Bytes, new: Bytes) {
        let Some(mut found) = self.ram.as_mut().and_then(|ram| ram.cache.peek_mut(&hash)) else {
            return;
        };
        let kept: &[u8] = &found.value;
        if std::ptr::eq(kept, &**old) {
            let old = std::mem::replace(&mut found.value, new.into());
            drop(found);
            self.release(old);
        }
    }

    pub(crate) fn ram_remove(&mut self, hash: KeyHash) -> bool {
        let removed = self.ram.as_mut().and_then(|ram| ram.cache.remove(&hash));
        let was_there = removed.is_some();
        self.released.extend(removed.map(|(_, entry)| entry.value));
        was_there
    }

    pub(crate) fn ram_bytes(&self) -> u64 {
        self.ram.as_ref().map_or(0, |ram| ram.cache.weight())
    }

    pub(crate) fn ram_len(&self) -> usize {
        self.ram.as_ref().map_or(0, |ram| ram.cache.len())
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

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use floe_core::Geometry;

    use super::*;

    /// A value that counts, when it is dropped, whether the shard is locked.
    struct Watched {
        shard: Weak<ShardLock>,
        drops: Arc<[AtomicUsize; 2]>,
    }

    impl AsRef<[u8]> for Watched {
        fn as_ref(&self) -> &[u8] {
            &[7; 4000]
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            let is_locked = |shard: Arc<ShardLock>| shard.0.is_locked();
            let is_locked = self.shard.upgrade().is_some_and(is_locked);
            self.drops[usize::from(is_locked)].fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn the_ram_tier_shrinks_in_steps_and_releases_values_after_each() {
        let index = ShardIndex::new(&Geometry::in_place(4, 4 << 20), false);
        let shard = Arc::new(ShardLock::new(Shard::new(index, 8 << 20, 4096)));
        let drops = Arc::new([const { AtomicUsize::new(0) }; 2]);
        for number in 0..1900_u64 {
            let value = Watched {
                shard: Arc::downgrade(&shard),
                drops: Arc::clone(&drops),
            };
            let value = Bytes::from_owner(value).into();
            let key = number.to_le_bytes();
            shard
                .lock()
                .ram_insert(KeyHash(number << 32 | number), &key, value, 0);
        }
        assert_eq!(shard.lock().ram_len(), 1900);
        let mut steps = 0;
        loop {
            let mut guard = shard.lock();
            let resize = guard.resize_ram(1 << 20);
            assert!(guard.shard.released.len() as u64 <= SHRINK_VALUES + 1);
            drop(guard);
            let kept = shard.lock().ram_len();
            assert_eq!(drops[0].load(Relaxed), 1900 - kept, "released at once");
            if resize == Resize::Done {
                break;
            }
            steps += 1;
        }
        assert_eq!(steps, (7 << 20) / (SHRINK_VALUES as usize * 4096) - 1);
        assert!((900 << 10..=1 << 20).contains(&shard.lock().ram_bytes()));
        assert_eq!(drops[1].load(Relaxed), 0, "released under the lock");
        assert_eq!(shard.lock().resize_ram(8 << 20), Resize::Done);
        assert_eq!(shard.lock().resize_ram(0), Resize::Rejected);
    }
}
