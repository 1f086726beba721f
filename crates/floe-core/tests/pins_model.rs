//! Searches against resets under a model checker: the two parts of an engine
//! behind a lock each, held as the contract says, pages read and zones emptied
//! outside of both, in thousands of interleavings.
//!
//! Two things are watched. A page that a search names is there until the search
//! ends: its zone is not emptied under a reader. And a search finds nothing older
//! than what was acknowledged before it began.

use std::collections::BTreeMap;
use std::sync::Arc;

use floe_core::hash::KeyHash;
use floe_core::tiny::nemo::{Nemo, NemoConfig, NemoPlan};
use floe_core::tiny::{
    Engine, FairyWren, FairyWrenConfig, FairyWrenPlan, Flash, Found, Insert, Log, LogConfig,
    LogPlan, Object, Outcome, Page, PageAddress, Search, Step, Stripe as _, Work,
};
use shuttle::sync::{Condvar, Mutex, RwLock};
use shuttle::thread;

const KEYS: u64 = 300;
const READS: u64 = 150;
/// Every put has a new length, which identifies it.
const BYTES_LEAST: u32 = 700;
const PUTS: u32 = 600;

struct World<E: Engine> {
    /// Locked first.
    stripe: Mutex<E::Stripe>,
    directory: RwLock<E>,
    /// Tasks may have come, or ended.
    turned: Condvar,
    flash: Mutex<BTreeMap<u32, Page>>,
    zone_pages: u32,
    /// The length of each key's last acknowledged put.
    acknowledged: Mutex<BTreeMap<u64, u32>>,
    is_over: Mutex<bool>,
    /// Ends searches before they have read, to show that the checker detects
    /// it.
    ends_early: bool,
}

fn hash(key: u64) -> KeyHash {
    let mixed = (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    KeyHash((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9))
}

impl<E: Engine> World<E> {
    /// Puts keys in turn, with ever longer values.
    fn write(&self) {
        for put in 0..PUTS {
            let key = u64::from(put * 37) % KEYS;
            let bytes = BYTES_LEAST + put;
            let mut object = Object::sized(hash(key), bytes);
            let mut stripe = self.stripe.lock().unwrap();
            loop {
                let directory = self.directory.read().unwrap();
                let Insert::Busy(again) = directory.insert(&mut stripe, object, 1) else {
                    break;
                };
                drop(directory);
                object = again;
                self.turned.notify_all();
                stripe = self.turned.wait(stripe).unwrap();
            }
            self.acknowledged.lock().unwrap().insert(key, bytes);
            drop(stripe);
            self.turned.notify_all();
        }
    }

    /// Carries out the engine's tasks, outside its locks.
    fn maintain(&self) {
        loop {
            let mut stripe = self.stripe.lock().unwrap();
            let task = loop {
                let mut directory = self.directory.write().unwrap();
                let next = directory.next_task_at_once(&mut stripe);
                drop(directory);
                if let Some(task) = next {
                    break task;
                }
                if *self.is_over.lock().unwrap() {
                    return;
                }
                stripe = self.turned.wait(stripe).unwrap();
            };
            drop(stripe);
            let outcome = self.carry_out(task.work);
            let mut stripe = self.stripe.lock().unwrap();
            let mut directory = self.directory.write().unwrap();
            directory.complete(&mut stripe, task.id, outcome, 1);
            drop((directory, stripe));
            self.turned.notify_all();
        }
    }

    fn carry_out(&self, work: Work) -> Outcome {
        let mut flash = self.flash.lock().unwrap();
        match work {
            Work::Read(pages) | Work::ReadIndex(pages) => {
                return Outcome::Read(pages.iter().map(|at| flash.get(&at.0).cloned()).collect());
            }
            Work::Append { first, pages } => flash.extend((first.0..).zip(pages)),
            Work::Write { at, page } => {
                flash.insert(at.0, page);
            }
            Work::Seal { .. } => {}
            Work::Reset(zone) => {
                let first = zone * self.zone_pages;
                let inside = first..first + self.zone_pages;
                flash.retain(|page, _| !inside.contains(page));
            }
        }
        Outcome::Done
    }

    fn page(&self, page: PageAddress) -> Page {
        let page = self.flash.lock().unwrap().get(&page.0).cloned();
        page.expect("a zone was emptied under a reader")
    }

    /// Searches for keys, and compares the results with the acknowledged
    /// values.
    fn read(&self, from: u64) {
        let (mut search, mut scratch) = (Search::new(), E::Scratch::default());
        for read in 0..READS {
            let key = (from + read * 7) % KEYS;
            let least = self.acknowledged.lock().unwrap().get(&key).copied();
            let found = self.get(hash(key), &mut search, &mut scratch);
            if let Some(found) = found {
                assert!(Some(found) >= least, "{found} is older than {least:?}");
            }
        }
    }

    fn get(&self, hash: KeyHash, search: &mut Search, scratch: &mut E::Scratch) -> Option<u32> {
        if let Some(object) = self.stripe.lock().unwrap().in_memory(hash) {
            return Some(object.bytes);
        }
        let mut stripe = self.stripe.lock().unwrap();
        let mut directory = self.directory.write().unwrap();
        let mut step = directory.begin_search(&mut stripe, hash, search, scratch);
        let in_memory = stripe.in_memory(hash).map(|object| object.bytes);
        drop((directory, stripe));
        let (mut found, mut has_ended) = (Found::Nowhere, false);
        let bytes = loop {
            step = match step {
                Step::Memory => break in_memory,
                Step::Absent => break None,
                Step::Index => {
                    let pages = search.index_pages.iter();
                    let pages: Vec<Page> = pages.map(|page| self.page(*page)).collect();
                    let bytes = pages.iter().map(|page| match page {
                        Page::Index(bytes) => Some(&**bytes),
                        Page::Objects(_) => None,
                    });
                    let bytes: Vec<_> = bytes.collect();
                    let mut directory = self.directory.write().unwrap();
                    directory.index_read(search, scratch, &bytes)
                }
                Step::Pages => {
                    if self.ends_early && !has_ended {
                        has_ended = true;
                        self.end(&mut search.clone(), &mut scratch.clone(), found);
                    }
                    let mut newest = None;
                    search.read = search.pages.len();
                    for (rank, page) in search.pages.iter().enumerate() {
                        let Page::Objects(objects) = self.page(*page) else {
                            continue;
                        };
                        if let Some(slot) = objects.iter().position(|object| object.hash == hash) {
                            newest = Some((Found::Flash { rank, slot }, objects[slot].bytes));
                            break;
                        }
                    }
                    if let Some((place, bytes)) = newest {
                        found = place;
                        break Some(bytes);
                    }
                    let mut directory = self.directory.write().unwrap();
                    directory.pages_read(search, scratch)
                }
            }
        };
        if !has_ended {
            self.end(search, scratch, found);
        }
        // A zone may have waited for this search.
        self.turned.notify_all();
        bytes
    }

    fn end(&self, search: &mut Search, scratch: &mut E::Scratch, found: Found) {
        let mut stripe = self.stripe.lock().unwrap();
        let mut directory = self.directory.write().unwrap();
        directory.end_search(&mut stripe, search, scratch, found);
    }
}

/// Interleavings per test. Early ends show in about one of twenty-five, so that
/// test runs until it finds one.
const ROUNDS: usize = 60;
const ROUNDS_UNTIL_FOUND: usize = 100 * ROUNDS;

fn explore<E: Engine<Stripe: Send> + Send + Sync + 'static>(
    flash: Flash,
    ends_early: bool,
    engine: impl Fn() -> E + Send + Sync + 'static,
) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::FailAfter(10_000_000);
    let rounds = match ends_early {
        true => ROUNDS_UNTIL_FOUND,
        false => ROUNDS,
    };
    let scheduler = shuttle::scheduler::RandomScheduler::new(rounds);
    shuttle::Runner::new(scheduler, config).run(move || {
        let directory = engine();
        let world = Arc::new(World {
            stripe: Mutex::new(directory.stripe()),
            directory: RwLock::new(directory),
            turned: Condvar::new(),
            flash: Mutex::default(),
            zone_pages: flash.zone_pages,
            acknowledged: Mutex::default(),
            is_over: Mutex::new(false),
            ends_early,
        });
        let task = Arc::clone(&world);
        let task = thread::spawn(move || task.maintain());
        let readers: Vec<_> = (0..2)
            .map(|from| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.read(from))
            })
            .collect();
        world.write();
        for reader in readers {
            reader.join().unwrap();
        }
        let stripe = world.stripe.lock().unwrap();
        *world.is_over.lock().unwrap() = true;
        world.turned.notify_all();
        drop(stripe);
        task.join().unwrap();
        let stripe = world.stripe.lock().unwrap();
        let resets = world.directory.read().unwrap().statistics(&stripe).resets;
        assert!(resets > 2, "zones were emptied: {resets}");
    });
}

const FLASH: Flash = Flash {
    zones: 10,
    zone_pages: 4,
    in_place: false,
};

#[test]
fn log_empties_no_zone_under_a_reader() {
    explore(FLASH, false, || {
        Log::new(LogPlan::new(&LogConfig::default(), &FLASH).expect("fits"))
    });
}

#[test]
fn nemo_empties_no_zone_under_a_reader() {
    // No index in memory, so that searches read and pin it, too.
    let config = NemoConfig {
        page_filter_bits: 0.0,
        index_cache_share: 0.0,
        filter_false_positive_rate: 0.3,
        ..NemoConfig::default()
    };
    explore(FLASH, false, move || {
        Nemo::new(NemoPlan::new(&config, &FLASH).expect("fits"))
    });
}

#[test]
fn fairywren_empties_no_zone_under_a_reader() {
    const LARGER: Flash = Flash {
        zones: 24,
        zone_pages: 2,
        in_place: false,
    };
    let config = FairyWrenConfig {
        over_provisioning_percent: 50,
        ..FairyWrenConfig::default()
    };
    explore(LARGER, false, move || {
        FairyWren::new(FairyWrenPlan::new(&config, &LARGER).expect("fits"))
    });
}

/// The checker detects a missing pin.
#[test]
#[should_panic(expected = "a zone was emptied under a reader")]
fn without_pins_a_zone_would_be_emptied_under_a_reader() {
    explore(FLASH, true, || {
        Log::new(LogPlan::new(&LogConfig::default(), &FLASH).expect("fits"))
    });
}
