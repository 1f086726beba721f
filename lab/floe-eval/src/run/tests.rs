use std::path::PathBuf;

use floe::latency::LatencyRule;
use floe_core::ByteSize;
use floe_device::{Clock, DeviceConfig, virtual_time};

use super::*;
use crate::error::EvalError;
use crate::experiment::{CacheSpec, CacheUnderTest, TargetKind};
use crate::trace::TraceOptions;
use crate::workload::Distribution;

const SEED: u64 = 9;

async fn cache(clock: &Clock, target: TargetKind, latency_ms: f64) -> CacheUnderTest {
    let device = DeviceConfig {
        zone_size: Some(ByteSize::mib(1)),
        ..DeviceConfig::memory(ByteSize::mib(64))
    };
    let spec = CacheSpec {
        target,
        device,
        origin_latency: LatencyRule::Constant { ms: latency_ms },
        ..CacheSpec::default()
    };
    let opened = spec.open(clock, SEED, std::path::Path::new(".")).await;
    opened.unwrap_or_else(|error| panic!("{error}"))
}

async fn store_target(clock: &Clock, latency_ms: f64) -> Target {
    cache(clock, TargetKind::Store, latency_ms).await.target
}

fn synthetic(distribution: Distribution, items: u64) -> BenchOptions {
    let workload = WorkloadSpec {
        distribution,
        items,
        seed: 5,
    };
    let source = RequestSource::Synthetic {
        workload,
        object_bytes: 4096,
        read_bytes: None,
    };
    BenchOptions {
        pacing: Pacing::Closed { clients: 4 },
        stop: requests(1000),
        verify_seed: Some(SEED),
        progress: Progress::Off,
        bin: Duration::from_millis(100),
        ..BenchOptions::new("test", source)
    }
}

/// A run in virtual time over an origin with a latency of `latency_ms`.
fn run(latency_ms: f64, options: BenchOptions) -> RunResult {
    virtual_time::run(1, |clock| async move {
        let target = store_target(&clock, latency_ms).await;
        bench(&target, &clock, None, &options).await.expect("runs")
    })
}

fn open_loop(rate: f64, arrivals: Arrivals, in_flight_max: usize) -> Pacing {
    Pacing::Open {
        rate,
        arrivals,
        in_flight_max,
    }
}

fn requests(count: u64) -> Stop {
    Stop {
        requests: Some(count),
        duration: None,
    }
}

fn trace(path: PathBuf) -> BenchOptions {
    let source = RequestSource::Trace {
        path,
        options: TraceOptions::default(),
        object_bytes: 1000,
    };
    BenchOptions {
        verify_seed: Some(SEED),
        progress: Progress::Off,
        ..BenchOptions::new("trace", source)
    }
}

#[test]
fn a_closed_loop_in_virtual_time_is_exact_and_repeatable() {
    let options = BenchOptions {
        pacing: Pacing::Closed { clients: 1 },
        ..synthetic(Distribution::Scan, 100)
    };
    let result = run(10.0, options.clone());
    assert!(result.is_virtual);
    assert_eq!(result.requests, 1000);
    assert_eq!(result.failed, 0);
    assert_eq!(result.verified_bytes, 1000 * 4096);
    // Each of a hundred objects misses once.
    assert_eq!(result.whole.miss.count, 100);
    assert_eq!(result.whole.hit_ratio, 0.9);
    assert!((result.whole.miss.p50_ms - 10.0).abs() < 0.01);
    assert_eq!(result.whole.hit.max_ms, 0.0);
    assert!((result.whole.length_s - 1.0).abs() < 1e-6);
    assert_eq!(result.bins.len(), 10);
    let again = run(10.0, options);
    assert_eq!(result.whole, again.whole);
    assert_eq!(result.bins, again.bins);
}

fn paced(pacing: Pacing, count: u64, options: BenchOptions) -> BenchOptions {
    BenchOptions {
        pacing,
        stop: requests(count),
        ..options
    }
}

#[test]
fn an_open_loop_counts_waiting_from_the_intended_start() {
    let pacing = open_loop(100.0, Arrivals::Fixed, 1);
    let result = run(100.0, paced(pacing, 50, synthetic(Distribution::Scan, 100)));
    // Each request waits for all before it: the n-th starts at 10 n ms and ends
    // at 10 + 100 n ms.
    assert!((result.whole.get.max_ms - (10.0 + 100.0 * 50.0 - 500.0)).abs() < 5.0);
}

#[test]
fn poisson_arrivals_keep_their_rate() {
    let pacing = open_loop(1000.0, Arrivals::Poisson, 100);
    let uniform = synthetic(Distribution::Uniform, 100_000);
    let result = run(1.0, paced(pacing, 5000, uniform));
    assert!(
        (4.7..5.3).contains(&result.whole.length_s),
        "{:?}",
        result.whole
    );
    assert!((result.whole.get.p50_ms - 1.0).abs() < 0.01);
}

#[tokio::test]
async fn a_read_through_cache_is_driven_and_verified() {
    let clock = Clock::real();
    let cache = cache(&clock, TargetKind::Object, 0.0).await;
    let options = synthetic(Distribution::Uniform, 100);
    let device = Some(&*cache.device);
    let result = bench(&cache.target, &clock, device, &options)
        .await
        .expect("runs");
    cache.close().await.expect("closes");
    assert_eq!(result.requests, 1000);
    assert_eq!(result.verified_bytes, 1000 * 4096);
    assert_eq!(result.failed, 0, "{:?}", result.first_failure);
    assert!(!result.is_virtual);
}

#[tokio::test]
async fn warm_ups_are_not_measured_and_durations_end_runs() {
    let clock = Clock::real();
    let target = store_target(&clock, 0.0).await;
    let options = BenchOptions {
        warm_up_requests: 100,
        stop: Stop {
            requests: None,
            duration: Some(Duration::from_millis(30)),
        },
        ..synthetic(Distribution::Scan, 100)
    };
    let result = bench(&target, &clock, None, &options).await.expect("runs");
    assert_eq!(result.whole.hit_ratio, 1.0, "the warm-up read all");
    assert!((0.03..3.0).contains(&result.whole.length_s));
}

#[test]
fn a_wrong_byte_stops_the_run() {
    let error = virtual_time::run(1, |clock| async move {
        let target = store_target(&clock, 1.0).await;
        let options = BenchOptions {
            verify_seed: Some(SEED + 1),
            ..synthetic(Distribution::Scan, 100)
        };
        bench(&target, &clock, None, &options)
            .await
            .expect_err("lies")
    });
    assert!(matches!(error, EvalError::WrongBytes { .. }), "{error}");
}

#[test]
fn traces_are_replayed_with_ranges_writes_and_deletes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.csv");
    let content = "timestamp,cacheKey,OpType,objectSize,rangeStart,rangeEnd\n\
        1,a,1,1000,100,199\n2,a,1,1000,-1,-1\n3,a,3,1000,-1,-1\n\
        4,a,1,1000,5000,6000\n5,b,2,700,-1,-1\n6,b,1,700,-1,-1\n";
    std::fs::write(&path, content).expect("written");
    let pacing = Pacing::Recorded {
        speed: 2.0,
        in_flight_max: 10,
    };
    let options = BenchOptions {
        pacing,
        ..trace(path)
    };
    let result = run(1.0, options);
    assert_eq!(result.requests, 6);
    assert_eq!(result.failed, 0, "{:?}", result.first_failure);
    assert_eq!(
        (result.whole.hit.count, result.whole.miss.count),
        (1 + 1, 2)
    );
    // Five seconds of trace at twice the speed.
    assert!(
        (2.5..2.6).contains(&result.whole.length_s),
        "{}",
        result.whole.length_s
    );
}

#[test]
fn objects_that_change_their_size_are_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.csv");
    std::fs::write(
        &path,
        "0,k,1,99,1,get,0\n1,k,1,99,1,get,0\n2,k,1,499,1,get,0\n3,k,1,499,1,get,0\n",
    )
    .expect("written");
    let options = BenchOptions {
        pacing: Pacing::Closed { clients: 1 },
        ..trace(path)
    };
    let result = run(1.0, options);
    assert_eq!((result.whole.hit.count, result.whole.miss.count), (2, 2));
    assert_eq!(result.verified_bytes, 2 * 100 + 2 * 500);
}

#[tokio::test]
async fn invalid_runs_are_rejected() {
    let clock = Clock::real();
    let target = store_target(&clock, 0.0).await;
    let base = || synthetic(Distribution::Scan, 10);
    for (options, named) in [
        (
            BenchOptions {
                stop: Stop::default(),
                ..base()
            },
            "stop",
        ),
        (
            BenchOptions {
                pacing: Pacing::Closed { clients: 0 },
                ..base()
            },
            "clients",
        ),
        (
            BenchOptions {
                pacing: Pacing::Open {
                    rate: f64::NAN,
                    arrivals: Arrivals::Fixed,
                    in_flight_max: 1,
                },
                ..base()
            },
            "rate",
        ),
        (
            BenchOptions {
                bin: Duration::ZERO,
                ..base()
            },
            "bin",
        ),
    ] {
        let error = bench(&target, &clock, None, &options)
            .await
            .expect_err(named);
        assert!(error.to_string().starts_with(named), "{error}");
    }
}

#[test]
fn a_deadlock_is_named() {
    let halted: Result<(), EvalError> = in_virtual_time(1, |_clock| std::future::pending());
    let error = halted.expect_err("no task completes it");
    assert!(crate::error::chain(&error).contains("deadlock at virtual time"));
}

#[test]
fn a_request_to_a_block_device_is_replayed_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks.spc");
    // Objects of 4,096 bytes: one request lies in one, one spans from the
    // middle of the third to the sixth, one is empty.
    std::fs::write(&path, "0,0,4096,r,0.5\n1,20,10240,W,1.5\n1,0,0,r,2.0\n").unwrap();
    let source = RequestSource::Trace {
        path,
        options: TraceOptions {
            format: Some(crate::trace::TraceFormat::Spc),
            ..TraceOptions::default()
        },
        object_bytes: 4096,
    };
    let mut stream = RequestStream::open(&source).unwrap();
    let mut pieces = Vec::new();
    while let Some(piece) = stream.next_request().unwrap() {
        assert_eq!(piece.object_bytes, 4096);
        pieces.push((
            piece.key.to_string(),
            piece.offset,
            piece.length,
            piece.time_ns,
        ));
    }
    let piece =
        |key: &str, offset, length, time_ns| (key.to_owned(), offset, length, Some(time_ns));
    assert_eq!(
        pieces,
        [
            piece("0.0", 0, 4096, 500_000_000),
            piece("1.2", 2048, 2048, 1_500_000_000),
            piece("1.3", 0, 4096, 1_500_000_000),
            piece("1.4", 0, 4096, 1_500_000_000),
        ]
    );
}
