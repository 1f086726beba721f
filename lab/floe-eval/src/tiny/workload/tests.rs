use std::collections::BTreeMap;
use std::io::{Write as _, stderr};
use std::path::{Path, PathBuf};

use floe_core::ByteSize;

use super::*;
use crate::shared::find_shared;

const GIB: u64 = 1 << 30;

fn stream(mix: &TwitterMix) -> TwitterStream {
    mix.stream(GIB, 7).expect("a good mix")
}

#[test]
fn the_mean_object_is_the_papers() {
    for seed in [1, 2, 3] {
        let mut stream = TwitterMix::default().stream(GIB, seed).expect("good");
        let (mut bytes, mut distinct) = (0u64, BTreeMap::new());
        const DRAWS: u64 = 1_000_000;
        for _ in 0..DRAWS {
            let draw = stream.draw();
            bytes += u64::from(draw.bytes);
            distinct.insert(draw.hash, draw.bytes);
        }
        let mean = bytes as f64 / DRAWS as f64;
        assert!(
            (mean - 246.0).abs() < 2.5,
            "seed {seed}: {mean} over requests"
        );
        let sum: u64 = distinct.values().map(|bytes| u64::from(*bytes)).sum();
        let mean = sum as f64 / distinct.len() as f64;
        assert!((mean - 246.0).abs() < 15.0, "seed {seed}: {mean} over keys");
    }
}

#[test]
fn the_mix_is_the_tables() {
    let all: f64 = Cluster::TWITTER.iter().map(Cluster::requests).sum();
    let expected = |share: fn(&Cluster) -> f64| {
        let shares = Cluster::TWITTER.iter().map(|cluster| {
            let total: f64 = cluster.shares.iter().sum();
            cluster.requests() / all * share(cluster) / total
        });
        shares.sum::<f64>()
    };
    let mut stream = stream(&TwitterMix::default());
    let mut counts = [0u32; 3];
    for _ in 0..1_000_000 {
        counts[match stream.draw().op {
            Op::Get => 0,
            Op::Put => 1,
            Op::Delete => 2,
        }] += 1;
    }
    let shares = [
        expected(|c| c.shares[0]),
        expected(|c| c.shares[1]),
        expected(|c| c.shares[2]),
    ];
    for (count, share) in counts.iter().zip(shares) {
        assert!(
            (f64::from(*count) / 1e6 - share).abs() < 0.002,
            "{counts:?} {shares:?}"
        );
    }
    let mix = TwitterMix {
        deletes: false,
        ..TwitterMix::default()
    };
    let mut stream = self::stream(&mix);
    assert!((0..100_000).all(|_| stream.draw().op != Op::Delete));
}

/// 165 million keys in each of four spaces on 360 GB.
#[test]
fn keys_scale_with_the_flash() {
    let mix = TwitterMix::default();
    let paper = mix.distinct_keys(360_000_000_000).expect("good") as f64;
    assert!((paper / 4.0 / 165.0e6 - 1.0).abs() < 0.01, "{paper}");
    let small = mix.distinct_keys(GIB).expect("good") as f64;
    assert!((small / paper / (GIB as f64 / 360e9) - 1.0).abs() < 0.001);
}

#[test]
fn a_cluster_has_its_skew() {
    let mix = TwitterMix {
        clusters: vec![52],
        key_spaces: 1,
        ..TwitterMix::default()
    };
    let mut stream = stream(&mix);
    let mut counts: BTreeMap<KeyHash, f64> = BTreeMap::new();
    for _ in 0..1_000_000 {
        *counts.entry(stream.draw().hash).or_default() += 1.0;
    }
    let mut counts: Vec<f64> = counts.into_values().collect();
    counts.sort_by(|a, b| b.total_cmp(a));
    let measured = (counts[0] / counts[99]).ln() / 100f64.ln();
    assert!((measured - 1.2117).abs() < 0.03, "{measured}");
}

#[test]
fn the_same_seed_draws_the_same() {
    let mix = TwitterMix {
        ttl: true,
        ..TwitterMix::default()
    };
    let draws = |seed| {
        let mut stream = mix.stream(GIB, seed).expect("good");
        (0..1000).map(|_| stream.draw()).collect::<Vec<Draw>>()
    };
    assert_eq!(draws(5), draws(5));
    assert_ne!(draws(5), draws(6));
    assert!(draws(5).iter().all(|draw| draw.ttl_seconds >= 3600));
}

#[test]
fn invalid_workloads_are_rejected() {
    let rejected = |mix: TwitterMix| mix.stream(GIB, 1).expect_err("must be").to_string();
    let with = TwitterMix::default;
    assert!(
        rejected(TwitterMix {
            clusters: vec![15],
            ..with()
        })
        .contains("15")
    );
    assert!(
        rejected(TwitterMix {
            clusters: vec![],
            ..with()
        })
        .contains("at least one")
    );
    assert!(
        rejected(TwitterMix {
            key_spaces: 0,
            ..with()
        })
        .contains("key-spaces")
    );
    assert!(
        rejected(TwitterMix {
            keys: 0.0,
            ..with()
        })
        .contains("keys")
    );
    assert!(
        rejected(TwitterMix {
            mean_object_bytes: 9000.0,
            ..with()
        })
        .contains("bytes")
    );
    assert!(
        rejected(TwitterMix {
            size_spread: -1.0,
            ..with()
        })
        .contains("spread")
    );
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("can be written");
    path
}

fn recorded(path: PathBuf, format: &str) -> Recorded {
    Recorded {
        path,
        format: Some(format.into()),
        skip_bad: false,
        key_spaces: 1,
        passes: 1,
        size: SizeModel::Fixed { bytes: 100 },
        ttl: true,
    }
}

fn draws(of: &Recorded) -> Vec<Draw> {
    let mut stream = of.stream(1, Path::new("x.toml")).expect("opens");
    std::iter::from_fn(|| stream.draw().expect("reads")).collect()
}

#[test]
fn twitter_traces_are_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = write(
        folder.path(),
        "cluster052.csv",
        "0,q:q:1:8WTw,17,249,1,get,0\n0,q:q:1:MYY8,16,0,2,get,0\n5,q:q:1:MYY8,16,30,2,set,60\n\
         6,big,3,9000,2,set,60\n7,q:q:1:8WTw,17,249,1,delete,0\n",
    );
    let mut of = recorded(path, "twitter");
    let found = draws(&of);
    let ops: Vec<Op> = found.iter().map(|draw| draw.op).collect();
    assert_eq!(ops, [Op::Get, Op::Get, Op::Put, Op::Delete]);
    let bytes: Vec<u32> = found.iter().map(|draw| draw.bytes).collect();
    assert_eq!(
        bytes,
        [266, 100, 46, 266],
        "sizes, and a model where there are none"
    );
    assert_eq!(found[2].ttl_seconds, 60);
    assert_eq!(found[2].now_seconds - found[0].now_seconds, 5);
    assert_eq!(found[0].hash, found[3].hash);
    (of.passes, of.key_spaces) = (2, 3);
    let more = draws(&of);
    assert_eq!(more.len(), 4 * 2 * 3);
    let distinct: std::collections::BTreeSet<KeyHash> = more.iter().map(|d| d.hash).collect();
    assert_eq!(distinct.len(), 2 * 3);
    assert!(
        more.windows(2)
            .all(|pair| pair[0].now_seconds <= pair[1].now_seconds)
    );
    let mut stream = of.stream(1, Path::new("x.toml")).expect("opens");
    while stream.draw().expect("reads").is_some() {}
    assert_eq!(stream.left_out(), 2 * 3);
}

#[test]
fn meta_traces_are_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    let of_2024 = "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase\n\
        604038471,82131353f9ddc8c6,48,GET,1,87,1,0,366387042,3003229276\n\
        604038472,a54f88ab02ece24d,24,GET,3,0,0,0,699950563,699950563\n\
        604038473,a54f88ab02ece24d,24,SET,1,10,0,30,699950563,699950563\n";
    let of_2022 = "key,op,size,op_count,key_size\n1668757755,GET,0,1,40\n1668757755,SET,50,2,40\n";
    let path = write(folder.path(), "kv.csv", of_2024);
    let found = draws(&recorded(path, "meta-kv"));
    let bytes: Vec<u32> = found.iter().map(|draw| draw.bytes).collect();
    assert_eq!(bytes, [135, 100, 100, 100, 34]);
    assert_eq!((found[4].op, found[4].ttl_seconds), (Op::Put, 30));
    let path = write(folder.path(), "kv2022.csv", of_2022);
    let found = draws(&recorded(path, "meta-kv"));
    let bytes: Vec<u32> = found.iter().map(|draw| draw.bytes).collect();
    assert_eq!(bytes, [100, 90, 90]);
}

const CONFIG: &str = r#"{ "test_config": { "poolDistributions": [ {
    "getRatio": 0.8, "setRatio": 0.1, "delRatio": 0.05, "loneGetRatio": 0.05,
    "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0],
    "popDistFile": "pop.json", "valSizeDistFile": "sizes.json" } ] } }"#;

#[test]
fn cachebench_histograms_are_drawn_from() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "config.json", CONFIG);
    write(
        folder.path(),
        "pop.json",
        r#"{"popularityBuckets": [1, 9, 90], "popularityWeights": [50, 30, 20]}"#,
    );
    write(
        folder.path(),
        "sizes.json",
        r#"{"valSizeRange": [1, 101, 201, 100001], "valSizeRangeProbability": [8, 1, 1]}"#,
    );
    let of = CacheBench {
        path: folder.path().to_owned(),
        pool: 0,
        working_set: None,
    };
    let mut stream = of.stream(GIB, 3, Path::new("x.toml")).expect("opens");
    assert_eq!(stream.keys(), 100);
    let mut counts: BTreeMap<KeyHash, u32> = BTreeMap::new();
    for _ in 0..100_000 {
        let draw = stream.draw();
        assert!(draw.bytes >= 9 && draw.bytes as usize <= floe_core::tiny::OBJECT_BYTES_MAX);
        *counts.entry(draw.hash).or_default() += 1;
    }
    assert!(stream.left_out() > 0, "some values are too long");
    let often = counts.values().filter(|count| **count > 20).count();
    assert!((50..=100).contains(&often), "{often} of 100 keys recur");
    let absent = CacheBench {
        path: "nowhere/at/all".into(),
        ..of
    };
    let error = absent
        .stream(GIB, 3, Path::new("x.toml"))
        .expect_err("is not there");
    assert!(matches!(error, EvalError::Absent { .. }), "{error}");
}

#[test]
fn the_published_histograms_are_drawn_from() {
    let places = [
        "../../../shared/traces/calibration/cachebench",
        "calibration/cachebench",
    ];
    for name in [
        "hit_ratio/kvcache_reg",
        "hit_ratio/graph_cache_follower_assocs",
        "hit_ratio/graph_cache_follower_fbobj",
        "hit_ratio/graph_cache_leader_assocs",
        "hit_ratio/graph_cache_leader_fbobj",
        "hit_ratio/cdn",
        "ssd_perf/flat_kvcache_reg",
        "ssd_perf/kvcache_l2_reg",
        "ssd_perf/kvcache_l2_wc",
        "ssd_perf/graph_cache_leader",
    ] {
        let is_there = |place: &&&str| {
            find_shared(
                &Path::new(place).join(name).join("config.json"),
                Path::new("x"),
            )
            .is_ok()
        };
        let Some(place) = places.iter().find(is_there) else {
            // Bypasses the test harness, which hides the output of passing
            // tests.
            let _ = writeln!(stderr(), "skipped: no histograms of CacheBench for {name}");
            continue;
        };
        let of = CacheBench {
            path: Path::new(place).join(name),
            pool: 0,
            working_set: Some(1.0),
        };
        let mut stream = of.stream(GIB, 3, Path::new("x.toml")).expect(name);
        let draws: Vec<Draw> = (0..20_000).map(|_| stream.draw()).collect();
        let mean = draws.iter().map(|draw| f64::from(draw.bytes)).sum::<f64>() / 2e4;
        let size = ByteSize(mean as u64);
        eprintln!("{name}: {size} an object, {} left out", stream.left_out());
        assert!((9.0..4096.0).contains(&mean), "{name}: {mean}");
    }
}
