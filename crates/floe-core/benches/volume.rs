//! The CPU cost and the RAM of the block cache of volumes, without any I/O.
//!
//! `cargo bench -p floe-core --bench volume [-- --quick] [--json]`
//!
//! * A lookup inside one region at 10 M blocks of four sizes, and each further
//!   block of the region, compared with one random read of an array as large as
//!   the metadata. Each lookup and each read depends on the previous one.
//! * The same lookup by the number of block sizes, which take turns.
//! * A read hit, with its updates of both orders.
//! * Requests with misses and evictions, as in a simulation.
//! * RAM per block by sizes, density and levels.
//!
//! Every row is one JSON object or, without `--json`, one line of text. Times are
//! CPU times of the thread, the median of seven interleaved rounds.

use std::hint::black_box;

use floe_core::volume::{
    ByteRange, Cache, Config, Extent, Level, Operation, Plan, Replacement, Request, VolumeId,
};
use floe_core::{ByteSize, Tick};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

const REGION: u64 = 256 << 10;

/// Block sizes in KiB of four regions, which repeat: 17 blocks in four regions.
const MIX: [&[u64]; 4] = [
    &[256],
    &[32, 32, 64, 128],
    &[64, 64, 64, 64],
    &[32, 32, 32, 32, 32, 32, 32, 32],
];

const ROUNDS: usize = 7;

fn main() {
    let given = |flag: &str| std::env::args().any(|argument| argument == flag);
    let (is_quick, is_json) = (given("--quick"), given("--json"));
    let show = |row: Value| match is_json {
        true => println!("{row}"),
        false => println!("{}", text(&row)),
    };
    let blocks = if is_quick { 400_000 } else { 10_000_000 };
    let lru = Replacement::Lru;
    for (level, replacement) in [
        (Level::Group, lru),
        (Level::Both, lru),
        (Level::Both, Replacement::Clock),
    ] {
        show(lookups(blocks, level, replacement));
    }
    for row in lookups_by_sizes(if is_quick { 100_000 } else { 1_000_000 }) {
        show(row);
    }
    for row in requests(if is_quick { 100_000 } else { 1_000_000 }) {
        show(row);
    }
    for row in ram(if is_quick { 100_000 } else { 1_000_000 }) {
        show(row);
    }
}

fn text(row: &Value) -> String {
    let cells = row.as_object().into_iter().flatten().map(|(name, value)| {
        let value = match value.as_f64() {
            Some(number) if value.is_f64() => format!("{number:.1}"),
            _ => value.to_string(),
        };
        format!("{}: {value}", name.replace('_', " "))
    });
    cells.collect::<Vec<_>>().join(", ")
}

/// Nanoseconds of CPU time of the thread for each of `count` operations.
fn ns_each(count: u64, work: impl FnOnce()) -> f64 {
    let time = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let began = time();
    work();
    (time() - began) / count as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A cache that has `regions` regions with the blocks of [`MIX`].
fn filled(regions: u64, level: Level, of_blocks: Replacement) -> Cache {
    let config = Config {
        level,
        block_replacement: of_blocks,
        // Room for every block and a few open groups.
        ..Config::adacache(ByteSize((regions + 64) * REGION))
    };
    let mut cache = Cache::new(&Plan::new(&config).expect("the sizes and the capacity work"));
    let mut steps = Vec::new();
    for region in scattered(regions) {
        let mut start = region * REGION;
        for kib in MIX[region as usize % MIX.len()] {
            let range = ByteRange::at(start, kib << 10);
            steps.clear();
            cache.request(&read(range), Tick::ZERO, &mut steps);
            start = range.end;
        }
    }
    cache
}

/// The numbers below `count` in an order without locality.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    let bits = 64 - count.next_power_of_two().leading_zeros() - 1;
    let mask = (1 << bits) - 1;
    (0..1 << bits)
        .map(move |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask)
        .filter(move |&number| number < count)
}

fn read(range: ByteRange) -> Request {
    Request {
        volume: VolumeId(1),
        operation: Operation::Read,
        range,
    }
}

fn lookups(blocks: u64, level: Level, of_blocks: Replacement) -> Value {
    let regions = blocks * MIX.len() as u64 / 17;
    let mut cache = filled(regions, level, of_blocks);
    let occupancy = cache.occupancy();
    let count: u64 = occupancy.blocks.iter().sum();
    let memory = cache.memory();
    let array = vec![1_u64; memory.metadata() as usize / 8];
    let repeats = 400_000.min(blocks);
    let mut results: [Vec<f64>; 5] = Default::default();
    for round in 0..ROUNDS as u64 {
        let extents = |number: u64, bytes: u64| {
            let at = number % regions * REGION + (number >> 40 & 7) * (REGION / 8);
            let start = if bytes == REGION {
                at & !(REGION - 1)
            } else {
                at
            };
            let range = ByteRange::at(start, bytes);
            Extent {
                volume: VolumeId(1),
                range,
            }
        };
        for (result, bytes) in [(0, 4096), (1, REGION)] {
            let mut random = Chain::new(round);
            results[result].push(ns_each(repeats, || {
                for _ in 0..repeats {
                    let mut found = 0;
                    let extent = extents(random.number, bytes);
                    let is_hit = cache.lookup(extent, |piece| found += piece.place);
                    assert!(is_hit);
                    random.follow(found);
                }
            }));
        }
        let mut random = Chain::new(round);
        results[2].push(ns_each(repeats, || {
            for _ in 0..repeats {
                let at = random.number % array.len() as u64;
                random.follow(array[at as usize]);
            }
        }));
        let mut steps = Vec::new();
        for (result, bytes) in [(3, 4096), (4, REGION)] {
            let mut random = Chain::new(round + 100);
            results[result].push(ns_each(repeats, || {
                for _ in 0..repeats {
                    steps.clear();
                    let request = read(extents(random.number, bytes).range);
                    let outcome = cache.request(&request, Tick::ZERO, &mut steps);
                    random.follow(outcome.hit_bytes);
                }
            }));
        }
    }
    let [one, all, probe, hit, hit_all] = results.map(median);
    let further = 17.0 / MIX.len() as f64 - 1.0;
    json!({
        "lookup": match level {
            Level::Group => level_name(level).to_owned(),
            _ => format!("{}, {of_blocks} of blocks", level_name(level)),
        },
        "blocks": count,
        "lookup_ns": one,
        "further_block_ns": (all - one) / further,
        "memory_probe_ns": probe,
        "lookup_per_probe": one / probe,
        "read_hit_ns": hit,
        "read_hit_further_block_ns": (hit_all - hit) / further,
        "ram_bytes_per_block": memory.metadata() as f64 / count as f64,
        "index_bytes_per_block": memory.index as f64 / count as f64,
        "order_bytes_per_block": memory.order as f64 / count as f64,
        "state_bytes_per_block": memory.state as f64 / count as f64,
    })
}

/// Lookups of 4 KiB among equally many blocks of one to nine sizes, one in 1 MiB.
fn lookups_by_sizes(blocks: u64) -> Vec<Value> {
    const STRIDE: u64 = 1 << 20;
    let lists = [
        "32KiB",
        "32KiB..64KiB",
        "32KiB..128KiB",
        "32KiB..256KiB",
        "32KiB..1MiB",
        "4KiB..1MiB",
    ];
    let caches = lists.map(|list| {
        let config = Config {
            sizes: list.parse().expect("block sizes"),
            // One shard holds 32 GiB at most where sizes are far apart.
            shards: 32,
            ..Config::adacache(ByteSize(blocks * STRIDE / 2))
        };
        let mut cache = Cache::new(&Plan::new(&config).expect("the sizes work"));
        let sizes: Vec<u64> = config.sizes.iter().map(ByteSize::bytes).collect();
        let mut steps = Vec::new();
        for block in scattered(blocks) {
            steps.clear();
            let bytes = sizes[block as usize % sizes.len()];
            cache.request(
                &read(ByteRange::at(block * STRIDE, bytes)),
                Tick::ZERO,
                &mut steps,
            );
        }
        (list, sizes.len(), cache, Vec::new())
    });
    let mut caches = Vec::from(caches);
    for round in 0..ROUNDS as u64 {
        for (_, _, cache, results) in &mut caches {
            let mut random = Chain::new(round);
            results.push(ns_each(blocks, || {
                for _ in 0..blocks {
                    let mut found = 0;
                    let range = ByteRange::at(random.number % blocks * STRIDE, 4096);
                    let volume = VolumeId(1);
                    let is_hit = cache.lookup(Extent { volume, range }, |piece| {
                        found += piece.place;
                    });
                    assert!(is_hit);
                    random.follow(found);
                }
            }));
        }
    }
    let row = |(list, sizes, _, results): (_, usize, _, _)| json!({ "lookup by sizes": list, "sizes": sizes, "lookup_ns": median(results) });
    caches.into_iter().map(row).collect()
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Both => "orders of blocks and groups",
        Level::Block => "order of blocks",
        Level::Group => "order of groups",
    }
}

/// Random numbers, each of which depends on the previous result.
struct Chain {
    random: Xoshiro256PlusPlus,
    number: u64,
}

impl Chain {
    fn new(seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let number = random.next_u64();
        Chain { random, number }
    }

    fn follow(&mut self, result: u64) {
        // Always zero, but the compiler cannot know.
        let zero = black_box(result) >> 63;
        self.number = self.random.next_u64() ^ zero;
    }
}

fn presets() -> Vec<(&'static str, Config)> {
    let capacity = ByteSize::gib(4);
    let fixed = |kib| Config::fixed(capacity, ByteSize::kib(kib)).expect("a block size");
    let replaced_by = |blocks, groups| Config {
        block_replacement: blocks,
        group_replacement: groups,
        ..Config::adacache(capacity)
    };
    let sieve = replaced_by(Replacement::Sieve, Replacement::Sieve);
    let clock = replaced_by(Replacement::Clock, Replacement::Lru);
    vec![
        ("adacache: adaptive, lru", Config::adacache(capacity)),
        ("adaptive, sieve", sieve),
        ("default: adaptive, clock of blocks", clock),
        (BASELINE, fixed(32)),
        ("fixed 256 KiB", fixed(256)),
        ("fixed 4 KiB", fixed(4)),
    ]
}

/// Reads and writes of 4 to 128 KiB, about half of which miss. The presets take
/// turns, and the ratio to [`BASELINE`] is the median of the rounds' ratios.
fn requests(count: u64) -> Vec<Value> {
    let presets = presets().into_iter();
    let mut runs: Vec<Run> = presets
        .map(|(name, config)| Run::new(name, &config))
        .collect();
    for _ in 0..ROUNDS {
        for run in &mut runs {
            run.round(count);
        }
    }
    let baseline = runs.iter().find(|run| run.name == BASELINE);
    let baseline = baseline.expect("the baseline is a preset").results.clone();
    runs.iter().map(|run| run.row(&baseline)).collect()
}

const BASELINE: &str = "fixed 32 KiB";

/// A preset, and the nanoseconds of a request in each of its rounds.
struct Run {
    name: &'static str,
    cache: Cache,
    random: Xoshiro256PlusPlus,
    requests: u64,
    bytes: u64,
    results: Vec<f64>,
}

impl Run {
    fn new(name: &'static str, config: &Config) -> Self {
        Run {
            name,
            cache: Cache::new(&Plan::new(config).expect("the presets work")),
            random: Xoshiro256PlusPlus::seed_from_u64(1),
            requests: 0,
            bytes: 0,
            results: Vec::new(),
        }
    }

    fn round(&mut self, count: u64) {
        let mut steps = Vec::new();
        let ns = ns_each(count, || {
            for _ in 0..count {
                let request = self.request();
                self.bytes += request.range.len();
                steps.clear();
                self.cache.request(&request, Tick::ZERO, &mut steps);
            }
        });
        self.requests += count;
        self.results.push(ns);
    }

    fn request(&mut self) -> Request {
        let uniform = self.random.next_u64() as f64 / u64::MAX as f64;
        let page = (uniform.powi(3) * (16_u64 << 18) as f64) as u64;
        let pages = 1 << (self.random.next_u64() % 6);
        let operation = match self.random.next_u64() % 3 {
            0 => Operation::Write,
            _ => Operation::Read,
        };
        Request {
            operation,
            ..read(ByteRange::at((page / pages * pages) << 12, pages << 12))
        }
    }

    fn row(&self, baseline: &[f64]) -> Value {
        let ns = median(self.results.clone());
        let ratios = self.results.iter().zip(baseline).map(|(ns, of)| ns / of);
        let statistics = self.cache.statistics();
        let blocks = self.cache.occupancy().blocks.iter().sum::<u64>() as f64;
        let per_request = |count: f64| count / self.requests as f64;
        json!({
            "requests": self.name,
            "mean_kib": per_request(self.bytes as f64) / 1024.0,
            "read_hit_ratio": statistics.reads.hit_ratio(),
            "promotions_per_request": per_request(statistics.turnover.promotions() as f64),
            "ram_bytes_per_block": self.cache.memory().metadata() as f64 / blocks,
            "cpu_ns": ns,
            "cpu_of_fixed_32_kib": median(ratios.collect()),
            "requests_per_second": (1e9 / ns).round(),
        })
    }
}

/// RAM per block of caches full of equal blocks: `stride` regions of 256 KiB
/// from one block to the next, or all blocks in a row.
fn ram(blocks: u64) -> Vec<Value> {
    let mut rows = Vec::new();
    for (sizes, kib, stride_kib) in [
        ("32KiB..256KiB", 32, 32),
        ("32KiB..256KiB", 32, 256),
        ("32KiB..256KiB", 64, 64),
        ("32KiB..256KiB", 256, 256),
        ("32KiB", 32, 32),
        ("32KiB", 32, 256),
        ("4KiB", 4, 4),
        ("4KiB", 4, 256),
        ("4KiB..1MiB", 4, 4),
        ("4KiB..1MiB", 1024, 1024),
    ] {
        // One shard holds 32 GiB at most where sizes are far apart.
        let blocks = blocks.min((32 << 20) / kib);
        for level in [Level::Group, Level::Both] {
            let config = Config {
                sizes: sizes.parse().expect("block sizes"),
                level,
                ..Config::adacache(ByteSize((blocks * kib) << 10))
            };
            let mut cache = Cache::new(&Plan::new(&config).expect("the sizes work"));
            let mut steps = Vec::new();
            for block in 0..blocks {
                steps.clear();
                let range = ByteRange::at((block * stride_kib) << 10, kib << 10);
                cache.request(&read(range), Tick::ZERO, &mut steps);
            }
            let memory = cache.memory();
            let per_block = |bytes: u64| bytes as f64 / blocks as f64;
            rows.push(json!({
                "ram": format!("{kib} KiB of {sizes}, one in {stride_kib} KiB"),
                "levels": level_name(level),
                "bytes_per_block": per_block(memory.metadata()),
                "bytes_per_mib": per_block(memory.metadata()) * 1024.0 / kib as f64,
                "index": per_block(memory.index),
                "order": per_block(memory.order),
                "state": per_block(memory.state),
            }));
        }
    }
    rows
}
