//! The index: shards by key hash, and the zones' live counts, which change with
//! them.
//!
//! A panic under a shard's lock poisons the key that was changing: its older
//! value may have left the index without a tombstone, so a crash could bring it
//! back. Other keys are not affected. So code under such a lock does no I/O,
//! runs no code of a caller (`shard.rs`), and takes only the short locks of
//! tombstones, tables, free slots and the write queue.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use floe_core::ZoneId;
use floe_core::chunk::{Entry, Found, IndexFull, Place};
use floe_core::hash::{KeyHash, fast_range};
use floe_core::layout::ZoneLife;
use floe_device::SendableMemory;
use floe_device::sendable::SENDABLE_MIN_BYTES;

use super::environment::Environment;
use super::held_bytes::HeldBytes;
use super::shard::{Batch, Pending, Resize, Shard, ShardLock};
use super::stats::{EngineStats, add};
use super::zone_state::ZoneStates;

/// The RAM tier's share of a chunk engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RamPlan {
    /// Bytes of all shards together.
    pub(crate) bytes: u64,
    /// Bytes of the longest value in the RAM tier.
    pub(crate) value_bytes_max: u64,
}

/// All shards.
#[derive(Debug)]
pub(crate) struct Index {
    env: Arc<Environment>,
    shards: Box<[ShardLock]>,
    states: Arc<ZoneStates>,
    ram: RamPlan,
    /// Memory for the RAM tier's large values, created when a frontend first asks for it.
    sendable: OnceLock<Option<Arc<SendableMemory>>>,
}

impl Index {
    pub(crate) fn new(
        env: Arc<Environment>,
        shards: Vec<Shard>,
        states: Arc<ZoneStates>,
        ram: RamPlan,
    ) -> Self {
        Index {
            env,
            shards: shards.into_iter().map(ShardLock::new).collect(),
            states,
            ram,
            sendable: OnceLock::new(),
        }
    }

    /// Memory from which sockets send values of the RAM tier without a copy. From the first call
    /// on, the tier moves values there. `None` if there is none.
    pub(crate) fn sendable(&self) -> Option<&Arc<SendableMemory>> {
        let sendable = self.sendable.get_or_init(|| {
            // Values lie in places of powers of two, and a larger tier may come.
            let places = usize::try_from(self.ram.bytes.checked_mul(4)?).ok()?;
            let memory = (places > 0).then(|| SendableMemory::new(places))?;
            memory
                .inspect_err(|error| tracing::warn!(%error, "values in RAM are copied to sockets"))
                .ok()
        });
        sendable.as_ref()
    }

    /// Moves a value that the RAM tier returned to memory from which sockets send, if there is
    /// such memory and the value has some length.
    pub(crate) fn make_sendable(&self, hash: KeyHash, bytes: Bytes) -> Bytes {
        let Some(Some(memory)) = self.sendable.get() else {
            return bytes;
        };
        if bytes.len() < SENDABLE_MIN_BYTES || memory.has(&bytes) {
            return bytes;
        }
        let Some(moved) = memory.keep(&bytes) else {
            return bytes;
        };
        self.shard_of(hash)
            .lock()
            .ram_move(hash, &bytes, moved.clone());
        moved
    }

    pub(crate) fn shard_of(&self, hash: KeyHash) -> &ShardLock {
        // The index keeps the low 48 bits; the others select the shard.
        &self.shards[fast_range(hash.0, self.shards.len())]
    }

    pub(crate) fn shards(&self) -> &[ShardLock] {
        &self.shards
    }

    /// The states of all zones.
    pub(crate) fn states(&self) -> &Arc<ZoneStates> {
        &self.states
    }

    /// Resizes the RAM tier of all shards; false if there is none. Between the
    /// steps of a shard its lock is free, and the step's values are released.
    pub(crate) fn resize_ram(&self, bytes: u64) -> bool {
        let each = bytes / self.shards.len() as u64;
        self.shards.iter().all(|shard| {
            loop {
                match shard.lock().resize_ram(each) {
                    Resize::Done => return true,
                    Resize::Unfinished => {}
                    Resize::Rejected => return false,
                }
            }
        })
    }

    /// True if the RAM tier accepts values of `len` bytes.
    pub(crate) fn takes_into_ram(&self, len: u64) -> bool {
        self.ram.bytes > 0 && len <= self.ram.value_bytes_max
    }

    /// Stores a value in the RAM tier if it accepts the length.
    pub(crate) fn keep_in_ram(
        &self,
        shard: &mut Shard,
        hash: KeyHash,
        key: &[u8],
        value: HeldBytes,
        expiry_unix_s: u32,
    ) {
        if self.takes_into_ram(value.len() as u64) {
            shard.ram_insert(hash, key, value, expiry_unix_s);
        } else {
            shard.release(value);
        }
    }

    /// Stores a value read from flash in the RAM tier, unless it was replaced meanwhile.
    pub(crate) fn promote(&self, hash: KeyHash, key: &[u8], entry: Entry, value: &Bytes) {
        if !self.takes_into_ram(value.len() as u64) {
            return;
        }
        let mut shard = self.shard_of(hash).lock();
        // A value that is there already may have moved to memory from which sockets send.
        if shard.pending.contains_key(&hash) || shard.ram_contains(hash, key, &self.env.clock) {
            return;
        }
        match shard.index.get(hash) {
            // The checksum is salted with the zone's generation: equal entries are the same record.
            Some(Found::Live(now)) if now == entry => {
                shard.ram_insert(hash, key, value.clone().into(), entry.expiry_unix_s);
            }
            _ => {}
        }
    }

    /// Adds `entry`, whose key has no other.
    pub(crate) fn insert(
        &self,
        shard: &mut Shard,
        hash: KeyHash,
        entry: Entry,
    ) -> Result<(), IndexFull> {
        shard.index.insert(hash, entry)?;
        self.states.add_live(&entry);
        Ok(())
    }

    /// Turns `entry` into a ghost: its bytes stay on flash.
    pub(crate) fn ghost(&self, shard: &mut Shard, hash: KeyHash, entry: Entry) {
        shard.index.ghost(hash);
        self.states.remove_live(&entry);
    }

    /// Quarantines `entry`, which is unreadable. Returns false if it was
    /// replaced or moved since the lookup.
    pub(crate) fn quarantine(&self, hash: KeyHash, entry: Entry) -> bool {
        let mut shard = self.shard_of(hash).lock();
        let is_current = shard.index.get(hash) == Some(Found::Live(entry));
        if is_current {
            self.ghost(&mut shard, hash, entry);
        }
        is_current
    }

    /// Replaces `from` by its copy `to`. Returns false if the key's value has changed since.
    pub(crate) fn relocate(&self, hash: KeyHash, from: Entry, to: Entry) -> bool {
        let mut shard = self.shard_of(hash).lock();
        let is_relocated = shard.index.relocate(hash, from.place, to);
        if is_relocated {
            self.states.remove_live(&from);
            self.states.add_live(&to);
        }
        is_relocated
    }

    /// The live value at `place`.
    pub(crate) fn live_at(&self, hash: KeyHash, place: Place) -> Option<Entry> {
        match self.shard_of(hash).lock().index.get(hash)? {
            Found::Live(entry) if entry.place == place => Some(entry),
            _ => None,
        }
    }

    /// Drops records that are no longer the newest of their keys.
    pub(crate) fn retain_newest(&self, records: &mut Batch) {
        self.retain(records, |shard, record| shard.is_newest(record));
    }

    /// Records that the bytes of `records` may reach flash in `life`, and drops
    /// records that are no longer the newest of their keys.
    pub(crate) fn assign_zone(&self, records: &mut Batch, life: ZoneLife) {
        self.retain(records, |shard, record| shard.assign_zone(record, life));
    }

    fn retain(
        &self,
        records: &mut Batch,
        mut is_wanted: impl FnMut(&mut Shard, &Arc<Pending>) -> bool,
    ) {
        let before = records.len();
        records.retain(|record| is_wanted(&mut self.shard_of(record.hash).lock(), record));
        add(
            &self.env.counters.puts_superseded,
            (before - records.len()) as u64,
        );
    }

    /// Drops `record`, which no zone accepted, and counts it.
    pub(crate) fn give_up(&self, record: &Arc<Pending>) {
        let mut shard = self.shard_of(record.hash).lock();
        if shard.take_pending(record) {
            self.discard(&mut shard, record);
        }
    }

    /// Drops `record`, which is no longer pending, and counts it.
    pub(crate) fn discard(&self, shard: &mut Shard, record: &Pending) {
        shard.ram_remove(record.hash);
        add(&self.env.counters.puts_dropped, 1);
        add(
            &self.env.counters.put_bytes_dropped,
            record.value.len() as u64,
        );
    }

    /// Turns the values in `zone` into ghosts until its reset, so that a write
    /// or delete of their keys adds a tombstone. Returns their number.
    pub(crate) fn begin_evict(&self, zone: ZoneId) -> u64 {
        let shards = self.shards.iter();
        let evicted = shards.map(|shard| shard.lock().index.begin_evict(zone));
        evicted.sum::<usize>() as u64
    }

    /// Removes the ghosts of `zone`, which is empty.
    pub(crate) fn end_evict(&self, zone: ZoneId) {
        for shard in &self.shards {
            shard.lock().index.end_evict(zone);
        }
    }

    /// Adds the gauges of the shards.
    pub(crate) fn measure(&self, stats: &mut EngineStats) {
        for shard in &self.shards {
            let shard = shard.lock();
            stats.live_records += shard.index.live() as u64;
            stats.index_entries += shard.index.entries() as u64;
            stats.index_bytes += shard.index.memory_bytes() as u64;
            stats.ram_bytes += shard.ram_bytes();
            stats.ram_values += shard.ram_len() as u64;
            stats.pending_records += shard.pending.len() as u64;
        }
    }
}
