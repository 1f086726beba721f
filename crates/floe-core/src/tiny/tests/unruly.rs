//! The oracle with concurrency and faults: tasks run and complete in any order,
//! searches are open while zones are evicted, and some reads and writes fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::hash::{HashSeed, KeyHash};
use crate::tiny::{
    Engine, Expiry, Flash, Found, Insert, Object, Outcome, Page, PageAddress, Search, Step,
    Stripe as _, Task, TaskId, Work,
};

/// A run. `reads_fail` and `writes_fail`: one in this many fails; zero for
/// none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unruly {
    pub(crate) seed: u64,
    pub(crate) operations: u32,
    pub(crate) keys: u64,
    pub(crate) reads_fail: u32,
    pub(crate) writes_fail: u32,
}

struct Driver<E: Engine> {
    engine: E,
    stripe: E::Stripe,
    flash: Flash,
    pages: Vec<Option<Page>>,
    write_pointers: Vec<u32>,
    /// Tasks to carry out.
    tasks: Vec<Task>,
    /// Outcomes to return to the engine.
    results: Vec<(TaskId, Outcome)>,
    searches: Vec<Running<E>>,
    /// The history of each key: the number of the operation, and the length,
    /// zero for a delete.
    truth: BTreeMap<u64, Vec<(u32, u32)>>,
    random: Xoshiro256PlusPlus,
    run: Unruly,
    hits: u64,
    now: u32,
}

struct Running<E: Engine> {
    key: u64,
    begun: u32,
    search: Search,
    scratch: E::Scratch,
    step: Step,
}

impl Unruly {
    /// Runs all operations on `engine`; returns the number of hits.
    ///
    /// # Panics
    /// If a search returns an object that was not the newest at any time during
    /// the search, or the engine misuses flash.
    pub(crate) fn run<E: Engine>(self, engine: E, flash: Flash) -> u64 {
        let mut driver = Driver {
            stripe: engine.stripe(),
            engine,
            flash,
            pages: vec![None; flash.pages() as usize],
            write_pointers: vec![0; flash.zones as usize],
            tasks: Vec::new(),
            results: Vec::new(),
            searches: Vec::new(),
            truth: BTreeMap::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(self.seed),
            run: self,
            hits: 0,
            now: 1,
        };
        for number in 1..=self.operations {
            driver.operation(number);
            for _ in 0..driver.random.random_range(0..6) {
                driver.advance(number);
            }
        }
        while let Some(running) = driver.searches.pop() {
            driver.go_on(running, self.operations);
        }
        driver.hits
    }
}

impl<E: Engine> Driver<E> {
    fn operation(&mut self, number: u32) {
        let draw: f64 = self.random.random();
        let key = (draw * draw * self.run.keys as f64) as u64;
        let hash = self.hash(key);
        if self.random.random_ratio(1, 40) {
            self.now += 1;
        }
        match self.random.random_range(0..10) {
            0..4 if self.searches.len() < 8 => {
                let (mut search, mut scratch) = (Search::new(), E::Scratch::default());
                let step =
                    self.engine
                        .begin_search(&mut self.stripe, hash, &mut search, &mut scratch);
                let running = Running {
                    key,
                    begun: number,
                    search,
                    scratch,
                    step,
                };
                self.took(running, step, number);
            }
            0..8 => {
                // A length identifies a put: it repeats only after 3,000
                // operations.
                let bytes = 16 + number % 3_000;
                let expires = if self.random.random_ratio(1, 5) {
                    Expiry(self.now + self.random.random_range(1..60))
                } else {
                    Expiry::NEVER
                };
                let object = Object {
                    expires,
                    ..Object::sized(hash, bytes)
                };
                self.insert(key, object, number);
            }
            _ => self.insert(key, Object::tombstone(hash), number),
        }
    }

    fn hash(&self, key: u64) -> KeyHash {
        KeyHash::of(HashSeed(self.run.seed), &key.to_le_bytes())
    }

    fn insert(&mut self, key: u64, mut object: Object, number: u32) {
        let bytes = object.bytes;
        for _ in 0..10_000 {
            match self.engine.insert(&mut self.stripe, object, self.now) {
                Insert::Accepted(_) => {
                    self.truth.entry(key).or_default().push((number, bytes));
                    return;
                }
                Insert::Busy(again) => object = again,
            }
            self.advance(number);
        }
        assert!(
            self.run.writes_fail > 0,
            "the engine stays busy: {} tasks, {} searches",
            self.tasks.len(),
            self.searches.len()
        );
    }

    /// Advances one search, outcome or task.
    fn advance(&mut self, number: u32) {
        // Sometimes all of the work without a device, and sometimes a part of it.
        for _ in 0..self.random.random_range(0..16) {
            drop(self.engine.advance(&mut self.stripe));
        }
        while self.tasks.len() < 12
            && let Some(task) = match self.random.random_ratio(1, 2) {
                true => self.engine.next_task(&mut self.stripe),
                false => self.engine.next_task_at_once(&mut self.stripe),
            }
        {
            self.check_begin(&task);
            self.tasks.push(task);
        }
        let choice = self.random.random_range(0..3);
        if choice == 0 && !self.searches.is_empty() {
            let at = self.random.random_range(0..self.searches.len());
            let running = self.searches.swap_remove(at);
            self.go_on(running, number);
        } else if choice == 1 && !self.results.is_empty() {
            let at = self.random.random_range(0..self.results.len());
            let (id, outcome) = self.results.swap_remove(at);
            self.engine
                .complete(&mut self.stripe, id, outcome, self.now);
        } else if !self.tasks.is_empty() {
            let at = self.random.random_range(0..self.tasks.len());
            let task = self.tasks.swap_remove(at);
            let outcome = self.carry_out(task.work);
            self.results.push((task.id, outcome));
        }
    }

    fn check_begin(&self, task: &Task) {
        if let Work::Reset(zone) = task.work {
            let inside = |page: &PageAddress| self.flash.zone_of(*page) == zone;
            let readers = self.searches.iter().flat_map(|running| {
                running
                    .search
                    .pages
                    .iter()
                    .chain(&running.search.index_pages)
            });
            assert_eq!(
                readers.filter(|page| inside(page)).count(),
                0,
                "zone {zone} is read"
            );
        }
    }

    fn fails(&mut self, one_in: u32) -> bool {
        one_in > 0 && self.random.random_ratio(1, one_in)
    }

    fn carry_out(&mut self, work: Work) -> Outcome {
        match work {
            Work::Read(pages) | Work::ReadIndex(pages) => {
                Outcome::Read(pages.iter().map(|page| self.read(*page)).collect())
            }
            Work::Append { first, pages } => {
                let zone = self.flash.zone_of(first);
                let at = first.0 - self.flash.first_page(zone).0;
                assert_eq!(at, self.write_pointers[zone as usize], "zone {zone}");
                if self.fails(self.run.writes_fail) {
                    // An unknown part of it was written.
                    self.write_pointers[zone as usize] = self.flash.zone_pages;
                    return Outcome::Failed;
                }
                self.write_pointers[zone as usize] += pages.len() as u32;
                for (at, page) in (first.index()..).zip(pages) {
                    self.pages[at] = Some(page);
                }
                Outcome::Done
            }
            Work::Write { at, page } => {
                assert!(self.flash.in_place);
                if self.fails(self.run.writes_fail) {
                    self.pages[at.index()] = None;
                    return Outcome::Failed;
                }
                self.pages[at.index()] = Some(page);
                Outcome::Done
            }
            Work::Seal { first, pages, .. } => {
                let blank = Page::Index(Arc::default());
                self.carry_out(Work::Append {
                    first,
                    pages: vec![blank; pages as usize],
                })
            }
            Work::Reset(zone) => {
                let first = self.flash.first_page(zone).index();
                self.pages[first..first + self.flash.zone_pages as usize].fill(None);
                self.write_pointers[zone as usize] = 0;
                Outcome::Done
            }
        }
    }

    fn read(&mut self, page: PageAddress) -> Option<Page> {
        if self.fails(self.run.reads_fail) {
            return None;
        }
        self.pages[page.index()].clone()
    }

    /// Handles a search's next step: it waits, or is over.
    fn took(&mut self, mut running: Running<E>, step: Step, number: u32) {
        running.step = step;
        match step {
            Step::Pages | Step::Index => self.searches.push(running),
            Step::Memory | Step::Absent => self.end_now(running, step, number),
        }
    }

    /// Reads the index pages or the pages of a search.
    fn go_on(&mut self, mut running: Running<E>, number: u32) {
        if running.step == Step::Pages {
            return self.read_pages(running, number);
        }
        let read = running.search.index_pages.clone().into_iter();
        let read: Vec<Option<Page>> = read.map(|page| self.read(page)).collect();
        let pages: Vec<Option<&[u8]>> = read
            .iter()
            .map(|page| match page {
                Some(Page::Index(bytes)) => Some(&**bytes),
                Some(Page::Objects(objects)) => panic!("an index page holds {objects:?}"),
                None => None,
            })
            .collect();
        let Running {
            search, scratch, ..
        } = &mut running;
        let step = self.engine.index_read(search, scratch, &pages);
        self.took(running, step, number);
    }

    fn end_now(&mut self, mut running: Running<E>, step: Step, number: u32) {
        let hash = running.search.hash;
        if step == Step::Memory {
            let object = self
                .stripe
                .in_memory(hash)
                .expect("it is in memory")
                .clone();
            self.check(&running, &object, number);
        }
        let Running {
            search, scratch, ..
        } = &mut running;
        self.engine
            .end_search(&mut self.stripe, search, scratch, Found::Nowhere);
    }

    fn read_pages(&mut self, mut running: Running<E>, number: u32) {
        let hash = running.search.hash;
        let mut found = Found::Nowhere;
        running.search.read = running.search.pages.len();
        for (rank, page) in running.search.pages.clone().into_iter().enumerate() {
            // An unreadable page may be newer than those after it.
            let Some(Page::Objects(objects)) = self.read(page) else {
                found = Found::Unknown;
                break;
            };
            let Some(slot) = objects.iter().position(|object| object.hash == hash) else {
                continue;
            };
            self.check(&running, &objects[slot], number);
            found = Found::Flash { rank, slot };
            break;
        }
        let Running {
            search, scratch, ..
        } = &mut running;
        if found == Found::Nowhere {
            let step = self.engine.pages_read(search, scratch);
            return self.took(running, step, number);
        }
        self.engine
            .end_search(&mut self.stripe, search, scratch, found);
    }

    fn check(&mut self, running: &Running<E>, object: &Object, number: u32) {
        if object.tombstone || object.expires.is_over(self.now) {
            return;
        }
        let key = running.key;
        let history = &self.truth[&key];
        // The newest before the search began, and all since.
        let first = history.iter().rposition(|(when, _)| *when < running.begun);
        let true_at_some_time = &history[first.unwrap_or(0)..];
        assert!(
            true_at_some_time
                .iter()
                .any(|(_, bytes)| *bytes == object.bytes),
            "key {key}: {} bytes, search {} to {number}, but {true_at_some_time:?} in {:?}",
            object.bytes,
            running.begun,
            self.run,
        );
        self.hits += 1;
    }
}
