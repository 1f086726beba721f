//! One engine: searches, writes, and the task that keeps it going.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use bytes::Bytes;
use floe_core::hash::KeyHash;
use floe_core::layout::tiny::{ObjectsPage, PageKind, split_record};
use floe_core::tiny::nemo::Nemo;
use floe_core::tiny::{
    Accepted, Engine as _, Found, Insert, Label, Object, Outcome, PageAddress, Search, Step, Work,
};
use floe_device::IoBuf;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::medium::{Medium, page_id};

/// An engine on its part of the device.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) engine: Mutex<Nemo>,
    pub(super) medium: Medium,
    /// Pages of an extent, and sets of it.
    pub(super) extent_pages: u32,
    pub(super) sets: u32,
    /// There may be something to do.
    pub(super) work: Notify,
    /// There may be room, or less to wait for.
    pub(super) room: Notify,
    /// As [`Nemo::durable`], for whoever does not hold the lock.
    pub(super) durable: AtomicU64,
    pub(super) stopping: AtomicBool,
}

/// A value found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) value: Bytes,
    pub(super) from_flash: bool,
}

/// Ends its search whatever becomes of the future that it is part of.
struct Searching<'a> {
    instance: &'a Instance,
    search: Search,
    found: Found,
}

impl Drop for Searching<'_> {
    fn drop(&mut self) {
        let mut engine = self.instance.engine.lock();
        engine.end_search(&mut self.search, self.found);
        let awaited = engine.waits_for_readers();
        drop(engine);
        if awaited {
            self.instance.work.notify_one();
        }
    }
}

impl Instance {
    /// The newest value of `key`, or nothing. What flash does not give back is
    /// not there, and neither is anything older.
    pub(super) async fn get(&self, hash: KeyHash, key: &[u8], now_seconds: u32) -> Option<Hit> {
        let mut search = Search::new();
        let (step, labels) = {
            let mut engine = self.engine.lock();
            let step = engine.begin_search(hash, &mut search);
            match step {
                Step::Memory => {
                    let object = engine.in_memory(hash).and_then(|object| {
                        let value = live_value(object, key, now_seconds)?;
                        Some(Hit {
                            value: Bytes::copy_from_slice(value),
                            from_flash: false,
                        })
                    });
                    engine.end_search(&mut search, Found::Nowhere);
                    return object;
                }
                Step::Absent => {
                    engine.end_search(&mut search, Found::Nowhere);
                    return None;
                }
                Step::Index => (step, labels(&engine, &search.index_pages)),
                Step::Pages => (step, labels(&engine, &search.pages)),
            }
        };
        let mut searching = Searching {
            instance: self,
            search,
            found: Found::Nowhere,
        };
        let labels = match step {
            Step::Index => self.read_index(&mut searching.search, &labels).await?,
            _ => labels,
        };
        let pages = self.medium.read_all(&searching.search.pages).await;
        let (rank, slot, value) = self.newest(hash, key, now_seconds, &labels, &pages)?;
        searching.found = Found::Flash { rank, slot };
        Some(Hit {
            value,
            from_flash: true,
        })
    }

    /// Goes on with the index pages that a search asked for; returns the
    /// labels of the pages to read then.
    async fn read_index(&self, search: &mut Search, labels_of: &[Label]) -> Option<Vec<Label>> {
        let read = self.medium.read_all(&search.index_pages).await;
        let pages: Vec<Option<&[u8]>> = read
            .iter()
            .zip(labels_of)
            .map(|(bytes, label)| self.medium.index(*label, bytes.as_ref()))
            .collect();
        let mut engine = self.engine.lock();
        match engine.index_read(search, &pages) {
            Step::Pages => Some(labels(&engine, &search.pages)),
            Step::Memory | Step::Absent | Step::Index => None,
        }
    }

    /// The first of `pages` that knows the key decides.
    fn newest(
        &self,
        hash: KeyHash,
        key: &[u8],
        now_seconds: u32,
        labels: &[Label],
        pages: &[Option<IoBuf>],
    ) -> Option<(usize, usize, Bytes)> {
        for (rank, (page, label)) in pages.iter().zip(labels).enumerate() {
            // A page that cannot be read may have held the newest.
            let id = page_id(PageKind::Objects, *label);
            let page = ObjectsPage::open(self.medium.id, id, page.as_ref()?).ok()?;
            let Some(hit) = page.find(hash, key) else {
                continue;
            };
            if hit.tombstone || hit.expires.is_over(now_seconds) {
                return None;
            }
            return Some((rank, hit.slot, Bytes::copy_from_slice(hit.value)));
        }
        None
    }

    /// Takes in an object; waits while there is no room. `note` is called
    /// under the engine's lock, with what the engine said, and what must be on
    /// flash before a note of it is of no more use.
    pub(super) async fn insert<Noted>(
        &self,
        mut object: Object,
        now_seconds: u32,
        note: impl FnOnce(Accepted, u64) -> Noted,
    ) -> Option<Noted> {
        loop {
            // Before the engine is asked: a wake-up in between must not be lost.
            let room = self.room.notified();
            {
                let mut engine = self.engine.lock();
                match engine.insert(object, now_seconds) {
                    Insert::Accepted(accepted) => {
                        let until = engine.durable_when();
                        let noted = note(accepted, until);
                        let due = engine.has_work();
                        drop(engine);
                        if due {
                            self.work.notify_one();
                        }
                        return Some(noted);
                    }
                    Insert::Busy(again) => object = again,
                }
            }
            if self.stopping.load(SeqCst) {
                return None;
            }
            self.work.notify_one();
            room.await;
        }
    }

    /// Carries out what the engine asks for, until it is told to stop.
    pub(super) async fn run(
        self: Arc<Self>,
        now_seconds: impl Fn() -> u32,
        gone: impl AsyncFn(u64) -> bool,
    ) {
        loop {
            let task = {
                let mut engine = self.engine.lock();
                engine.next_task().map(|task| {
                    let label = match &task.work {
                        Work::Append { first, .. } => vec![engine.label(*first)],
                        Work::Read(pages) => labels(&engine, pages),
                        Work::Write { .. } | Work::Seal { .. } | Work::Reset(_) => Vec::new(),
                    };
                    (task, label, engine.oldest())
                })
            };
            let Some((task, labels, oldest)) = task else {
                if self.stopping.load(SeqCst) {
                    return;
                }
                self.work.notified().await;
                continue;
            };
            let resets = matches!(task.work, Work::Reset(_));
            let outcome = self.carry_out(task.work, &labels).await;
            if resets && outcome == Outcome::Failed && !gone(oldest).await {
                // What should be gone could come back: nothing more is written.
                tracing::error!(
                    "a zone of tiny objects can neither be reset nor noted as gone; the cache stops taking in objects"
                );
                self.stop();
                return;
            }
            let durable = {
                let mut engine = self.engine.lock();
                engine.complete(task.id, outcome, now_seconds());
                engine.durable()
            };
            self.durable.store(durable, SeqCst);
            self.room.notify_waiters();
        }
    }

    async fn carry_out(&self, work: Work, labels: &[Label]) -> Outcome {
        let done = match work {
            Work::Read(pages) => {
                let read = self.medium.read_all(&pages).await;
                let pages = read.into_iter().zip(labels);
                return Outcome::Read(
                    pages
                        .map(|(bytes, label)| self.medium.objects(*label, bytes))
                        .collect(),
                );
            }
            Work::Append { first, pages } => {
                let label = labels.first().copied().unwrap_or_default();
                self.medium.append(first, label, &pages).await
            }
            Work::Seal {
                first,
                pages,
                summary,
            } => {
                let ends_zone = self.extent_pages >= self.medium.flash.zone_pages
                    || (first.0 + pages).is_multiple_of(self.medium.flash.zone_pages);
                self.medium
                    .seal(first, pages, self.sets, ends_zone, &summary)
                    .await
            }
            Work::Reset(zone) => self.medium.reset(zone).await.map_err(Into::into),
            // Nemo writes nothing in place.
            Work::Write { .. } => return Outcome::Failed,
        };
        match done {
            Ok(()) => Outcome::Done,
            Err(error) => {
                tracing::warn!(%error, "tiny objects could not be written; the zone is given up");
                Outcome::Failed
            }
        }
    }

    /// Ends its task, and the waits of others.
    pub(super) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.work.notify_one();
        self.room.notify_waiters();
    }

    /// Flushes what memory holds, and waits for it.
    pub(super) async fn drain(&self) {
        loop {
            let room = self.room.notified();
            if !self.engine.lock().drain() || self.stopping.load(SeqCst) {
                return;
            }
            self.work.notify_one();
            room.await;
        }
    }
}

fn labels(engine: &Nemo, pages: &[PageAddress]) -> Vec<Label> {
    pages.iter().map(|page| engine.label(*page)).collect()
}

/// The value of an object in memory, if it is the one of `key` and alive.
fn live_value<'a>(object: &'a Object, key: &[u8], now_seconds: u32) -> Option<&'a [u8]> {
    if object.tombstone || object.expires.is_over(now_seconds) {
        return None;
    }
    let (found, value) = split_record(&object.record)?;
    (found == key).then_some(value)
}
