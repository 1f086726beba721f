//! A get: shard, write buffer, flash, and back into the RAM tier.

use std::sync::Arc;

use bytes::Bytes;
use floe_core::chunk::{Entry, Found};
use floe_core::hash::KeyHash;
use floe_core::layout::{Generation, SMALL_MAX_BYTES, small_checksum};
use floe_device::Address;

use super::shard::has_expired;
use super::stats::add;
use super::zone_state::{Pin, ZoneStates};
use super::{Engine, LargeReader};
use crate::error::CacheError;
use crate::value::Tier;

/// Where a key's value is.
pub(crate) enum Lookup<'e> {
    /// In memory, whole.
    Memory(Bytes, Tier),
    /// On flash.
    Flash(FlashValue<'e>),
    /// Nowhere.
    Absent,
}

/// What is known of a key without reading flash.
pub(crate) enum RamLookup {
    /// The value, whole.
    Found(Bytes, Tier),
    /// The value is on flash.
    OnFlash { len: u64 },
    /// There is none.
    Absent,
}

/// What a shard holds of a key in memory.
enum InMemory {
    Value(Bytes, Tier),
    /// What flash may hold is not the newest, and the newest is not served.
    Outdated,
    Nothing,
}

/// A value on flash, pinned there.
pub(crate) struct FlashValue<'e> {
    pub(crate) hash: KeyHash,
    pub(crate) entry: Entry,
    pub(crate) generation: Generation,
    pub(crate) pin: Pin<&'e ZoneStates>,
}

impl Engine {
    /// Finds `key`, touching whatever tracks recency.
    pub(crate) fn lookup(&self, key: &[u8]) -> Result<Lookup<'_>, CacheError> {
        self.check_key(key)?;
        let hash = self.hash(key);
        let mut shard = self.shard_of(hash).lock();
        match self.in_memory(&mut shard, hash, key) {
            InMemory::Value(bytes, tier) => {
                drop(shard);
                self.count_memory_hit(hash, &bytes, tier);
                return Ok(Lookup::Memory(bytes, tier));
            }
            InMemory::Outdated => return Ok(self.absent()),
            InMemory::Nothing => {}
        }
        let on_flash = self.find_on_flash(&mut shard, hash);
        drop(shard);
        let Some(value) = on_flash else {
            return Ok(self.absent());
        };
        self.note_hit(hash);
        Ok(Lookup::Flash(value))
    }

    /// Finds `key` if it is in memory. A value on flash is neither counted nor
    /// touched: whoever wants it goes on with [`lookup`](Self::lookup). A miss
    /// is not counted: the key may be elsewhere; see [`count_miss`](Self::count_miss).
    pub(crate) fn lookup_ram(&self, key: &[u8]) -> Result<RamLookup, CacheError> {
        self.check_key(key)?;
        let hash = self.hash(key);
        let mut shard = self.shard_of(hash).lock();
        let found = self.in_memory(&mut shard, hash, key);
        let on_flash = match (&found, shard.index.get(hash)) {
            (InMemory::Nothing, Some(Found::Live(entry))) => Some(u64::from(entry.len)),
            _ => None,
        };
        drop(shard);
        Ok(match found {
            InMemory::Value(bytes, tier) => {
                self.count_memory_hit(hash, &bytes, tier);
                RamLookup::Found(bytes, tier)
            }
            InMemory::Nothing | InMemory::Outdated => match on_flash {
                Some(len) => RamLookup::OnFlash { len },
                None => RamLookup::Absent,
            },
        })
    }

    /// Counts that a key was asked for that is nowhere.
    pub(crate) fn count_miss(&self) {
        add(&self.counters.misses, 1);
    }

    fn in_memory(&self, shard: &mut super::Shard, hash: KeyHash, key: &[u8]) -> InMemory {
        if let Some(bytes) = shard.ram_get(hash, key, &self.clock) {
            self.touch_on_flash(shard, hash);
            return InMemory::Value(bytes, Tier::Ram);
        }
        // Asked at every hit: mostly nothing is on its way to flash.
        if shard.pending.is_empty() {
            return InMemory::Nothing;
        }
        let Some(slot) = shard.pending.get(&hash) else {
            return InMemory::Nothing;
        };
        let record = &slot.record;
        if *record.key != *key {
            return InMemory::Outdated;
        }
        if has_expired(record.expiry_unix_s, &self.clock) {
            add(&self.counters.expired_lookups, 1);
            return InMemory::Outdated;
        }
        InMemory::Value(record.value.clone(), Tier::Buffer)
    }

    fn count_memory_hit(&self, hash: KeyHash, bytes: &Bytes, tier: Tier) {
        self.note_hit(hash);
        let hits = match tier {
            Tier::Buffer => &self.counters.buffer_hits,
            Tier::Ram | Tier::Flash => &self.counters.ram_hits,
        };
        add(hits, 1);
        add(&self.counters.ram_hit_bytes, bytes.len() as u64);
    }

    fn absent(&self) -> Lookup<'static> {
        self.count_miss();
        Lookup::Absent
    }

    fn find_on_flash(&self, shard: &mut super::Shard, hash: KeyHash) -> Option<FlashValue<'_>> {
        let Found::Live(entry) = shard.index.get(hash)? else {
            return None;
        };
        if has_expired(entry.expiry_unix_s, &self.clock) {
            add(&self.counters.expired_lookups, 1);
            self.ghost(shard, hash, entry);
            return None;
        }
        if shard.index.touch(hash)
            && let Some(slots) = self.slots()
        {
            slots.uses.changed(1);
        }
        let life = self.states.life(entry.place.zone);
        let pin = ZoneStates::pin(&*self.states, life.zone, life.generation)?;
        self.states.touch(life.zone, self.clock.now().0);
        Some(FlashValue {
            hash,
            entry,
            generation: life.generation,
            pin,
        })
    }

    /// Notes a hit in the RAM tier where recency on flash is tracked, so that
    /// flash does not give up first what is asked for most.
    fn touch_on_flash(&self, shard: &mut super::Shard, hash: KeyHash) {
        if let Some(Found::Live(entry)) = shard.index.get(hash) {
            shard.index.touch(hash);
            self.states.touch(entry.place.zone, self.clock.now().0);
        }
    }

    /// Stops serving a record whose bytes stay on flash.
    pub(super) fn ghost(&self, shard: &mut super::Shard, hash: KeyHash, entry: Entry) {
        shard.index.ghost(hash);
        self.states
            .remove_live(entry.place.zone, u64::from(entry.len));
        if let Some(slots) = self.slots() {
            self.release_slot(slots, entry.place);
        }
    }

    /// Whether the slot that was read has perhaps been given to another value
    /// meanwhile: then what was read is not damaged, only late.
    pub(super) fn was_reused(&self, hash: KeyHash, entry: Entry) -> bool {
        self.slots().is_some()
            && self.shard_of(hash).lock().index.get(hash) != Some(Found::Live(entry))
    }

    /// The whole value of `key`.
    pub(crate) async fn get(
        self: &Arc<Self>,
        key: &[u8],
    ) -> Result<Option<(Bytes, Tier)>, CacheError> {
        match self.lookup(key)? {
            Lookup::Absent => Ok(None),
            Lookup::Memory(bytes, tier) => Ok(Some((bytes, tier))),
            Lookup::Flash(value) => Ok(self
                .read_whole(key, value)
                .await
                .map(|bytes| (bytes, Tier::Flash))),
        }
    }

    /// Reads a whole value, checks it, and puts it into the RAM tier if it fits there.
    pub(crate) async fn read_whole(
        self: &Arc<Self>,
        key: &[u8],
        value: FlashValue<'_>,
    ) -> Option<Bytes> {
        let (hash, entry) = (value.hash, value.entry);
        let bytes = if entry.len as usize <= SMALL_MAX_BYTES {
            self.read_small(key, &value).await
        } else {
            let len = u64::from(entry.len);
            match LargeReader::open(Arc::clone(self), key, value, 0..len).await {
                Some(reader) => reader.collect().await,
                None => None,
            }
        };
        match &bytes {
            Some(bytes) => {
                add(&self.counters.flash_hits, 1);
                add(&self.counters.flash_hit_bytes, bytes.len() as u64);
                self.promote(hash, key, entry, bytes);
            }
            None => add(&self.counters.misses, 1),
        }
        bytes
    }

    /// Whether `key` would be found, without reading flash.
    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool, CacheError> {
        self.check_key(key)?;
        let hash = self.hash(key);
        let shard = self.shard_of(hash).lock();
        // What admission declined is nowhere else.
        if shard.ram_contains(hash, key, &self.clock) {
            return Ok(true);
        }
        if let Some(slot) = shard.pending.get(&hash) {
            return Ok(
                *slot.record.key == *key && !has_expired(slot.record.expiry_unix_s, &self.clock)
            );
        }
        Ok(
            matches!(shard.index.get(hash), Some(Found::Live(entry)) if !has_expired(entry.expiry_unix_s, &self.clock)),
        )
    }

    async fn read_small(&self, key: &[u8], value: &FlashValue<'_>) -> Option<Bytes> {
        let entry = value.entry;
        let len = entry.len as usize;
        let bytes = if len == 0 {
            Bytes::new()
        } else {
            let buf = self
                .device
                .allocate(self.plan.geometry.round_up(len as u64) as usize);
            match self
                .device
                .read(Address::new(entry.place.zone, entry.place.offset), buf)
                .await
            {
                Ok(buf) => {
                    let mut bytes = buf.into_bytes();
                    bytes.truncate(len);
                    bytes
                }
                Err(error) => {
                    tracing::warn!(%error, "a value could not be read; it is now a miss");
                    add(&self.counters.read_errors, 1);
                    self.quarantine(value.hash, entry);
                    return None;
                }
            }
        };
        if small_checksum(key, value.generation, &bytes) == entry.checksum {
            return Some(bytes);
        }
        if self.was_reused(value.hash, entry) {
            return None;
        }
        tracing::warn!(place = %entry.place, "a value read back wrong; it is now a miss");
        add(&self.counters.checksum_errors, 1);
        self.quarantine(value.hash, entry);
        None
    }

    /// Stops serving a record that could not be read back.
    pub(super) fn quarantine(&self, hash: KeyHash, entry: Entry) {
        let mut shard = self.shard_of(hash).lock();
        if let Some(Found::Live(now)) = shard.index.get(hash)
            && now == entry
        {
            self.ghost(&mut shard, hash, entry);
        }
    }

    /// Puts a value read from flash into the RAM tier, unless it was replaced meanwhile.
    fn promote(&self, hash: KeyHash, key: &[u8], entry: Entry, value: &Bytes) {
        if self.ram.bytes == 0 || value.len() as u64 > self.ram.value_bytes_max {
            return;
        }
        let mut shard = self.shard_of(hash).lock();
        if shard.pending.contains_key(&hash) {
            return;
        }
        match shard.index.get(hash) {
            // The checksum is salted with the zone's generation: equal entries are the same record.
            Some(Found::Live(now)) if now == entry => {
                shard.ram_insert(hash, key, value.clone(), entry.expiry_unix_s);
            }
            _ => {}
        }
    }
}
