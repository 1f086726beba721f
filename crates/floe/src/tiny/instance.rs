//! One engine and its state: searches.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};

use bytes::Bytes;
use floe_core::hash::KeyHash;
use floe_core::layout::tiny::{Fence, split_record};
use floe_core::tiny::{
    Accepted, Discarded, Due, Durability, Engine as _, Expiry, Found, Insert, Label, Object,
    PageAddress, Search, Step, Stripe as _, Task, waves,
};
use floe_device::IoBuf;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::config::LookBeforeFence;
use super::engine::{AnyEngine, AnyScratch, AnyStripe};
use super::fences::{FenceBounds, Fences};
use super::journal::{self, Journal, Place, Wait};
use super::medium::Medium;
use super::ram::{Mark, Ram};
use crate::error::CacheError;
use crate::value::Tier;

/// An engine on its part of the device.
#[derive(Debug)]
pub(super) struct Instance {
    /// Its index among the instances.
    pub(super) number: u32,
    pub(super) state: Mutex<State>,
    /// Locked after `state` where both are.
    pub(super) ram: Mutex<Ram>,
    pub(super) medium: Medium,
    /// The engine's durability, readable without the lock.
    pub(super) durability: Durability,
    /// Sets of a set-group; 0 if the engine has no set-groups.
    pub(super) set_group_sets: u32,
    pub(super) look_before_fence: LookBeforeFence,
    /// The last insert found no room, or too many fences: a hint.
    pub(super) is_short: AtomicBool,
    /// A request found the state locked: a hint.
    pub(super) was_held: AtomicBool,
    /// Notified when there may be a task to run.
    pub(super) work: Notify,
    /// Notified when there may be room, or a flush may be done.
    pub(super) room: Notify,
    pub(super) fence_bounds: Arc<FenceBounds>,
    pub(super) closing: AtomicBool,
    pub(super) stopping: AtomicBool,
    /// The instance's task panicked: the state may be inconsistent.
    pub(super) poisoned: AtomicBool,
    /// The journal failed: no object is accepted or written any more.
    pub(super) frozen: AtomicBool,
}

impl Instance {
    /// Locks the state for a request.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.try_lock().unwrap_or_else(|| {
            self.was_held.store(true, Relaxed);
            self.state.lock()
        })
    }

    /// True if no task runs or could begin.
    pub(super) fn is_idle(&self) -> bool {
        let mut state = self.state.lock();
        let is_idle = state.running == 0 && !state.has_work();
        drop(state);
        if !is_idle {
            // The engine may have issued a task just now.
            self.work.notify_one();
        }
        is_idle
    }
}

/// The state under the instance's lock.
#[derive(Debug)]
pub(super) struct State {
    pub(super) engine: AnyEngine,
    pub(super) stripe: AnyStripe,
    /// A task that the engine has issued and that has not begun.
    pub(super) next: Option<Task>,
    /// Tasks that were issued and are not completed.
    pub(super) running: u32,
    /// Searches that may be reading flash.
    pub(super) searching: u32,
    /// An insert was rejected since the engine's state last changed.
    pub(super) rejected: bool,
    pub(super) fences: Fences,
    /// Searches that found an expired object.
    pub(super) expired: u64,
}

impl State {
    pub(super) fn new((engine, stripe): (AnyEngine, AnyStripe), fences: Fences) -> Self {
        State {
            engine,
            stripe,
            next: None,
            running: 0,
            searching: 0,
            rejected: false,
            fences,
            expired: 0,
        }
    }

    /// True if the engine has a task now.
    pub(super) fn has_work(&mut self) -> bool {
        match self.engine.due(&self.stripe) {
            Due::Yes => true,
            Due::No => false,
            Due::Unknown => {
                self.next = self.next_task();
                self.next.is_some()
            }
        }
    }

    /// The task in `next`, or the engine's next one.
    pub(super) fn next_task(&mut self) -> Option<Task> {
        let next = self.next.take();
        next.or_else(|| self.engine.next_task(&mut self.stripe))
    }

    /// Calls the engine's `advance`, unless a task waits to begin.
    pub(super) fn advance(&mut self) -> Option<Discarded> {
        match self.next {
            Some(_) => None,
            None => self.engine.advance(&mut self.stripe),
        }
    }

    /// Calls the engine's `insert`.
    pub(super) fn insert(&mut self, object: Object, now_seconds: u32) -> Insert {
        self.engine.insert(&mut self.stripe, object, now_seconds)
    }

    /// Calls the engine's `drain`.
    pub(super) fn drain(&mut self) -> bool {
        self.engine.drain(&mut self.stripe)
    }

    /// True if the engine waited for a search to end.
    fn awaits_readers(&mut self) -> bool {
        self.engine.waits_for_readers() && self.has_work()
    }

    /// Sends or reuses a fence for a copy that a write supersedes. Returns what
    /// the write must wait for.
    pub(super) fn fence(
        &mut self,
        instance: u32,
        hash: KeyHash,
        accepted: Accepted,
        place: Place<'_>,
    ) -> Wait {
        let until = self.engine.durable_when(&self.stripe);
        if !accepted.supersedes_flash {
            Wait::Nothing
        } else if let Some(number) = self.fences.covering(hash, until) {
            self.fences.spared += 1;
            Wait::Earlier(number)
        } else if accepted.fenced_before {
            self.fences.spared += 1;
            place.earlier()
        } else {
            self.fences.send(hash, until, |below| {
                place.send(instance, Fence { hash, below })
            })
        }
    }
}

/// The value that a lookup found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) value: Bytes,
    pub(super) tier: Tier,
}

/// A running search. Dropping it ends the search, wherever its future stopped.
struct Searching<'a> {
    instance: &'a Instance,
    search: Search,
    scratch: AnyScratch,
    step: Step,
    /// The expected labels of the pages to read.
    labels: Vec<Label>,
    found: Found,
    /// A page had another key with the same hash: to the engine they are one object.
    met_other_key: bool,
    key: &'a [u8],
    now_seconds: u32,
    mark: Mark,
    /// The found value, to copy to the RAM tier.
    promote: Option<Promote>,
}

struct Promote {
    value: Bytes,
    expires: Expiry,
}

/// A found value and its place among the pages.
struct Newest {
    rank: usize,
    slot: usize,
    value: Bytes,
    expires: Expiry,
}

impl Drop for Searching<'_> {
    fn drop(&mut self) {
        let mut guard = self.instance.lock();
        let state = &mut *guard;
        let Searching {
            search, scratch, ..
        } = self;
        let stripe = &mut state.stripe;
        state.engine.end_search(stripe, search, scratch, self.found);
        state.searching -= 1;
        state.rejected = false;
        if let Some(promote) = self.promote.take() {
            self.instance.ram.lock().keep_read(
                self.mark,
                (self.search.hash, self.key),
                (promote.value, promote.expires),
                self.now_seconds,
            );
        }
        let awaited = state.awaits_readers();
        drop(guard);
        if awaited {
            self.instance.work.notify_one();
        }
    }
}

/// The result of a search's pages.
enum Verdict {
    /// The newest copy.
    Found(Newest),
    /// The key is deleted or expired, or a page is unreadable.
    Nothing,
    /// Only older pages may have the key.
    Older,
}

/// The first step of a search.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart where it is made; a box would cost every search an allocation"
)]
enum Begun<'a> {
    /// Memory has decided.
    Done(Option<Hit>),
    /// The search must read flash.
    OnFlash(Searching<'a>),
}

impl Instance {
    /// The newest value of `key`. An unreadable page is a miss: it might hide a
    /// newer copy than the pages after it.
    pub(super) async fn get(&self, hash: KeyHash, key: &[u8], now_seconds: u32) -> Option<Hit> {
        let mut searching = match self.begin(hash, key, now_seconds) {
            Begun::Done(hit) => return hit,
            Begun::OnFlash(searching) => searching,
        };
        let newest = match self.find(&mut searching).await {
            Verdict::Found(newest) => newest,
            Verdict::Older => {
                if !searching.met_other_key {
                    searching.found = Found::Nowhere;
                }
                return None;
            }
            Verdict::Nothing => return None,
        };
        searching.found = Found::Flash {
            rank: newest.rank,
            slot: newest.slot,
        };
        searching.promote = Some(Promote {
            value: newest.value.clone(),
            expires: newest.expires,
        });
        Some(Hit {
            value: newest.value,
            tier: Tier::Flash,
        })
    }

    /// The page on flash from which a get of `key` would read its value. Counts no hit.
    pub(super) async fn page_of(
        &self,
        hash: KeyHash,
        key: &[u8],
        now_seconds: u32,
    ) -> Option<PageAddress> {
        let begun = self.begin_below(&mut self.lock(), hash, key, now_seconds);
        let Begun::OnFlash(mut searching) = begun else {
            return None;
        };
        match self.find(&mut searching).await {
            Verdict::Found(newest) => searching.search.pages.get(newest.rank).copied(),
            Verdict::Nothing | Verdict::Older => None,
        }
    }

    /// The part of [`get`](Instance::get) that needs only memory; `None` if it must read flash.
    pub(super) fn get_ram(
        &self,
        hash: KeyHash,
        key: &[u8],
        now_seconds: u32,
    ) -> Option<Option<Hit>> {
        if let Some(hit) = self.hit_in_ram(hash, key, now_seconds) {
            return Some(Some(hit));
        }
        let mut state = self.lock();
        let object = state.stripe.in_memory(hash)?;
        let is_over = object.expires.is_over(now_seconds);
        let hit = in_buffer(object, key, now_seconds);
        state.expired += u64::from(is_over);
        Some(hit)
    }

    fn begin<'a>(&'a self, hash: KeyHash, key: &'a [u8], now_seconds: u32) -> Begun<'a> {
        match self.hit_in_ram(hash, key, now_seconds) {
            Some(hit) => Begun::Done(Some(hit)),
            None => self.begin_below(&mut self.lock(), hash, key, now_seconds),
        }
    }

    fn hit_in_ram(&self, hash: KeyHash, key: &[u8], now_seconds: u32) -> Option<Hit> {
        let value = self.ram.lock().get(hash, key, now_seconds)?;
        let tier = Tier::Ram;
        Some(Hit { value, tier })
    }

    /// Begins a search below the RAM tier.
    fn begin_below<'a>(
        &'a self,
        state: &mut State,
        hash: KeyHash,
        key: &'a [u8],
        now_seconds: u32,
    ) -> Begun<'a> {
        let (mut search, mut scratch) = (Search::new(), AnyScratch::default());
        let (engine, stripe) = (&mut state.engine, &mut state.stripe);
        let step = engine.begin_search(stripe, hash, &mut search, &mut scratch);
        let labels = match step {
            Step::Index | Step::Pages => self.labels_of(engine, &search, step),
            Step::Memory | Step::Absent => {
                let object = stripe.in_memory(hash);
                let is_over = object.is_some_and(|object| object.expires.is_over(now_seconds));
                let hit = object.and_then(|object| in_buffer(object, key, now_seconds));
                engine.end_search(stripe, &mut search, &mut scratch, Found::Nowhere);
                state.expired += u64::from(is_over);
                return Begun::Done(hit);
            }
        };
        state.searching += 1;
        Begun::OnFlash(Searching {
            instance: self,
            search,
            scratch,
            step,
            labels,
            found: Found::Unknown,
            met_other_key: false,
            key,
            now_seconds,
            mark: self.ram.lock().mark(hash),
            promote: None,
        })
    }

    /// Reads the pages of a search, step by step.
    async fn find(&self, searching: &mut Searching<'_>) -> Verdict {
        loop {
            match searching.step {
                Step::Index => self.read_index(searching).await,
                Step::Pages => match self.read_waves(searching).await {
                    Verdict::Older => {
                        let Searching {
                            search, scratch, ..
                        } = searching;
                        let engine = &mut self.lock().engine;
                        let step = engine.pages_read(search, scratch);
                        self.take_step(searching, engine, step);
                    }
                    decided => return decided,
                },
                Step::Memory | Step::Absent => return Verdict::Older,
            }
        }
    }

    /// Reads a search's index pages.
    async fn read_index(&self, searching: &mut Searching<'_>) {
        let Searching {
            search,
            scratch,
            labels,
            ..
        } = searching;
        let read = self.medium.read_all(&search.index_pages).await;
        let pages: Vec<Option<&[u8]>> = read
            .iter()
            .zip(&*labels)
            .map(|(bytes, label)| self.medium.index(*label, bytes.as_deref()))
            .collect();
        let engine = &mut self.lock().engine;
        let step = engine.index_read(search, scratch, &pages);
        self.take_step(searching, engine, step);
    }

    /// Notes the next step of a search, and what its pages must be.
    fn take_step(&self, searching: &mut Searching<'_>, engine: &AnyEngine, step: Step) {
        searching.step = step;
        searching.labels = self.labels_of(engine, &searching.search, step);
    }

    /// The expected labels of the pages that a step of a search reads.
    fn labels_of(&self, engine: &AnyEngine, search: &Search, step: Step) -> Vec<Label> {
        match step {
            Step::Index => self.labels(engine, &search.index_pages),
            Step::Pages => self.labels(engine, &search.pages),
            Step::Memory | Step::Absent => Vec::new(),
        }
    }

    /// Reads pages, newest first, until one has the key.
    async fn read_waves(&self, searching: &mut Searching<'_>) -> Verdict {
        let labels = std::mem::take(&mut searching.labels);
        for wave in waves(searching.search.pages.len()) {
            searching.search.read = wave.end;
            let wanted = &searching.search.pages[wave.clone()];
            let pages = self.medium.read_all(wanted).await;
            match self.newest(searching, &labels[wave.clone()], &pages) {
                Verdict::Found(newest) => {
                    return Verdict::Found(Newest {
                        rank: wave.start + newest.rank,
                        ..newest
                    });
                }
                Verdict::Nothing => return Verdict::Nothing,
                Verdict::Older => {}
            }
        }
        Verdict::Older
    }

    /// Looks for the key in `pages`; the first one that has it decides.
    fn newest(
        &self,
        searching: &mut Searching<'_>,
        labels: &[Label],
        pages: &[Option<IoBuf>],
    ) -> Verdict {
        for (rank, (page, label)) in pages.iter().zip(labels).enumerate() {
            let opened = page
                .as_ref()
                .and_then(|page| self.medium.searched(*label, page));
            let Some(opened) = opened else {
                // An unreadable page may hold the newest copy.
                return Verdict::Nothing;
            };
            let hash = searching.search.hash;
            let Some(hit) = opened.find(hash, searching.key) else {
                searching.met_other_key |= opened.knows(hash, self.medium.seed);
                continue;
            };
            let is_over = hit.expires.is_over(searching.now_seconds);
            if hit.tombstone || is_over {
                self.lock().expired += u64::from(is_over);
                return Verdict::Nothing;
            }
            return Verdict::Found(Newest {
                rank,
                slot: hit.slot,
                value: Bytes::copy_from_slice(hit.value),
                expires: hit.expires,
            });
        }
        Verdict::Older
    }

    /// The expected labels of pages.
    pub(super) fn labels(&self, engine: &AnyEngine, pages: &[PageAddress]) -> Vec<Label> {
        if self.durability.is_persistent() {
            return pages.iter().map(|page| engine.label(*page)).collect();
        }
        pages.iter().map(|page| self.medium.label(*page)).collect()
    }

    /// Refuses writes from now on, those that wait included. Tasks go on.
    pub(super) fn refuse_writes(&self) {
        self.closing.store(true, SeqCst);
        self.room.notify_waiters();
    }

    /// Stops the instance's task and wakes all waiting writes.
    pub(super) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.work.notify_one();
        self.room.notify_waiters();
    }

    /// The instance's task is gone. If it panicked, the instance is not asked any more.
    pub(super) fn abort(&self) {
        if std::thread::panicking() {
            tracing::error!(
                "the task of a tiny engine panicked: its keys are refused until the cache is reopened"
            );
            self.poisoned.store(true, SeqCst);
        }
        self.stop();
    }

    /// The reason why the instance takes no objects any more.
    pub(super) fn refusal(&self) -> CacheError {
        match self.poisoned.load(SeqCst) {
            true => CacheError::Poisoned,
            false if self.frozen.load(SeqCst) => journal::broken(),
            false => CacheError::Closed,
        }
    }

    /// If every object ever inserted is on flash, ends all fences.
    pub(super) fn settle(&self, journal: &Journal) {
        if self.poisoned.load(SeqCst) {
            return;
        }
        let mut state = self.state.lock();
        // Under the lock, since fences are sent under it.
        self.retire_fences(&mut state, journal.last());
    }

    /// True if every object ever inserted is on flash.
    pub(super) fn is_drained(&self) -> bool {
        let state = self.state.lock();
        !self.poisoned.load(SeqCst) && state.engine.is_drained(&state.stripe)
    }

    /// Flushes the objects in memory, and waits for that. False if the instance
    /// stopped before.
    pub(super) async fn drain(&self) -> bool {
        loop {
            let room = self.room.notified();
            if self.poisoned.load(SeqCst) {
                return false;
            }
            if !self.state.lock().drain() {
                return true;
            }
            if self.stopping.load(SeqCst) || self.frozen.load(SeqCst) {
                return false;
            }
            self.work.notify_one();
            room.await;
        }
    }
}

fn in_buffer(object: &Object, key: &[u8], now_seconds: u32) -> Option<Hit> {
    Some(Hit {
        value: Bytes::copy_from_slice(live_value(object, key, now_seconds)?),
        tier: Tier::Buffer,
    })
}

/// The value of an object in memory, if it is of `key`, not deleted and not expired.
fn live_value<'a>(object: &'a Object, key: &[u8], now_seconds: u32) -> Option<&'a [u8]> {
    if object.tombstone || object.expires.is_over(now_seconds) {
        return None;
    }
    let (found, value) = split_record(&object.record)?;
    (found == key).then_some(value)
}
