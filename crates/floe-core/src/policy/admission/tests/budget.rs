use proptest::prelude::*;

use super::*;
use crate::ByteSize;

const DAY: u64 = 86_400;
const HOUR: u64 = 3_600;
const KIB: u64 = 1 << 10;

fn budget(config: WriteBudgetConfig, seed: u64) -> Admission {
    admission(AdmissionConfig::WriteBudget(config), seed)
}

fn inside(policy: &Admission) -> &WriteBudget {
    let AdmissionPolicy::WriteBudget(budget) = policy.policy() else {
        panic!("another policy");
    };
    budget
}

/// Offers `values(second)` values of `bytes` in each second. Returns the bytes
/// admitted in each hour, relative to an even spread.
fn hours(
    policy: &mut Admission,
    per_day: u64,
    days: u64,
    bytes: u64,
    values: impl Fn(u64) -> u64,
) -> Vec<f64> {
    let even = per_day as f64 / 24.0;
    let hour = |hour: u64| {
        let before = policy.statistics().admitted_bytes;
        for at in hour * HOUR..(hour + 1) * HOUR {
            for _ in 0..values(at) {
                policy.admit(KeyHash(at), bytes, second(at));
            }
        }
        (policy.statistics().admitted_bytes - before) as f64 / even
    };
    (0..days * 24).map(hour).collect()
}

#[test]
fn the_whole_day_is_used_and_evenly() {
    // Offers five times the budget, then exactly the budget.
    let (per_day, least) = (DAY * 64 * KIB, 0.985);
    for values in [5, 1] {
        let mut policy = budget(WriteBudgetConfig::new(ByteSize(per_day)), 1);
        let shares = hours(&mut policy, per_day, 3, 64 * KIB, |_| values);
        assert!(shares[0] > 0.75, "{shares:?}");
        for share in &shares[1..] {
            assert!((least - 0.05..1.05).contains(share), "{shares:?}");
        }
        for day in shares[1..].windows(24) {
            let sum = day.iter().sum::<f64>() / 24.0;
            assert!((least..=1.0).contains(&sum), "{sum} {shares:?}");
        }
    }
}

#[test]
fn a_saved_burst_is_spent_at_the_peak() {
    // A third of the even rate for twelve hours, then far more than it.
    let per_day = 8 << 30;
    let config = WriteBudgetConfig {
        burst: Some(ByteSize(per_day / 4)),
        ..WriteBudgetConfig::new(ByteSize(per_day))
    };
    let mut policy = budget(config, 2);
    let night = |at: u64| at % DAY < 12 * HOUR;
    let values = |at: u64| if night(at) { at % 2 } else { 6 };
    let shares = hours(&mut policy, per_day, 4, 64 * KIB, values);
    let days: Vec<f64> = shares
        .chunks(24)
        .map(|day| day.iter().sum::<f64>() / 24.0)
        .collect();
    for (hour, share) in shares.iter().enumerate().skip(24) {
        match hour % 24 < 12 {
            true => assert!((0.3..0.36).contains(share), "{hour}: {shares:?}"),
            false => assert!((0.9..2.1).contains(share), "{hour}: {shares:?}"),
        }
    }
    assert!(
        days[1..].iter().all(|day| (0.85..=1.0).contains(day)),
        "{days:?}"
    );
}

#[test]
fn less_than_the_budget_is_all_admitted() {
    let per_day = 6 << 30;
    let mut policy = budget(WriteBudgetConfig::new(ByteSize(per_day)), 1);
    // Offers half of the budget, after an hour in which the bucket fills. The
    // bucket begins to fill at the first call, whose value is larger than it
    // will ever hold.
    policy.admit(KeyHash(0), u64::MAX, Tick::ZERO);
    hours(&mut policy, per_day, 1, 64 * KIB, |at| {
        u64::from(at > HOUR && at % 2 == 0)
    });
    let counted = policy.statistics();
    assert_eq!(counted.rejected, 1);
    assert!(counted.admitted > 41_000);
    let rejections = BudgetRejections {
        too_large: 1,
        ..BudgetRejections::default()
    };
    assert_eq!(inside(&policy).rejections(), rejections);
    assert_eq!(inside(&policy).day_bytes(), counted.admitted_bytes);
    assert_eq!(inside(&policy).probability(1), 1.0);
    assert!(inside(&policy).available_bytes() > 0);
}

#[test]
fn the_probability_follows_the_offers() {
    let per_day = 864 * (100 << 10);
    let mut policy = budget(WriteBudgetConfig::new(ByteSize(per_day)), 1);
    // The budget is 1 KiB/s.
    for (times, probability) in [(2, 0.5), (4, 0.25), (20, 0.05)] {
        let from = 10 * HOUR * times;
        for at in from..from + 2 * HOUR {
            for _ in 0..times {
                policy.admit(KeyHash(at), KIB, second(at));
            }
        }
        let set = inside(&policy).probability(KIB);
        assert!((0.8..1.2).contains(&(set / probability)), "{times}: {set}");
    }
    let rejections = inside(&policy).rejections();
    assert!(
        rejections.chance > 100 * (rejections.pace + rejections.day),
        "{rejections:?}"
    );
}

#[test]
fn sizes_are_treated_alike_or_not_as_configured() {
    let per_day = 6 << 30;
    let offered = [KIB, 16 * KIB, 256 * KIB];
    let shares = |size_bias: f64| {
        let config = WriteBudgetConfig {
            size_bias,
            ..WriteBudgetConfig::new(ByteSize(per_day))
        };
        let mut policy = budget(config, 4);
        let mut admitted = [0_u64; 3];
        for at in 0..DAY {
            for (class, bytes) in offered.into_iter().enumerate() {
                admitted[class] += u64::from(policy.admit(KeyHash(at), bytes, second(at)));
            }
        }
        let sum = policy.statistics().admitted_bytes as f64 / per_day as f64;
        (admitted.map(|count| count as f64 / DAY as f64), sum)
    };
    let (alike, sum) = shares(0.0);
    assert!(
        alike
            .iter()
            .all(|share| (share / alike[0] - 1.0).abs() < 0.05),
        "{alike:?}"
    );
    assert!((0.95..=1.0).contains(&sum), "{sum}");
    let (biased, sum) = shares(0.5);
    assert!(
        biased[0] > 0.95 && biased[1] > 2.0 * biased[2],
        "{biased:?}"
    );
    assert!((0.95..=1.0).contains(&sum), "{sum}");
}

#[test]
fn values_larger_than_the_burst_are_never_admitted() {
    let config = WriteBudgetConfig {
        burst: Some(ByteSize(64 * KIB)),
        ..WriteBudgetConfig::new(ByteSize::gib(1))
    };
    let mut policy = budget(config, 1);
    policy.admit(KeyHash(0), 1, Tick::ZERO);
    assert!(policy.admit(KeyHash(1), 64 * KIB, second(HOUR)));
    assert!(!policy.admit(KeyHash(2), 64 * KIB + 1, second(2 * HOUR)));
    assert_eq!(inside(&policy).rejections().too_large, 1);
}

#[test]
fn a_bucket_of_a_day_does_not_make_two_days_of_one() {
    let config = WriteBudgetConfig {
        burst: Some(ByteSize::gib(1)),
        ..WriteBudgetConfig::new(ByteSize::gib(1))
    };
    let mut policy = budget(config, 1);
    let mut flood = |at: u64, values: u64| {
        let before = policy.statistics().admitted;
        for _ in 0..values {
            policy.admit(KeyHash(0), 64 * KIB, second(at));
        }
        policy.statistics().admitted - before
    };
    let whole = (1 << 30) / (64 * KIB);
    assert_eq!(flood(0, 1), 0);
    // Three quarters of the budget, saved the day before, are spent at once.
    assert_eq!(flood(DAY + 300, whole * 3 / 4), whole * 3 / 4);
    // Half a day later the bucket is full again, but the day allows only a
    // quarter.
    assert_eq!(flood(DAY + DAY / 2, whole), whole / 4);
    assert_eq!(flood(2 * DAY, whole), 0);
    // A slot later the first three quarters have left the window.
    assert!(flood(2 * DAY + 600, whole) > 0);
    assert!(inside(&policy).rejections().day > 0);
}

#[test]
fn savings_begin_with_the_first_decision() {
    let mut policy = budget(WriteBudgetConfig::new(ByteSize::gib(1)), 1);
    assert!(!policy.admit(KeyHash(0), KIB, second(30 * DAY)));
    assert!(policy.admit(KeyHash(0), KIB, second(30 * DAY + 1)));
}

/// A pause before, and the size of, each of many offers.
fn offers() -> impl Strategy<Value = Vec<(u64, u64)>> {
    // Pauses are mostly short and sometimes hours long.
    let pause = prop_oneof![
        8 => 0u64..2 * SECOND_NS,
        2 => 0u64..600 * SECOND_NS,
        1 => 0u64..20 * HOUR * SECOND_NS,
    ];
    let bytes = prop_oneof![3 => 0u64..4 * KIB, 1 => 0u64..400 * KIB];
    proptest::collection::vec((pause, bytes), 1..3_000)
}

proptest! {
    #[test]
    fn no_window_has_more_than_its_budget(
        offers in offers(),
        per_day in (1u64 << 20)..(8 << 20),
        burst_share in 1u64..=48,
        size_bias in 0.0f64..=1.0,
        seed: u64,
    ) {
        let burst = (per_day / burst_share).max(4 * KIB);
        let mut policy = budget(
            WriteBudgetConfig {
                bytes_per_day: ByteSize(per_day),
                burst: Some(ByteSize(burst)),
                size_bias,
            },
            seed,
        );
        let mut now = 0;
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for (pause_ns, bytes) in offers {
            now += pause_ns;
            if policy.admit(KeyHash(now), bytes, Tick(now)) {
                admitted.push((now, bytes));
            }
        }
        for (last, (end, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for (begin, bytes) in admitted[..=last].iter().rev() {
                let elapsed_ns = end - begin;
                if elapsed_ns >= DAY * SECOND_NS {
                    break;
                }
                sum += bytes;
                prop_assert!(sum <= per_day, "{sum} in a day");
                let even = u128::from(per_day) * u128::from(elapsed_ns) / u128::from(DAY * SECOND_NS);
                prop_assert!(u128::from(sum) <= u128::from(burst) + even + 1, "{sum} in {elapsed_ns} ns");
            }
        }
    }
}
