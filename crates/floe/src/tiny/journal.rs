//! Fences made durable, in the two metadata zones.
//!
//! A write or delete of what may be on flash is acknowledged once its *fence*
//! is durable: "until the set-groups below S are on flash, nothing of this
//! hash that is there counts". Set-groups are written seldom, and everything
//! that they are to outlive would come back if the process died before.
//!
//! One task owns the metadata zones. Fences that arrive together share one
//! append and one flush. Those that still hold are kept in memory, to be
//! written to the other zone when one is full.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use floe_core::ZoneId;
use floe_core::chunk::Durability;
use floe_core::layout::tiny::{Fence, TINY_NOTE_BYTES, TinyNote, TinySuperblock};
use floe_core::layout::{JOURNAL_HEADER_BYTES, JournalChain, JournalRecord as _, LayoutError};
use floe_device::{DeviceError, IoBuf, Placement, SharedDevice};
use tokio::sync::{Notify, mpsc, oneshot};

use super::instance::Instance;
use super::order::Order;
use crate::error::CacheError;
use crate::metadata::{goes_on, leave_copy, other, read_window, reserve};

/// Fences that may wait for the task; further callers wait for a place.
const QUEUE: usize = 4096;
/// Fences gathered into one append.
const GROUP: usize = 2048;

/// Why the metadata zones cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum JournalError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("encoding: {0}")]
    Layout(#[from] LayoutError),
    #[error("the fences that hold do not fit a metadata zone; use larger zones (device.zone_size)")]
    Full,
    #[error("the journal failed before; reopen the cache")]
    Broken,
}

struct Request {
    /// `None` asks for the journal to be rid of fences that do not hold.
    entry: Option<Entry>,
    number: u64,
    done: Option<oneshot::Sender<Result<(), String>>>,
}

/// What the journal is to remember.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    /// A fence, with what says whether it holds.
    Fence(Live),
    /// A note of an instance, of which the newest of each kind counts.
    Note(TinyNote),
}

impl Entry {
    fn note(&self) -> TinyNote {
        match self {
            Entry::Fence(live) => TinyNote::Fence(live.fence),
            Entry::Note(note) => *note,
        }
    }
}

/// A place in the queue, to be used without waiting.
pub(super) struct Place<'a> {
    journal: &'a Journal,
    permit: mpsc::Permit<'a, Request>,
}

/// A handle to the journal's task.
#[derive(Debug)]
pub(super) struct Journal {
    requests: mpsc::Sender<Request>,
    order: Order,
    progress: Arc<Progress>,
}

/// How far the task is.
#[derive(Debug, Default)]
struct Progress {
    /// Number of the last fence that is durable, or never will be.
    written: AtomicU64,
    /// The metadata zones could not be written.
    broken: AtomicBool,
    /// There is no task any more.
    ended: AtomicBool,
    /// Memory of the fences that may hold, and of those that wait.
    memory_bytes: AtomicU64,
    news: Notify,
}

impl Progress {
    /// Everything up to `number` is durable, unless the journal is broken.
    fn reached(&self, number: u64) {
        self.written.store(number, SeqCst);
        self.news.notify_waiters();
    }

    /// Waits until everything up to `number` is durable; says whether it is.
    async fn wait_for(&self, number: u64) -> bool {
        loop {
            let news = self.news.notified();
            if self.broken.load(SeqCst) {
                return false;
            }
            if self.written.load(SeqCst) >= number {
                return true;
            }
            if self.ended.load(SeqCst) {
                return false;
            }
            news.await;
        }
    }
}

/// Says that the task has ended, whatever ended it.
struct Ended(Arc<Progress>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended.store(true, SeqCst);
        self.0.news.notify_waiters();
    }
}

/// What a write must wait for before it is acknowledged.
pub(super) enum Wait {
    /// Nothing.
    Nothing,
    /// Its own fence.
    Own(oneshot::Receiver<Result<(), String>>),
    /// Fences up to this number, which others sent.
    Earlier(u64),
}

impl Place<'_> {
    /// Sends a fence; returns its number, too.
    pub(super) fn send(self, instance: u32, fence: Fence) -> (Wait, u64) {
        self.request(|number| {
            Some(Entry::Fence(Live {
                instance,
                number,
                fence,
            }))
        })
    }

    fn request(self, entry: impl FnOnce(u64) -> Option<Entry>) -> (Wait, u64) {
        let (done, result) = oneshot::channel();
        let Place { journal, permit } = self;
        let number = journal.order.queue(|number| {
            permit.send(Request {
                entry: entry(number),
                number,
                done: Some(done),
            });
        });
        (Wait::Own(result), number)
    }

    /// Waits for what was sent before.
    pub(super) fn earlier(self) -> Wait {
        Wait::Earlier(self.last())
    }

    /// As [`Journal::settle`], without waiting for it.
    pub(super) fn settle(self) {
        self.request(|_| None);
    }

    /// The number of the last fence that was sent.
    pub(super) fn last(&self) -> u64 {
        self.journal.last()
    }
}

impl Journal {
    /// A place in the queue; waits while there is none.
    pub(super) async fn place(&self) -> Result<Place<'_>, CacheError> {
        if self.progress.broken.load(SeqCst) {
            return Err(broken());
        }
        let permit = self.requests.reserve().await;
        Ok(Place {
            journal: self,
            permit: permit.map_err(|_| CacheError::Closed)?,
        })
    }

    /// Bytes of memory of the fences that may hold, and of those that wait.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.progress.memory_bytes.load(SeqCst)
    }

    /// Waits.
    pub(super) async fn wait(&self, wait: Wait) -> Result<(), CacheError> {
        match wait {
            Wait::Nothing => Ok(()),
            Wait::Own(result) => match result.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(reason)) => Err(CacheError::NotDurable(reason)),
                Err(_) => Err(CacheError::Closed),
            },
            Wait::Earlier(number) => {
                let is_durable = self.progress.wait_for(number).await;
                is_durable.then_some(()).ok_or_else(broken)
            }
        }
    }

    /// Writes a note of an instance and waits for it.
    pub(super) async fn commit(&self, note: TinyNote) -> Result<(), CacheError> {
        let (wait, _) = self.place().await?.request(|_| Some(Entry::Note(note)));
        self.wait(wait).await
    }

    /// The number of the last fence that was sent.
    pub(super) fn last(&self) -> u64 {
        self.order.last()
    }

    /// Sees to it that fences which do not hold are not found again.
    pub(super) async fn settle(&self) -> Result<(), CacheError> {
        let (wait, _) = self.place().await?.request(|_| None);
        self.wait(wait).await
    }
}

fn broken() -> CacheError {
    CacheError::NotDurable("the journal of tiny objects failed; reopen the cache".into())
}

/// A fence that is to be written, or may still hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    pub(super) instance: u32,
    /// Zero if an earlier life sent it.
    pub(super) number: u64,
    pub(super) fence: Fence,
}

impl Live {
    /// Whether it still keeps something from coming back.
    fn holds(&self, instances: &[Arc<Instance>]) -> bool {
        let instance = instances.get(self.instance as usize);
        instance.is_none_or(|instance| {
            instance.durable.load(SeqCst) < self.fence.below
                && instance.moot_before.load(SeqCst) <= self.number
        })
    }
}

/// The owner of the metadata zones.
#[derive(Debug)]
pub(super) struct JournalTask {
    device: SharedDevice,
    durability: Durability,
    superblock: TinySuperblock,
    active: ZoneId,
    chain: JournalChain,
    written_bytes: u64,
    /// Fences that may still hold, in the order they came.
    live: VecDeque<Live>,
    /// Of each instance, the newest notes of what is gone and what was written.
    gone: BTreeMap<u32, u64>,
    written: BTreeMap<u32, u64>,
}

impl JournalTask {
    /// Starts a metadata zone in `zone` with `fences`, and a task that goes on
    /// with it.
    pub(super) async fn begin(
        device: SharedDevice,
        durability: Durability,
        superblock: TinySuperblock,
        zone: ZoneId,
        entries: Vec<Entry>,
    ) -> Result<Self, JournalError> {
        reserve(&device);
        let mut task = JournalTask {
            chain: JournalChain::new(superblock.cache_id, superblock.epoch),
            device,
            durability,
            superblock,
            active: zone,
            written_bytes: 0,
            live: VecDeque::new(),
            gone: BTreeMap::new(),
            written: BTreeMap::new(),
        };
        task.keep(&entries);
        task.checkpoint(zone, superblock.epoch).await?;
        task.leave_copy().await?;
        Ok(task)
    }

    /// Starts the task.
    pub(super) fn start(
        self,
        instances: Arc<[Arc<Instance>]>,
    ) -> (Journal, tokio::task::JoinHandle<()>) {
        let (requests, inbox) = mpsc::channel(QUEUE);
        let progress = Arc::<Progress>::default();
        let ended = Ended(Arc::clone(&progress));
        let running = tokio::spawn(self.run(inbox, ended, instances));
        let journal = Journal {
            requests,
            order: Order::default(),
            progress,
        };
        (journal, running)
    }

    async fn run(
        mut self,
        mut inbox: mpsc::Receiver<Request>,
        ended: Ended,
        instances: Arc<[Arc<Instance>]>,
    ) {
        let progress = &ended.0;
        let mut group = Vec::with_capacity(GROUP);
        let count = |live: &VecDeque<Live>, group: &Vec<Request>| {
            let live = live.capacity() * size_of::<Live>();
            let waiting = group.capacity() * size_of::<Request>();
            progress.memory_bytes.store((live + waiting) as u64, SeqCst);
        };
        count(&self.live, &group);
        while inbox.recv_many(&mut group, GROUP).await > 0 {
            let entries: Vec<Entry> = group.iter().filter_map(|request| request.entry).collect();
            let settles = group.iter().any(|request| request.entry.is_none());
            let result = if progress.broken.load(SeqCst) {
                Err(JournalError::Broken)
            } else if settles {
                self.settle(&entries, &instances).await
            } else {
                self.write(&entries, &instances).await
            };
            if let Err(error) = &result {
                // An object that was noted may be replaced without another note.
                progress.broken.store(true, SeqCst);
                tracing::error!(%error, "the journal of tiny objects could not be written; writes are refused");
            }
            let result = result.map_err(|error| error.to_string());
            let last = group.iter().map(|request| request.number).max();
            for request in group.drain(..) {
                if let Some(done) = request.done {
                    // A caller that is gone has nobody to tell.
                    let _ = done.send(result.clone());
                }
            }
            count(&self.live, &group);
            progress.reached(last.unwrap_or(0));
        }
    }

    async fn write(
        &mut self,
        entries: &[Entry],
        instances: &[Arc<Instance>],
    ) -> Result<(), JournalError> {
        self.keep(entries);
        let notes: Vec<TinyNote> = entries.iter().map(Entry::note).collect();
        if self.append(&notes).await.is_err() {
            // Full, or failed.
            return self.move_on(instances).await;
        }
        while let Some(live) = self.live.front()
            && !live.holds(instances)
        {
            self.live.pop_front();
        }
        if self.durability == Durability::Power {
            self.device.flush().await?;
        }
        Ok(())
    }

    /// Writes `entries`, and leaves no fence behind that does not hold.
    async fn settle(
        &mut self,
        entries: &[Entry],
        instances: &[Arc<Instance>],
    ) -> Result<(), JournalError> {
        self.keep(entries);
        let all_hold = self.live.iter().all(|live| live.holds(instances));
        match entries.is_empty() && all_hold {
            true => Ok(()),
            false => self.move_on(instances).await,
        }
    }

    /// Moves what still holds to the other zone.
    async fn move_on(&mut self, instances: &[Arc<Instance>]) -> Result<(), JournalError> {
        self.live.retain(|live| live.holds(instances));
        // A burst of fences that have ended leaves its room behind.
        self.live.shrink_to(2 * self.live.len());
        self.checkpoint(other(self.active), self.superblock.epoch + 1)
            .await?;
        self.leave_copy().await
    }

    /// The active zone is complete and stable: the other one may go.
    async fn leave_copy(&self) -> Result<(), JournalError> {
        let block = self.device.geometry().block_size;
        let mut copy = IoBuf::zeroed(TinySuperblock::encoded_bytes(block));
        self.superblock.encode(&mut copy)?;
        leave_copy(&self.device, other(self.active), copy).await;
        Ok(())
    }

    /// Remembers what the next checkpoint must say.
    fn keep(&mut self, entries: &[Entry]) {
        for entry in entries {
            let (newest, instance, below) = match *entry {
                Entry::Fence(live) => {
                    self.live.push_back(live);
                    continue;
                }
                Entry::Note(TinyNote::Gone { instance, below }) => {
                    (&mut self.gone, instance, below)
                }
                Entry::Note(TinyNote::Written { instance, below }) => {
                    (&mut self.written, instance, below)
                }
                Entry::Note(TinyNote::Fence(_) | TinyNote::CheckpointEnd { .. }) => continue,
            };
            let newest = newest.entry(instance).or_default();
            *newest = below.max(*newest);
        }
    }

    /// Appends notes.
    async fn append(&mut self, notes: &[TinyNote]) -> Result<(), JournalError> {
        let geometry = self.device.geometry().clone();
        let block = geometry.block_size;
        let most = geometry.max_append_bytes.min(64 << 10) as usize;
        let per_block =
            (most / block as usize * block as usize - JOURNAL_HEADER_BYTES) / TINY_NOTE_BYTES;
        let bytes: u64 = notes
            .chunks(per_block)
            .map(|group| JournalChain::encoded_bytes(group, block) as u64)
            .sum();
        if self.written_bytes + bytes > geometry.zone_capacity {
            return Err(JournalError::Full);
        }
        for group in notes.chunks(per_block) {
            let mut chain = self.chain;
            let mut buf = IoBuf::zeroed(JournalChain::encoded_bytes(group, block));
            chain.encode(block, group, &mut buf)?;
            let len = buf.len() as u64;
            let at = self
                .device
                .append(self.active, buf.freeze(), Placement(0))
                .await?;
            // Only now: a block that failed is not part of the chain.
            self.chain = chain;
            self.written_bytes = at.offset + len;
        }
        Ok(())
    }

    /// Empties `zone` and writes a superblock of `epoch` and all fences into it.
    async fn checkpoint(&mut self, zone: ZoneId, epoch: u64) -> Result<(), JournalError> {
        self.device.reset(zone).await?;
        let superblock = TinySuperblock {
            epoch,
            ..self.superblock
        };
        let block = self.device.geometry().block_size;
        let mut buf = IoBuf::zeroed(TinySuperblock::encoded_bytes(block));
        superblock.encode(&mut buf)?;
        let len = buf.len() as u64;
        let at = self.device.append(zone, buf.freeze(), Placement(0)).await?;
        self.active = zone;
        self.chain = JournalChain::new(superblock.cache_id, epoch);
        self.written_bytes = at.offset + len;
        self.superblock = superblock;
        let gone = self.gone.iter();
        let gone = gone.map(|(&instance, &below)| TinyNote::Gone { instance, below });
        let written = self.written.iter();
        let written = written.map(|(&instance, &below)| TinyNote::Written { instance, below });
        let fences = self.live.iter().map(|live| TinyNote::Fence(live.fence));
        let mut notes: Vec<TinyNote> = gone.chain(written).chain(fences).collect();
        notes.push(TinyNote::checkpoint_end(notes.len() as u64));
        self.append(&notes).await?;
        self.device.flush().await?;
        Ok(())
    }
}

/// What a metadata zone's journal holds.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) notes: Vec<TinyNote>,
    /// Whether the checkpoint that the zone starts with is complete.
    pub(super) complete: bool,
    /// Whether a block in its middle cannot be read: fences are missing.
    pub(super) damaged: bool,
}

/// Reads the journal behind `superblock` in `zone`.
pub(super) async fn scan(
    device: &SharedDevice,
    superblock: &TinySuperblock,
    zone: ZoneId,
) -> Result<Scan, DeviceError> {
    let geometry = device.geometry();
    let block = geometry.block_size;
    let mut chain = JournalChain::new(superblock.cache_id, superblock.epoch);
    let mut scan = Scan::default();
    let mut offset = TinySuperblock::encoded_bytes(block) as u64;
    let mut start = offset;
    let mut window = read_window(device, zone, offset).await?;
    loop {
        let rest = window.get((offset - start) as usize..).unwrap_or_default();
        match chain.decode::<TinyNote>(block, rest) {
            Ok(found) => {
                for note in found.records {
                    let before = scan.notes.len() as u64;
                    scan.complete |= note.as_checkpoint_end() == Some(before);
                    scan.notes.push(note);
                }
                offset += found.encoded_bytes as u64;
            }
            Err(_) if offset > start && offset < geometry.zone_capacity => {
                // Perhaps cut off by the window: look again with the block at its start.
                window = read_window(device, zone, offset).await?;
                start = offset;
            }
            Err(_) => {
                scan.damaged =
                    goes_on(block, rest, |block| chain.is_behind_next::<TinyNote>(block));
                return Ok(scan);
            }
        }
    }
}
