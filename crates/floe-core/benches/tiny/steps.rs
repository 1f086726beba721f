//! The longest step of Nemo under its lock: each call of the engine, timed by itself.
//!
//! A virtual machine counts time that its host takes away as processor time, some milliseconds at
//! once. So the same calls are made twice, and the shorter time of each call counts. The first touch
//! of a page of memory takes the kernel some microseconds, and the host milliseconds where it has
//! given the machine none for it yet. So the calls without such faults are counted by themselves.

use std::cell::RefCell;
use std::collections::HashMap;

use floe_core::hash::KeyHash;
use floe_core::tiny::model::Model;
use floe_core::tiny::nemo::{FilterKind, Nemo, NemoConfig, NemoPlan};
use floe_core::tiny::{
    Discarded, Due, Durability, Engine, Expiry, Flash, Found, Insert, Label, Memory, Object,
    Outcome, PAGE_BYTES, PageAddress, Search, Statistics, Step, Task, TaskId,
};
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::json;

use crate::{FITS, NOW, Options, cpu_seconds, mix};

/// Steps longer than this are counted.
const LONG_US: f64 = 50.0;

/// Bytes of an object.
const BYTES: u32 = 246;

/// Shorter calls are not remembered.
const SHORT_US: f64 = 10.0;

/// Processor time of the calls of one kind.
#[derive(Clone, Debug, Default)]
struct Calls {
    count: u64,
    seconds: f64,
    /// Those that were not short, by their number.
    long: HashMap<u64, Long>,
}

/// A call that was not short.
#[derive(Clone, Copy, Debug)]
struct Long {
    us: f64,
    faults: i64,
}

#[derive(Clone, Debug, Default)]
struct Times {
    insert: Calls,
    search: Calls,
    advance: Calls,
    next_task: Calls,
    complete: Calls,
    memory: Calls,
}

/// An engine whose calls are timed.
#[derive(Debug)]
struct Timed<E> {
    engine: E,
    times: RefCell<Times>,
}

impl Calls {
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let faults = page_faults();
        let began = cpu_seconds();
        let result = call();
        let seconds = cpu_seconds() - began;
        self.count += 1;
        self.seconds += seconds;
        let us = seconds * 1e6;
        if us > SHORT_US {
            let faults = page_faults() - faults;
            self.long.insert(self.count, Long { us, faults });
        }
        result
    }

    /// Both times of the calls that were not short in this pass and in another one.
    fn in_both<'a>(&'a self, other: &'a Calls) -> impl Iterator<Item = [Long; 2]> + 'a {
        let other = &other.long;
        let both = self.long.iter();
        both.filter_map(|(number, one)| Some([*one, *other.get(number)?]))
    }
}

impl<E: Engine> Engine for Timed<E> {
    type Stripe = E::Stripe;
    type Scratch = E::Scratch;

    fn stripe(&self) -> E::Stripe {
        self.engine.stripe()
    }

    fn durability(&self) -> Durability {
        self.engine.durability()
    }

    fn insert(&self, stripe: &mut E::Stripe, object: Object, now: u32) -> Insert {
        let calls = &mut self.times.borrow_mut().insert;
        calls.time(|| self.engine.insert(stripe, object, now))
    }

    fn begin_search(
        &mut self,
        stripe: &mut E::Stripe,
        hash: KeyHash,
        search: &mut Search,
        own: &mut E::Scratch,
    ) -> Step {
        let calls = &mut self.times.get_mut().search;
        calls.time(|| self.engine.begin_search(stripe, hash, search, own))
    }

    fn index_read(
        &mut self,
        search: &mut Search,
        own: &mut E::Scratch,
        pages: &[Option<&[u8]>],
    ) -> Step {
        let calls = &mut self.times.get_mut().search;
        calls.time(|| self.engine.index_read(search, own, pages))
    }

    fn pages_read(&mut self, search: &mut Search, own: &mut E::Scratch) -> Step {
        let calls = &mut self.times.get_mut().search;
        calls.time(|| self.engine.pages_read(search, own))
    }

    fn end_search(
        &mut self,
        stripe: &mut E::Stripe,
        search: &mut Search,
        own: &mut E::Scratch,
        found: Found,
    ) {
        let calls = &mut self.times.get_mut().search;
        calls.time(|| self.engine.end_search(stripe, search, own, found));
    }

    fn advance(&mut self, stripe: &mut E::Stripe) -> Option<Discarded> {
        if self.engine.due(stripe) == Due::No {
            // Most calls: the clock would take longer.
            return self.engine.advance(stripe);
        }
        let calls = &mut self.times.get_mut().advance;
        calls.time(|| self.engine.advance(stripe))
    }

    fn next_task(&mut self, stripe: &mut E::Stripe) -> Option<Task> {
        if self.engine.due(stripe) == Due::No {
            return self.engine.next_task(stripe);
        }
        let calls = &mut self.times.get_mut().next_task;
        calls.time(|| self.engine.next_task(stripe))
    }

    fn complete(&mut self, stripe: &mut E::Stripe, id: TaskId, outcome: Outcome, now: u32) {
        let calls = &mut self.times.get_mut().complete;
        calls.time(|| self.engine.complete(stripe, id, outcome, now));
    }

    fn due(&self, stripe: &E::Stripe) -> Due {
        self.engine.due(stripe)
    }

    fn statistics(&self, stripe: &E::Stripe) -> Statistics {
        self.engine.statistics(stripe)
    }

    fn memory(&self, stripe: &E::Stripe) -> Memory {
        let calls = &mut self.times.borrow_mut().memory;
        calls.time(|| self.engine.memory(stripe))
    }

    fn label(&self, page: PageAddress) -> Label {
        self.engine.label(page)
    }
}

/// Page faults of this thread that needed no read: memory that was touched for the first time, or
/// again after the allocator had given it back.
fn page_faults() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("the kernel counts page faults");
    usage.minor_page_faults()
}

/// Fills flash of some set-groups, and writes a part of it again, with gets between.
fn pass(config: &NemoConfig, flash: Flash) -> Times {
    let engine = Timed {
        engine: Nemo::new(NemoPlan::new(config, &flash).expect(FITS)),
        times: RefCell::default(),
    };
    let mut model = Model::new(engine, flash);
    let objects = flash.pages() * PAGE_BYTES as u64 / u64::from(BYTES) * 6 / 5;
    for number in 0..objects {
        let hash = KeyHash(mix::scatter(number));
        model.put(hash, BYTES, Expiry::NEVER, NOW);
        if number % 4 == 0 {
            // Recent ones more often.
            let back = mix::scatter(number ^ 0x5eed) % (number + 1);
            let back = back >> (number % 8);
            model.get(KeyHash(mix::scatter(number - back)), NOW);
        }
        if number % (1 << 20) == 0 {
            model.memory();
        }
    }
    model.engine().times.take()
}

pub(crate) fn steps(options: &Options) {
    let bloom = NemoConfig::default();
    let fingerprints = NemoConfig {
        filter_kind: FilterKind::Fingerprints,
        ..NemoConfig::default()
    };
    // The last two flash sizes have too few set-groups to fill an index group, which would take
    // hours. The engine makes the pages of an index group one by one.
    for (mib, set_groups, name, config) in [
        (4, 250, "Bloom filters", &bloom),
        (4, 250, "fingerprints", &fingerprints),
        (32, 120, "Bloom filters", &bloom),
        (32, 120, "fingerprints", &fingerprints),
        (128, 12, "Bloom filters", &bloom),
        (1077, 5, "Bloom filters", &bloom),
    ] {
        let is_asked = |only: &String| *only == mib.to_string();
        if !options.only.as_ref().is_none_or(is_asked) || options.is_quick && mib > 4 {
            continue;
        }
        let flash = Flash {
            zones: set_groups,
            zone_pages: (mib << 20) / PAGE_BYTES as u32,
            in_place: false,
        };
        let (one, two) = (pass(config, flash), pass(config, flash));
        for (call, one, two) in [
            ("insert", one.insert, two.insert),
            ("a call of a search", one.search, two.search),
            ("advance", one.advance, two.advance),
            ("next_task", one.next_task, two.next_task),
            ("complete", one.complete, two.complete),
            ("memory", one.memory, two.memory),
        ] {
            let shorter = |passes: [Long; 2]| passes[0].us.min(passes[1].us);
            let all: Vec<f64> = one.in_both(&two).map(shorter).collect();
            let without_fault = |passes: [Long; 2]| {
                let passes = passes.into_iter().filter(|pass| pass.faults == 0);
                passes.map(|pass| pass.us).reduce(f64::min)
            };
            let without_faults: Vec<f64> = one.in_both(&two).filter_map(without_fault).collect();
            let longest = |calls: &[f64]| calls.iter().copied().fold(SHORT_US, f64::max);
            let long = |calls: &[f64]| calls.iter().filter(|us| **us > LONG_US).count();
            options.show(&json!({
                "step": call,
                "set_groups": format!("{mib} MiB, {name}"),
                "longest_us": longest(&all),
                "longest_without_page_fault_us": longest(&without_faults),
                "mean_us": one.seconds.min(two.seconds) * 1e6 / one.count.max(1) as f64,
                "longer_than_50_us": long(&all),
                "longer_than_50_us_without_page_fault": long(&without_faults),
                "calls": one.count,
            }));
        }
    }
}
