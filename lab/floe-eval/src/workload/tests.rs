use super::*;

fn counts(distribution: Distribution, items: u64, draws: u32) -> Vec<u32> {
    let mut counts = vec![0; items as usize];
    for id in workload(distribution, items, 42).take(draws as usize) {
        counts[id as usize] += 1;
    }
    counts
}

fn workload(distribution: Distribution, items: u64, seed: u64) -> Workload {
    Workload::new(&WorkloadSpec {
        distribution,
        items,
        seed,
    })
    .expect("a valid workload")
}

fn zipf(skew: f64, scrambled: bool) -> Distribution {
    Distribution::Zipf { skew, scrambled }
}

/// Ranks have their share, within five standard deviations of a count.
fn assert_zipfian(skew: f64, exact: bool) {
    let (items, draws) = (1000, 400_000);
    let counts = counts(zipf(skew, false), items, draws);
    let total = zeta(0, items, skew, 0.0);
    for rank in [0, 1, 2, 9, 49, 199, 999] {
        let share = 1.0 / ((rank + 1) as f64).powf(skew) / total;
        let expected = share * f64::from(draws);
        // Gray's form is exact for the first two ranks and close for others.
        let closeness = if exact || rank < 2 { 0.0 } else { 0.16 };
        let slack = 5.0 * expected.sqrt() + 1.0 + closeness * expected;
        let found = f64::from(counts[rank]);
        assert!(
            (found - expected).abs() <= slack,
            "skew {skew}, rank {rank}: {found} instead of {expected:.0}"
        );
    }
}

#[test]
fn zipf_ranks_have_their_share() {
    for skew in [0.2, 0.5, 0.8, 0.99] {
        assert_zipfian(skew, false);
    }
    for skew in [1.0, 1.0 + 1e-10, 1.2, 2.5] {
        assert_zipfian(skew, true);
    }
}

#[test]
fn ycsb_constants() {
    // The hash of Utils.fnvhash64, whose result is made non-negative.
    assert_eq!(
        fnv1a_64(0),
        (0xa8c7_f832_281a_39c5u64 as i64).unsigned_abs()
    );
    assert_eq!(
        fnv1a_64(1),
        (0x89cd_3129_1d2a_efa4u64 as i64).unsigned_abs()
    );
    // zeta(n, 0.99), and that growing in steps gives the same.
    assert!((zeta(0, 2, 0.99, 0.0) - (1.0 + 0.5f64.powf(0.99))).abs() < 1e-15);
    let whole = zeta(0, 100_000, 0.99, 0.0);
    let steps = zeta(40_000, 100_000, 0.99, zeta(0, 40_000, 0.99, 0.0));
    assert_eq!(whole, steps);
    // YCSB's constant is the sum it says: the integral's remainder from 10^7 on.
    let (head, from) = (zeta(0, 10_000_000, 0.99, 0.0), 10_000_000f64);
    let tail = ((YCSB_SCRAMBLED_ITEMS as f64).powf(0.01) - from.powf(0.01)) / 0.01;
    assert!((head + tail - YCSB_ZETA_OF_SCRAMBLED_ITEMS).abs() < 1e-6);
}

#[test]
fn scrambled_zipf_is_hot_where_ycsb_is() {
    let items = 1000;
    let counts = counts(zipf(0.99, true), items, 200_000);
    let hottest = (0..items).max_by_key(|&id| counts[id as usize]);
    assert_eq!(hottest, Some(fnv1a_64(0) % items));
    // Rank 0 has 1/26.469 of all draws; other ranks may share its id.
    let share = f64::from(counts[(fnv1a_64(0) % items) as usize]) / 200_000.0;
    assert!((0.0378 - 0.002..0.0378 + 0.004).contains(&share), "{share}");
}

#[test]
fn a_grown_zipf_equals_one_created_large() {
    use rand::SeedableRng;
    for skew in [0.7, 1.3] {
        let mut grown = Zipf::new(10, skew, false).expect("valid");
        grown.grow(5000);
        let large = Zipf::new(5000, skew, false).expect("valid");
        let mut a = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut b = a.clone();
        for _ in 0..1000 {
            assert_eq!(grown.sample(&mut a), large.sample(&mut b));
        }
    }
}

#[test]
fn the_same_seed_draws_the_same() {
    let draw = |seed| -> Vec<u64> { workload(zipf(0.9, true), 500, seed).take(50).collect() };
    assert_eq!(draw(3), draw(3));
    assert_ne!(draw(3), draw(4));
}

#[test]
fn hotspots_scans_mixes_and_phases() {
    let hot = Distribution::Hotspot {
        hot_set: 0.1,
        hot_operations: 0.9,
    };
    let in_hot: u32 = counts(hot.clone(), 100, 100_000)[..10].iter().sum();
    assert!((89_000..91_000).contains(&in_hot), "{in_hot}");

    let scan: Vec<u64> = workload(Distribution::Scan, 3, 0).take(5).collect();
    assert_eq!(scan, [0, 1, 2, 0, 1]);

    let part = |weight, from| Weighted { weight, from };
    let nothing_cold = Distribution::Hotspot {
        hot_set: 0.0,
        hot_operations: 1.0,
    };
    let mix = Distribution::Mix {
        parts: vec![part(3.0, nothing_cold), part(1.0, Distribution::Uniform)],
    };
    let first = counts(mix, 100, 100_000)[0];
    assert!((74_500..76_000).contains(&first), "{first}");

    let phase = |requests, from| Phase { requests, from };
    let phases = Distribution::Phases {
        phases: vec![
            phase(2, Distribution::Scan),
            phase(0, hot),
            phase(1, Distribution::Scan),
        ],
    };
    let ids: Vec<u64> = workload(phases, 10, 0).take(5).collect();
    assert_eq!(ids, [0, 1, 0, 1, 2]);
}

#[test]
fn invalid_distributions_are_rejected() {
    let rejected = |distribution, items| {
        Workload::new(&WorkloadSpec {
            distribution,
            items,
            seed: 0,
        })
        .is_err()
    };
    assert!(rejected(Distribution::Uniform, 0));
    for skew in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(rejected(zipf(skew, false), 10), "{skew}");
    }
    assert!(rejected(Distribution::Mix { parts: vec![] }, 10));
    assert!(rejected(Distribution::Phases { phases: vec![] }, 10));
    let bad = Distribution::Hotspot {
        hot_set: 1.5,
        hot_operations: 0.5,
    };
    assert!(rejected(bad, 10));
}

#[test]
fn working_sets_follow_the_papers() {
    // 1077 MiB zones of 512 MiB chunks, 904 zones, ratio 10.
    assert_eq!(working_set_items(10.0, 2, 904), Ok(18_080));
    for (ratio, chunks, zones) in [
        (0.0, 2, 2),
        (f64::NAN, 2, 2),
        (2.0, 0, 9),
        (10.0, u64::MAX, 2),
        (1e30, 1, 1),
    ] {
        assert!(working_set_items(ratio, chunks, zones).is_err());
    }
}

#[test]
fn workload_files_round_trip() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ids");
    let ids = [0u64, 1, 0xdead_beef, u64::from(u32::MAX)];
    assert_eq!(write_ids(&path, ids.into_iter()).expect("written"), 4);
    assert_eq!(std::fs::read(&path).expect("read")[4..8], [1, 0, 0, 0]);
    let back: Vec<u64> = read_ids(&path)
        .expect("opens")
        .collect::<Result<_, _>>()
        .expect("reads");
    assert_eq!(back, ids);
    let too_large = write_ids(&path, [1u64 << 32].into_iter());
    assert!(matches!(
        too_large,
        Err(WorkloadFileError::IdTooLarge { .. })
    ));
    std::fs::write(&path, [1, 2, 3]).expect("write");
    assert!(matches!(
        read_ids(&path),
        Err(WorkloadFileError::Cut { .. })
    ));
}
