//! The law, for each engine.

use super::oracle::Oracle;
use crate::tiny::{Engine, Flash, Log, LogConfig, LogPlan, Set, SetConfig, SetPlan, SetPolicy};

const FLASH: Flash = Flash {
    zones: 16,
    zone_pages: 8,
    in_place: true,
};

fn check<E: Engine>(engine: impl Fn() -> E, flash: Flash) {
    for seed in 0..10 {
        let oracle = Oracle {
            seed,
            ..Oracle::default()
        };
        let seen = oracle.run(engine(), flash);
        assert!(seen.hits > 400, "{seen:?}");
        assert!(
            seen.forgotten > 0,
            "the flash is too large to test eviction: {seen:?}"
        );
    }
}

#[test]
fn log_never_lies() {
    for readmit_hit in [false, true] {
        let config = LogConfig {
            segment_pages: 3,
            readmit_hit,
            ..LogConfig::default()
        };
        check(|| Log::new(LogPlan::new(&config, &FLASH).unwrap()), FLASH);
    }
}

#[test]
fn set_never_lies() {
    for policy in [SetPolicy::Fifo, SetPolicy::Rrip] {
        let config = SetConfig {
            policy,
            ..SetConfig::default()
        };
        check(|| Set::new(SetPlan::new(&config, &FLASH).unwrap()), FLASH);
    }
}
