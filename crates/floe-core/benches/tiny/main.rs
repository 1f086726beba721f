//! The CPU cost of the tiny engines, without any I/O.
//!
//! `cargo bench -p floe-core --bench tiny [-- --quick] [--json] [--only <engine>]`
//!
//! * Operations per second and core of the five engines on modelled flash, by
//!   CPU time of the thread; the median of batches. An operation is a get or an
//!   insert that the memory tier did not serve. An insert follows each get that
//!   misses, and counts as another operation.
//! * The CPU time of the model alone, with the engine's responses read from a
//!   tape; the median of replays. The model stores pages and returns them, and
//!   is part of the figure above.
//! * Requests of the whole mix per second: Nemo behind its memory tier, which
//!   serves most gets.
//! * A search of the filters of 1,000 sets for one key: as bit slices in pages
//!   or fingerprints, as in Floe's Nemo, and one by one, as published.
//! * A hit in the memory tier, a hit in a set-group in memory, and a miss after a
//!   search of the filters.
//! * Two threads on two instances, beside one thread and beside a loop without engines.
//! * With `--steps` alone: the longest call of each kind of Nemo's, by CPU time, with set-groups
//!   of 4, 32, 128 and 1,077 MiB. A driver holds its lock for one call.
//!
//! Every row is one JSON object or, without `--json`, one line of text.

mod mix;
mod steps;
mod tape;
mod threads;

use std::hint::black_box;

use floe_core::hash::KeyHash;
use floe_core::tiny::baseline::filter::PageFilters;
use floe_core::tiny::model::Model;
use floe_core::tiny::nemo::{FilterKind, Nemo, NemoConfig, NemoPlan, Scratch, SetFilters};
use floe_core::tiny::{
    Engine, Expiry, FairyWren, FairyWrenConfig, FairyWrenPlan, Flash, Kangaroo, KangarooConfig,
    KangarooPlan, Log, LogConfig, LogPlan, PAGE_BYTES, Search, Set, SetConfig, SetPlan, SetStorage,
};
use mix::{Mix, OBJECT_BYTES, Request};
use quick_cache::unsync::Cache;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tape::{Player, Recorded, Tape};

/// As in the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Options {
    json: bool,
    is_quick: bool,
    only: Option<String>,
    flash: Flash,
    /// Operations to measure, and operations to tape.
    operations: usize,
    taped: usize,
    /// Bytes inserted before the measurement, as a share of the flash.
    warm_up: f64,
    rounds: usize,
}

/// The time is fixed: nothing expires.
const NOW: u32 = 1;

/// The message if a plan of this bench does not fit.
const FITS: &str = "the bench's plan fits its flash";

fn main() {
    let after = |flag: &str| std::env::args().skip_while(|a| a != flag).nth(1);
    let given = |flag: &str| std::env::args().any(|argument| argument == flag);
    let is_quick = given("--quick");
    let options = Options {
        json: given("--json"),
        is_quick,
        only: after("--only"),
        // About as many zones as 360 GB of a ZN540, and as much flash as in the
        // experiments.
        flash: Flash {
            zones: 334,
            zone_pages: if is_quick { 64 } else { 144 },
            in_place: true,
        },
        operations: if is_quick { 200_000 } else { 2_000_000 },
        taped: if is_quick { 10_000 } else { 50_000 },
        warm_up: if is_quick { 0.6 } else { 1.2 },
        rounds: if is_quick { 20_000 } else { 200_000 },
    };
    if given("--steps") {
        return steps::steps(&options);
    }
    engines(&options);
    if options.only.is_none() {
        behind_memory(&options);
        filters(&options);
        lookups(&options);
        threads::threads(&options);
    }
}

impl Options {
    fn show(&self, row: &Value) {
        if self.json {
            println!("{row}");
            return;
        }
        let cells = row.as_object().into_iter().flatten().map(|(name, value)| {
            let value = match value.as_f64() {
                Some(number) if value.is_f64() => format!("{number:.3}"),
                _ => value.to_string(),
            };
            format!("{}: {value}", name.replace('_', " "))
        });
        println!("{}", cells.collect::<Vec<_>>().join(", "));
    }
}

/// CPU time of this thread, in seconds.
fn cpu_seconds() -> f64 {
    seconds_of(ClockId::ThreadCPUTime)
}

fn seconds_of(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Nanoseconds of CPU time for each of `count` operations.
fn ns_each(count: usize, work: impl FnOnce()) -> f64 {
    let began = cpu_seconds();
    work();
    (cpu_seconds() - began) * 1e9 / count.max(1) as f64
}

fn engines(options: &Options) {
    let flash = options.flash;
    let nemo = |config: NemoConfig| Nemo::new(NemoPlan::new(&config, &flash).expect(FITS));
    options.engine("nemo", || nemo(NemoConfig::default()));
    let fingerprints = NemoConfig {
        filter_kind: FilterKind::Fingerprints,
        ..NemoConfig::default()
    };
    options.engine("nemo, fingerprints", || nemo(fingerprints));
    options.engine("nemo, published", || nemo(NemoConfig::published()));
    options.engine("log", || {
        Log::new(LogPlan::new(&LogConfig::default(), &flash).expect(FITS))
    });
    options.engine("set", || {
        Set::new(SetPlan::new(&SetConfig::default(), &flash).expect(FITS))
    });
    for (name, sets) in [
        ("kangaroo, in place", SetStorage::InPlace),
        ("kangaroo, on zones", SetStorage::Zoned),
    ] {
        let config = KangarooConfig {
            set_storage: sets,
            ..KangarooConfig::default()
        };
        options.engine(name, || {
            Kangaroo::new(KangarooPlan::new(&config, &flash).expect(FITS))
        });
    }
    options.engine("fairywren", || {
        let plan = FairyWrenPlan::new(&FairyWrenConfig::default(), &flash);
        FairyWren::new(plan.expect(FITS))
    });
}

impl Options {
    fn engine<E: Engine>(&self, name: &str, engine: impl FnOnce() -> E) {
        if self.only.as_ref().is_some_and(|only| name != only) {
            return;
        }
        let flash_bytes = self.flash.pages() * PAGE_BYTES as u64;
        let mut mix = Mix::new(flash_bytes);
        let mut model = Model::new(engine(), self.flash);
        let mut requests = Vec::with_capacity(BATCH);
        self.fill_flash(&mut model, |requests| mix.fill(requests, BATCH));
        let (mut operations, mut ns_of_batches) = (0, Vec::new());
        let settled = model.statistics();
        while operations < self.operations {
            requests.clear();
            mix.fill(&mut requests, BATCH);
            let began = cpu_seconds();
            let count = ask(&mut model, &requests);
            ns_of_batches.push((cpu_seconds() - began) * 1e9 / count as f64);
            operations += count;
        }
        let counted = model.statistics().since(&settled);
        let ns = median(ns_of_batches);
        requests.clear();
        mix.fill(&mut requests, self.taped);
        let pages = counted.bytes_written() / PAGE_BYTES as u64;
        let model_ns = model_alone(model, &requests);
        // The engine's own time is too small to report as a difference.
        let alone = Some(ns - model_ns).filter(|alone| *alone > ns / 10.0);
        self.show(&json!({
            "engine": name,
            "operations_per_second": (1e9 / ns).round(),
            "cpu_ns": ns,
            "of_which_model_ns": model_ns,
            "operations_per_second_without_model": alone.map(|alone| (1e9 / alone).round()),
            "inserts_percent": counted.objects_in as f64 * 100.0 / operations as f64,
            "write_amplification": counted.write_amplification(),
            "cpu_ns_per_page_written": ns * operations as f64 / pages.max(1) as f64,
        }));
    }
}

impl Options {
    /// Inserts until the flash has been written. Gets are dropped, because only
    /// inserts write.
    fn fill_flash<E: Engine>(&self, model: &mut Model<E>, mut draw: impl FnMut(&mut Vec<Request>)) {
        let flash_bytes = self.flash.pages() * PAGE_BYTES as u64;
        let goal = (self.warm_up * flash_bytes as f64) as u64;
        let mut requests = Vec::with_capacity(BATCH);
        while model.statistics().bytes_in < goal {
            requests.clear();
            draw(&mut requests);
            requests.retain(|request| !request.is_get);
            ask(model, &requests);
        }
    }
}

/// Requests between two readings of the clock: enough to fill and write several
/// set-groups.
const BATCH: usize = 1 << 16;

/// The median of batches or replays: other processes that share the CPU's caches
/// slow some of them.
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Executes requests. Returns the number of operations.
fn ask<E: Engine>(model: &mut Model<E>, requests: &[Request]) -> usize {
    let mut operations = 0;
    for request in requests {
        operations += 1;
        if !request.is_get {
            model.put(request.hash, request.bytes, Expiry::NEVER, NOW);
        } else if model.get(request.hash, NOW).is_none() {
            model.put(request.hash, request.bytes, Expiry::NEVER, NOW);
            operations += 1;
        }
    }
    operations
}

/// Nemo behind its memory tier, as in a cache: objects read from flash enter the
/// tier, and written keys leave it.
fn behind_memory(options: &Options) {
    let flash_bytes = options.flash.pages() * PAGE_BYTES as u64;
    let mut mix = Mix::new(flash_bytes);
    let plan = NemoPlan::new(&NemoConfig::default(), &options.flash);
    let mut model = Model::new(Nemo::new(plan.expect(FITS)), options.flash);
    let mut tier: Cache<u64, u32> = Cache::new(mix::tier_objects(flash_bytes));
    let mut requests = Vec::with_capacity(BATCH);
    let mut draw = |requests: &mut Vec<Request>| requests.extend((0..BATCH).map(|_| mix.draw()));
    options.fill_flash(&mut model, &mut draw);
    let (mut ns_of_batches, mut counted) = (Vec::new(), Answers::default());
    while counted.gets < options.operations {
        requests.clear();
        draw(&mut requests);
        let began = cpu_seconds();
        for request in &requests {
            counted.ask(&mut model, &mut tier, request);
        }
        ns_of_batches.push((cpu_seconds() - began) * 1e9 / requests.len() as f64);
    }
    let ns = median(ns_of_batches);
    let all = counted.gets + counted.puts;
    let of_gets = |count: usize| count as f64 * 100.0 / counted.gets as f64;
    options.show(&json!({
        "mix": "nemo behind memory of 2 % of the flash",
        "requests_per_second": (1e9 / ns).round(),
        "cpu_ns": ns,
        "gets_percent": counted.gets as f64 * 100.0 / all as f64,
        "gets_answered_by_memory_percent": of_gets(counted.in_memory),
        "gets_missed_percent": of_gets(counted.missed),
    }));
}

/// The results of requests.
#[derive(Debug, Default)]
struct Answers {
    gets: usize,
    puts: usize,
    in_memory: usize,
    missed: usize,
}

impl Answers {
    fn ask(&mut self, model: &mut Model<Nemo>, tier: &mut Cache<u64, u32>, next: &Request) {
        let Request {
            hash,
            bytes,
            is_get,
        } = *next;
        if !is_get {
            self.puts += 1;
            tier.remove(&hash.0);
            model.put(hash, bytes, Expiry::NEVER, NOW);
            return;
        }
        self.gets += 1;
        if tier.get(&hash.0).is_some() {
            self.in_memory += 1;
        } else if let Some(bytes) = model.get(hash, NOW) {
            tier.insert(hash.0, bytes);
        } else {
            self.missed += 1;
            model.put(hash, bytes, Expiry::NEVER, NOW);
        }
    }
}

/// The CPU cost of the model per operation.
fn model_alone<E: Engine>(model: Model<E>, requests: &[Request]) -> f64 {
    let before = model.fork(Player::new(Tape::default()));
    let mut recorded = model.map_engine(Recorded::new);
    let operations = ask(&mut recorded, requests);
    let tape = recorded.into_parts().0.into_tape();
    let replays = (0..REPLAYS).map(|_| {
        let mut player = before.fork(Player::new(tape.clone()));
        let mut played = 0;
        let ns = ns_each(operations, || played = ask(&mut player, requests));
        assert_eq!(played, operations, "the tape is played as it was recorded");
        ns
    });
    median(replays.collect())
}

/// Replays of a tape.
const REPLAYS: usize = 9;

/// Filters searched for one key.
const FILTERS: usize = 1000;
/// Objects of 246 bytes in a full set.
const OBJECTS: u64 = 16;
/// Sets whose filters are searched in turn, so that not all fit the L1 cache.
const ASKED_SETS: u64 = 64;

fn filters(options: &Options) {
    let key = |set: u64, group: usize, object: u64| {
        KeyHash(mix::scatter(set << 40 | (group as u64) << 16 | object))
    };
    // Keys that are in one of the filters, and keys that are in none.
    let probe = |at: usize, is_there: bool| {
        let set = at as u64 % ASKED_SETS;
        let object = if is_there {
            at as u64 % OBJECTS
        } else {
            1 << 12 | at as u64
        };
        (set as usize, key(set, at * 7 % FILTERS, object))
    };
    for (name, kind) in [
        ("bit slices", FilterKind::Bloom),
        ("fingerprints", FilterKind::Fingerprints),
    ] {
        let sets: Vec<SetFilters> = (0..ASKED_SETS)
            .map(|set| {
                let objects = |group| (0..OBJECTS).map(move |at| key(set, group, at));
                SetFilters::new(kind, (0..FILTERS).map(objects), OBJECTS as f64, 0.001)
            })
            .collect();
        for is_there in [true, false] {
            let mut found = 0;
            let ns = ns_each(options.rounds, || {
                for at in 0..options.rounds {
                    let (set, hash) = probe(at, is_there);
                    found += sets[set].candidates(black_box(hash));
                }
            });
            let bits = sets[0].bits_per_filter();
            row_of_filters(options, name, bits, is_there, ns, found);
        }
    }
    // As published: filters of 72 bytes for 40 objects, 50 in a page.
    for (name, bytes, expected) in [
        ("one by one, 72 bytes", 72, 40),
        ("one by one, 32 bytes", 32, 16),
    ] {
        let one_by_one: Vec<PageFilters> = (0..ASKED_SETS)
            .map(|set| {
                let mut filters = PageFilters::new(FILTERS, bytes, expected);
                for group in 0..FILTERS {
                    filters.rebuild(group, (0..OBJECTS).map(|at| key(set, group, at)));
                }
                filters
            })
            .collect();
        let rounds = options.rounds / 8;
        for is_there in [true, false] {
            let mut found = 0;
            let ns = ns_each(rounds, || {
                for at in 0..rounds {
                    let (set, hash) = probe(at, is_there);
                    found += one_by_one[set].candidates(black_box(hash)).count();
                }
            });
            row_of_filters(options, name, f64::from(bytes * 8), is_there, ns, found * 8);
        }
    }
}

fn row_of_filters(options: &Options, name: &str, bits: f64, is_there: bool, ns: f64, found: usize) {
    let right = if is_there { options.rounds } else { 0 };
    let wrong = found.saturating_sub(right) as f64 / (options.rounds * FILTERS) as f64;
    options.show(&json!({
        "filters": name,
        "key": if is_there { "in one" } else { "in none" },
        "bits_per_object": bits / OBJECTS as f64,
        "false_positives_percent": wrong * 100.0,
        "cpu_ns_per_1000_filters": ns * 1000.0 / FILTERS as f64,
    }));
}

/// Objects that the lookups choose from.
const RESIDENT: u64 = 100_000;

fn lookups(options: &Options) {
    let keys: Vec<KeyHash> = (0..RESIDENT)
        .map(|key| KeyHash(mix::scatter(key)))
        .collect();
    let absent: Vec<KeyHash> = (0..RESIDENT)
        .map(|key| KeyHash(mix::scatter(1 << 40 | key)))
        .collect();
    let show = |name: &str, ns: f64| {
        options.show(&json!({ "lookup": name, "among": RESIDENT, "cpu_ns": ns }));
    };
    let rounds = options.rounds;
    let at = |round: usize| round.wrapping_mul(48_271) % RESIDENT as usize;

    let mut tier: Cache<u64, Box<[u8]>> = Cache::new(2 * RESIDENT as usize);
    for hash in &keys {
        tier.insert(hash.0, vec![1; OBJECT_BYTES as usize].into());
    }
    for (name, searched) in [("memory tier, hit", &keys), ("memory tier, miss", &absent)] {
        let mut bytes = 0;
        let ns = ns_each(rounds, || {
            for round in 0..rounds {
                bytes += tier
                    .get(&searched[at(round)].0)
                    .map_or(0, |value| value.len());
            }
        });
        black_box(bytes);
        show(name, ns);
    }

    // A third of a set-group of 64 MiB.
    let flash = Flash {
        zones: 16,
        zone_pages: 16_384,
        in_place: false,
    };
    let plan = NemoPlan::new(&NemoConfig::default(), &flash);
    let mut model = Model::new(Nemo::new(plan.expect("the plan fits")), flash);
    for hash in &keys {
        model.put(*hash, OBJECT_BYTES as u32, Expiry::NEVER, NOW);
    }
    let (mut nemo, mut filling) = model.into_parts();
    let (mut search, mut scratch) = (Search::new(), Scratch::default());
    for (name, searched) in [
        ("set-group in memory, hit", &keys),
        ("set-group in memory, miss", &absent),
    ] {
        let ns = ns_each(rounds, || {
            for round in 0..rounds {
                black_box(nemo.begin_search(
                    &mut filling,
                    searched[at(round)],
                    &mut search,
                    &mut scratch,
                ));
            }
        });
        show(name, ns);
    }
}
