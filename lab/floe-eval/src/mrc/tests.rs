use proptest::prelude::*;

use super::*;

/// A small generator of accesses: popular keys, a scan and a loop.
fn accesses(count: u64) -> Vec<u64> {
    let mut state = 7u64;
    let mut draw = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    (0..count)
        .map(|number| match draw(10) {
            0..6 => ((draw(1 << 20) * draw(1 << 20)) >> 20) / 64,
            6..9 => 100_000 + draw(9000),
            _ => 200_000 + number % 5000,
        })
        .collect()
}

fn curve(mut measure: impl StackDistances, accesses: &[u64]) -> Curve {
    accesses.iter().for_each(|key| measure.access(*key));
    measure.curve()
}

/// Misses of an LRU cache that is a list.
fn misses(accesses: &[u64], size: usize) -> u64 {
    let (mut list, mut misses) = (Vec::new(), 0);
    for key in accesses {
        match list.iter().position(|held| held == key) {
            Some(place) => {
                list.remove(place);
            }
            None => misses += 1,
        }
        list.insert(0, *key);
        list.truncate(size);
    }
    misses
}

#[test]
fn the_exact_curve_counts_the_misses_of_every_size() {
    let accesses = [1, 2, 3, 1, 2, 2, 4, 3, 1];
    let curve = curve(Exact::default(), &accesses);
    assert_eq!((curve.accesses, curve.unique), (9, 4));
    for size in 0..6 {
        let expected = misses(&accesses, size) as f64 / 9.0;
        assert!(
            (curve.miss_ratio(size as u64) - expected).abs() < 1e-12,
            "{size}"
        );
    }
    assert_eq!(curve.size_for(1.0), Some(1));
    assert_eq!(curve.size_for(4.0 / 9.0 + 1e-9), Some(4));
    assert_eq!(curve.size_for(0.1), None);
}

proptest! {
    #[test]
    fn the_exact_curve_equals_a_list(
        accesses in proptest::collection::vec(0u64..40, 1..400),
        size in 1usize..45,
    ) {
        let curve = curve(Exact::default(), &accesses);
        let expected = misses(&accesses, size) as f64 / accesses.len() as f64;
        prop_assert!((curve.miss_ratio(size as u64) - expected).abs() < 1e-9);
    }
}

/// More distinct keys and more accesses than the tree first has room for.
#[test]
fn the_tree_is_numbered_anew() {
    let twice: Vec<u64> = (0..10_000).chain(0..10_000).collect();
    let curve = curve(Exact::default(), &twice);
    assert_eq!(
        (curve.miss_ratio(9_999), curve.miss_ratio(10_000)),
        (1.0, 0.5)
    );
    assert_eq!(curve.steps.len(), 1);
}

#[test]
fn a_sample_of_everything_is_exact() {
    let accesses = accesses(50_000);
    let exact = curve(Exact::default(), &accesses);
    for sampled in [
        curve(FixedRate::new(1.0), &accesses),
        curve(FixedSize::new(1 << 20), &accesses),
    ] {
        assert_eq!(sampled.unique, exact.unique);
        assert_eq!(sampled.mean_absolute_error(&exact, 100), 0.0);
    }
}

#[test]
fn samples_come_close() {
    let accesses = accesses(300_000);
    let exact = curve(Exact::default(), &accesses);
    let rate = curve(FixedRate::new(0.1), &accesses);
    let size = curve(FixedSize::new(2048), &accesses);
    for (name, sampled) in [("rate", rate), ("size", size)] {
        let error = sampled.mean_absolute_error(&exact, 100);
        assert!(error < 0.02, "{name}: {error}");
        let unique = sampled.unique as f64 / exact.unique as f64;
        assert!((0.9..1.1).contains(&unique), "{name}: {unique}");
        assert_eq!(sampled.accesses, exact.accesses, "{name}");
    }
}

#[test]
fn a_sample_of_fixed_size_forgets_keys() {
    let mut measure = FixedSize::new(100);
    for key in 0..50_000 {
        measure.access(key);
    }
    assert!(measure.sampled() <= 100);
    let unique = measure.curve().unique as f64;
    assert!((unique / 50_000.0 - 1.0).abs() < 0.3, "{unique}");
}

#[test]
fn no_access_has_no_curve() {
    let curve = Exact::default().curve();
    assert_eq!(
        (
            curve.miss_ratio(0),
            curve.miss_ratio(9),
            curve.size_for(0.5)
        ),
        (1.0, 1.0, None)
    );
    assert_eq!(FixedSize::new(0).curve().steps, []);
}
