//! The values of zones before their eviction, for a layer above the engine that writes some of
//! them again. Eviction waits for no such layer.

use bytes::Bytes;
use floe_core::ZoneId;
use floe_core::chunk::{Entry, Eviction, Found};
use floe_core::hash::KeyHash;
use floe_core::layout::{Generation, SMALL_MAX_BYTES, ZoneLife};
use floe_device::DeviceError;
use tokio::task::coop::consume_budget;

use super::Engine;
use super::scan::scan_zone;
use super::shard::is_expired;
use super::small_writer::Write;
use super::write_buffer::BufferRoom;
use crate::error::CacheError;
use crate::value::PutOutcome;

/// Bytes of a descriptor beside the key, rounded up.
const DESCRIPTOR_BYTES: u64 = 64;

/// A value on flash.
pub(crate) struct StoredValue {
    pub(crate) key: Vec<u8>,
    /// Bytes that it takes on flash.
    pub(crate) bytes: u64,
    hash: KeyHash,
    entry: Entry,
}

/// The place of the newest value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// Not yet on flash.
    Buffer,
    /// In this life of a zone.
    Zone(ZoneLife),
    Nowhere,
}

impl Engine {
    /// The next `count` zones to be evicted if none are used meanwhile; none under CLRU.
    pub(crate) fn next_evicted(&self, count: usize) -> Vec<ZoneLife> {
        if self.env.plan.eviction == Eviction::Clru {
            return Vec::new();
        }
        let states = self.index.states();
        let last_access = |zone| states.last_access(zone);
        let zones = self.zones.lock().next_victims(count, last_access);
        zones.into_iter().map(|zone| states.life(zone)).collect()
    }

    /// The generation of the zone that is opened next. It grows by one with each zone.
    pub(crate) fn next_generation(&self) -> Generation {
        self.zones.lock().next_generation()
    }

    /// True while a zone has this life, and values.
    pub(crate) fn is_in_life(&self, life: ZoneLife) -> bool {
        let states = self.index.states();
        states.life(life.zone) == life && states.live_records(life.zone) > 0
    }

    /// Makes a zone recent, as a hit on one of its values does.
    pub(crate) fn touch_zone(&self, zone: ZoneId) {
        let now = self.env.clock.now().0;
        self.index.states().touch(zone, now);
    }

    /// The place of the newest value of the key of `value`.
    pub(crate) fn find(&self, value: &StoredValue) -> Whereabouts {
        let shard = self.index.shard_of(value.hash).lock();
        if shard.pending.contains_key(&value.hash) {
            return Whereabouts::Buffer;
        }
        match shard.index.get(value.hash) {
            Some(Found::Live(entry)) => {
                Whereabouts::Zone(self.index.states().life(entry.place.zone))
            }
            Some(Found::Ghost(_)) | None => Whereabouts::Nowhere,
        }
    }

    /// The values in the life of a zone that are the newest of their keys. Reads the
    /// descriptors, and leaves recency as it is.
    ///
    /// # Errors
    /// The device's.
    pub(crate) async fn values_in(&self, life: ZoneLife) -> Result<Vec<StoredValue>, DeviceError> {
        let (device, plan) = (&self.env.device, &self.env.plan);
        let mut values = Vec::new();
        if self.index.states().live_records(life.zone) == 0 {
            return Ok(values);
        }
        let end = plan.geometry.zone_capacity;
        let scan = scan_zone(device, plan, self.env.id, life, end).await?;
        let now = self.env.clock.unix_seconds();
        for record in scan.records {
            consume_budget().await;
            let place = record.place(life, self.env.block_size());
            let hash = record.summary.hash;
            let Some(entry) = self.index.live_at(hash, place) else {
                continue;
            };
            if is_expired(entry.expiry_unix_s, now) {
                continue;
            }
            let (key, len) = (record.key, u64::from(entry.len));
            let payload = self.placement.flash_bytes(plan, key.len(), len);
            values.push(StoredValue {
                bytes: payload + key.len() as u64 + DESCRIPTOR_BYTES,
                key,
                hash,
                entry,
            });
        }
        Ok(values)
    }

    /// Reads and verifies a small value; recency, counts of hits and the RAM tier stay as they
    /// are. `None` if it cannot be read, or is no longer the newest of its key.
    async fn read_stored(&self, value: &StoredValue) -> Option<Bytes> {
        let (hash, entry) = (value.hash, value.entry);
        if entry.len as usize > SMALL_MAX_BYTES {
            return None;
        }
        let found = {
            let shard = self.index.shard_of(hash).lock();
            let is_newest = shard.index.get(hash) == Some(Found::Live(entry));
            is_newest.then(|| self.pinned(hash, entry))??
        };
        self.read_small(&value.key, &found).await
    }

    /// Room to write a value again; waits while the write buffer is full.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(crate) async fn room_for(&self, value: &StoredValue) -> Result<BufferRoom, CacheError> {
        let bytes = value.key.len() + value.entry.len as usize;
        self.check_entry(&value.key, u64::from(value.entry.len))?;
        self.small.room_for(bytes).await
    }

    /// Writes a small value again, so that it is evicted later; [`Dropped`](PutOutcome::Dropped)
    /// if it is long, cannot be read, or is no longer the newest of its key. The RAM tier keeps
    /// it only if it had it. It may be relaxed if all values of the key are the same.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(crate) async fn write_again(
        &self,
        value: &StoredValue,
        room: BufferRoom,
        is_relaxed: bool,
    ) -> Result<PutOutcome, CacheError> {
        let Some(bytes) = self.read_stored(value).await else {
            return Ok(PutOutcome::Dropped);
        };
        let write = Write {
            expiry_unix_s: value.entry.expiry_unix_s,
            is_relaxed,
            again: Some(value.entry),
        };
        let written = self.small.put_into(room, &value.key, bytes, write).await?;
        Ok(match written {
            true => PutOutcome::Stored,
            false => PutOutcome::Dropped,
        })
    }
}
