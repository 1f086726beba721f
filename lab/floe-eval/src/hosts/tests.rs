//! Small runs of the papers' hosts, for properties that hold at any size.
//! `examples/paper_hosts.rs` prints the whole tables.

use floe_core::ByteSize;

use super::*;
use crate::error::EvalError;
use crate::workload::Distribution;

const CHUNK: ByteSize = ByteSize::mib(512);

fn run_quietly(config: &HostConfig) -> HostResult {
    run(config, 42, &mut |_| {}).unwrap()
}

/// The papers' experiment at a 32nd of the size, on eight dies.
fn small(mut config: HostConfig) -> HostConfig {
    config.device.dies = Some(8);
    config.scaled_down(32).unwrap()
}

fn zipf() -> Distribution {
    Distribution::Zipf {
        skew: 0.99,
        scrambled: false,
    }
}

fn throughput(result: &HostResult) -> f64 {
    result.run.whole.get_bytes_per_s
}

fn assert_within(value: f64, expected: f64, share: f64) {
    let error = value / expected - 1.0;
    assert!(error.abs() <= share, "{value} instead of {expected}");
}

#[test]
fn zones_beat_blocks_with_uniform_keys_as_in_the_papers() {
    for (system, paper) in [
        (HostConfig::zncache as fn(&str, _, _, _) -> _, [1.68, 2.69]),
        (HostConfig::oxcache, [1.87, 2.68]),
    ] {
        let ratios = [10.0, 2.0].map(|ratio| {
            let of = |preset| {
                let config = system(preset, CHUNK, Distribution::Uniform, ratio);
                throughput(&run_quietly(&small(config)))
            };
            of("zn540") / of("sn540")
        });
        for (ratio, paper) in ratios.into_iter().zip(paper) {
            assert_within(ratio, paper, 0.25);
        }
        assert!(ratios[1] > ratios[0], "the smaller working set gains most");
    }
}

#[test]
fn throughput_and_hits_of_large_chunks_are_the_papers() {
    const MIB: f64 = 1_048_576.0;
    for (distribution, ratio, paper, hits) in [
        (Distribution::Uniform, 10.0, 1068.0, 0.098),
        (zipf(), 10.0, 1873.0, 0.631),
    ] {
        let config = HostConfig::zncache("zn540", CHUNK, distribution, ratio);
        let result = run_quietly(&small(config));
        assert_within(throughput(&result) / MIB, paper, 0.15);
        assert!((result.run.whole.hit_ratio - hits).abs() <= 0.03);
        // Finishing pads 53 of 1077 MiB. Nothing else is added.
        let padding = result.run.write_amplification.unwrap();
        assert!((1.03..1.07).contains(&padding), "{padding}");
        assert_eq!(result.device.programmed.collected_bytes, 0);
    }
}

/// The host limits throughput of 64 KiB chunks: ZNCache by 14 fetches at a
/// time, each holding a zone, OxCache by 64 clients.
#[test]
fn small_chunks_are_bound_by_the_host() {
    const KIB_64: ByteSize = ByteSize::kib(64);
    let of = |mut config: HostConfig| {
        config.zones = 40;
        config.io = ByteSize::gib(1);
        config.device.shrunk = Some(64);
        config.zone_unit = ByteSize::mib(16);
        config.start = StartState::Trimmed;
        run_quietly(&config)
    };
    let zncache = of(HostConfig::zncache(
        "zn540",
        KIB_64,
        Distribution::Uniform,
        10.0,
    ));
    let misses_per_s = zncache.run.whole.requests_per_s * (1.0 - zncache.run.whole.hit_ratio);
    assert_within(misses_per_s, 14.0 / 40.632e-3, 0.03);
    // Spinning threads get a zone at random: 40 ms + 145 ms · ln(100 · miss
    // ratio).
    let miss_ratio = 1.0 - zncache.run.whole.hit_ratio;
    let expected_ms = 40.0 + 145.0 * (100.0 * miss_ratio).ln();
    assert_within(zncache.run.whole.get.p99_ms, expected_ms, 0.1);
    let oxcache = of(HostConfig::oxcache(
        "zn540",
        KIB_64,
        Distribution::Uniform,
        10.0,
    ));
    assert_within(oxcache.run.whole.miss.mean_ms, 42.3, 0.02);
    assert_within(oxcache.run.whole.get.p99_ms, 44.2, 0.1);
}

/// ZNCache on a trimmed device: collection begins when the device has been
/// filled once, and costs little. Zones and handles avoid it.
#[test]
fn collection_begins_when_the_device_is_full() {
    let of = |preset: &str, zones| {
        let config = HostConfig::zncache(preset, ByteSize::mib(256), Distribution::Uniform, 10.0);
        let mut config = config.on_trimmed_device(zones);
        config.remote.latency_us = 0;
        let config = small(config);
        (run_quietly(&config), config.device.config().unwrap())
    };
    let (block, device) = of("sn540", 850);
    let onset = block.device.collection.first_at_host_bytes.unwrap() as f64;
    let share = onset / device.capacity_bytes() as f64;
    assert!((1.05..1.2).contains(&share), "{share}");
    let amplification = block.run.write_amplification.unwrap();
    assert!((1.15..1.5).contains(&amplification), "{amplification}");
    let (before, after) = around(&block, onset);
    let drop = 1.0 - after / before;
    assert!((0.15..0.4).contains(&drop), "{drop}");

    let (fdp, _) = of("fdp", 850);
    let amplification = fdp.run.write_amplification.unwrap();
    assert!(amplification <= 1.1, "{amplification}");
}

/// Mean throughput of the bins before and after `written` bytes were written.
fn around(result: &HostResult, written: f64) -> (f64, f64) {
    let mut so_far = 0.0;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for bin in &result.run.bins {
        so_far += bin.write_bytes_per_s * bin.length_s;
        if so_far < 0.95 * written {
            before.push(bin.get_bytes_per_s);
        } else if so_far > 1.2 * written {
            after.push(bin.get_bytes_per_s);
        }
    }
    let mean = |bins: &[f64]| bins.iter().sum::<f64>() / bins.len() as f64;
    // The first bin only fills the pipeline.
    (mean(&before[1..]), mean(&after))
}

/// A preconditioned device's throughput collapses, then recovers as the device
/// defragments itself.
#[test]
fn a_filled_device_defragments_itself() {
    let config = HostConfig::zncache("sn540", CHUNK, Distribution::Uniform, 10.0);
    let block = run_quietly(&small(config));
    let config = HostConfig::zncache("zn540", CHUNK, Distribution::Uniform, 10.0);
    let zones = throughput(&run_quietly(&small(config)));
    let bins: Vec<f64> = block.run.bins.iter().map(|b| b.get_bytes_per_s).collect();
    let worst = bins.iter().copied().fold(f64::MAX, f64::min);
    assert!(worst <= 0.25 * zones, "{worst} of {zones}");
    let last = &bins[bins.len() * 2 / 3..];
    let last = last.iter().sum::<f64>() / last.len() as f64;
    assert!(last >= 1.2 * throughput(&block), "{last}");
}

#[test]
fn fewer_and_wider_dies_change_little() {
    let of = |dies| {
        let mut config = HostConfig::zncache("sn540", CHUNK, zipf(), 10.0);
        config.device.dies = Some(dies);
        throughput(&run_quietly(&config.scaled_down(32).unwrap()))
    };
    assert_within(of(8), of(32), 0.05);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let config = small(HostConfig::oxcache("sn540", CHUNK, zipf(), 2.0));
    let of = |seed| {
        let mut config = config.clone();
        config.io = ByteSize(config.io.bytes() / 8);
        let result = run(&config, seed, &mut |_| {}).unwrap();
        serde_json::to_string(&result).unwrap()
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn configurations_survive_a_file_and_bad_ones_are_rejected() {
    let config = HostConfig::oxcache("fdp", CHUNK, zipf(), 2.0);
    let text = toml::to_string(&config).unwrap();
    assert!(text.contains("held") || text.contains("placement = \"taken-for-write\""));
    assert_eq!(toml::from_str::<HostConfig>(&text).unwrap(), config);
    let unknown = text.replace("miss-overhead-us", "miss-overhaed-us");
    assert!(toml::from_str::<HostConfig>(&unknown).is_err());

    type Change = fn(&mut HostConfig);
    let changes: [(&str, Change); 12] = [
        ("appends", |c| {
            c.device.preset = "zn540".into();
            c.host.io_zoned = None;
        }),
        ("preset", |c| c.device.preset = "floppy".into()),
        ("superblocks", |c| c.device.preset = "optane".into()),
        ("dies", |c| c.device.dies = Some(7)),
        ("zones", |c| c.zones = 100_000),
        ("chunk", |c| c.chunk = ByteSize::gib(2)),
        ("between 1 and 65536", |c| c.host.threads = 0),
        ("evict_at", |c| c.host.evict_to = c.host.evict_at),
        ("jitter", |c| c.remote.jitter = f64::NAN),
        ("evict_chunks_at", |c| {
            c.host.policy = EvictionPolicy::Clru;
            c.host.evict_chunks_to = c.host.evict_chunks_at;
        }),
        ("zone of its own", |c| {
            c.device.preset = "zn540".into();
            c.host.policy = EvictionPolicy::Clru;
            c.host.evict_at = 0;
        }),
        ("I/O", |c| c.io = ByteSize::mib(1)),
    ];
    for (word, change) in changes {
        let mut config = config.clone();
        change(&mut config);
        let error = run(&config, 0, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

/// A host that can never evict what it needs ends with an error.
#[test]
fn errors_name_a_stalled_host() {
    let mut config = HostConfig::zncache("zn540", CHUNK, Distribution::Uniform, 10.0);
    config = small(config);
    config.zones = 4;
    config.host.placement = Placement::TakenForWrite;
    config.host.left = Left::Empty;
    config.host.evict_at = 3;
    config.host.evict_to = 4;
    config.host.active_zones_zoned = 1;
    config.host.io_zoned = Some(ByteSize::kib(256));
    match run(&config, 0, &mut |_| {}) {
        Err(EvalError::Option { reason, .. }) => {
            assert!(reason.contains("every client waits"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

/// An untrimmed zone of a conventional drive is empty as soon as its last
/// reader has finished. No other event may wake a thread that waits for a zone.
#[test]
fn the_last_reader_of_an_evicted_zone_wakes_waiters() {
    for seed in 0..8 {
        let mut config = HostConfig::oxcache("sn540", ByteSize::mib(256), zipf(), 2.0);
        config.zones = 20;
        config.io = ByteSize::gib(256);
        config.start = StartState::Trimmed;
        let result = run(&small(config), seed, &mut |_| {});
        assert!(result.is_ok(), "seed {seed}: {result:?}");
    }
}

/// With contention, a host is slower with a remote store without latency than
/// with some, and slower again with much. Without contention, a faster store is
/// always better.
#[test]
fn contention_makes_a_host_faster_behind_a_slower_store() {
    let of = |contention_ns, latency_us| {
        let mut config =
            HostConfig::oxcache("zn540", ByteSize::kib(64), Distribution::Uniform, 2.0);
        config.device.shrunk = Some(64);
        config.zone_unit = ByteSize::mib(16);
        config.io = ByteSize::gib(1);
        config.host.contention_ns = contention_ns;
        config.remote.latency_us = latency_us;
        throughput(&run_quietly(&config))
    };
    let [at_once, soon, late] = [0, 10_000, 40_632].map(|latency| of(4_000, latency));
    assert!(
        soon > 1.2 * at_once && soon > 1.2 * late,
        "{at_once} {soon} {late}"
    );
    let [at_once, soon] = [0, 10_000].map(|latency| of(0, latency));
    assert!(at_once > soon, "{at_once} {soon}");
}

/// Both hosts with CLRU have more hits than with ZPLRU. They move chunks on
/// zones; on a conventional device they overwrite them instead.
#[test]
fn clru_hits_more_often_and_moves_chunks_on_zones() {
    for system in [
        HostConfig::zncache as fn(&str, _, _, _) -> _,
        HostConfig::oxcache,
    ] {
        for preset in ["zn540", "sn540"] {
            let of = |policy, interval| {
                let config = system(preset, ByteSize::mib(256), Distribution::Uniform, 2.0);
                let mut config = small(config);
                config.host.policy = policy;
                config.host.evict_interval_ms = interval;
                run_quietly(&config)
            };
            let zones = of(EvictionPolicy::Zplru, None);
            let chunks = of(EvictionPolicy::Clru, None);
            let hits = |found: &HostResult| found.run.whole.hit_ratio;
            assert!(
                hits(&chunks) > hits(&zones),
                "{preset}: {} {}",
                hits(&chunks),
                hits(&zones)
            );
            assert_eq!(zones.moved_chunks, 0);
            assert_eq!(chunks.moved_chunks > 0, preset == "zn540", "{preset}");
            let rarely = of(EvictionPolicy::Clru, Some(100));
            assert_eq!(rarely.run.requests, chunks.run.requests);
        }
    }
}

/// Garbage collection waits for an empty zone while readers hold the zones that
/// it has cleaned.
#[test]
fn collection_waits_for_zones_that_are_being_read() {
    for seed in 0..4 {
        let config = HostConfig::zncache("zn540", ByteSize::mib(256), zipf(), 2.0);
        let mut config = small(config);
        config.host.policy = EvictionPolicy::Clru;
        config.host.evict_interval_ms = Some(100);
        (config.host.evict_at, config.host.evict_to) = (2, 4);
        (config.host.evict_chunks_at, config.host.evict_chunks_to) = (56, 64);
        let result = run(&config, seed, &mut |_| {});
        assert!(result.is_ok(), "seed {seed}: {result:?}");
    }
}

/// The earlier and the more chunks are evicted, the fewer hits remain.
#[test]
fn thresholds_of_chunks_are_kept() {
    let of = |at, to| {
        let config = HostConfig::zncache("sn540", ByteSize::mib(256), Distribution::Uniform, 2.0);
        let mut config = small(config);
        config.host.policy = EvictionPolicy::Clru;
        (config.host.evict_chunks_at, config.host.evict_chunks_to) = (at, to);
        run_quietly(&config).run.whole.hit_ratio
    };
    // 800 chunks, of which 20 or about 400 are never stored.
    let (few, many) = (of(10, 20), of(390, 400));
    assert!(few - many > 0.15, "{few} {many}");
}
