//! One engine: searches and writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use bytes::Bytes;
use floe_core::Tick;
use floe_core::hash::KeyHash;
use floe_core::layout::tiny::{Fence, split_record};
use floe_core::policy::admission::Admission;
use floe_core::tiny::{
    Accepted, Due, Durability, Engine as _, Expiry, Found, Insert, Label, Object, PageAddress,
    Search, Step, Stripe as _, Task, waves,
};
use floe_device::IoBuf;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::config::LookBeforeFence;
use super::engine::{AnyEngine, AnyScratch, AnyStripe};
use super::fences::Fences;
use super::journal::{Journal, Place, Wait};
use super::medium::Medium;
use super::ram::{Mark, Ram};
use crate::value::Tier;

/// An engine on its part of the device.
#[derive(Debug)]
pub(super) struct Instance {
    /// Its number among the instances.
    pub(super) number: u32,
    pub(super) state: Mutex<State>,
    pub(super) medium: Medium,
    /// As the engine's, read without the lock.
    pub(super) durability: Durability,
    /// Sets of a set-group; zero where there are no set-groups.
    pub(super) set_group_sets: u32,
    pub(super) look_before_fence: LookBeforeFence,
    /// There may be something to do.
    pub(super) work: Notify,
    /// There may be room, or less to wait for.
    pub(super) room: Notify,
    /// As [`Engine::durable`](floe_core::tiny::Engine::durable), read without the lock.
    pub(super) durable: AtomicU64,
    /// Fences with smaller numbers hold no more: all that was taken in before
    /// is on flash.
    pub(super) moot_before: AtomicU64,
    pub(super) stopping: AtomicBool,
}

/// State that changes together.
#[derive(Debug)]
pub(super) struct State {
    pub(super) engine: AnyEngine,
    pub(super) stripe: AnyStripe,
    /// A task that the engine has handed out and that has not begun.
    pub(super) next: Option<Task>,
    /// Searches that may read flash.
    pub(super) searching: u32,
    /// An insert was rejected since the engine's state last changed.
    pub(super) refused: bool,
    pub(super) ram: Ram,
    pub(super) fences: Fences,
    /// `None` admits everything.
    pub(super) admission: Option<Admission>,
    /// Searches that found an object whose time was over.
    pub(super) expired: u64,
}

impl State {
    pub(super) fn new(
        (engine, stripe): (AnyEngine, AnyStripe),
        ram: Ram,
        fences: Fences,
        admission: Option<Admission>,
    ) -> Self {
        State {
            engine,
            stripe,
            next: None,
            searching: 0,
            refused: false,
            ram,
            fences,
            admission,
            expired: 0,
        }
    }

    /// Whether the engine has something to do now.
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

    /// The task that was asked for and not begun, or the engine's next one.
    pub(super) fn next_task(&mut self) -> Option<Task> {
        let next = self.next.take();
        next.or_else(|| self.engine.next_task(&mut self.stripe))
    }

    /// As the engine's `insert`.
    pub(super) fn insert(&mut self, object: Object, now_seconds: u32) -> Insert {
        self.engine.insert(&mut self.stripe, object, now_seconds)
    }

    /// As the engine's `drain`.
    pub(super) fn drain(&mut self) -> bool {
        self.engine.drain(&mut self.stripe)
    }

    /// Whether a search that ended was waited for.
    fn awaits_readers(&mut self) -> bool {
        self.engine.waits_for_readers() && self.has_work()
    }

    /// Whether a value is to be written to flash. Asked once for each write.
    pub(super) fn admits(&mut self, object: &Object, now_seconds: u32) -> bool {
        let bytes = object.stored_bytes() as u64;
        object.tombstone
            || self.admission.as_mut().is_none_or(|policy| {
                policy.admit(object.hash, bytes, Tick::from_seconds(now_seconds))
            })
    }

    /// Fences off what a write outdates; returns what it must wait for.
    pub(super) fn fence(
        &mut self,
        instance: u32,
        hash: KeyHash,
        accepted: Accepted,
        place: Place<'_>,
    ) -> Wait {
        let until = self.engine.durable_when(&self.stripe);
        if !accepted.outdates_flash {
            Wait::Nothing
        } else if let Some(number) = self.fences.covering(hash, until) {
            self.fences.spared += 1;
            Wait::Earlier(number)
        } else if accepted.noted_before {
            self.fences.spared += 1;
            place.earlier()
        } else {
            self.fences.send(hash, until, |below| {
                place.send(instance, Fence { hash, below })
            })
        }
    }

    fn hit_in_ram(&mut self, hash: KeyHash, key: &[u8], now_seconds: u32) -> Option<Hit> {
        let value = self.ram.get(hash, key, now_seconds)?;
        self.note_hit(hash, now_seconds);
        let tier = Tier::Ram;
        Some(Hit { value, tier })
    }

    fn note_hit(&mut self, hash: KeyHash, now_seconds: u32) {
        if let Some(policy) = &mut self.admission {
            policy.note_hit(hash, Tick::from_seconds(now_seconds));
        }
    }
}

/// A value found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) value: Bytes,
    pub(super) tier: Tier,
}

/// Ends its search whatever becomes of the future that it is part of.
struct Searching<'a> {
    instance: &'a Instance,
    search: Search,
    scratch: AnyScratch,
    step: Step,
    /// The labels that the pages to read must have.
    labels: Vec<Label>,
    found: Found,
    /// Another key with the same hash was in one of the pages: to the engine
    /// they are one object.
    met_another: bool,
    key: &'a [u8],
    now_seconds: u32,
    mark: Mark,
    /// The value that was found, for the RAM tier.
    promote: Option<Promote>,
}

struct Promote {
    value: Bytes,
    expires: Expiry,
}

/// The place of a value among pages.
struct Newest {
    rank: usize,
    slot: usize,
    value: Bytes,
    expires: Expiry,
}

impl Drop for Searching<'_> {
    fn drop(&mut self) {
        let mut guard = self.instance.state.lock();
        let state = &mut *guard;
        let Searching {
            search, scratch, ..
        } = self;
        let stripe = &mut state.stripe;
        state.engine.end_search(stripe, search, scratch, self.found);
        state.searching -= 1;
        state.refused = false;
        if let Some(promote) = self.promote.take() {
            state.note_hit(self.search.hash, self.now_seconds);
            state.ram.keep_read(
                self.mark,
                self.search.hash,
                self.key,
                &promote.value,
                promote.expires,
            );
        }
        let awaited = state.awaits_readers();
        drop(guard);
        if awaited {
            self.instance.work.notify_one();
        }
    }
}

/// The verdict of a search's pages.
enum Verdict {
    /// The newest copy.
    Found(Newest),
    /// The object is dead, or may be.
    Nothing,
    /// If anywhere, it is in older pages.
    Older,
}

/// How a search begins.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart where it is made; a box would cost every search an allocation"
)]
enum Began<'a> {
    /// Memory knows.
    Over(Option<Hit>),
    /// Flash must be asked.
    OnFlash(Searching<'a>),
}

impl Instance {
    /// The newest value of `key`, or nothing. What flash does not give back is
    /// not there, and neither is anything older.
    pub(super) async fn get(&self, hash: KeyHash, key: &[u8], now_seconds: u32) -> Option<Hit> {
        let mut searching = match self.begin(hash, key, now_seconds) {
            Began::Over(hit) => return hit,
            Began::OnFlash(searching) => searching,
        };
        let newest = match self.find(&mut searching).await {
            Verdict::Found(newest) => newest,
            Verdict::Older => {
                if !searching.met_another {
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

    /// The page on flash in which a get of `key` finds its value, if it is in
    /// none of the tiers above. That counts as no hit.
    pub(super) async fn page_of(
        &self,
        hash: KeyHash,
        key: &[u8],
        now_seconds: u32,
    ) -> Option<PageAddress> {
        let begun = self.begin_below(&mut self.state.lock(), hash, key, now_seconds);
        let Began::OnFlash(mut searching) = begun else {
            return None;
        };
        match self.find(&mut searching).await {
            Verdict::Found(newest) => searching.search.pages.get(newest.rank).copied(),
            Verdict::Nothing | Verdict::Older => None,
        }
    }

    /// As [`get`](Instance::get), as far as memory goes: `None` if flash must
    /// be asked.
    pub(super) fn get_ram(
        &self,
        hash: KeyHash,
        key: &[u8],
        now_seconds: u32,
    ) -> Option<Option<Hit>> {
        let mut state = self.state.lock();
        if let Some(hit) = state.hit_in_ram(hash, key, now_seconds) {
            return Some(Some(hit));
        }
        let object = state.stripe.in_memory(hash)?;
        let is_over = object.expires.is_over(now_seconds);
        let hit = in_buffer(object, key, now_seconds);
        state.expired += u64::from(is_over);
        Some(hit)
    }

    fn begin<'a>(&'a self, hash: KeyHash, key: &'a [u8], now_seconds: u32) -> Began<'a> {
        let mut state = self.state.lock();
        if let Some(hit) = state.hit_in_ram(hash, key, now_seconds) {
            return Began::Over(Some(hit));
        }
        self.begin_below(&mut state, hash, key, now_seconds)
    }

    /// Begins below the RAM tier.
    fn begin_below<'a>(
        &'a self,
        state: &mut State,
        hash: KeyHash,
        key: &'a [u8],
        now_seconds: u32,
    ) -> Began<'a> {
        let (mut search, mut scratch) = (Search::new(), AnyScratch::default());
        let (engine, stripe) = (&mut state.engine, &mut state.stripe);
        let step = engine.begin_search(stripe, hash, &mut search, &mut scratch);
        let labels = match step {
            Step::Index => self.labels(engine, &search.index_pages),
            Step::Pages => self.labels(engine, &search.pages),
            Step::Memory | Step::Absent => {
                let object = stripe.in_memory(hash);
                let is_over = object.is_some_and(|object| object.expires.is_over(now_seconds));
                let hit = object.and_then(|object| in_buffer(object, key, now_seconds));
                engine.end_search(stripe, &mut search, &mut scratch, Found::Nowhere);
                state.expired += u64::from(is_over);
                return Began::Over(hit);
            }
        };
        state.searching += 1;
        Began::OnFlash(Searching {
            instance: self,
            search,
            scratch,
            step,
            labels,
            found: Found::Unknown,
            met_another: false,
            key,
            now_seconds,
            mark: state.ram.mark(hash),
            promote: None,
        })
    }

    /// Reads what a search asked for.
    async fn find(&self, searching: &mut Searching<'_>) -> Verdict {
        let labels = match searching.step {
            Step::Index => self.read_index(searching).await,
            _ => std::mem::take(&mut searching.labels),
        };
        self.read_waves(searching, &labels).await
    }

    /// Goes on with the index pages that a search asked for; returns the
    /// labels of the pages to read then.
    async fn read_index(&self, searching: &mut Searching<'_>) -> Vec<Label> {
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
            .map(|(bytes, label)| self.medium.index(*label, bytes.as_ref()))
            .collect();
        let engine = &mut self.state.lock().engine;
        match engine.index_read(search, scratch, &pages) {
            Step::Pages => self.labels(engine, &search.pages),
            Step::Memory | Step::Absent | Step::Index => Vec::new(),
        }
    }

    /// Reads pages until one of them decides.
    async fn read_waves(&self, searching: &mut Searching<'_>, labels: &[Label]) -> Verdict {
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

    /// The first of `pages` that knows the key decides.
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
                // A page that cannot be read may have held the newest.
                return Verdict::Nothing;
            };
            let hash = searching.search.hash;
            let Some(hit) = opened.find(hash, searching.key) else {
                searching.met_another |= opened.knows(hash, self.medium.seed);
                continue;
            };
            let is_over = hit.expires.is_over(searching.now_seconds);
            if hit.tombstone || is_over {
                self.state.lock().expired += u64::from(is_over);
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

    /// The labels that pages must have.
    pub(super) fn labels(&self, engine: &AnyEngine, pages: &[PageAddress]) -> Vec<Label> {
        if self.durability.is_persistent() {
            return pages.iter().map(|page| engine.label(*page)).collect();
        }
        pages.iter().map(|page| self.medium.label(*page)).collect()
    }

    /// Ends its task, and the waits of others.
    pub(super) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.work.notify_one();
        self.room.notify_waiters();
    }

    /// If all that it ever took in is on flash, then no fence of it holds
    /// any more.
    pub(super) fn settle(&self, journal: &Journal) {
        let mut state = self.state.lock();
        // Under the lock, which every sender of a fence holds.
        self.retire_fences(&mut state, journal.last());
    }

    /// Flushes what memory holds, and waits for it.
    pub(super) async fn drain(&self) {
        loop {
            let room = self.room.notified();
            if !self.state.lock().drain() || self.stopping.load(SeqCst) {
                return;
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

/// The value of an object in memory, if it is the one of `key` and alive.
fn live_value<'a>(object: &'a Object, key: &[u8], now_seconds: u32) -> Option<&'a [u8]> {
    if object.tombstone || object.expires.is_over(now_seconds) {
        return None;
    }
    let (found, value) = split_record(&object.record)?;
    (found == key).then_some(value)
}
