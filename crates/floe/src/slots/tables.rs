//! Slot tables on flash: changes are queued in order and made durable in groups.
//!
//! One task owns the table blocks. It takes what is queued, applies it block by
//! block, writes each changed block once, and flushes once if a waiter asks for
//! it. A block is read when it is first changed and kept for a while; tables as
//! a whole are never in memory.
//!
//! **Of changes queued in some order, none is acknowledged before all earlier
//! ones are settled.** So a delete that finds its key gone, because another has
//! just deleted it, waits long enough without knowing of the other.
//!
//! A block that cannot be written is given up: the owner buries what it may hold
//! against these changes, as it does for all later ones, and its slots are not
//! used again in this run.
//!
//! **A ghost is forgotten only when flash does not know it any more**, not even
//! after a power loss, and no younger value of the same key is on its way into
//! the same slot.
//!
//! A panic in the task poisons the tables: from then on every wait for a change
//! fails with [`CacheError::Closed`], so no delete is acknowledged, and the engine
//! takes no writes.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;

use floe_core::ZoneId;
use floe_core::hash::KeyHash;
use floe_core::layout::{Sequence, SlotEntry, ValueKind, ZoneLife};
use floe_core::slots::SlotId;
use floe_device::DeviceError;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::blocks::TableBlocks;
use crate::error::CacheError;

/// Most table blocks cached between groups.
const CACHE_BLOCKS: usize = 256;
/// Most table blocks of a group in memory.
const BLOCKS_AT_ONCE: usize = 64;
/// Table blocks read or written concurrently.
const PARALLEL: usize = 16;
/// Queued changes from which on all callers wait.
const QUEUE: usize = 4096;
/// Most ghosts that wait for a flush, and most new entries to track until then.
const GHOSTS: usize = 4096;

/// A change of a table entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// The slot holds this value, whose payload is written.
    Set { slot: SlotId, entry: SlotEntry },
    /// The slot holds no value of this key with this sequence or a lower one.
    Clear {
        slot: SlotId,
        hash: KeyHash,
        up_to: Sequence,
        /// The slot is free once the change is written.
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

/// The degree to which a change must be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// Written.
    Written,
    /// As durable as configured.
    Durable,
}

/// Values of a key in a lost block, which must not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeadValues {
    pub(crate) zone: ZoneId,
    pub(crate) hash: KeyHash,
    pub(crate) up_to: Sequence,
}

/// The engine whose values the slots hold.
pub(crate) trait TableOwner: Send + Sync {
    fn tables(&self) -> &Tables;

    /// The current life of `zone`.
    fn life(&self, zone: ZoneId) -> ZoneLife;

    /// True if the task must end once the queue is empty.
    fn is_stopped(&self) -> bool;

    /// Allows `slots` to be written.
    fn free(&self, slots: &[SlotId]);

    /// Withdraws the slots of a table block that cannot be written.
    fn withdraw(&self, zone: ZoneId, block: u32);

    /// Removes the ghost of a value that flash no longer has, unless
    /// `is_recent`, which must be called under the lock of [`Tables::push`].
    fn forget(&self, slot: SlotId, hash: KeyHash, kind: ValueKind, is_recent: &dyn Fn() -> bool);

    /// Makes tombstones for these values durable elsewhere.
    fn write_tombstones(
        &self,
        dead: Vec<DeadValues>,
    ) -> impl Future<Output = Result<(), CacheError>> + Send;
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
    /// Entries queued since ghosts were last removed.
    recent: BTreeSet<Held>,
    closed: bool,
}

/// The tables of one cache and their queue of changes.
#[derive(Debug)]
pub(crate) struct Tables {
    blocks: TableBlocks,
    /// Durability includes a power loss.
    is_flushed: bool,
    queue: Mutex<Queue>,
    wake: Notify,
}

impl Tables {
    pub(crate) fn new(blocks: TableBlocks, is_flushed: bool) -> Self {
        Tables {
            blocks,
            is_flushed,
            queue: Mutex::default(),
            wake: Notify::new(),
        }
    }

    pub(crate) fn blocks(&self) -> &TableBlocks {
        &self.blocks
    }

    /// Queues a change. The caller holds a lock that orders the changes of one key.
    pub(crate) fn push(&self, change: Change) {
        {
            let mut queue = self.queue.lock();
            if let Change::Set { slot, entry } = &change {
                queue.recent.insert(held(*slot, entry.hash));
            }
            queue.changes.push(change);
        }
        self.wake.notify_one();
    }

    /// Waits until all queued changes are settled.
    pub(crate) async fn settle(&self, settled: Settled) -> Result<(), CacheError> {
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

    /// Waits only if the queue is long.
    pub(crate) async fn settle_later(&self) {
        if self.queue.lock().changes.len() > QUEUE {
            // Only callers that wait for durability need the error.
            let _ = self.settle(Settled::Written).await;
        }
    }

    /// Makes the written changes as durable as configured.
    pub(crate) async fn stabilise(&self) -> Result<(), DeviceError> {
        match self.is_flushed {
            true => self.blocks.flush().await,
            false => Ok(()),
        }
    }

    /// Wakes the task, to let it end.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    fn take(&self) -> (Vec<Change>, Vec<Waiter>) {
        let mut queue = self.queue.lock();
        (
            std::mem::take(&mut queue.changes),
            std::mem::take(&mut queue.waiters),
        )
    }

    fn is_recent(&self, held: &Held) -> bool {
        self.queue.lock().recent.contains(held)
    }

    /// Closes the queue if it is empty.
    fn close_if_empty(&self) -> bool {
        let mut queue = self.queue.lock();
        queue.closed = queue.changes.is_empty() && queue.waiters.is_empty();
        queue.closed
    }
}

type BlockId = (ZoneId, u32);

/// A slot, and the key of its value in the index.
type Held = (SlotId, u64);

fn held(slot: SlotId, hash: KeyHash) -> Held {
    (slot, hash.0 & ((1 << 48) - 1))
}

/// True if an index with 48-bit hashes treats the two as one key.
fn is_same_key(a: KeyHash, b: KeyHash) -> bool {
    (a.0 ^ b.0) << 16 == 0
}

/// A table block in memory.
#[derive(Debug)]
struct Image {
    entries: Vec<Option<SlotEntry>>,
    /// Values that flash may still hold although they were replaced or cleared.
    superseded: Vec<(KeyHash, Sequence)>,
    /// The block must be written.
    dirty: bool,
    /// The group of its last change.
    group: u64,
}

/// Ghosts to remove after the next flush.
type Ghosts = BTreeMap<Held, (KeyHash, ValueKind)>;

/// The task's state.
struct TableTask<'o, O> {
    owner: &'o O,
    images: BTreeMap<BlockId, Image>,
    /// Blocks that were given up.
    lost: BTreeSet<BlockId>,
    ghosts: Ghosts,
    group: u64,
}

/// Fails pending waits when the task ends, in any way.
struct CloseOnDrop<'o>(&'o Tables);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.closed = true;
        queue.waiters.clear();
    }
}

/// Runs the task until `owner` is stopped and the queue is empty.
pub(crate) async fn run<O: TableOwner>(owner: Arc<O>) {
    let tables = owner.tables();
    let _close = CloseOnDrop(tables);
    let mut task = TableTask {
        owner: &*owner,
        images: BTreeMap::new(),
        lost: BTreeSet::new(),
        ghosts: BTreeMap::new(),
        group: 0,
    };
    loop {
        let (changes, waiters) = tables.take();
        if !changes.is_empty() || !waiters.is_empty() {
            task.settle(changes, waiters).await;
            continue;
        }
        if owner.is_stopped() {
            if tables.close_if_empty() {
                return;
            }
            continue;
        }
        tables.wake.notified().await;
    }
}

impl<O: TableOwner> TableTask<'_, O> {
    async fn settle(&mut self, changes: Vec<Change>, waiters: Vec<Waiter>) {
        self.group += 1;
        let written = self.apply(changes).await;
        let (durable, written_only): (Vec<_>, Vec<_>) = waiters
            .into_iter()
            .partition(|waiter| waiter.settled == Settled::Durable);
        // The waiting caller may have been dropped.
        for waiter in written_only {
            let _ = waiter.done.send(written.clone());
        }
        let recent = self.owner.tables().queue.lock().recent.len();
        let is_crowded = self.ghosts.len() >= GHOSTS || recent >= GHOSTS;
        if !durable.is_empty() || is_crowded {
            let result = match written {
                Ok(()) => self.stabilise().await,
                Err(error) => Err(error),
            };
            for waiter in durable {
                let _ = waiter.done.send(result.clone());
            }
        }
        self.shrink();
    }

    /// Flushes as configured, then removes the ghosts of values that flash no longer has.
    async fn stabilise(&mut self) -> Result<(), String> {
        let tables = self.owner.tables();
        let flushed = tables.stabilise().await;
        flushed.map_err(|error| error.to_string())?;
        for (held, (hash, kind)) in std::mem::take(&mut self.ghosts) {
            // A younger value of this key in this slot may be a ghost already,
            // before its table entry is written.
            let is_recent = || tables.is_recent(&held);
            self.owner.forget(held.0, hash, kind, &is_recent);
        }
        tables.queue.lock().recent.clear();
        Ok(())
    }

    /// Writes the changes, and the blocks left over from earlier groups.
    async fn apply(&mut self, changes: Vec<Change>) -> Result<(), String> {
        let geometry = *self.owner.tables().blocks.geometry();
        let mut blocks: BTreeMap<BlockId, Vec<Change>> = self
            .images
            .iter()
            .filter(|(_, image)| image.dirty)
            .map(|(&block, _)| (block, Vec::new()))
            .collect();
        let mut dead = Vec::new();
        let mut lost_slots = Vec::new();
        for change in changes {
            let slot = change.slot();
            let block = (slot.zone, geometry.table_block_of(slot.slot));
            if !self.lost.contains(&block) {
                blocks.entry(block).or_default().push(change);
            } else if let Change::Clear {
                hash, up_to, frees, ..
            } = change
            {
                let zone = slot.zone;
                dead.push(DeadValues { zone, hash, up_to });
                lost_slots.extend(frees.then_some(slot));
            }
        }
        self.owner.free(&lost_slots);
        let mut result = self.write_tombstones(dead).await;
        while !blocks.is_empty() {
            let rest = match blocks.keys().nth(BLOCKS_AT_ONCE).copied() {
                Some(first_of_rest) => blocks.split_off(&first_of_rest),
                None => BTreeMap::new(),
            };
            let now = std::mem::replace(&mut blocks, rest);
            self.load(&now).await;
            let mut free = Vec::new();
            for (&block, changes) in &now {
                self.change(block, changes, &mut free);
            }
            result = self.write(now.into_keys()).await.and(result);
            // Slots of a failed block were withdrawn, and stay so.
            self.owner.free(&free);
            self.shrink();
        }
        result
    }

    /// Reads missing blocks. An unreadable one starts empty: its values are
    /// served until the next start, which loses them.
    async fn load(&mut self, blocks: &BTreeMap<BlockId, Vec<Change>>) {
        let missing: Vec<BlockId> = blocks
            .keys()
            .filter(|block| !self.images.contains_key(block))
            .copied()
            .collect();
        let tables = &self.owner.tables().blocks;
        let loaded: Vec<_> = futures::stream::iter(missing)
            .map(|(zone, block)| {
                let life = self.owner.life(zone);
                async move { ((zone, block), tables.read_with_retries(life, block).await) }
            })
            .buffered(PARALLEL)
            .collect()
            .await;
        for (block, read) in loaded {
            let dirty = read.is_none();
            let entries = match read {
                Some(read) => read.into_iter().map(|(_, entry)| entry).collect(),
                None => tables.empty_block(block.1),
            };
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
    fn change(&mut self, block: BlockId, changes: &[Change], free: &mut Vec<SlotId>) {
        let Some(image) = self.images.get_mut(&block) else {
            return;
        };
        image.group = self.group;
        let geometry = self.owner.tables().blocks.geometry();
        let first = geometry.slots_of_block(block.1).start;
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
                    // Recorded even if the entry is unknown: an unreadable block may hold it.
                    image.superseded.push((hash, up_to));
                    entry.take_if(|old| is_same_key(old.hash, hash) && old.sequence <= up_to)
                }
            };
            image.dirty |= old.is_some() || matches!(change, Change::Set { .. });
            if let Some(old) = old {
                image.superseded.push((old.hash, old.sequence));
                let is_replaced_by_itself = matches!(change, Change::Set { entry, .. } if is_same_key(entry.hash, old.hash));
                if !is_replaced_by_itself {
                    self.ghosts
                        .insert(held(slot, old.hash), (old.hash, old.kind));
                }
            }
        }
    }

    /// Writes the dirty ones of `blocks`.
    async fn write(&mut self, blocks: impl Iterator<Item = BlockId>) -> Result<(), String> {
        let mut dirty = Vec::new();
        for block in blocks {
            match self.images.get_mut(&block) {
                Some(image) if image.dirty => dirty.push(block),
                Some(image) => image.superseded.clear(),
                None => {}
            }
        }
        let (owner, images) = (self.owner, &self.images);
        let tables = &owner.tables().blocks;
        let written: Vec<_> = futures::stream::iter(dirty)
            .map(|(zone, block)| async move {
                let image = images.get(&(zone, block));
                let entries = image.map_or(&[][..], |image| &image.entries);
                let written = tables.write_with_retries(owner.life(zone), block, entries);
                ((zone, block), written.await.is_ok())
            })
            .buffered(PARALLEL)
            .collect()
            .await;
        let mut result = Ok(());
        for (block, is_written) in written {
            if !is_written {
                result = self.give_up(block).await.and(result);
            } else if let Some(image) = self.images.get_mut(&block) {
                image.dirty = false;
                image.superseded.clear();
            }
        }
        result
    }

    /// Gives `block` up, and makes tombstones for the values that it may wrongly hold.
    async fn give_up(&mut self, block: BlockId) -> Result<(), String> {
        let (zone, number) = block;
        self.owner.withdraw(zone, number);
        let Some(image) = self.images.get(&block) else {
            return Ok(());
        };
        let superseded = image.superseded.iter();
        let dead = superseded.map(|&(hash, up_to)| DeadValues { zone, hash, up_to });
        self.write_tombstones(dead.collect()).await?;
        tracing::warn!(%zone, block = number, "a slot table block cannot be written; its slots are retired");
        self.images.remove(&block);
        self.lost.insert(block);
        Ok(())
    }

    async fn write_tombstones(&self, dead: Vec<DeadValues>) -> Result<(), String> {
        if dead.is_empty() {
            return Ok(());
        }
        let written = self.owner.write_tombstones(dead).await;
        written.map_err(|error| error.to_string())
    }

    /// Evicts the blocks that were changed longest ago.
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
        // Evicts a quarter at once, to amortise the sort.
        let excess = self.images.len() - CACHE_BLOCKS * 3 / 4;
        for (_, block) in ages.into_iter().take(excess) {
            self.images.remove(&block);
        }
    }
}
