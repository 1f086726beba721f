//! One shard of the exact index, from key hash to location on flash.
//!
//! The layout minimizes memory. Each record on flash costs one 24-byte entry.
//! Each live key costs 4 more bytes in an open-addressing table that is kept
//! between 64 and 90 % full. Expiry times cost 4 bytes per entry, once a shard
//! has any.
//!
//! An entry is *live* (served), a *ghost* (not served, but its bytes are still
//! on flash, so a write or delete of the key must add a tombstone), or *dead*
//! (its tombstone is durable or pending). Entries of a zone form a list, so
//! that evicting a zone needs neither scan nor I/O.
//!
//! Slots are freed one by one. Over slots there are no such lists and no dead
//! entries: an entry is freed as soon as it leaves the table.

mod cold;
#[cfg(test)]
mod tests;
mod uses;

use super::clru::Recency;
use crate::cells::Cells;
use crate::hash::KeyHash;
use crate::{Geometry, ZoneId};
pub use uses::UseBounds;

const NONE: u32 = u32::MAX;
/// `len` of a dead or free entry. No value is this long.
const DEAD: u32 = u32::MAX;
const GHOST_BIT: u32 = 1 << 31;
const HASH_MASK: u64 = (1 << 48) - 1;
/// Entries per page. Entries are allocated by pages, so that growth neither
/// copies nor doubles them. Per shard this leaves half a page unused, and page
/// pointers cost a quarter to half a byte per entry.
const PAGE: usize = 32;

/// The location of a record: its zone, and the byte offset in it of its payload
/// (small values) or descriptor (large values).
pub type Place = crate::Address;

/// The index's data about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Location on flash.
    pub place: Place,
    /// Bytes of the value.
    pub len: u32,
    /// Checksum of the small payload or of the large descriptor.
    pub checksum: u32,
    /// Unix seconds after which it is no longer served; 0 for never.
    pub expiry_unix_s: u32,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The record is served.
    Live(Entry),
    /// The record is not served, but its bytes are still on flash.
    Ghost(Entry),
}

impl Found {
    /// The entry in either case.
    pub fn entry(self) -> Entry {
        match self {
            Found::Live(entry) | Found::Ghost(entry) => entry,
        }
    }
}

/// The shard holds 2^32 − 2 entries, the most that it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexFull;

#[derive(Clone, Copy, Default)]
struct Slot {
    hash_low: u32,
    hash_high: u16,
    epoch: u16,
    block: u32,
    len: u32,
    checksum: u32,
    /// Next entry of the same zone, or of the free list.
    next: u32,
}

impl Slot {
    fn hash(&self) -> u64 {
        u64::from(self.hash_high) << 32 | u64::from(self.hash_low)
    }
}

/// One value per entry. Boxed pages, so that growth neither copies entries nor
/// holds them twice.
type Pages<T> = Vec<Box<[T; PAGE]>>;

/// One shard of the index.
#[derive(Debug)]
pub struct ShardIndex {
    block_size: u32,
    zone_blocks: u32,
    table: Cells,
    pages: Pages<Slot>,
    expiry: Pages<u32>,
    free: u32,
    entries: usize,
    live: usize,
    /// Head of each zone's list; empty over slots.
    heads: Vec<u32>,
    recency: Option<Recency>,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:012x}@{}+{}", self.hash(), self.block, self.len)
    }
}

impl ShardIndex {
    /// An empty shard. CLRU sets `track_recency`.
    pub fn new(geometry: &Geometry, track_recency: bool) -> Self {
        ShardIndex {
            block_size: geometry.block_size,
            zone_blocks: (geometry.zone_size / u64::from(geometry.block_size)) as u32,
            table: Cells::new(),
            pages: Vec::new(),
            expiry: Vec::new(),
            free: NONE,
            entries: 0,
            live: 0,
            heads: vec![NONE; geometry.zone_count as usize],
            recency: track_recency.then(Recency::new),
        }
    }

    /// An empty shard over slots. It tracks recency.
    pub fn over_slots(geometry: &Geometry) -> Self {
        ShardIndex {
            heads: Vec::new(),
            ..ShardIndex::new(geometry, true)
        }
    }

    /// Number of live records.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Number of records in memory: live ones, ghosts, and dead ones whose zone
    /// was not reset yet.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Bytes of memory that this shard holds, counted from its live structures.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.table.memory_bytes()
            + self.pages.len() * size_of::<[Slot; PAGE]>()
            + self.expiry.len() * size_of::<[u32; PAGE]>()
            + (self.pages.capacity() + self.expiry.capacity()) * size_of::<usize>()
            + self.heads.capacity() * size_of::<u32>()
            + self.recency.as_ref().map_or(0, Recency::memory_bytes)
    }

    /// Looks up `hash`.
    pub fn get(&self, hash: KeyHash) -> Option<Found> {
        Some(self.found(self.table.id_at(self.find(hash)?)))
    }

    fn found(&self, id: u32) -> Found {
        let mut entry = self.entry(id);
        if entry.len & GHOST_BIT == 0 {
            Found::Live(entry)
        } else {
            entry.len &= !GHOST_BIT;
            Found::Ghost(entry)
        }
    }

    /// Records a use of `hash`, if the shard tracks recency. Returns whether it
    /// had not been used for a quarter of a turnover.
    pub fn touch(&mut self, hash: KeyHash) -> bool {
        // Every hit calls this. Without recency, it needs no lookup.
        if self.recency.is_none() {
            return false;
        }
        let Some(position) = self.find(hash) else {
            return false;
        };
        let id = self.table.id_at(position);
        let live = self.live;
        let slot = &mut self.pages[id as usize / PAGE][id as usize % PAGE];
        match &mut self.recency {
            Some(recency) if slot.len & GHOST_BIT == 0 => {
                let was_old = recency.is_old(slot.epoch, live);
                slot.epoch = recency.touch(slot.epoch, live);
                was_old
            }
            _ => false,
        }
    }

    /// Makes `entry` the live record of `hash`. Returns the record that it
    /// replaced. If that one was still on flash, its tombstone must be durable
    /// before the write is acknowledged.
    ///
    /// # Errors
    /// [`IndexFull`] if there is no free entry number. Nothing has changed
    /// then.
    pub fn insert(&mut self, hash: KeyHash, entry: Entry) -> Result<Option<Found>, IndexFull> {
        self.insert_used(hash, entry, Recency::admit)
    }

    /// As [`insert`](Self::insert), for a recovered record that was last used
    /// `age` epochs ago, of [`RECOVERED_AGES`](super::RECOVERED_AGES).
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_aged(
        &mut self,
        hash: KeyHash,
        entry: Entry,
        age: u16,
    ) -> Result<Option<Found>, IndexFull> {
        self.insert_used(hash, entry, |recency, _| recency.admit_aged(age))
    }

    fn insert_used(
        &mut self,
        hash: KeyHash,
        entry: Entry,
        admit: impl FnOnce(&mut Recency, usize) -> u16,
    ) -> Result<Option<Found>, IndexFull> {
        let id = self.allocate()?;
        let replaced = self.remove(hash);
        self.table.reserve_one(|id| hash_in(&self.pages, id));
        let zone = entry.place.zone;
        let h48 = hash.0 & HASH_MASK;
        let epoch = match &mut self.recency {
            Some(recency) => admit(recency, self.live),
            None => 0,
        };
        let block = self.block_of(entry.place);
        let next = match self.heads.get_mut(zone.index()) {
            Some(head) => std::mem::replace(head, id),
            None => NONE,
        };
        *self.slot_mut(id) = Slot {
            hash_low: h48 as u32,
            hash_high: (h48 >> 32) as u16,
            epoch,
            block,
            len: entry.len,
            checksum: entry.checksum,
            next,
        };
        self.set_expiry(id, entry.expiry_unix_s);
        self.table.insert(h48, id);
        self.live += 1;
        Ok(replaced)
    }

    /// Removes `hash`: its record becomes dead. Returns the record.
    pub fn remove(&mut self, hash: KeyHash) -> Option<Found> {
        let position = self.find(hash)?;
        let id = self.table.id_at(position);
        let found = self.found(id);
        self.table.remove(position, |id| hash_in(&self.pages, id));
        self.kill(id);
        if self.heads.is_empty() {
            self.slot_mut(id).next = std::mem::replace(&mut self.free, id);
            self.entries -= 1;
        }
        Some(found)
    }

    /// Over slots: frees the ghost of `hash` at `place`, whose bytes are gone
    /// from flash. Returns whether there was one.
    pub fn forget_ghost(&mut self, hash: KeyHash, place: Place) -> bool {
        match self.get(hash) {
            Some(Found::Ghost(entry)) if entry.place == place => self.remove(hash).is_some(),
            _ => false,
        }
    }

    /// Makes the record of `hash` a ghost: it was evicted, expired or was
    /// unreadable, and its bytes stay on flash.
    pub fn ghost(&mut self, hash: KeyHash) {
        if let Some(position) = self.find(hash) {
            self.ghost_entry(self.table.id_at(position));
        }
    }

    /// Moves a live record from `from` to `to` (host GC), leaving a dead entry
    /// behind. Returns whether the record was still live at `from`.
    pub fn relocate(&mut self, hash: KeyHash, from: Place, to: Entry) -> bool {
        let Some(Found::Live(entry)) = self.get(hash) else {
            return false;
        };
        if entry.place != from {
            return false;
        }
        let epoch = self
            .find(hash)
            .map(|position| self.slot(self.table.id_at(position)).epoch);
        if self.insert(hash, to).is_err() {
            return false;
        }
        let moved = self.find(hash).map(|position| self.table.id_at(position));
        if let (Some(recency), Some(epoch), Some(id)) = (&mut self.recency, epoch, moved) {
            let slot = &mut self.pages[id as usize / PAGE][id as usize % PAGE];
            slot.epoch = recency.restore(slot.epoch, epoch);
        }
        true
    }

    /// Makes all live records in `zone` ghosts; returns their number.
    pub fn begin_evict(&mut self, zone: ZoneId) -> usize {
        let mut count = 0;
        let mut id = self.heads.get(zone.index()).copied().unwrap_or(NONE);
        while id != NONE {
            if self.slot(id).len & GHOST_BIT == 0 {
                self.ghost_entry(id);
                count += 1;
            }
            id = self.slot(id).next;
        }
        count
    }

    /// Frees all entries of `zone`, whose bytes are gone from flash.
    pub fn end_evict(&mut self, zone: ZoneId) {
        let Some(head) = self.heads.get_mut(zone.index()) else {
            return;
        };
        let mut id = std::mem::replace(head, NONE);
        while id != NONE {
            let slot = *self.slot(id);
            if slot.len != DEAD {
                if let Some(position) = self.table.position_of(slot.hash(), id) {
                    self.table.remove(position, |id| hash_in(&self.pages, id));
                }
                self.kill(id);
            }
            let next = slot.next;
            self.slot_mut(id).next = std::mem::replace(&mut self.free, id);
            self.entries -= 1;
            id = next;
        }
    }

    /// CLRU: makes the least recently used records of about `bytes` bytes
    /// ghosts, and passes each to `evicted`. Returns their bytes.
    pub fn evict_least_recent(&mut self, bytes: u64, mut evicted: impl FnMut(Entry)) -> u64 {
        self.evict_weighed(bytes, |entry| {
            evicted(entry);
            u64::from(entry.len).max(1)
        })
    }

    /// As [`evict_least_recent`](Self::evict_least_recent), for a number of
    /// records.
    pub fn evict_least_recent_records(
        &mut self,
        records: u64,
        mut evicted: impl FnMut(Entry),
    ) -> u64 {
        self.evict_weighed(records, |entry| {
            evicted(entry);
            1
        })
    }

    fn evict_weighed(&mut self, wanted: u64, mut evicted: impl FnMut(Entry) -> u64) -> u64 {
        let Some(recency) = &mut self.recency else {
            return 0;
        };
        let mut done = 0;
        while done < wanted && self.live > 0 {
            let Some(threshold) = recency.oldest() else {
                break;
            };
            let before = done;
            let total = self.pages.len() * PAGE;
            for _ in 0..total {
                let id = recency.advance_hand(total);
                let slot = &mut self.pages[id / PAGE][id % PAGE];
                if slot.len & GHOST_BIT != 0 || !recency.is_at_or_before(slot.epoch, threshold) {
                    continue;
                }
                recency.forget(slot.epoch);
                let entry = Entry {
                    place: place_of(slot.block, self.block_size, self.zone_blocks),
                    len: slot.len,
                    checksum: slot.checksum,
                    expiry_unix_s: 0,
                };
                slot.len |= GHOST_BIT;
                self.live -= 1;
                done += evicted(entry);
                if done >= wanted {
                    return done;
                }
            }
            if done == before {
                recency.drop_oldest();
            }
        }
        done
    }

    fn find(&self, hash: KeyHash) -> Option<usize> {
        let h48 = hash.0 & HASH_MASK;
        self.table.find(h48, |id| self.slot(id).hash() == h48)
    }

    /// Grows the table for `records` keys at once. Recovery knows roughly how
    /// many it will insert.
    pub fn reserve(&mut self, records: usize) {
        self.table.reserve(records, |id| hash_in(&self.pages, id));
    }

    fn allocate(&mut self) -> Result<u32, IndexFull> {
        if self.free == NONE {
            let first = self.pages.len() * PAGE;
            if first + PAGE > (NONE - 1) as usize {
                return Err(IndexFull);
            }
            self.table.widen_ids(first + PAGE);
            let dead = Slot {
                len: DEAD,
                next: NONE,
                ..Slot::default()
            };
            self.pages.push(Box::new([dead; PAGE]));
            if !self.expiry.is_empty() {
                self.expiry.push(Box::new([0; PAGE]));
            }
            for id in (first..first + PAGE).rev() {
                self.slot_mut(id as u32).next = std::mem::replace(&mut self.free, id as u32);
            }
        }
        let id = self.free;
        self.free = self.slot(id).next;
        self.entries += 1;
        Ok(id)
    }

    fn ghost_entry(&mut self, id: u32) {
        let slot = &mut self.pages[id as usize / PAGE][id as usize % PAGE];
        if slot.len & GHOST_BIT != 0 {
            return;
        }
        slot.len |= GHOST_BIT;
        self.live -= 1;
        if let Some(recency) = &mut self.recency {
            recency.forget(slot.epoch);
        }
    }

    /// Marks an entry that has left the table as dead. It stays on its zone's
    /// list.
    fn kill(&mut self, id: u32) {
        self.ghost_entry(id);
        self.slot_mut(id).len = DEAD;
    }

    fn entry(&self, id: u32) -> Entry {
        let slot = self.slot(id);
        Entry {
            place: place_of(slot.block, self.block_size, self.zone_blocks),
            len: slot.len,
            checksum: slot.checksum,
            expiry_unix_s: self
                .expiry
                .get(id as usize / PAGE)
                .map_or(0, |page| page[id as usize % PAGE]),
        }
    }

    fn set_expiry(&mut self, id: u32, expiry_unix_s: u32) {
        if expiry_unix_s != 0 && self.expiry.is_empty() {
            self.expiry = self.pages.iter().map(|_| Box::new([0; PAGE])).collect();
        }
        if let Some(page) = self.expiry.get_mut(id as usize / PAGE) {
            page[id as usize % PAGE] = expiry_unix_s;
        }
    }

    fn block_of(&self, place: Place) -> u32 {
        place.zone.0 * self.zone_blocks + (place.offset / u64::from(self.block_size)) as u32
    }

    fn slot(&self, id: u32) -> &Slot {
        &self.pages[id as usize / PAGE][id as usize % PAGE]
    }

    fn slot_mut(&mut self, id: u32) -> &mut Slot {
        &mut self.pages[id as usize / PAGE][id as usize % PAGE]
    }
}

fn hash_in(pages: &[Box<[Slot; PAGE]>], id: u32) -> u64 {
    pages[id as usize / PAGE][id as usize % PAGE].hash()
}

fn place_of(block: u32, block_size: u32, zone_blocks: u32) -> Place {
    Place::new(
        ZoneId(block / zone_blocks),
        u64::from(block % zone_blocks) * u64::from(block_size),
    )
}
