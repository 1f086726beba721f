//! The memory that the tiny engines report, compared with the allocator's count:
//! keys, values, and everything that rewrites and cleaning keep while the device
//! works.
//!
//! A counting allocator is `unsafe`, so this test belongs to the one crate that
//! may have such code.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use floe_core::hash::{HashSeed, KeyHash};
use floe_core::layout::tiny::record;
use floe_core::tiny::nemo::{Nemo, NemoConfig, NemoPlan};
use floe_core::tiny::{
    Engine, Expiry, FairyWren, FairyWrenConfig, FairyWrenPlan, Flash, Found, Insert, Kangaroo,
    KangarooConfig, KangarooPlan, Log, LogConfig, LogPlan, Object, Outcome, Page, PageAddress,
    Search, Set, SetConfig, SetPlan, SetPolicy, SetStorage, Step, Task, Work,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The system's allocator with a count of the bytes that each thread holds.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes of the allocator's overhead for each allocation.
const HEADER_BYTES: i64 = 8;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// Counts an allocation, or the end of one.
fn count(pointer: *mut u8, sign: i64) {
    if pointer.is_null() {
        return;
    }
    // SAFETY: `pointer` is of a live allocation of the system's allocator.
    let usable = unsafe { libc::malloc_usable_size(pointer.cast()) };
    // An ending thread has no counter any more.
    let _ = HELD.try_with(|held| held.set(held.get() + sign * (usable as i64 + HEADER_BYTES)));
}

// SAFETY: every call goes to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees what `System` requires.
        let pointer = unsafe { System.alloc(layout) };
        count(pointer, 1);
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        count(pointer, 1);
        pointer
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(pointer, -1);
        // SAFETY: as in `alloc`; `pointer` came from `System`.
        let moved = unsafe { System.realloc(pointer, layout, bytes) };
        count(if moved.is_null() { pointer } else { moved }, 1);
        moved
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(pointer, -1);
        // SAFETY: as in `realloc`.
        unsafe { System.dealloc(pointer, layout) };
    }
}

/// A page with all its objects and their keys and values.
const SLOT_BYTES: usize = 8192;
/// Hash, expiry, flags, length.
const HEAD_BYTES: usize = 16;
const IS_TOMBSTONE: u8 = 1;

/// Flash in one allocation, so that reads and writes change no count.
struct Media {
    bytes: Vec<u8>,
    is_index: Vec<bool>,
}

impl Media {
    fn new(flash: Flash) -> Self {
        Media {
            bytes: vec![0; flash.pages() as usize * SLOT_BYTES],
            is_index: vec![false; flash.pages() as usize],
        }
    }

    fn slot(&mut self, page: PageAddress) -> &mut [u8] {
        &mut self.bytes[page.index() * SLOT_BYTES..][..SLOT_BYTES]
    }

    fn store(&mut self, at: PageAddress, page: &Page) {
        self.is_index[at.index()] = matches!(page, Page::Index(_));
        let slot = self.slot(at);
        slot.fill(0);
        match page {
            Page::Index(bytes) => slot[..bytes.len()].copy_from_slice(bytes),
            Page::Objects(objects) => {
                let mut rest = slot;
                for object in objects {
                    let (head, after) = rest.split_at_mut(HEAD_BYTES);
                    head[..8].copy_from_slice(&object.hash.0.to_le_bytes());
                    head[8..12].copy_from_slice(&object.expires.0.to_le_bytes());
                    head[12] = u8::from(object.tombstone);
                    head[13] = object.prediction + 1;
                    let len = object.record.len();
                    head[14..].copy_from_slice(&(len as u16).to_le_bytes());
                    after[..len].copy_from_slice(&object.record);
                    rest = &mut after[len..];
                }
            }
        }
    }

    fn load(&self, at: PageAddress) -> Page {
        let slot = &self.bytes[at.index() * SLOT_BYTES..][..SLOT_BYTES];
        if self.is_index[at.index()] {
            return Page::Index(slot[..4096].into());
        }
        let count = Media::objects(slot).count();
        let mut objects = Vec::with_capacity(count);
        objects.extend(Media::objects(slot));
        Page::Objects(objects)
    }

    /// A prediction is stored one higher, so that a head of zeros ends the page.
    fn objects(mut rest: &[u8]) -> impl Iterator<Item = Object> + '_ {
        std::iter::from_fn(move || {
            let (head, after) = rest.split_at_checked(HEAD_BYTES)?;
            let prediction = head[13].checked_sub(1)?;
            let len = usize::from(u16::from_le_bytes([head[14], head[15]]));
            let (record, after) = after.split_at(len);
            rest = after;
            let hash = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
            let expires = u32::from_le_bytes(head[8..12].try_into().expect("four bytes"));
            Some(Object {
                expires: Expiry(expires),
                tombstone: head[12] == IS_TOMBSTONE,
                prediction,
                record: record.into(),
                // The record has another byte: the key's length.
                ..Object::sized(KeyHash(hash), len.saturating_sub(1) as u32)
            })
        })
    }
}

/// An engine, its flash, and the bytes held before its creation.
struct Driver<E: Engine> {
    engine: E,
    stripe: E::Stripe,
    media: Media,
    flash: Flash,
    search: Search,
    scratch: E::Scratch,
    random: Xoshiro256PlusPlus,
    /// The bytes of all values.
    bytes: Vec<u8>,
    before: i64,
    samples: u32,
    samples_in_work: u32,
}

/// Samples to take of each kind.
const SAMPLES: u32 = 16;

/// Samples are compared from this size on: a smaller engine has only fixed tables.
const COMPARED_FROM_BYTES: i64 = 64 << 10;

impl<E: Engine> Driver<E> {
    fn new(flash: Flash, engine: impl FnOnce() -> E) -> Self {
        let media = Media::new(flash);
        let bytes = vec![7; 4096];
        let before = HELD.get();
        let engine = engine();
        Driver {
            stripe: engine.stripe(),
            engine,
            media,
            flash,
            search: Search::new(),
            scratch: E::Scratch::default(),
            random: Xoshiro256PlusPlus::seed_from_u64(5),
            bytes,
            before,
            samples: 0,
            samples_in_work: 0,
        }
    }

    /// Compares the two counts. Returns false if the engine is too small for it.
    fn sample(&mut self, when: &str) -> bool {
        // The driver counts the search.
        self.search = Search::new();
        self.scratch = E::Scratch::default();
        let memory = self.engine.memory(&self.stripe);
        let (counted, held) = (memory.total_bytes() as i64, HELD.get() - self.before);
        if held < COMPARED_FROM_BYTES {
            return false;
        }
        self.samples += 1;
        let off = (counted - held).abs() as f64 / held as f64;
        assert!(
            off <= 0.05,
            "{when}: {counted} bytes counted, {held} held: {memory:?}"
        );
        true
    }

    /// Executes one task, if there is one. Some samples are taken after the device
    /// has executed it and before the engine learns of that.
    fn step(&mut self) -> bool {
        let Some(Task { id, work }) = self.engine.next_task_at_once(&mut self.stripe) else {
            return false;
        };
        let mut reads = Vec::new();
        match work {
            Work::Read(pages) | Work::ReadIndex(pages) => reads = pages,
            Work::Append { first, pages } => {
                for (at, page) in (first.0..).zip(&pages) {
                    self.media.store(PageAddress(at), page);
                }
            }
            Work::Write { at, page } => self.media.store(at, &page),
            Work::Seal { .. } => {}
            Work::Reset(zone) => {
                let first = self.flash.first_page(zone);
                for at in first.0..first.0 + self.flash.zone_pages {
                    self.media
                        .store(PageAddress(at), &Page::Objects(Vec::new()));
                }
            }
        }
        // Samples first come often, then rarely: one takes as long as many tasks.
        let one_in = if self.samples_in_work < SAMPLES {
            8
        } else {
            512
        };
        if self.random.random_ratio(1, one_in) && self.sample("while a task is out") {
            self.samples_in_work += 1;
        }
        let outcome = match reads.is_empty() {
            true => Outcome::Done,
            false => Outcome::Read(reads.iter().map(|at| Some(self.media.load(*at))).collect()),
        };
        drop(reads);
        self.engine.complete(&mut self.stripe, id, outcome, 1);
        true
    }

    fn insert(&mut self, mut object: Object) {
        while let Insert::Busy(again) = self.engine.insert(&mut self.stripe, object, 1) {
            object = again;
            assert!(self.step(), "the engine is busy and asks for nothing");
        }
        while self.step() {}
    }

    fn get(&mut self, hash: KeyHash) {
        let (search, stripe) = (&mut self.search, &mut self.stripe);
        let mut step = self
            .engine
            .begin_search(stripe, hash, search, &mut self.scratch);
        let mut found = Found::Nowhere;
        while found == Found::Nowhere {
            step = match step {
                Step::Memory | Step::Absent => break,
                Step::Index => {
                    let index: Vec<Page> = search
                        .index_pages
                        .iter()
                        .map(|at| self.media.load(*at))
                        .collect();
                    let pages: Vec<Option<&[u8]>> = index
                        .iter()
                        .map(|page| match page {
                            Page::Index(bytes) => Some(&**bytes),
                            Page::Objects(_) => None,
                        })
                        .collect();
                    self.engine.index_read(search, &mut self.scratch, &pages)
                }
                Step::Pages => {
                    search.read = search.pages.len();
                    let slot = |page| match self.media.load(page) {
                        Page::Objects(objects) => {
                            objects.iter().position(|object| object.hash == hash)
                        }
                        Page::Index(_) => None,
                    };
                    let mut pages = (0..).zip(&search.pages);
                    let place = pages.find_map(|(rank, page)| Some((rank, slot(*page)?)));
                    match place {
                        Some((rank, slot)) => {
                            found = Found::Flash { rank, slot };
                            step
                        }
                        None => self.engine.pages_read(search, &mut self.scratch),
                    }
                }
            };
        }
        self.engine
            .end_search(stripe, search, &mut self.scratch, found);
    }

    /// Fills the flash with objects of about `mean` bytes, with overwrites, deletes
    /// and searches.
    fn run(&mut self, mean: usize) {
        let flash_bytes = self.flash.pages() as usize * 4096;
        let keys = (2 * flash_bytes / mean) as u64;
        for operation in 0..keys + keys / 2 {
            // The square prefers small numbers: some keys are hot.
            let draw: f64 = self.random.random();
            let key = (draw * draw * keys as f64) as u64;
            let name = key.to_le_bytes();
            let hash = KeyHash::of(HashSeed(5), &name);
            match self.random.random_range(0..100) {
                0..30 => self.get(hash),
                30..95 => {
                    let len = self.random.random_range(mean / 2..mean * 3 / 2) - name.len();
                    let object = Object {
                        record: record(&name, &self.bytes[..len]),
                        ..Object::sized(hash, (name.len() + len) as u32)
                    };
                    self.insert(object);
                }
                _ => self.insert(Object::tombstone(hash)),
            }
            if operation.is_multiple_of(256) {
                self.sample("between operations");
            }
        }
    }
}

fn check<E: Engine>(flash: Flash, engine: impl Fn() -> E) {
    for mean in [100, 246, 2000] {
        let mut driver = Driver::new(flash, &engine);
        driver.run(mean);
        assert!(driver.samples > SAMPLES, "{} samples", driver.samples);
        assert!(driver.samples_in_work > 4, "{}", driver.samples_in_work);
    }
}

const FLASH: Flash = Flash {
    zones: 64,
    zone_pages: 16,
    in_place: false,
};

const IN_PLACE: Flash = Flash {
    in_place: true,
    ..FLASH
};

#[test]
fn nemo_reports_the_memory_that_it_holds() {
    for config in [NemoConfig::default(), NemoConfig::published()] {
        let plan = NemoPlan::new(&config, &FLASH).expect("a plan");
        check(FLASH, || Nemo::new(plan.clone()));
    }
}

#[test]
fn log_reports_the_memory_that_it_holds() {
    for readmit_hit in [false, true] {
        let config = LogConfig {
            segment_pages: 8,
            readmit_hit,
            ..LogConfig::default()
        };
        let plan = LogPlan::new(&config, &FLASH).expect("a plan");
        check(FLASH, || Log::new(plan.clone()));
    }
}

#[test]
fn set_reports_the_memory_that_it_holds() {
    for policy in [SetPolicy::Fifo, SetPolicy::Rrip] {
        let config = SetConfig {
            over_provisioning_percent: 0,
            filter_bytes: 256,
            eviction: policy,
            ..SetConfig::default()
        };
        let plan = SetPlan::new(&config, &IN_PLACE).expect("a plan");
        check(IN_PLACE, || Set::new(plan.clone()));
    }
}

#[test]
fn kangaroo_reports_the_memory_that_it_holds() {
    for sets in [SetStorage::InPlace, SetStorage::Zoned] {
        let config = KangarooConfig {
            set_storage: sets,
            ..KangarooConfig::default()
        };
        let flash = match sets {
            SetStorage::InPlace => IN_PLACE,
            SetStorage::Zoned => FLASH,
        };
        let plan = KangarooPlan::new(&config, &flash).expect("a plan");
        check(flash, || Kangaroo::new(plan.clone()));
    }
}

#[test]
fn fairywren_reports_the_memory_that_it_holds() {
    let config = FairyWrenConfig {
        over_provisioning_percent: 20,
        ..FairyWrenConfig::default()
    };
    let plan = FairyWrenPlan::new(&config, &FLASH).expect("a plan");
    check(FLASH, || FairyWren::new(plan.clone()));
}
