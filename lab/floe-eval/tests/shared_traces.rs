//! Readers and policies on public traces, where a checkout of them is at hand.

mod shared;

use std::collections::HashSet;
use std::path::Path;

use floe_core::policy::object::ObjectPolicyKind;
use floe_eval::replay::policy::{CacheUnit, for_each_access, replay};
use floe_eval::trace::{Trace, TraceFormat, TraceOptions};
use shared::traces;

fn open(path: &Path) -> Trace {
    Trace::open(path, TraceOptions::default())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Requests and unique keys of MANIFEST.md.
const MANIFEST: [(&str, TraceFormat, u64, usize); 18] = [
    (
        "kv_twitter_cluster052_head/twitter_sample.csv",
        TraceFormat::Twitter,
        100,
        85,
    ),
    (
        "kv_cache2k_orm/orm-night.trace.zst",
        TraceFormat::Cache2k,
        5_000_000,
        86_466,
    ),
    (
        "kv_cache2k_web/web07.trace.zst",
        TraceFormat::Cache2k,
        76_118,
        20_484,
    ),
    (
        "kv_corda/trace_vaultservice.zst",
        TraceFormat::Corda,
        135_702,
        90_468,
    ),
    (
        "kv_lirs/2_pools.trace.zst",
        TraceFormat::Lirs,
        100_000,
        9_939,
    ),
    ("kv_lirs/multi1.trace.zst", TraceFormat::Lirs, 15_858, 2_606),
    ("kv_lirs/multi2.trace.zst", TraceFormat::Lirs, 26_311, 5_684),
    ("kv_lirs/multi3.trace.zst", TraceFormat::Lirs, 30_241, 7_454),
    ("kv_lirs/gli.trace.zst", TraceFormat::Lirs, 6_015, 2_529),
    ("kv_lirs/cpp.trace.zst", TraceFormat::Lirs, 9_047, 1_223),
    ("kv_lirs/cs.trace.zst", TraceFormat::Lirs, 6_781, 1_409),
    ("kv_lirs/ps.trace.zst", TraceFormat::Lirs, 10_448, 3_083),
    (
        "obj_meta_bigcache/short_bigcache_traces.csv.zst",
        TraceFormat::MetaCdn,
        9_999,
        3_125,
    ),
    (
        "obj_tencent_photo/cloud_photos-sample.zst",
        TraceFormat::TencentPhoto,
        10_000,
        9_694,
    ),
    (
        "blk_cloudphysics/cloudPhysicsIO.oracleGeneral.bin.zst",
        TraceFormat::OracleGeneral,
        113_872,
        48_974,
    ),
    ("blk_arc/OLTP.lis.zst", TraceFormat::Arc, 914_145, 186_880),
    ("blk_arc/P3.lis.zst", TraceFormat::Arc, 3_912_296, 762_543),
    ("blk_arc/P6.lis.zst", TraceFormat::Arc, 12_672_123, 773_770),
];

#[test]
fn readers_agree_with_the_manifest() {
    let Some(folder) = traces() else { return };
    for (name, format, requests, unique) in MANIFEST {
        let mut trace = open(&folder.join(name));
        assert_eq!(trace.format(), format, "{name}");
        let mut keys = HashSet::new();
        let mut count = 0;
        for request in trace.by_ref() {
            let request = request.unwrap_or_else(|error| panic!("{name}: {error}"));
            keys.insert(request.key.to_u64());
            count += 1;
        }
        assert_eq!((count, keys.len()), (requests, unique), "{name}");
    }
}

#[test]
fn meta_kv_rows_agree_with_the_manifest() {
    let Some(folder) = traces() else { return };
    let mut trace = open(&folder.join("kv_meta_kvcache_head/kv_traces_1.csv.zst"));
    assert_eq!(trace.format(), TraceFormat::MetaKv);
    let keys: HashSet<u64> = trace
        .by_ref()
        .map(|request| request.expect("a good row").key.to_u64())
        .collect();
    // The header is a line, too.
    assert_eq!((trace.records(), keys.len()), (99 + 1, 52));
}

#[test]
fn spc_pages_agree_with_the_manifest() {
    let Some(folder) = traces() else { return };
    let mut trace = open(&folder.join("blk_umass_financial1/Financial1-snippet.spc.zst"));
    assert_eq!(trace.format(), TraceFormat::Spc);
    let (mut requests, mut accesses, mut pages) = (0, 0, HashSet::new());
    for request in trace.by_ref() {
        requests += 1;
        for_each_access(
            &request.expect("a good line"),
            CacheUnit::Chunk(4096),
            |key, _| {
                accesses += 1;
                pages.insert(key);
            },
        );
    }
    assert_eq!((requests, accesses, pages.len()), (10_000, 22_511, 7_322));
}

/// LRU hit percentages of MANIFEST.md at 1 % and 10 % of the unique keys.
#[test]
fn lru_hit_ratios_agree_with_the_manifest() {
    let Some(folder) = traces() else { return };
    for (name, unique, one_percent, ten_percent) in [
        ("kv_cache2k_web/web07.trace.zst", 20_484, 39.15, 55.66),
        ("kv_lirs/2_pools.trace.zst", 9_939, 21.77, 54.38),
        ("kv_lirs/ps.trace.zst", 3_083, 7.28, 16.33),
        ("blk_arc/OLTP.lis.zst", 186_880, 41.63, 66.52),
    ] {
        let sizes = [unique / 100, unique / 10];
        let mut trace = open(&folder.join(name));
        let found = replay(
            &mut trace,
            &[ObjectPolicyKind::Lru],
            &sizes,
            CacheUnit::Object,
            |_| {},
        )
        .expect("replays");
        for (counts, expected) in found.counts.iter().zip([one_percent, ten_percent]) {
            let hit_percent = 100.0 * (1.0 - counts.miss_ratio());
            assert!(
                (hit_percent - expected).abs() < 0.006,
                "{name}: {hit_percent:.3} instead of {expected}"
            );
        }
    }
}

/// The counts that libCacheSim's own tests expect, against ours.
#[test]
fn miss_counts_equal_libcachesims() {
    let Some(folder) = traces() else { return };
    let folder = folder.join("blk_cloudphysics");
    let text = std::fs::read(folder.join("libcachesim_expected_misses.json")).expect("the counts");
    let json: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let numbers = |value: &serde_json::Value| -> Vec<u64> {
        let list = value.as_array().expect("a list");
        list.iter().map(|n| n.as_u64().expect("a count")).collect()
    };
    let sizes = numbers(&json["cache_sizes_bytes"]);
    assert_eq!(sizes.len(), 8);

    let mut trace = open(&folder.join("cloudPhysicsIO.oracleGeneral.bin.zst"));
    let found = replay(
        &mut trace,
        &ObjectPolicyKind::ALL,
        &sizes,
        CacheUnit::Object,
        |_| {},
    )
    .expect("replays");
    assert_eq!(found.requests, json["requests"].as_u64().expect("a count"));
    assert_eq!(
        Some(found.counts[0].get_bytes),
        json["request_bytes"].as_u64()
    );

    for (policy, published) in [
        (ObjectPolicyKind::Lru, "LRU"),
        (ObjectPolicyKind::Fifo, "FIFO"),
        (ObjectPolicyKind::Clock, "Clock"),
        (ObjectPolicyKind::Sieve, "Sieve"),
        (ObjectPolicyKind::S3Fifo, "S3FIFO"),
        (ObjectPolicyKind::Lfu, "LFU"),
    ] {
        let expected = &json["expected"][published];
        let ours = found.counts.iter().filter(|counts| counts.policy == policy);
        let (misses, miss_bytes): (Vec<u64>, Vec<u64>) = ours
            .map(|counts| (counts.misses, counts.miss_bytes))
            .unzip();
        assert_eq!(misses, numbers(&expected["miss_cnt"]), "{published}");
        assert_eq!(miss_bytes, numbers(&expected["miss_byte"]), "{published}");
    }
}
