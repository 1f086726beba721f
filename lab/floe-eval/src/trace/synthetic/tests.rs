use std::path::PathBuf;

use super::super::{BlockRequest, BlockTrace, TraceOptions};
use super::stand_in::{FAMILIES, find};
use super::*;
use crate::stat::{BLOCK_BYTES_DEFAULT, StatOptions, TraceStat, stat};
use crate::volume::{VolumeReplayOptions, replay_volumes};

fn stat_of(name: &str) -> TraceStat {
    stat(&StatOptions {
        trace: PathBuf::from(name),
        options: TraceOptions::default(),
        block_bytes: BLOCK_BYTES_DEFAULT,
    })
    .expect(name)
}

fn requests(name: &str) -> Vec<BlockRequest> {
    let trace = BlockTrace::open(Path::new(name), TraceOptions::default()).expect(name);
    trace.map(|request| request.expect(name)).collect()
}

/// Read shares within 0.5 points, mean sizes within 3 %, shares of small requests
/// within 1 point of Table II and §II-B: fixed before the first run.
#[test]
fn stand_ins_have_the_statistics_of_their_rows() {
    const REQUESTS: f64 = 200_000.0;
    for family in &FAMILIES {
        for (volume, difference) in family.volumes {
            let found = stat_of(&format!("standin:{volume},requests={REQUESTS}"));
            let near = |what: &str, found: f64, expected: f64, tolerance: f64| {
                assert!(
                    (found - expected).abs() <= tolerance,
                    "{volume}: {what} is {found}, and {expected} in the paper"
                );
            };
            let (reads, writes) = (&found.read_sizes, &found.write_sizes);
            let read_share = family.read_share() + difference;
            near(
                "the read share",
                found.operations.read_share(),
                read_share,
                0.005,
            );
            for (what, sizes, kib) in [
                ("the mean read", reads, family.read_kib_mean()),
                ("the mean write", writes, family.write_kib_mean()),
            ] {
                near(what, sizes.mean() / 1024.0, kib, kib * 0.03);
            }
            for (what, sizes, share) in [
                ("the share of small reads", reads, family.small_reads),
                ("the share of small writes", writes, family.small_writes),
            ] {
                near(what, sizes.share_up_to(family.small_kib << 10), share, 0.01);
            }
            assert_eq!(found.operations.total() as f64, REQUESTS);
            assert_eq!(
                (&*found.format, found.volumes),
                ("synthetic stand-in", Some(1))
            );
        }
    }
}

/// The sums of a family's volumes are the row of Table II.
#[test]
fn families_have_the_sums_of_table_ii() {
    for family in &FAMILIES {
        let volumes = family.volumes.iter();
        let differences: f64 = volumes.map(|(_, difference)| difference).sum();
        assert!(differences.abs() < 1e-9, "{}", family.name);
        for (volume, _) in family.volumes {
            assert_eq!(find(volume).expect("a volume").0.name, family.name);
        }
    }
    let means = FAMILIES.each_ref().map(|family| {
        let kib = [family.read_kib_mean(), family.write_kib_mean()];
        kib.map(|kib| (kib * 10.0).round() / 10.0)
    });
    assert_eq!(means, [[26.0, 15.5], [41.5, 24.1], [28.6, 14.8]]);
}

#[test]
fn one_name_is_one_trace() {
    for name in [
        "standin:vd740,requests=3000",
        "synthetic:bursts,requests=3000",
    ] {
        let trace = requests(name);
        assert_eq!(trace.len(), 3000);
        assert_eq!(trace, requests(name));
        assert_ne!(trace, requests(&format!("{name},seed=7")));
    }
    assert_ne!(
        requests("standin:usr_1,requests=3000"),
        requests("standin:usr_2,requests=3000")
    );
}

#[test]
fn wrong_names_say_what_would_be_right() {
    for (name, part) in [
        ("standin:vd3", "there is vd2, vd10, "),
        ("standin:vd2,skew=1", "no option `skew`"),
        ("standin:vd2,requests=many", "requests: "),
        ("synthetic:random", "uniform, zipf, zoned, bursts"),
        ("synthetic:zoned,hit=120%", "not between 0 and 1"),
        ("synthetic:uniform,skew=1.1", "no option `skew`"),
        ("synthetic:uniform,range=1KiB", "has no request of 4KiB"),
        ("synthetic:uniform,size", "has no value"),
    ] {
        let error = BlockTrace::open(Path::new(name), TraceOptions::default()).expect_err(name);
        assert!(format!("{error:?}").contains(part), "{name}: {error:?}");
    }
}

#[test]
fn zipf_has_its_exponent() {
    let found = stat_of("synthetic:zipf,requests=200000,range=64MiB,reads=1");
    assert_eq!(found.format, "synthetic");
    let zipf = found.skew.zipf.expect("a skew");
    assert!((zipf.exponent - 1.1).abs() < 0.15, "{zipf:?}");
    assert_eq!(found.operations.writes, 0);
}

/// A cache with 2 % of the range hits as often as was wanted, and in the cold zone
/// by chance.
#[test]
fn zones_have_the_wanted_hit_rate() {
    for hit in [0.25, 0.85] {
        let result = replay_volumes(&VolumeReplayOptions {
            trace: format!("synthetic:zoned,requests=60000,range=1GiB,hit={hit}").into(),
            options: TraceOptions::default(),
            cases: vec!["sizes=4KiB,capacity=21MiB".parse().expect("settings")],
            requests_max: None,
        })
        .expect("it replays");
        let found = result.caches[0].accesses().hit_ratio();
        assert!((found - hit).abs() < 0.03, "{hit}: {found}");
    }
}

#[test]
fn bursts_have_pauses() {
    let times: Vec<u64> = requests("synthetic:bursts,requests=20001")
        .iter()
        .filter_map(|request| request.time_ns)
        .collect();
    let pauses = times
        .windows(2)
        .filter(|pair| pair[1] - pair[0] > 1_000_000_000);
    assert_eq!((times.len(), pauses.count()), (20_001, 2));
}
