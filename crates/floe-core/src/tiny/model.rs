//! Modelled flash, and a driver that runs an engine on it without I/O.
//!
//! The model keeps only hash, length and expiry of objects, so it runs millions
//! of operations per second on gigabytes of flash. It panics if an engine reads
//! a page that was never written, writes a page that is not at its zone's write
//! pointer, or writes in place where that is not allowed.

use std::sync::Arc;

use super::engine::{
    Engine, Found, Insert, Outcome, Page, Search, Step, Stripe as _, Task, Work, waves,
};
use super::object::{Expiry, Flash, Object, PageAddress};
use super::statistics::{LiveObjects, Memory, Statistics};
use crate::hash::KeyHash;

/// The content of a page, without the objects' bytes.
#[derive(Clone, Debug, Default)]
enum Stored {
    #[default]
    Nothing,
    Objects(Box<[Entry]>),
    Index(Arc<[u8]>),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: KeyHash,
    expires: Expiry,
    bytes: u16,
    prediction: u8,
}

/// Objects up to which all are looked up to count the live ones.
const LOOKED_UP_MAX: usize = 32 << 20;

/// The length that marks a tombstone: no object is as long.
const TOMBSTONE: u16 = u16::MAX;
const _: () = assert!(super::OBJECT_BYTES_MAX < TOMBSTONE as usize);

impl Entry {
    fn of(object: &Object) -> Self {
        Entry {
            hash: object.hash,
            bytes: if object.tombstone {
                TOMBSTONE
            } else {
                object.bytes as u16
            },
            expires: object.expires,
            prediction: object.prediction,
        }
    }

    fn object(self) -> Object {
        if self.bytes == TOMBSTONE {
            return Object::tombstone(self.hash);
        }
        Object {
            expires: self.expires,
            prediction: self.prediction,
            ..Object::sized(self.hash, u32::from(self.bytes))
        }
    }
}

/// Observes the tasks of an engine, for example to time them on a model of an
/// SSD.
pub trait Watcher {
    /// Pages are read, by a search or by a task.
    fn read(&mut self, pages: &[PageAddress], for_search: bool);
    /// Pages are written from `first` on.
    fn written(&mut self, first: PageAddress, pages: usize);
    /// A zone is reset.
    fn reset(&mut self, zone: u32);
}

/// Observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watcher for Unwatched {
    fn read(&mut self, _: &[PageAddress], _: bool) {}
    fn written(&mut self, _: PageAddress, _: usize) {}
    fn reset(&mut self, _: u32) {}
}

/// An engine on modelled flash.
#[derive(Debug)]
pub struct Model<E: Engine, W = Unwatched> {
    engine: E,
    stripe: E::Stripe,
    flash: Flash,
    pages: Vec<Stored>,
    write_pointers: Vec<u32>,
    search: Search,
    scratch: E::Scratch,
    watcher: W,
}

impl<E: Engine> Model<E> {
    /// Runs `engine` on empty flash.
    pub fn new(engine: E, flash: Flash) -> Self {
        Model::watched(engine, flash, Unwatched)
    }
}

impl<E: Engine, W> Model<E, W> {
    /// Copies the flash and runs another engine on the copy.
    pub fn fork<F: Engine>(&self, engine: F) -> Model<F> {
        Model {
            stripe: engine.stripe(),
            engine,
            flash: self.flash,
            pages: self.pages.clone(),
            write_pointers: self.write_pointers.clone(),
            search: Search::new(),
            scratch: Default::default(),
            watcher: Unwatched,
        }
    }

    /// Replaces the directory by one made from it; flash and stripe stay.
    pub fn map_engine<F: Engine<Stripe = E::Stripe>>(
        self,
        engine: impl FnOnce(E) -> F,
    ) -> Model<F, W> {
        Model {
            engine: engine(self.engine),
            stripe: self.stripe,
            flash: self.flash,
            pages: self.pages,
            write_pointers: self.write_pointers,
            search: self.search,
            scratch: Default::default(),
            watcher: self.watcher,
        }
    }

    /// The engine's two parts, without their flash.
    pub fn into_parts(self) -> (E, E::Stripe) {
        (self.engine, self.stripe)
    }

    /// The directory of the engine.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// See [`Engine::statistics`].
    pub fn statistics(&self) -> Statistics {
        self.engine.statistics(&self.stripe)
    }

    /// See [`Engine::memory`].
    pub fn memory(&self) -> Memory {
        self.engine.memory(&self.stripe)
    }

    /// See [`Engine::live_objects`].
    pub fn live_objects(&self, now_seconds: u32) -> LiveObjects {
        self.engine.live_objects(&self.stripe, now_seconds)
    }
}

impl<E: Engine, W: Watcher> Model<E, W> {
    /// `engine` on empty flash.
    pub fn watched(engine: E, flash: Flash, watcher: W) -> Self {
        Model {
            stripe: engine.stripe(),
            engine,
            flash,
            pages: vec![Stored::Nothing; flash.pages() as usize],
            write_pointers: vec![0; flash.zones as usize],
            search: Search::new(),
            scratch: Default::default(),
            watcher,
        }
    }

    /// The watcher.
    pub fn watcher(&mut self) -> &mut W {
        &mut self.watcher
    }

    /// Stores an object of `bytes` bytes.
    pub fn put(&mut self, hash: KeyHash, bytes: u32, expires: Expiry, now_seconds: u32) {
        let object = Object {
            expires,
            ..Object::sized(hash, bytes)
        };
        self.insert(object, now_seconds);
    }

    /// Deletes an object.
    pub fn delete(&mut self, hash: KeyHash, now_seconds: u32) {
        self.insert(Object::tombstone(hash), now_seconds);
    }

    /// Counts the keys on flash that a lookup finds, each once, by looking up
    /// all of them, or every 2ⁿ-th of many. The lookups count in the engine's
    /// statistics.
    pub fn count_live_objects(&mut self, now_seconds: u32) -> u64 {
        let entries = |page: &Stored| match page {
            Stored::Objects(entries) => entries.len(),
            _ => 0,
        };
        let all: usize = self.pages.iter().map(entries).sum();
        let one_in = all.div_ceil(LOOKED_UP_MAX).next_power_of_two() as u64;
        let mut hashes: Vec<KeyHash> = Vec::new();
        for page in &self.pages {
            if let Stored::Objects(entries) = page {
                let hashes_here = entries.iter().map(|entry| entry.hash);
                hashes.extend(hashes_here.filter(|hash| hash.0.is_multiple_of(one_in)));
            }
        }
        hashes.sort_unstable();
        hashes.dedup();
        let found = hashes.into_iter();
        let found = found.filter(|hash| self.get(*hash, now_seconds).is_some());
        found.count() as u64 * one_in
    }

    fn insert(&mut self, mut object: Object, now_seconds: u32) {
        loop {
            match self.engine.insert(&mut self.stripe, object, now_seconds) {
                Insert::Accepted(_) => break,
                Insert::Busy(again) => object = again,
            }
            assert!(self.step(now_seconds), "the engine is busy and has no task");
        }
        // All tasks run at once: background work always keeps up.
        while self.step(now_seconds) {}
    }

    /// Runs one task; returns whether there was one.
    fn step(&mut self, now_seconds: u32) -> bool {
        let Some(Task { id, work }) = self.engine.next_task_at_once(&mut self.stripe) else {
            return false;
        };
        let outcome = self.carry_out(work);
        self.engine
            .complete(&mut self.stripe, id, outcome, now_seconds);
        true
    }

    /// The length of an object, or `None` on a miss.
    pub fn get(&mut self, hash: KeyHash, now_seconds: u32) -> Option<u32> {
        let mut search = std::mem::take(&mut self.search);
        let mut step =
            self.engine
                .begin_search(&mut self.stripe, hash, &mut search, &mut self.scratch);
        let mut found = Found::Nowhere;
        let outcome = loop {
            step = match step {
                Step::Index => self.read_index(&mut search),
                Step::Pages => match self.read_waves(&mut search) {
                    Some((place, entry)) => {
                        let alive = entry.bytes != TOMBSTONE && !entry.expires.is_over(now_seconds);
                        found = if alive { place } else { Found::Unknown };
                        break alive.then(|| u32::from(entry.bytes));
                    }
                    None => self.engine.pages_read(&mut search, &mut self.scratch),
                },
                Step::Memory => {
                    let object = self.stripe.in_memory(hash);
                    let object = object
                        .filter(|object| !object.tombstone && !object.expires.is_over(now_seconds));
                    break object.map(|object| object.bytes);
                }
                Step::Absent => break None,
            }
        };
        self.engine
            .end_search(&mut self.stripe, &mut search, &mut self.scratch, found);
        self.search = search;
        outcome
    }

    fn read_index(&mut self, search: &mut Search) -> Step {
        self.watcher.read(&search.index_pages, true);
        let pages: Vec<Option<&[u8]>> = search
            .index_pages
            .iter()
            .map(|page| match &self.pages[page.index()] {
                Stored::Index(bytes) => Some(&**bytes),
                other => panic!("index page {page:?} holds {other:?}"),
            })
            .collect();
        self.engine.index_read(search, &mut self.scratch, &pages)
    }

    fn read_waves(&mut self, search: &mut Search) -> Option<(Found, Entry)> {
        for wave in waves(search.pages.len()) {
            search.read = wave.end;
            self.watcher.read(&search.pages[wave.clone()], true);
            let found = self.find(search.hash, &search.pages[..wave.end]);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn find(&self, hash: KeyHash, pages: &[PageAddress]) -> Option<(Found, Entry)> {
        pages.iter().enumerate().find_map(|(rank, page)| {
            let Stored::Objects(entries) = &self.pages[page.index()] else {
                panic!("page {page:?} was searched and holds no objects");
            };
            let slot = entries.iter().position(|entry| entry.hash == hash)?;
            Some((Found::Flash { rank, slot }, entries[slot]))
        })
    }

    fn carry_out(&mut self, work: Work) -> Outcome {
        match work {
            Work::Read(pages) | Work::ReadIndex(pages) => {
                self.watcher.read(&pages, false);
                Outcome::Read(pages.iter().map(|page| Some(self.load(*page))).collect())
            }
            Work::Append { first, pages } => {
                self.watcher.written(first, pages.len());
                let zone = self.flash.zone_of(first) as usize;
                let pointer = &mut self.write_pointers[zone];
                assert_eq!(
                    first.0 % self.flash.zone_pages,
                    *pointer,
                    "append to zone {zone} beyond or before its write pointer"
                );
                *pointer += pages.len() as u32;
                assert!(
                    *pointer <= self.flash.zone_pages,
                    "zone {zone} is overfilled"
                );
                for (at, page) in (first.0..).zip(pages) {
                    self.store(PageAddress(at), page);
                }
                Outcome::Done
            }
            Work::Write { at, page } => {
                assert!(self.flash.in_place, "page {at:?} is written in place");
                self.watcher.written(at, 1);
                self.store(at, page);
                Outcome::Done
            }
            Work::Seal {
                first,
                pages,
                ends_zone,
                ..
            } => {
                // The drive pads a zone that is finished.
                let zone_end = (self.flash.zone_of(first) + 1) * self.flash.zone_pages;
                let count = if ends_zone { zone_end - first.0 } else { pages };
                let blank = Page::Index(Arc::default());
                let pages = vec![blank; count as usize];
                self.carry_out(Work::Append { first, pages })
            }
            Work::Reset(zone) => {
                self.watcher.reset(zone);
                let first = self.flash.first_page(zone).index();
                self.pages[first..first + self.flash.zone_pages as usize].fill(Stored::Nothing);
                self.write_pointers[zone as usize] = 0;
                Outcome::Done
            }
        }
    }

    fn load(&self, page: PageAddress) -> Page {
        match &self.pages[page.index()] {
            Stored::Nothing => Page::Objects(Vec::new()),
            Stored::Objects(entries) => {
                Page::Objects(entries.iter().map(|entry| entry.object()).collect())
            }
            Stored::Index(bytes) => Page::Index(bytes.clone()),
        }
    }

    fn store(&mut self, at: PageAddress, page: Page) {
        self.pages[at.index()] = match page {
            Page::Objects(objects) => {
                let used: usize = objects.iter().map(Object::stored_bytes).sum();
                assert!(
                    used <= super::PAGE_ROOM_BYTES,
                    "page {at:?} holds {used} bytes"
                );
                Stored::Objects(objects.iter().map(Entry::of).collect())
            }
            Page::Index(bytes) => Stored::Index(bytes),
        };
    }
}
