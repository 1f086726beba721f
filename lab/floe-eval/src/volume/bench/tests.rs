use std::path::Path;

use super::*;
use crate::results::Figure;
use crate::run::in_virtual_time;

/// A bench with these lines, besides the sizes that all have.
fn bench(lines: &str) -> VolumeBench {
    let text = format!(
        "cache-device = \"sim ram-disk\"\nbacking-device = \"emulated raid5-sata-ssd\"\n{lines}"
    );
    toml::from_str(&text).expect("the lines are right")
}

/// The figures of a bench in virtual time.
fn run(bench: &VolumeBench) -> impl Fn(&str) -> f64 + use<> {
    let nowhere = Path::new(".");
    let figures = in_virtual_time(7, |clock| drive_volumes(bench, 7, nowhere, nowhere, clock));
    let figures: Vec<Figure> = figures.expect("it runs");
    move |metric| {
        let figure = figures.iter().find(|figure| figure.metric == metric);
        figure.map_or(f64::NAN, |figure| figure.value)
    }
}

const HOT: &str = "
    volume-size = \"400MiB\"
    workload = { kind = \"hotspot\", hot_set = 0.03, hot_operations = 0.8 }
    pacing = { mode = \"closed\", clients = 64 }
    requests = 20000
    warm-up-requests = 20000
    prefill = \"12MiB\"
";

#[test]
fn a_zone_that_fits_gives_the_wanted_hit_ratio() {
    let lines = format!("cache = \"sizes=4KiB,capacity=16MiB,promotion=nhit-2\"\n{HOT}");
    let of = run(&bench(&lines));
    assert!(
        (of("read_hit_ratio") - 0.8).abs() < 0.03,
        "{}",
        of("read_hit_ratio")
    );
    assert_eq!(of("requests"), 20_000.0);
    assert_eq!(of("volume_read_latency_max"), of("latency_max"));
    assert!(
        of("volume_write_latency_mean").is_nan(),
        "nothing was written"
    );
    // A read of the array takes 150 µs, one of the RAM disk some.
    assert!(of("volume_read_latency_p50") < 0.1 && of("volume_read_latency_p99") > 0.1);
    let misses = of("backing_read") / 4096.0;
    assert!((misses - 4000.0).abs() < 400.0, "{misses}");
    let rate = of("requests") / of("elapsed");
    assert!((of("request_rate") / rate - 1.0).abs() < 1e-9);
}

#[test]
fn flushes_come_between_requests() {
    let lines = format!(
        "cache = \"sizes=4KiB,capacity=16MiB,mode=write-back\"\nreads = 0.0\nflush-every = 9\n{HOT}"
    );
    // Every tenth request is a flush.
    assert_eq!(run(&bench(&lines))("requests"), 18_000.0);
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let lines = format!("cache = \"sizes=4KiB..16KiB,capacity=16MiB\"\nreads = 0.5\n{HOT}");
    let bench = bench(&lines);
    let (first, second) = (run(&bench), run(&bench));
    for metric in [
        "elapsed",
        "hit_ratio",
        "cache_io",
        "dirty_share",
        "latency_p99.9",
    ] {
        assert_eq!(first(metric), second(metric), "{metric}");
    }
    assert!(first("dirty_share") > 0.1 && first("write_backs") > 0.0);
}

/// Without write-backs ahead of requests, a cache that is full of dirty blocks stays so,
/// and writes go past it.
#[test]
fn a_cache_full_of_dirty_blocks_is_bypassed() {
    let of = |when_dirty: &str| {
        let lines = format!(
            "cache = \"sizes=4KiB,capacity=16MiB,cleaning=none,when-dirty={when_dirty}\"\nreads = 0.0\n{HOT}"
        );
        run(&bench(&lines))
    };
    let (evict, bypass) = (of("evict"), of("bypass"));
    assert!(bypass("dirty_share") > 0.95, "{}", bypass("dirty_share"));
    assert_eq!(bypass("write_backs"), 0.0);
    assert!(bypass("write_hit_ratio") < 0.85);
    assert!(evict("write_backs") > 0.0);
}

#[test]
fn an_open_loop_sends_at_its_rate() {
    let lines = format!("cache = \"sizes=4KiB,capacity=16MiB\"\n{HOT}");
    let open = "pacing = { mode = \"open\", rate = 10000.0, arrivals = \"fixed\" }";
    let lines = lines.replace("pacing = { mode = \"closed\", clients = 64 }", open);
    let rate = run(&bench(&lines))("request_rate");
    assert!((rate / 10_000.0 - 1.0).abs() < 0.01, "{rate}");
}

/// On one thread, and without a device that suspends it, a client leaves the cache's own
/// tasks their turns, so that misses find room.
#[test]
fn misses_are_kept_in_real_time() {
    let lines = "
        cache = \"sizes=4KiB,capacity=4MiB\"
        volume-size = \"64MiB\"
        workload = { kind = \"uniform\" }
        pacing = { mode = \"closed\", clients = 1 }
        requests = 20000
        warm-up-requests = 2000
    ";
    let bench: VolumeBench = toml::from_str(lines).expect("the lines are right");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let nowhere = Path::new(".");
    let driven = drive_volumes(&bench, 7, nowhere, nowhere, floe_device::Clock::real());
    let figures = runtime.expect("a runtime").block_on(driven);
    let of = |metric: &str| {
        let figures = figures.as_ref().expect("it runs");
        figures
            .iter()
            .find(|figure| figure.metric == metric)
            .map_or(f64::NAN, |f| f.value)
    };
    let (fills, misses) = (of("fills"), of("backing_read"));
    assert!(fills > 0.9 * misses && misses > 4e7, "{fills} of {misses}");
}

/// Files have no holes, which would cost their device no read.
#[test]
fn files_are_written_ahead() {
    use std::os::unix::fs::MetadataExt as _;

    let folder = tempfile::tempdir().expect("a folder");
    let device = devices::DeviceSpec::File.open(
        devices::Role::Cache,
        floe_core::ByteSize::mib(3),
        &floe_device::Clock::real(),
        folder.path(),
    );
    assert_eq!(device.expect("it opens").size_bytes(), 3 << 20);
    let metadata = std::fs::metadata(folder.path().join("cache")).expect("it exists");
    assert!(metadata.blocks() * 512 >= 3 << 20);
}

#[test]
fn devices_are_read_from_text() {
    for text in [
        "memory",
        "file",
        "sim optane",
        "emulated nvdimm { drives = 2 }",
    ] {
        assert!(
            devices::DeviceSpec::try_from(text.to_owned()).is_ok(),
            "{text}"
        );
    }
    for text in ["ram", "sim", "sim ssd", "emulated", "memory 1"] {
        assert!(
            devices::DeviceSpec::try_from(text.to_owned()).is_err(),
            "{text}"
        );
    }
}
