//! Slot tables on flash: changes are queued in order and made durable in groups.
//!
//! One task owns the table blocks. It takes whatever is queued, applies it
//! block by block, writes each changed block once, and, if anybody waits for
//! it, flushes once. A block is read when it is first changed and kept for a
//! while; tables as a whole are never in memory.
//!
//! **Of changes queued in some order, none is acknowledged before all earlier
//! ones are settled.** So whoever finds a key gone because somebody else has
//! just deleted it needs to know nothing of that: his own answer waits long
//! enough.
//!
//! A block that cannot be written is given up: the deaths of what it may hold
//! against these changes are journaled, as are all later ones, and its slots
//! are not used again in this run.
//!
//! **A ghost is forgotten only when flash does not know it any more**, not even
//! after a power loss, and no younger value of the same key is on its way into
//! the same slot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use floe_core::ZoneId;
use floe_core::chunk::Durability;
use floe_core::hash::KeyHash;
use floe_core::layout::{Note, Sequence, SlotEntry, ZoneLife, decode_slot_block};
use floe_core::slots::SlotId;
use floe_device::Address;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::super::stats::add;
use super::super::{Engine, Space};
use super::SlotSpace;
use crate::error::CacheError;

/// Table blocks kept in memory between groups.
const CACHE_BLOCKS: usize = 256;
/// Table blocks of a group that are in memory at once.
const BLOCKS_AT_ONCE: usize = 64;
/// Table blocks read or written at once.
const PARALLEL: usize = 16;
/// Reads and writes of a block before it is given up.
const ATTEMPTS: usize = 3;
/// Changes that may be queued before those who need not wait do.
const QUEUE: usize = 4096;
/// Ghosts that may wait for a flush before one is made for them, and new
/// entries that are remembered meanwhile.
const GHOSTS: usize = 4096;

/// What a table entry becomes.
#[derive(Clone, Copy, Debug)]
pub(in crate::chunk) enum Change {
    /// The slot holds this value. Its payload is written.
    Set { slot: SlotId, entry: SlotEntry },
    /// The slot does not hold a value of this key with this sequence or a lower one.
    Clear {
        slot: SlotId,
        hash: KeyHash,
        up_to: Sequence,
        /// The slot is free once that is written.
        frees: bool,
    },
}

impl Change {
    fn slot(&self) -> SlotId {
        match self {
            Change::Set { slot, .. } | Change::Clear { slot, .. } => *slot,
        }
    }
}

/// How settled a change must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::chunk) enum Settled {
    /// Written.
    Written,
    /// As durable as configured.
    Durable,
}

#[derive(Debug)]
struct Waiter {
    settled: Settled,
    done: oneshot::Sender<Result<(), String>>,
}

#[derive(Debug, Default)]
struct Queue {
    changes: Vec<Change>,
    waiters: Vec<Waiter>,
    /// Entries queued since ghosts were last forgotten.
    recent: BTreeSet<Held>,
    closed: bool,
}

/// Changes on their way into the tables.
#[derive(Debug)]
pub(in crate::chunk) struct TableQueue {
    queue: Mutex<Queue>,
    wake: Notify,
}

impl TableQueue {
    pub(super) fn new() -> Self {
        TableQueue {
            queue: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Queues a change. Called under the lock of the key's shard, so that the
    /// changes of one key are queued in their order.
    pub(in crate::chunk) fn push(&self, change: Change) {
        {
            let mut queue = self.queue.lock();
            if let Change::Set { slot, entry } = &change {
                queue.recent.insert(held(*slot, entry.hash));
            }
            queue.changes.push(change);
        }
        self.wake.notify_one();
    }

    /// Waits until everything queued so far is settled.
    pub(in crate::chunk) async fn settle(&self, settled: Settled) -> Result<(), CacheError> {
        let (done, result) = oneshot::channel();
        {
            let mut queue = self.queue.lock();
            if queue.closed {
                return Err(CacheError::Closed);
            }
            queue.waiters.push(Waiter { settled, done });
        }
        self.wake.notify_one();
        match result.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(CacheError::NotDurable(reason)),
            Err(_) => Err(CacheError::Closed),
        }
    }

    /// Waits only if too much is queued.
    pub(in crate::chunk) async fn settle_later(&self) {
        if self.queue.lock().changes.len() > QUEUE {
            // Whether it worked is for those who need to know.
            let _ = self.settle(Settled::Written).await;
        }
    }

    pub(in crate::chunk) fn wake(&self) {
        self.wake.notify_one();
    }

    fn take(&self) -> (Vec<Change>, Vec<Waiter>) {
        let mut queue = self.queue.lock();
        (
            std::mem::take(&mut queue.changes),
            std::mem::take(&mut queue.waiters),
        )
    }
}

type BlockId = (ZoneId, u32);

/// A slot and the key that the index takes it to hold a value of.
type Held = (SlotId, u64);

fn held(slot: SlotId, hash: KeyHash) -> Held {
    (slot, hash.0 & ((1 << 48) - 1))
}

/// A table block in memory.
#[derive(Debug)]
struct Image {
    entries: Vec<Option<SlotEntry>>,
    /// Values that flash may still hold though they were replaced or cleared.
    superseded: Vec<(KeyHash, Sequence)>,
    /// Flash is to be written.
    dirty: bool,
    /// The group in which it was last changed.
    group: u64,
}

/// Ghosts that can be forgotten once flash is stable.
type Ghosts = BTreeMap<Held, (KeyHash, Address)>;

/// The owner of the tables.
struct TableTask {
    engine: Arc<Engine>,
    images: BTreeMap<BlockId, Image>,
    /// Blocks that were given up.
    lost: BTreeSet<BlockId>,
    ghosts: Ghosts,
    group: u64,
}

impl Engine {
    /// Keeps the tables until the engine stops and nothing is queued.
    pub(in crate::chunk) async fn run_tables(self: Arc<Self>) {
        let mut task = TableTask {
            engine: Arc::clone(&self),
            images: BTreeMap::new(),
            lost: BTreeSet::new(),
            ghosts: BTreeMap::new(),
            group: 0,
        };
        let Space::Slots(slots) = &self.placement else {
            return;
        };
        loop {
            let (changes, waiters) = slots.tables.take();
            if !changes.is_empty() || !waiters.is_empty() {
                task.settle(slots, changes, waiters).await;
                continue;
            }
            if self.is_stopped() {
                let mut queue = slots.tables.queue.lock();
                if queue.changes.is_empty() && queue.waiters.is_empty() {
                    queue.closed = true;
                    return;
                }
                continue;
            }
            slots.tables.wake.notified().await;
        }
    }
}

impl TableTask {
    async fn settle(&mut self, slots: &SlotSpace, changes: Vec<Change>, waiters: Vec<Waiter>) {
        self.group += 1;
        let written = self.apply(slots, changes).await;
        let (durable, written_only): (Vec<_>, Vec<_>) = waiters
            .into_iter()
            .partition(|waiter| waiter.settled == Settled::Durable);
        // A caller that is gone has nobody to tell.
        for waiter in written_only {
            let _ = waiter.done.send(written.clone());
        }
        let crowded =
            self.ghosts.len() >= GHOSTS || slots.tables.queue.lock().recent.len() >= GHOSTS;
        if !durable.is_empty() || crowded {
            let result = match written {
                Ok(()) => self.stabilise(slots).await,
                Err(error) => Err(error),
            };
            for waiter in durable {
                let _ = waiter.done.send(result.clone());
            }
        }
        self.shrink();
    }

    /// Flushes as configured, and forgets the ghosts that flash no longer knows.
    async fn stabilise(&mut self, slots: &SlotSpace) -> Result<(), String> {
        if self.engine.plan.durability == Durability::Power {
            self.engine
                .device
                .flush()
                .await
                .map_err(|error| error.to_string())?;
        }
        for (held, (hash, place)) in std::mem::take(&mut self.ghosts) {
            let mut shard = self.engine.shard_of(hash).lock();
            // A younger value of this key in this slot may be a ghost by now, and not in the table yet.
            if !slots.tables.queue.lock().recent.contains(&held) {
                shard.index.forget_ghost(hash, place);
            }
        }
        slots.tables.queue.lock().recent.clear();
        Ok(())
    }

    /// Brings the changes, and what earlier groups left, onto flash.
    async fn apply(&mut self, slots: &SlotSpace, changes: Vec<Change>) -> Result<(), String> {
        let mut blocks: BTreeMap<BlockId, Vec<Change>> = self
            .images
            .iter()
            .filter(|(_, image)| image.dirty)
            .map(|(&block, _)| (block, Vec::new()))
            .collect();
        let mut result = Ok(());
        let mut notes = Vec::new();
        let mut lost_slots = Vec::new();
        for change in changes {
            let slot = change.slot();
            let block = (slot.zone, slots.geometry.table_block_of(slot.slot));
            if !self.lost.contains(&block) {
                blocks.entry(block).or_default().push(change);
            } else if let Change::Clear {
                hash, up_to, frees, ..
            } = change
            {
                notes.push(self.death(block, hash, up_to));
                lost_slots.extend(frees.then_some(slot));
            }
        }
        self.engine.give_slots_back(slots, &lost_slots);
        if !notes.is_empty() {
            let noted = self.engine.journal.commit(notes).await;
            result = noted.map_err(|error| error.to_string());
        }
        while !blocks.is_empty() {
            let rest = match blocks.keys().nth(BLOCKS_AT_ONCE).copied() {
                Some(first_of_rest) => blocks.split_off(&first_of_rest),
                None => BTreeMap::new(),
            };
            let now = std::mem::replace(&mut blocks, rest);
            self.load(slots, &now).await;
            let mut free = Vec::new();
            for (&block, changes) in &now {
                self.change(slots, block, changes, &mut free);
            }
            result = self.write(slots, now.into_keys()).await.and(result);
            // Those of a block that failed are out of use by now, and stay so.
            self.engine.give_slots_back(slots, &free);
            self.shrink();
        }
        result
    }

    /// Reads the blocks that are not in memory. One that cannot be read starts
    /// empty: its values are served on, and forgotten at the next start.
    async fn load(&mut self, slots: &SlotSpace, blocks: &BTreeMap<BlockId, Vec<Change>>) {
        let missing: Vec<BlockId> = blocks
            .keys()
            .filter(|block| !self.images.contains_key(block))
            .copied()
            .collect();
        let engine = &self.engine;
        let loaded: Vec<_> = futures::stream::iter(missing)
            .map(|block| async move { (block, read_block(engine, slots, block).await) })
            .buffered(PARALLEL)
            .collect()
            .await;
        for (block, entries) in loaded {
            let dirty = entries.is_none();
            let entries =
                entries.unwrap_or_else(|| vec![None; slots.geometry.slots_of_block(block.1).len()]);
            let image = Image {
                entries,
                superseded: Vec::new(),
                dirty,
                group: self.group,
            };
            self.images.insert(block, image);
        }
    }

    /// Applies one block's changes in memory.
    fn change(
        &mut self,
        slots: &SlotSpace,
        block: BlockId,
        changes: &[Change],
        free: &mut Vec<SlotId>,
    ) {
        let Some(image) = self.images.get_mut(&block) else {
            return;
        };
        image.group = self.group;
        let first = slots.geometry.slots_of_block(block.1).start;
        for change in changes {
            let slot = change.slot();
            let Some(entry) = image.entries.get_mut((slot.slot - first) as usize) else {
                continue;
            };
            let old = match *change {
                Change::Set { entry: new, .. } => {
                    self.ghosts.remove(&held(slot, new.hash));
                    entry.replace(new)
                }
                Change::Clear {
                    hash, up_to, frees, ..
                } => {
                    if frees {
                        free.push(slot);
                    }
                    // Noted whether it is known or not: a block that could not be read may hold it.
                    image.superseded.push((hash, up_to));
                    entry.take_if(|old| is_same_key(old.hash, hash) && old.sequence <= up_to)
                }
            };
            image.dirty |= old.is_some() || matches!(change, Change::Set { .. });
            if let Some(old) = old {
                image.superseded.push((old.hash, old.sequence));
                let is_replaced_by_itself = matches!(change, Change::Set { entry, .. } if is_same_key(entry.hash, old.hash));
                if !is_replaced_by_itself {
                    let place = slots.place(slot, old.kind);
                    self.ghosts.insert(held(slot, old.hash), (old.hash, place));
                }
            }
        }
    }

    /// Writes those of `blocks` that are to be written.
    async fn write(
        &mut self,
        slots: &SlotSpace,
        blocks: impl Iterator<Item = BlockId>,
    ) -> Result<(), String> {
        let mut dirty = Vec::new();
        for block in blocks {
            match self.images.get_mut(&block) {
                Some(image) if image.dirty => dirty.push(block),
                Some(image) => image.superseded.clear(),
                None => {}
            }
        }
        let (engine, images) = (&self.engine, &self.images);
        let written: Vec<_> = futures::stream::iter(dirty)
            .map(|block| async move {
                let entries = images.get(&block).map_or(&[][..], |image| &image.entries);
                (block, write_block(engine, slots, block, entries).await)
            })
            .buffered(PARALLEL)
            .collect()
            .await;
        let mut result = Ok(());
        for (block, ok) in written {
            if ok {
                if let Some(image) = self.images.get_mut(&block) {
                    image.dirty = false;
                    image.superseded.clear();
                }
            } else {
                result = self.give_up(slots, block).await.and(result);
            }
        }
        result
    }

    /// Flash does not take `block`: notes what it may hold and should not as dead.
    async fn give_up(&mut self, slots: &SlotSpace, block: BlockId) -> Result<(), String> {
        slots.map.lock().withdraw_block(block.0, block.1);
        // Perhaps those were the last ones that somebody waited for.
        self.engine.space.notify_waiters();
        let Some(image) = self.images.get(&block) else {
            return Ok(());
        };
        let notes = image
            .superseded
            .iter()
            .map(|&(hash, up_to)| self.death(block, hash, up_to))
            .collect();
        self.engine
            .journal
            .commit(notes)
            .await
            .map_err(|error| error.to_string())?;
        tracing::warn!(zone = %block.0, block = block.1, "a slot table block cannot be written; its slots are not used any more");
        self.images.remove(&block);
        self.lost.insert(block);
        Ok(())
    }

    fn death(&self, block: BlockId, hash: KeyHash, sequence: Sequence) -> Note {
        self.engine.states.add_death(block.0);
        Note::Death {
            life: self.engine.states.life(block.0),
            hash,
            sequence,
        }
    }

    /// Keeps the blocks that were changed last.
    fn shrink(&mut self) {
        if self.images.len() <= CACHE_BLOCKS {
            return;
        }
        let mut ages: Vec<(u64, BlockId)> = self
            .images
            .iter()
            .filter(|(_, image)| !image.dirty)
            .map(|(&block, image)| (image.group, block))
            .collect();
        ages.sort_unstable();
        // A quarter at once, so that the sorting is worth it.
        let excess = self.images.len() - CACHE_BLOCKS * 3 / 4;
        for (_, block) in ages.into_iter().take(excess) {
            self.images.remove(&block);
        }
    }
}

/// Whether the index would take the two for one key.
fn is_same_key(a: KeyHash, b: KeyHash) -> bool {
    (a.0 ^ b.0) << 16 == 0
}

async fn read_block(
    engine: &Engine,
    slots: &SlotSpace,
    (zone, block): BlockId,
) -> Option<Vec<Option<SlotEntry>>> {
    let geometry = &slots.geometry;
    let at = Address::new(zone, geometry.table_block_offset(block));
    let life: ZoneLife = engine.states.life(zone);
    for _ in 0..ATTEMPTS {
        let buf = engine.device.allocate(geometry.block_size as usize);
        let error = match engine.device.read(at, buf).await {
            Ok(buf) => match decode_slot_block(engine.id, life, geometry, block, &buf) {
                Ok(entries) => return Some(entries.into_iter().map(|(_, entry)| entry).collect()),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        add(&engine.counters.read_errors, 1);
        tracing::warn!(error, %zone, block, "a slot table block could not be read");
    }
    None
}

async fn write_block(
    engine: &Engine,
    slots: &SlotSpace,
    (zone, block): BlockId,
    entries: &[Option<SlotEntry>],
) -> bool {
    let life = engine.states.life(zone);
    for _ in 0..ATTEMPTS {
        match engine
            .write_table_block(slots, life, block, Some(entries))
            .await
        {
            Ok(()) => return true,
            Err(error) => {
                add(&engine.counters.write_errors, 1);
                tracing::warn!(%error, %zone, block, "a slot table block could not be written");
            }
        }
    }
    false
}
