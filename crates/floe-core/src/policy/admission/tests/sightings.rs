use proptest::prelude::*;

use super::*;
use crate::hash::HashSeed;

fn reject_first(keys: u64, window_seconds: u64) -> Admission {
    let config = RejectFirstConfig {
        keys,
        window_seconds,
    };
    admission(AdmissionConfig::RejectFirst(config), 11)
}

fn frequency(threshold: u32, window: u64) -> Admission {
    admission(
        AdmissionConfig::Frequency(FrequencyConfig { threshold, window }),
        11,
    )
}

/// A distinct key for each `n`.
fn key(n: u64) -> KeyHash {
    KeyHash::of(HashSeed(1), &n.to_le_bytes())
}

#[test]
fn reject_first_turns_by_time() {
    // Seconds after the first sighting, and whether the second is admitted. A
    // key may be remembered for up to a quarter of the window longer.
    for (after, expected) in [
        (0, true),
        (1, true),
        (99, true),
        (126, false),
        (100_000, false),
    ] {
        for first in [0, 13, 24, 25, 1_000_003] {
            let mut policy = reject_first(1 << 12, 100);
            policy.admit(key(0), 1, Tick::ZERO);
            assert!(!policy.admit(key(1), 1, second(first)));
            let second_sight = policy.admit(key(1), 1, second(first + after));
            assert_eq!(second_sight, expected, "{after} s after {first}");
        }
    }
}

#[test]
fn reject_first_turns_by_count() {
    for (between, expected) in [(0, true), (4_095, true), (6_000, false)] {
        for before in [0, 500, 1_023, 1_024, 3_000] {
            let mut policy = reject_first(4_096, 86_400);
            for other in 0..before {
                policy.admit(key(1_000_000 + other), 1, Tick::ZERO);
            }
            assert!(!policy.admit(key(1), 1, Tick::ZERO));
            for other in 0..between {
                policy.admit(key(2_000_000 + other), 1, Tick::ZERO);
            }
            let second_sight = policy.admit(key(1), 1, Tick::ZERO);
            assert_eq!(second_sight, expected, "{between} keys after {before}");
        }
    }
}

#[test]
fn keys_in_use_stay_admissible() {
    let mut policy = reject_first(1 << 12, 100);
    policy.admit(key(1), 1, Tick::ZERO);
    for at in 1..100 {
        assert!(policy.admit(key(1), 1, second(at * 90)));
    }
}

#[test]
fn hits_are_sightings() {
    let mut first = reject_first(1 << 12, 100);
    first.note_hit(key(1), Tick::ZERO);
    assert!(first.admit(key(1), 1, Tick::ZERO));
    let mut sketch = frequency(3, 1 << 12);
    sketch.note_hit(key(1), Tick::ZERO);
    assert!(!sketch.admit(key(1), 1, Tick::ZERO));
    assert!(sketch.admit(key(1), 1, Tick::ZERO));
}

#[test]
fn new_keys_are_rarely_taken_for_known_ones() {
    let count = 1 << 20;
    for (mut policy, most) in [
        (reject_first(1 << 16, 1), 0.003),
        (frequency(2, 1 << 16), 0.01),
    ] {
        for n in 0..count {
            policy.admit(key(n), 1, Tick::ZERO);
        }
        let share = policy.statistics().admitted as f64 / count as f64;
        assert!(share < most, "{}: {share}", policy.kind());
    }
}

#[test]
fn shards_whose_hashes_agree_in_some_bits_do_as_well() {
    for keep in [u64::MAX >> 8, u64::MAX << 8] {
        for (mut policy, most) in [
            (reject_first(1 << 16, 1), 0.003),
            (frequency(2, 1 << 16), 0.01),
        ] {
            for n in 0..1 << 18 {
                policy.admit(KeyHash(key(n).0 & keep), 1, Tick::ZERO);
            }
            let share = policy.statistics().admitted as f64 / f64::from(1 << 18);
            assert!(share < most, "{} {keep:x}: {share}", policy.kind());
        }
    }
}

#[test]
fn thresholds_count_sightings() {
    for threshold in 1..=15 {
        let mut policy = frequency(threshold, 1 << 16);
        for sight in 1..=20 {
            let admitted = policy.admit(key(1), 1, Tick::ZERO);
            assert_eq!(admitted, sight >= threshold, "{sight} of {threshold}");
        }
    }
}

#[test]
fn counts_of_popular_keys_fade() {
    let mut policy = frequency(2, 1 << 10);
    for _ in 0..15 {
        policy.admit(key(1), 1, Tick::ZERO);
    }
    // Four halvings turn 15 into 0.
    for n in 0..5 << 10 {
        policy.admit(key(1_000 + n), 1, Tick::ZERO);
    }
    let AdmissionPolicy::Frequency(sketch) = policy.policy() else {
        panic!("another policy");
    };
    assert!(sketch.estimate(key(1)) <= 1, "{}", sketch.estimate(key(1)));
}

proptest! {
    /// Compares with an exact record of sightings: the guarantee of
    /// `reject_first.rs`.
    #[test]
    fn reject_first_admits_the_second_sight_within_its_window(
        steps in proptest::collection::vec((0u64..400, 0u64..40_000_000_000), 1..8000),
        window_seconds in 1_000u64..200_000,
    ) {
        let keys = 1_024;
        let mut policy = reject_first(keys, window_seconds);
        let mut now = Tick::ZERO;
        let mut seen: std::collections::BTreeMap<u64, (Tick, u64)> = Default::default();
        for (at, (name, pause_ns)) in steps.into_iter().enumerate() {
            // Three of four keys never recur.
            let name = if name < 100 { name } else { 1_000 + at as u64 };
            now = Tick(now.0 + pause_ns);
            let admitted = policy.admit(key(name), 1, now);
            if let Some((then, position)) = seen.insert(name, (now, at as u64)) {
                let time = now.since(then).as_secs_f64() / window_seconds as f64;
                let others = (at as u64 - position) as f64 / keys as f64;
                prop_assert!(admitted || time + others >= 1.0, "{name} after {time} + {others}");
            }
        }
    }
}
