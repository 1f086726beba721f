//! The rules of the policies, by table and against slow models.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn policy(text: &str, granules_max: u64) -> Promotion {
    let config = text.parse().expect(text);
    Promotion::new(&config, granules_max, 7).expect(text)
}

/// A read of `granules` in a full cache.
fn read(granules: Range<u64>) -> Sighting {
    Sighting {
        volume: 1,
        granules,
        write: false,
        partly_cached: false,
        used_bytes: 100 * MIB,
        capacity_bytes: 100 * MIB,
        now: Tick::ZERO,
    }
}

fn at(seconds: u32, granules: Range<u64>) -> Sighting {
    Sighting {
        now: Tick::from_seconds(seconds),
        ..read(granules)
    }
}

#[test]
fn always_admits_everything() {
    let mut always = policy("always", 10);
    assert_eq!(always.see(&read(0..5)), Verdict::All);
    assert_eq!(always.memory_bytes(), 0);
}

#[test]
fn nhit_admits_a_request_when_each_granule_was_requested_often_enough() {
    for threshold in [2, 3, 5] {
        let mut nhit = policy(&format!("nhit-{threshold}"), 100);
        for request in 1..=threshold + 1 {
            let expected = match request >= threshold {
                true => Verdict::All,
                false => Verdict::None,
            };
            assert_eq!(nhit.see(&read(8..9)), expected, "request {request}");
        }
        assert_eq!(nhit.see(&read(8..10)), Verdict::None, "granule 9 is new");
        assert_eq!(nhit.see(&read(108..109)), Verdict::None);
    }
}

#[test]
fn nhit_tells_volumes_apart_and_counts_writes() {
    let mut nhit = policy("nhit-2", 100);
    assert_eq!(nhit.see(&read(8..9)), Verdict::None);
    let mut request = read(8..9);
    request.volume = 2;
    assert_eq!(nhit.see(&request), Verdict::None);
    request.write = true;
    assert_eq!(nhit.see(&request), Verdict::All);
}

#[test]
fn nhit_always_admits_requests_that_are_cached_in_part() {
    let mut nhit = policy("nhit-9", 100);
    let mut request = read(0..4);
    request.partly_cached = true;
    assert_eq!(nhit.see(&request), Verdict::All);
}

#[test]
fn nhit_sleeps_below_its_trigger() {
    let mut nhit = policy("nhit", 100);
    let used = |used_bytes| Sighting {
        used_bytes,
        ..read(0..1)
    };
    let (filling, filled) = (used(80 * MIB - 1), used(80 * MIB));
    for _ in 0..5 {
        assert_eq!(nhit.see(&filling), Verdict::All);
    }
    // Requests below the trigger were not counted.
    assert_eq!(nhit.see(&filled), Verdict::None);
    assert_eq!(nhit.see(&filled), Verdict::None);
    assert_eq!(nhit.see(&filled), Verdict::All);
}

#[test]
fn nhit_starts_anew_after_an_insertion() {
    let mut nhit = policy("nhit-2", 100);
    nhit.see(&read(3..4));
    assert_eq!(nhit.see(&read(3..4)), Verdict::All);
    nhit.note_inserted(Granule::new(1, 3), false);
    assert_eq!(nhit.see(&read(3..4)), Verdict::None);
    assert_eq!(nhit.see(&read(3..4)), Verdict::All);
}

proptest! {
    /// The ring forgets first in, first out, after two addresses per granule of
    /// the cache, whatever the order of requests.
    #[test]
    fn nhit_equals_a_queue_of_counts(
        threshold in 2_u32..5,
        requests in prop::collection::vec((0_u64..60, 1_u64..4, prop::bool::weighted(0.2)), 0..400),
    ) {
        let granules_max = 10;
        let mut nhit = policy(&format!("nhit-{threshold}"), granules_max);
        let mut ring: VecDeque<(u64, u32)> = VecDeque::new();
        for (first, length, inserted) in requests {
            let mut admitted = true;
            for granule in first..first + length {
                let slot = ring.iter().position(|(other, _)| *other == granule);
                let slot = slot.unwrap_or_else(|| {
                    ring.push_back((granule, 0));
                    while ring.len() as u64 > 2 * granules_max {
                        ring.pop_front();
                    }
                    ring.len() - 1
                });
                ring[slot].1 += 1;
                admitted &= ring[slot].1 >= threshold;
            }
            let verdict = nhit.see(&read(first..first + length));
            prop_assert_eq!(verdict == Verdict::All, admitted);
            if admitted && inserted {
                for granule in first..first + length {
                    nhit.note_inserted(Granule::new(1, granule), false);
                    for slot in &mut ring {
                        slot.1 = if slot.0 == granule { 0 } else { slot.1 };
                    }
                }
            }
        }
    }
}

#[test]
fn nhit_reports_at_most_22_bytes_per_remembered_granule() {
    let nhit = policy("nhit-2", 3000);
    let per_granule = nhit.memory_bytes() as f64 / 6000.0;
    assert!((14.0..=22.0).contains(&per_granule), "{per_granule}");
}

#[test]
fn sketch_decides_granule_by_granule() {
    let mut sketch = policy("sketch-2", 1000);
    assert_eq!(sketch.see(&read(4..6)), Verdict::None);
    assert_eq!(sketch.see(&read(4..5)), Verdict::All);
    assert_eq!(sketch.see(&read(4..8)), Verdict::Some);
    let admitted: Vec<_> = (4..8)
        .filter(|number| sketch.admits(Granule::new(1, *number)))
        .collect();
    assert_eq!(admitted, [4, 5]);
    assert_eq!(sketch.memory_bytes(), 16_000);
}

/// Requests of a region for `seconds`, twenty each second.
fn heat(smq: &mut Promotion, region: u64, seconds: Range<u32>) {
    for second in seconds {
        for request in 0..20 {
            let granule = region * 16 + request % 16;
            smq.see(&at(second, granule..granule + 1));
        }
    }
}

#[test]
fn smq_promotes_nothing_in_its_first_second() {
    let mut smq = policy("smq", 1000);
    for request in 0..100 {
        assert_eq!(smq.see(&read(request % 3..request % 3 + 1)), Verdict::None);
    }
}

#[test]
fn smq_promotes_hot_regions_and_not_cold_ones() {
    let mut smq = policy("smq-adaptive", 1000);
    for cold in 0..200 {
        let granule = cold * 16;
        smq.see(&at(0, granule..granule + 1));
    }
    heat(&mut smq, 500, 1..30);
    assert_eq!(smq.see(&at(30, 8000..8001)), Verdict::All);
    assert_eq!(
        smq.see(&at(30, 20_000..20_001)),
        Verdict::None,
        "a new region"
    );
    // A request over the end of the region: one granule is hot, one is not.
    assert_eq!(smq.see(&at(30, 8015..8017)), Verdict::Some);
    assert!(smq.admits(Granule::new(1, 8015)));
    assert!(!smq.admits(Granule::new(1, 8016)));
}

/// With a good confidence dm-cache promotes everything: its adaptive table has no
/// effect. The table, in use, does not.
#[test]
fn confidence_promotes_everything_and_the_table_little() {
    for (text, promotion_level) in [("smq", 0), ("smq-adaptive", 63)] {
        let mut smq = policy(text, 1000);
        heat(&mut smq, 500, 0..30);
        let Policy::Smq(smq) = &smq.policy else {
            panic!("{text} is SMQ");
        };
        assert_eq!(smq.promotion_level(), promotion_level, "{text}");
    }
}

#[test]
fn smq_trusts_nothing_after_an_idle_second() {
    let mut smq = policy("smq", 1000);
    heat(&mut smq, 500, 0..30);
    smq.see(&at(100, 0..1));
    let Policy::Smq(smq) = &smq.policy else {
        panic!("it is SMQ");
    };
    assert_eq!(smq.promotion_level(), 48);
}

#[test]
fn smq_promotes_more_while_the_cache_has_room() {
    let mut smq = policy("smq-adaptive", 1000);
    for second in 0..30 {
        let roomy = Sighting {
            used_bytes: 50 * MIB,
            ..at(second, 8000..8001)
        };
        for _ in 0..20 {
            smq.see(&roomy);
        }
    }
    let Policy::Smq(smq) = &smq.policy else {
        panic!("it is SMQ");
    };
    assert_eq!(smq.promotion_level(), 32);
}

proptest! {
    /// Notes in any order keep each cached granule in exactly one queue.
    #[test]
    fn smq_follows_the_cache(
        steps in prop::collection::vec((0_u8..5, 0_u64..40, 0_u64..200), 0..300),
    ) {
        let mut smq = policy("smq", 20);
        let mut cached: BTreeMap<u64, bool> = BTreeMap::new();
        let mut now = Tick::ZERO;
        for (step, number, seconds) in steps {
            let granule = Granule::new(1, number);
            match step {
                0 if cached.len() < 20 => {
                    smq.note_inserted(granule, number % 2 == 0);
                    cached.entry(number).or_insert(number % 2 == 0);
                }
                1 => smq.note_hit(granule, now),
                2 => {
                    smq.note_dirty(granule, seconds % 2 == 0);
                    cached.entry(number).and_modify(|dirty| *dirty = seconds % 2 == 0);
                }
                3 => {
                    smq.note_removed(granule);
                    cached.remove(&number);
                }
                _ => {
                    now = now + Duration::from_secs(seconds);
                    smq.see(&Sighting { now, ..read(number..number + 3) });
                }
            }
            let Policy::Smq(smq) = &smq.policy else {
                panic!("it is SMQ");
            };
            let dirty = cached.values().filter(|dirty| **dirty).count();
            prop_assert_eq!(smq.queue_lengths(), (cached.len() - dirty, dirty));
        }
    }
}

#[test]
fn short_forms_parse() {
    for (text, config) in [
        ("always", PromotionConfig::Always),
        ("nhit", PromotionConfig::Nhit(NhitConfig::default())),
        (
            "nhit-16",
            PromotionConfig::Nhit(NhitConfig {
                threshold: 16,
                trigger_percent: 0,
            }),
        ),
        ("smq", PromotionConfig::Smq(SmqConfig::default())),
        (
            "sketch-3",
            PromotionConfig::Sketch(SketchConfig { threshold: 3 }),
        ),
    ] {
        assert_eq!(text.parse(), Ok(config), "{text}");
    }
    for text in [
        "",
        "nhit-1",
        "nhit-1001",
        "nhit-x",
        "sketch-16",
        "lru",
        "smq-2",
    ] {
        assert!(text.parse::<PromotionConfig>().is_err(), "{text}");
    }
}

#[test]
fn errors_of_bad_settings_name_the_nearest_valid_value() {
    let config = PromotionConfig::Nhit(NhitConfig {
        threshold: 1001,
        trigger_percent: 0,
    });
    let error = Promotion::new(&config, 10, 0).expect_err("1001 is too much");
    assert_eq!(error.nearest, "1000");
    assert!(
        error
            .to_string()
            .starts_with("threshold = 1001 cannot work")
    );
}
