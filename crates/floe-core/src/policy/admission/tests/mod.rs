mod budget;
mod config;
mod sightings;

use super::*;

const SECOND_NS: u64 = 1_000_000_000;

fn second(n: u64) -> Tick {
    Tick(n * SECOND_NS)
}

fn admission(config: AdmissionConfig, seed: u64) -> Admission {
    Admission::new(&config, seed).unwrap()
}

/// A small configuration of every kind.
fn one_of_each() -> [AdmissionConfig; 5] {
    [
        AdmissionConfig::default(),
        AdmissionConfig::Probabilistic(ProbabilisticConfig::default()),
        AdmissionConfig::WriteBudget(WriteBudgetConfig::new(crate::ByteSize::mib(64))),
        AdmissionConfig::Frequency(FrequencyConfig {
            threshold: 2,
            window: 1 << 12,
        }),
        AdmissionConfig::RejectFirst(RejectFirstConfig {
            keys: 1 << 12,
            window_seconds: 3_600,
        }),
    ]
}

#[test]
fn all_admits_all() {
    let mut all = admission(AdmissionConfig::default(), 0);
    for key in 0..100 {
        assert!(all.admit(KeyHash(key), key, second(key)));
    }
    assert_eq!(all.memory_bytes(), 0);
}

#[test]
fn probabilities_are_kept() {
    for (probability, least, most) in [
        (1.0, 100_000, 100_000),
        (0.5, 49_000, 51_000),
        (0.01, 850, 1_150),
    ] {
        let config = AdmissionConfig::Probabilistic(ProbabilisticConfig { probability });
        let mut policy = admission(config, 5);
        for key in 0..100_000 {
            policy.admit(KeyHash(key), 1, Tick::ZERO);
        }
        let admitted = policy.statistics().admitted;
        assert!(
            (least..=most).contains(&admitted),
            "{probability}: {admitted}"
        );
    }
}

#[test]
fn decisions_are_counted() {
    for config in one_of_each() {
        let mut policy = admission(config.clone(), 3);
        let mut expected = AdmissionStatistics::default();
        for at in 0..5_000 {
            let bytes = at % 900;
            match policy.admit(KeyHash(at % 700), bytes, second(at)) {
                true => {
                    expected.admitted += 1;
                    expected.admitted_bytes += bytes;
                }
                false => {
                    expected.rejected += 1;
                    expected.rejected_bytes += bytes;
                }
            }
        }
        let counted = policy.statistics();
        assert_eq!(counted, expected, "{}", config.kind());
        assert_eq!(counted.offered(), 5_000);
        let mut twice = counted;
        twice += counted;
        assert_eq!(twice.offered_bytes(), 2 * counted.offered_bytes());
        assert!(counted.admitted > 0, "{}", config.kind());
    }
}

#[test]
fn the_same_seed_gives_the_same_decisions() {
    for config in one_of_each() {
        let decisions = |seed| {
            let mut policy = admission(config.clone(), seed);
            let ask = |at: u64| policy.admit(KeyHash(at * at % 1_009), 700, Tick(at * 1_000_003));
            (0..3_000).map(ask).collect::<Vec<bool>>()
        };
        assert_eq!(decisions(1), decisions(1), "{}", config.kind());
    }
}

#[test]
fn extreme_values_and_times_count_as_offers() {
    let times = [Tick(5), Tick::MAX, Tick::ZERO, Tick(u64::MAX - 1), Tick(1)];
    for config in one_of_each() {
        let mut policy = admission(config.clone(), 9);
        for at in 0..200_u64 {
            let bytes = [0, 1, u64::MAX, 1 << 63][at as usize % 4];
            let hash = KeyHash(if at % 2 == 0 { 0 } else { u64::MAX });
            policy.admit(hash, bytes, times[at as usize % times.len()]);
            policy.note_hit(hash, times[(at as usize + 1) % times.len()]);
        }
        assert_eq!(policy.statistics().offered(), 200);
        assert_eq!(policy.kind(), config.kind());
    }
}

#[test]
fn memory_follows_the_settings() {
    for config in one_of_each() {
        let mut policy = admission(config.clone(), 9);
        assert_eq!(
            policy.memory_bytes(),
            config.memory_bytes(),
            "{}",
            config.kind()
        );
        for at in 0..20_000 {
            policy.admit(KeyHash(at), at, second(at));
        }
        assert_eq!(
            policy.memory_bytes(),
            config.memory_bytes(),
            "{}",
            config.kind()
        );
    }
    let frequency = AdmissionConfig::Frequency(FrequencyConfig::default());
    assert_eq!(frequency.memory_bytes(), 4 << 20);
    let reject_first = AdmissionConfig::RejectFirst(RejectFirstConfig::default());
    assert_eq!(reject_first.memory_bytes(), 5 << 19);
    let budget = AdmissionConfig::WriteBudget(WriteBudgetConfig::new(crate::ByteSize::gib(1)));
    assert!(budget.memory_bytes() <= 4096);
}
