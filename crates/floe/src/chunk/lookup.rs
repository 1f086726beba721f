//! Lookups: shard, write buffer, flash, and the RAM tier that they fill.
//!
//! A panic in a lookup poisons nothing: it changes only recency, the RAM tier
//! and expired entries.

use std::sync::Arc;

use bytes::Bytes;
use floe_core::chunk::{Entry, Found};
use floe_core::hash::KeyHash;
use floe_core::layout::{SMALL_MAX_BYTES, small_checksum};
use floe_device::DeviceError;

use super::Engine;
use super::flash_value::FlashValue;
use super::shard::{Shard, has_expired};
use super::stats::add;
use super::zone_state::ZoneStates;
use crate::error::CacheError;
use crate::value::Tier;

/// The place of a key's value.
pub(crate) enum Lookup<'e> {
    /// In memory, whole.
    Memory(Bytes, Tier),
    /// On flash.
    Flash(FlashValue<'e>),
    /// Nowhere.
    Absent,
}

/// The result of a lookup without a read of flash.
pub(crate) enum RamLookup {
    /// The value, whole.
    Found(Bytes, Tier),
    /// The value is on flash.
    OnFlash { len: u64 },
    /// There is none.
    Absent,
}

/// The result of a lookup in memory.
enum InMemory {
    Value(Bytes, Tier),
    /// Flash may hold an older value; the newest one cannot be served.
    Outdated,
    Nothing,
}

impl Engine {
    /// Finds `key`, and updates recency.
    pub(crate) fn lookup(&self, key: &[u8]) -> Result<Lookup<'_>, CacheError> {
        self.check_key(key)?;
        let hash = self.env.hash(key);
        let mut shard = self.index.shard_of(hash).lock();
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
        self.admission.note_hit(hash, || self.env.clock.now());
        Ok(Lookup::Flash(value))
    }

    /// Finds `key` if it is in memory. A value on flash is neither counted nor
    /// touched: [`lookup`](Self::lookup) does that. A miss is not counted,
    /// because another engine may have the key; see
    /// [`count_miss`](Self::count_miss).
    pub(crate) fn lookup_ram(&self, key: &[u8]) -> Result<RamLookup, CacheError> {
        self.check_key(key)?;
        let hash = self.env.hash(key);
        let mut shard = self.index.shard_of(hash).lock();
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

    /// Counts a lookup of a key that no engine has.
    pub(crate) fn count_miss(&self) {
        add(&self.env.counters.misses, 1);
    }

    fn in_memory(&self, shard: &mut Shard, hash: KeyHash, key: &[u8]) -> InMemory {
        if let Some(bytes) = shard.ram_get(hash, key, &self.env.clock) {
            self.touch_on_flash(shard, hash);
            return InMemory::Value(bytes, Tier::Ram);
        }
        // Checked on every hit: usually nothing is pending.
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
        if has_expired(record.expiry_unix_s, &self.env.clock) {
            add(&self.env.counters.expired_lookups, 1);
            return InMemory::Outdated;
        }
        InMemory::Value(record.value.bytes(), Tier::Buffer)
    }

    fn count_memory_hit(&self, hash: KeyHash, bytes: &Bytes, tier: Tier) {
        self.admission.note_hit(hash, || self.env.clock.now());
        let hits = match tier {
            Tier::Buffer => &self.env.counters.buffer_hits,
            Tier::Ram | Tier::Flash => &self.env.counters.ram_hits,
        };
        add(hits, 1);
        add(&self.env.counters.ram_hit_bytes, bytes.len() as u64);
    }

    fn absent(&self) -> Lookup<'static> {
        self.count_miss();
        Lookup::Absent
    }

    fn find_on_flash(&self, shard: &mut Shard, hash: KeyHash) -> Option<FlashValue<'_>> {
        let Found::Live(entry) = shard.index.get(hash)? else {
            return None;
        };
        if has_expired(entry.expiry_unix_s, &self.env.clock) {
            add(&self.env.counters.expired_lookups, 1);
            self.placement.ghost(&self.index, shard, hash, entry);
            return None;
        }
        if shard.index.touch(hash) {
            self.placement.note_use();
        }
        let value = self.pinned(hash, entry)?;
        let now = self.env.clock.now().0;
        self.index.states().touch(entry.place.zone, now);
        Some(value)
    }

    /// The value of an entry that is live, for reading: its zone is not reset meanwhile. `None`
    /// if the zone is being evicted.
    pub(super) fn pinned(&self, hash: KeyHash, entry: Entry) -> Option<FlashValue<'_>> {
        let states = &**self.index.states();
        let life = states.life(entry.place.zone);
        Some(FlashValue {
            hash,
            entry,
            generation: life.generation,
            pin: ZoneStates::pin(states, life.zone, life.generation)?,
        })
    }

    /// Reads a small value from the write buffer or flash, and leaves recency and counts of hits
    /// as they are.
    pub(crate) async fn peek(&self, key: &[u8]) -> Option<Bytes> {
        self.check_key(key).ok()?;
        let hash = self.env.hash(key);
        let value = {
            let shard = self.index.shard_of(hash).lock();
            if let Some(slot) = shard.pending.get(&hash) {
                let record = &slot.record;
                let is_served = record.is_served(key, &self.env.clock);
                return is_served.then(|| record.value.bytes());
            }
            let Found::Live(entry) = shard.index.get(hash)? else {
                return None;
            };
            if entry.len as usize > SMALL_MAX_BYTES
                || has_expired(entry.expiry_unix_s, &self.env.clock)
            {
                return None;
            }
            self.pinned(hash, entry)?
        };
        self.read_small(key, &value).await
    }

    /// Records a hit in the RAM tier in flash's recency too, so that flash does
    /// not evict the most popular values first.
    fn touch_on_flash(&self, shard: &mut Shard, hash: KeyHash) {
        if let Some(Found::Live(entry)) = shard.index.get(hash) {
            shard.index.touch(hash);
            self.index
                .states()
                .touch(entry.place.zone, self.env.clock.now().0);
        }
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

    /// Reads and verifies a whole value, and stores it in the RAM tier if that
    /// accepts its length.
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
            match self.read_large(key, value, 0..len).await {
                Some(reader) => reader.collect().await,
                None => None,
            }
        };
        match &bytes {
            Some(bytes) => {
                add(&self.env.counters.flash_hits, 1);
                add(&self.env.counters.flash_hit_bytes, bytes.len() as u64);
                self.index.promote(hash, key, entry, bytes);
            }
            None => add(&self.env.counters.misses, 1),
        }
        bytes
    }

    /// True if the index or memory has `key`; reads no flash.
    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool, CacheError> {
        self.check_key(key)?;
        let hash = self.env.hash(key);
        let shard = self.index.shard_of(hash).lock();
        // A declined value is only in the RAM tier.
        if shard.ram_contains(hash, key, &self.env.clock) {
            return Ok(true);
        }
        if let Some(slot) = shard.pending.get(&hash) {
            return Ok(slot.record.is_served(key, &self.env.clock));
        }
        Ok(
            matches!(shard.index.get(hash), Some(Found::Live(entry)) if !has_expired(entry.expiry_unix_s, &self.env.clock)),
        )
    }

    pub(super) async fn read_small(&self, key: &[u8], value: &FlashValue<'_>) -> Option<Bytes> {
        let (hash, entry) = (value.hash, value.entry);
        let bytes = match self.read_payload(entry).await {
            Ok(bytes) => bytes,
            Err(error) => {
                // A read-only or offline zone is said once.
                if !self.zones.note_unwritable(entry.place.zone, &error) {
                    tracing::warn!(%error, "a value could not be read; it is now a miss");
                }
                add(&self.env.counters.read_errors, 1);
                self.placement.quarantine(&self.index, hash, entry);
                return None;
            }
        };
        if small_checksum(key, value.generation, &bytes) == entry.checksum {
            return Some(bytes);
        }
        if !self.placement.was_reused(&self.index, hash, entry) {
            tracing::warn!(place = %entry.place, "a value read back with other bytes; it is now a miss");
            add(&self.env.counters.checksum_errors, 1);
            self.placement.quarantine(&self.index, hash, entry);
        }
        None
    }

    async fn read_payload(&self, entry: Entry) -> Result<Bytes, DeviceError> {
        if entry.len == 0 {
            return Ok(Bytes::new());
        }
        let device = &self.env.device;
        let padded = self.env.plan.geometry.round_up(u64::from(entry.len));
        let buf = device.allocate(padded as usize);
        let mut bytes = device.read(entry.place, buf).await?.into_bytes();
        bytes.truncate(entry.len as usize);
        Ok(bytes)
    }
}
