//! The rules of the policies, in simulated time.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 4] = ["none", "lazy", "alru", "acp"];
const KIB_64: u64 = 64 << 10;
const CHUNK_BYTES: u64 = 100 << 20;

/// A cache of dirty blocks that cleans what a policy names.
struct Cache {
    cleaning: Cleaning,
    dirty: BTreeMap<u32, Place>,
    now: Tick,
    load: Load,
}

impl Blocks for BTreeMap<u32, Place> {
    fn place(&self, block: u32) -> Place {
        self[&block]
    }
}

impl Cache {
    fn new(config: &CleaningConfig) -> Self {
        Cache {
            cleaning: Cleaning::new(config).expect("settings work"),
            dirty: BTreeMap::new(),
            now: Tick::ZERO,
            load: Load::default(),
        }
    }

    /// Writes block `block` at 64 KiB times `at`, now.
    fn write(&mut self, block: u32, at: u64) {
        let place = Place {
            volume: 0,
            offset_bytes: at * KIB_64,
        };
        self.load.last_request = self.now;
        self.dirty.insert(block, place);
        self.cleaning.note_dirty(block, place, KIB_64, self.now);
    }

    /// Lets time pass until `end` and cleans; returns the batches and their times.
    fn run_until(&mut self, end: Tick) -> Vec<(Tick, Vec<u32>)> {
        let mut batches = vec![];
        while self.cleaning.wake_at() <= end {
            self.now = self.now.max(self.cleaning.wake_at());
            let named = self.poll();
            for block in &named {
                let place = self.dirty.remove(block).expect("named blocks are dirty");
                self.cleaning.note_clean(*block, place);
            }
            if !named.is_empty() {
                batches.push((self.now, named));
            }
        }
        self.now = end;
        batches
    }

    fn poll(&mut self) -> Vec<u32> {
        let mut named = vec![];
        self.cleaning
            .poll(self.now, self.load, &self.dirty, &mut named);
        named
    }
}

fn config(text: &str) -> CleaningConfig {
    text.parse().expect(text)
}

fn seconds(seconds: u32) -> Tick {
    Tick::from_seconds(seconds)
}

#[test]
fn no_policy_never_wakes() {
    let mut cache = Cache::new(&config("none"));
    cache.write(1, 1);
    assert_eq!(cache.cleaning.wake_at(), Tick::MAX);
    assert_eq!(cache.poll(), [0_u32; 0]);
}

#[test]
fn alru_cleans_stale_blocks_in_batches_in_the_order_of_addresses() {
    let mut cache = Cache::new(&config("alru"));
    for block in 0..250 {
        cache.write(block, u64::from(1000 - block));
    }
    assert_eq!(cache.run_until(seconds(119)), []);
    let batches = cache.run_until(seconds(200));
    let sizes: Vec<_> = batches.iter().map(|(_, named)| named.len()).collect();
    assert_eq!(sizes, [100, 100, 50]);
    let (first_at, first) = &batches[0];
    // The first wake-up after 120 s without a write, every 20 s.
    assert_eq!(*first_at, seconds(140));
    // The oldest hundred; their addresses descend.
    assert_eq!(*first, (0..100).rev().collect::<Vec<_>>());
}

#[test]
fn alru_leaves_blocks_that_are_written_again() {
    let mut cache = Cache::new(&config("alru"));
    cache.write(1, 1);
    cache.write(2, 2);
    cache.run_until(seconds(100));
    cache.write(1, 1);
    let batches = cache.run_until(seconds(200));
    assert_eq!(batches, [(seconds(140), vec![2])]);
    let batches = cache.run_until(seconds(300));
    assert_eq!(batches[0].1, [1]);
    assert!(batches[0].0 >= seconds(240));
}

#[test]
fn alru_and_lazy_leave_a_busy_cache_alone() {
    for (text, busy_ms) in [("alru", 9_000), ("lazy", 900)] {
        let mut cache = Cache::new(&config(text));
        cache.write(1, 1);
        for _ in 0..400 {
            cache.load.last_request = cache.now;
            let until = cache.now + Duration::from_millis(busy_ms);
            assert_eq!(cache.run_until(until), [], "{text}");
        }
        let batches = cache.run_until(cache.now + Duration::from_secs(60));
        assert_eq!(batches.len(), 1, "{text}");
    }
}

#[test]
fn lazy_cleans_everything_once_the_cache_is_idle() {
    let mut cache = Cache::new(&config("lazy"));
    for block in 0..150 {
        cache.write(block, u64::from(block));
    }
    cache.load.in_flight = 1;
    assert_eq!(cache.run_until(seconds(5)), []);
    cache.load.in_flight = 0;
    let batches = cache.run_until(seconds(6));
    assert_eq!(batches.len(), 2);
    assert!(cache.dirty.is_empty());
}

#[test]
fn acp_sweeps_the_dirtiest_chunk_first_under_load() {
    let blocks_per_chunk = CHUNK_BYTES / KIB_64;
    let mut cache = Cache::new(&config("acp"));
    // 5 % of chunk 0, 50 % of chunk 3, 20 % of chunk 7.
    let mut block = 0;
    for (chunk, percent) in [(0, 5), (3, 50), (7, 20)] {
        for at in 0..blocks_per_chunk * percent / 100 {
            cache.write(block, chunk * blocks_per_chunk + at);
            block += 1;
        }
    }
    let mut order = vec![];
    while !cache.dirty.is_empty() {
        let dirty = cache.dirty.clone();
        cache.load.last_request = cache.now;
        let until = cache.now + Duration::from_millis(10);
        for (_, named) in cache.run_until(until) {
            assert!(named.len() <= 128);
            assert!(named.is_sorted_by_key(|block| dirty[block]));
            order.extend(
                named
                    .iter()
                    .map(|block| dirty[block].offset_bytes / CHUNK_BYTES),
            );
        }
    }
    order.dedup();
    assert_eq!(order, [3, 7, 0]);
    // Nothing is left to do for a second.
    assert!(cache.cleaning.wake_at() - cache.now <= Duration::from_secs(1));
}

#[test]
fn acp_leaves_a_failed_chunk_alone_for_five_seconds_and_then_tries_again() {
    let mut cache = Cache::new(&config("acp"));
    cache.write(1, 1);
    let place = cache.dirty[&1];
    assert_eq!(cache.poll(), [1]);
    cache.cleaning.note_failed(place, cache.now);
    let batches = cache.run_until(seconds(4));
    assert_eq!(batches, []);
    let batches = cache.run_until(seconds(7));
    assert_eq!(batches.len(), 1);
    assert!(batches[0].0 >= seconds(5));
}

proptest! {
    /// Under any order of writes and cleanings every policy names dirty blocks
    /// only, once per batch and sorted, and leaves none for ever.
    #[test]
    fn every_dirty_block_is_cleaned_in_the_end(
        kind in 1_usize..4,
        steps in prop::collection::vec((0_u32..50, 0_u8..4, 0_u64..30_000), 0..200),
    ) {
        let mut cache = Cache::new(&config(NAMES[kind]));
        for (block, step, milliseconds) in steps {
            match step {
                0 | 1 => cache.write(block, u64::from(block) * 7919 % 50 * 900),
                2 => {
                    if let Some(place) = cache.dirty.remove(&block) {
                        cache.cleaning.note_clean(block, place);
                    }
                }
                _ => {
                    let until = cache.now + Duration::from_millis(milliseconds);
                    // `run_until` fails on blocks that are not dirty or named twice.
                    cache.run_until(until);
                }
            }
        }
        cache.run_until(cache.now + Duration::from_secs(400));
        prop_assert!(cache.dirty.is_empty(), "{:?}", cache.dirty);
    }
}

#[test]
fn policies_report_their_memory() {
    for (text, per_block) in [
        ("lazy", 12.0..25.0),
        ("alru", 12.0..25.0),
        ("acp", 24.0..60.0),
    ] {
        let mut cache = Cache::new(&config(text));
        for block in 0..1000 {
            cache.write(block, u64::from(block));
        }
        let bytes = cache.cleaning.memory_bytes() as f64 / 1000.0;
        assert!(per_block.contains(&bytes), "{text}: {bytes}");
    }
}

#[test]
fn names_parse_and_bad_settings_are_rejected() {
    assert_eq!(config("alru"), CleaningConfig::default());
    assert_eq!(config("acp"), CleaningConfig::Acp(AcpConfig::default()));
    let large = AcpConfig {
        blocks_max: 1024,
        ..AcpConfig::default()
    };
    assert_eq!(config("acp-1024"), CleaningConfig::Acp(large));
    for unknown in ["alru-2", "acp-0", "acp-x"] {
        assert!(unknown.parse::<CleaningConfig>().is_err(), "{unknown}");
    }
    let config = CleaningConfig::Alru(AlruConfig {
        staleness_seconds: 4000,
        ..AlruConfig::default()
    });
    let error = Cleaning::new(&config).expect_err("4000 s is too much");
    assert_eq!(
        (error.setting, error.nearest),
        ("staleness_seconds", "3600".to_owned())
    );
}
