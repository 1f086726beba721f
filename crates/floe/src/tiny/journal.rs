//! Fences made durable, in the metadata log.
//!
//! A write or delete of what may be on flash is acknowledged once its *fence*
//! is durable: "until the set-groups below S are on flash, nothing of this
//! hash that is there counts". Set-groups are written seldom, and everything
//! that they are to outlive would come back if the process died before.
//!
//! Fences that still hold are kept in memory, to be written to the other zone
//! when one is full.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use floe_core::layout::tiny::{Fence, TinyNote, TinySuperblock};
use floe_core::layout::{JournalChain, LayoutError};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::fences::{FENCE_BYTES, FenceBounds};
use super::order::Order;
use crate::error::CacheError;
use crate::metadata_log::{
    self, Batch, Contents, Demand, LogError, LogSuperblock, Queue, Receipt, Start, Written,
    group_bytes,
};

/// Most bytes of a log in a metadata zone: an opening reads all of it.
pub(super) const LOG_BYTES_MAX: u64 = 64 << 20;

impl LogSuperblock for TinySuperblock {
    type Record = TinyNote;

    const BYTES_MAX: u64 = LOG_BYTES_MAX;

    fn encode(&self, out: &mut [u8]) -> Result<usize, LayoutError> {
        TinySuperblock::encode(self, out)
    }

    fn decode(bytes: &[u8]) -> Result<Self, LayoutError> {
        TinySuperblock::decode(bytes)
    }

    fn chain(&self) -> JournalChain {
        JournalChain::new(self.cache_id, self.epoch)
    }

    fn with_epoch(self, epoch: u64) -> Self {
        TinySuperblock { epoch, ..self }
    }
}

/// A handle to the journal.
#[derive(Debug)]
pub(super) struct Journal {
    queue: Queue<Notes>,
    order: Order,
    progress: Arc<Progress>,
}

impl Journal {
    /// Begins a journal with `entries`, and starts its keeper.
    pub(super) async fn begin(
        start: Start<TinySuperblock>,
        entries: &[Entry],
        bounds: Arc<[Arc<FenceBounds>]>,
    ) -> Result<(Self, JoinHandle<()>), LogError> {
        let progress = Arc::<Progress>::default();
        let mut notes = Notes {
            live: VecDeque::new(),
            gone: BTreeMap::new(),
            written: BTreeMap::new(),
            sealing: BTreeMap::new(),
            unfenced: false,
            bounds,
            progress: Arc::clone(&progress),
        };
        notes.keep(entries);
        let (queue, task) = start.begin(notes.checkpoint().collect(), notes).await?;
        let journal = Journal {
            queue,
            order: Order::default(),
            progress,
        };
        Ok((journal, task))
    }

    /// Begins a batch of writes.
    pub(super) fn batch(&self) -> Batch {
        self.queue.batch()
    }

    /// A place in the queue; waits while there is none.
    pub(super) async fn place(&self) -> Result<Place<'_>, CacheError> {
        self.check()?;
        Ok(Place {
            journal: self,
            place: self.queue.place().await?,
        })
    }

    /// A place in the queue, if there is one.
    pub(super) fn try_place(&self) -> Result<Option<Place<'_>>, CacheError> {
        self.check()?;
        let place = self.queue.try_place()?;
        Ok(place.map(|place| Place {
            journal: self,
            place,
        }))
    }

    fn check(&self) -> Result<(), CacheError> {
        match self.progress.broken.load(SeqCst) {
            true => Err(broken()),
            false => Ok(()),
        }
    }

    /// Bytes of memory of the fences that may hold, and of those that wait.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.progress.memory_bytes.load(SeqCst)
    }

    /// True if there is nothing to wait for, or no longer.
    pub(super) fn is_over(&self, wait: &Wait) -> bool {
        match *wait {
            Wait::Nothing => true,
            Wait::Own(_) => false,
            Wait::Earlier(number) => self.progress.is_durable(number) == Some(true),
        }
    }

    /// Waits.
    pub(super) async fn wait(&self, wait: Wait) -> Result<(), CacheError> {
        match wait {
            Wait::Nothing => Ok(()),
            Wait::Own(receipt) => receipt.wait().await,
            Wait::Earlier(number) => {
                let is_durable = self.progress.wait_for(number).await;
                is_durable.then_some(()).ok_or_else(broken)
            }
        }
    }

    /// Writes a note of an instance and waits for it.
    pub(super) async fn commit(&self, note: TinyNote) -> Result<(), CacheError> {
        let place = self.place().await?.place;
        place.send([Entry::Note(note)]).wait().await
    }

    /// The number of the last fence that was sent.
    pub(super) fn last(&self) -> u64 {
        self.order.last()
    }

    /// True if it is durable that writes from now on have no fences.
    pub(super) fn is_unfenced(&self) -> bool {
        self.progress.unfenced.load(SeqCst)
    }

    /// Makes durable that writes from now on have no fences.
    pub(super) async fn begin_unfenced(&self) -> Result<(), CacheError> {
        if self.is_unfenced() {
            return Ok(());
        }
        self.commit(TinyNote::Unfenced).await?;
        self.progress.unfenced.store(true, SeqCst);
        Ok(())
    }

    /// Everything is on flash, and nothing more is written. Once the journal is
    /// [settled](Self::settle), the note of [`begin_unfenced`](Self::begin_unfenced) is gone.
    pub(super) fn end_unfenced(&self) {
        self.progress.is_complete.store(true, SeqCst);
    }

    /// Sees to it that fences which do not hold are not found again.
    pub(super) async fn settle(&self) -> Result<(), CacheError> {
        let place = self.place().await?.place;
        place.demand(Demand::Settle).wait().await
    }
}

/// The error of a journal that failed.
pub(super) fn broken() -> CacheError {
    CacheError::NotDurable("the journal of tiny objects failed; reopen the cache".into())
}

/// A place in the queue, to be used without waiting.
pub(super) struct Place<'a> {
    journal: &'a Journal,
    place: metadata_log::Place<'a, Notes>,
}

impl Place<'_> {
    /// Sends a fence; returns its number, too.
    pub(super) fn send(self, instance: u32, fence: Fence) -> (Wait, u64) {
        let Place { journal, place } = self;
        let (receipt, number) = journal.order.queue(|number| {
            place.send([Entry::Fence(Live {
                instance,
                number,
                fence,
            })])
        });
        (Wait::Own(receipt), number)
    }

    /// Waits for what was sent before.
    pub(super) fn earlier(self) -> Wait {
        Wait::Earlier(self.last())
    }

    /// As [`Journal::settle`], without waiting for it.
    pub(super) fn settle(self) {
        drop(self.place.demand(Demand::Settle));
    }

    /// The number of the last fence that was sent.
    pub(super) fn last(&self) -> u64 {
        self.journal.last()
    }
}

/// The condition under which a write is acknowledged.
#[derive(Debug)]
pub(super) enum Wait {
    /// Nothing.
    Nothing,
    /// Its own fence.
    Own(Receipt),
    /// Fences up to this number, which others sent.
    Earlier(u64),
}

/// An entry of the journal.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    /// A fence, with what says whether it holds.
    Fence(Live),
    /// A note of an instance, of which the newest of each kind counts.
    Note(TinyNote),
}

/// A fence that is to be written, or may still hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    pub(super) instance: u32,
    /// Zero if an earlier life sent it.
    pub(super) number: u64,
    pub(super) fence: Fence,
}

const _: () = assert!(size_of::<Live>() == FENCE_BYTES);

impl Live {
    /// True if an older copy of its key could still come back.
    fn holds(&self, bounds: &[Arc<FenceBounds>]) -> bool {
        let bounds = bounds.get(self.instance as usize);
        bounds.is_none_or(|bounds| bounds.leave_in_force(self.fence.below, self.number))
    }
}

/// The progress of the journal.
#[derive(Debug, Default)]
struct Progress {
    /// Number of the last fence that is durable, or never will be.
    written: AtomicU64,
    /// The metadata zones could not be written.
    broken: AtomicBool,
    /// It is durable that writes have no fences.
    unfenced: AtomicBool,
    /// Everything that was written without a fence is on flash.
    is_complete: AtomicBool,
    /// The journal has ended.
    ended: AtomicBool,
    /// Memory of the fences that may hold, and of those that wait.
    memory_bytes: AtomicU64,
    news: Notify,
}

impl Progress {
    /// Everything up to `number` is durable, unless the journal is broken.
    fn reached(&self, number: u64) {
        self.written.fetch_max(number, SeqCst);
        self.news.notify_waiters();
    }

    /// Waits until everything up to `number` is durable. Returns false if it never
    /// will be.
    async fn wait_for(&self, number: u64) -> bool {
        loop {
            let news = self.news.notified();
            if let Some(is_durable) = self.is_durable(number) {
                return is_durable;
            }
            if self.ended.load(SeqCst) {
                return false;
            }
            news.await;
        }
    }

    /// True if everything up to `number` is durable, false if it never will be.
    fn is_durable(&self, number: u64) -> Option<bool> {
        let is_reached = self.written.load(SeqCst) >= number;
        // Loaded after the number, since a failed group is noted before its number.
        match self.broken.load(SeqCst) {
            true => Some(false),
            false => is_reached.then_some(true),
        }
    }
}

/// The notes of the journal, as a checkpoint must hold them.
struct Notes {
    /// Fences that may still hold, in the order they came.
    live: VecDeque<Live>,
    /// Of each instance, the newest notes of what is gone and what was written.
    gone: BTreeMap<u32, u64>,
    written: BTreeMap<u32, u64>,
    /// Of each instance, the last set-group whose summary was about to be written, with
    /// the places of all attempts.
    sealing: BTreeMap<u32, (u64, Vec<u32>)>,
    /// Writes have no fences.
    unfenced: bool,
    bounds: Arc<[Arc<FenceBounds>]>,
    progress: Arc<Progress>,
}

impl Notes {
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
                Entry::Note(TinyNote::Sealing {
                    instance,
                    page,
                    sequence,
                }) => {
                    let (of, pages) = self.sealing.entry(instance).or_default();
                    if *of != sequence {
                        (*of, *pages) = (sequence, Vec::new());
                    }
                    pages.push(page);
                    continue;
                }
                Entry::Note(TinyNote::Unfenced) => {
                    self.unfenced = true;
                    continue;
                }
                Entry::Note(TinyNote::Fence(_) | TinyNote::CheckpointEnd { .. }) => continue,
            };
            let newest = newest.entry(instance).or_default();
            *newest = below.max(*newest);
        }
    }

    fn checkpoint(&self) -> impl Iterator<Item = TinyNote> + Send {
        let gone = self.gone.iter();
        let gone = gone.map(|(&instance, &below)| TinyNote::Gone { instance, below });
        let written = self.written.iter();
        let written = written.map(|(&instance, &below)| TinyNote::Written { instance, below });
        let is_written = |instance, sequence| {
            let below = self.written.get(instance);
            below.is_some_and(|below| sequence < *below)
        };
        let sealing = self.sealing.iter();
        let sealing = sealing.filter(move |(instance, of)| !is_written(instance, of.0));
        let sealing = sealing.flat_map(|(&instance, &(sequence, ref pages))| {
            pages.iter().map(move |&page| TinyNote::Sealing {
                instance,
                page,
                sequence,
            })
        });
        let fences = self.live.iter().map(|live| TinyNote::Fence(live.fence));
        let unfenced = self.is_unfenced().then_some(TinyNote::Unfenced);
        let of_instances = gone.chain(written).chain(sealing);
        unfenced.into_iter().chain(of_instances).chain(fences)
    }

    fn is_unfenced(&self) -> bool {
        self.unfenced && !self.progress.is_complete.load(SeqCst)
    }

    fn count_memory(&self) {
        let live = (self.live.capacity() * size_of::<Live>()) as u64;
        let bytes = live + group_bytes::<Notes>();
        self.progress.memory_bytes.store(bytes, SeqCst);
    }
}

impl Contents for Notes {
    type Superblock = TinySuperblock;
    type Entry = Entry;
    type Entries = [Entry; 1];

    const READS_BACK: bool = false;
    // An object that was noted may be replaced without another note.
    const FAILS_FOR_GOOD: bool = true;

    fn record(entry: &Entry) -> TinyNote {
        match entry {
            Entry::Fence(live) => TinyNote::Fence(live.fence),
            Entry::Note(note) => *note,
        }
    }

    /// A note names only bytes that were durable before it was sent.
    fn stands_alone(_: &Entry) -> bool {
        true
    }

    fn begun(&mut self, _: u64) {
        self.count_memory();
    }

    fn gather(&mut self, entries: &mut Vec<Entry>) {
        if self.progress.is_complete.load(SeqCst) {
            // Of a write that came too late, and is refused.
            entries.retain(|entry| !matches!(entry, Entry::Note(TinyNote::Unfenced)));
        }
        self.keep(entries);
    }

    fn live(
        &mut self,
        _written: Vec<TinyNote>,
    ) -> impl IntoIterator<Item = TinyNote, IntoIter: Send> + Send {
        self.live.retain(|live| live.holds(&self.bounds));
        self.unfenced = self.is_unfenced();
        // A burst of fences that have ended leaves its room behind.
        self.live.shrink_to(2 * self.live.len());
        self.checkpoint()
    }

    fn is_settled(&self) -> bool {
        self.unfenced == self.is_unfenced() && self.live.iter().all(|live| live.holds(&self.bounds))
    }

    fn written(&mut self, entries: &[Entry], result: &Result<Written, LogError>) {
        if let Err(error) = result {
            self.progress.broken.store(true, SeqCst);
            tracing::error!(%error, "the journal of tiny objects could not be written; writes are refused");
        }
        while let Some(live) = self.live.front()
            && !live.holds(&self.bounds)
        {
            self.live.pop_front();
        }
        self.count_memory();
        let number = |entry: &Entry| match entry {
            Entry::Fence(live) => Some(live.number),
            Entry::Note(_) => None,
        };
        self.progress
            .reached(entries.iter().filter_map(number).max().unwrap_or(0));
    }
}

/// The journal has ended.
impl Drop for Notes {
    fn drop(&mut self) {
        self.progress.ended.store(true, SeqCst);
        self.progress.news.notify_waiters();
    }
}
