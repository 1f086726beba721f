//! The law, for each engine.

use super::fifo::Fifo;
use super::oracle::Oracle;
use super::unruly::Unruly;
use crate::tiny::nemo::{FilterKind, FilterSizing, Nemo, NemoConfig, NemoPlan};
use crate::tiny::{
    Engine, FairyWren, FairyWrenConfig, FairyWrenPlan, Flash, Kangaroo, KangarooConfig,
    KangarooPlan, Log, LogConfig, LogPlan, Set, SetConfig, SetPlan, SetPolicy, SetStorage,
};

const FLASH: Flash = Flash {
    zones: 16,
    zone_pages: 8,
    in_place: true,
};

fn check<E: Engine>(engine: impl Fn() -> E, flash: Flash) {
    for seed in 0..10 {
        let oracle = Oracle {
            seed,
            bytes: (20, 1_800),
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
fn fifo_never_lies() {
    check(|| Fifo::new(FLASH), FLASH);
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
            eviction: policy,
            ..SetConfig::default()
        };
        check(|| Set::new(SetPlan::new(&config, &FLASH).unwrap()), FLASH);
    }
}

/// Many small zones, because each ring needs spare ones.
const ZONES: Flash = Flash {
    zones: 60,
    zone_pages: 4,
    in_place: false,
};

fn small_kangaroo() -> KangarooConfig {
    KangarooConfig {
        segment_pages: 3,
        segments_buffered: 2,
        ..KangarooConfig::default()
    }
}

#[test]
fn kangaroo_never_lies_in_place() {
    let plan = KangarooPlan::new(&small_kangaroo(), &FLASH).unwrap();
    check(|| Kangaroo::new(plan.clone()), FLASH);
}

#[test]
fn kangaroo_never_lies_on_zones() {
    for threshold in [1, 2, 3] {
        let config = KangarooConfig {
            threshold,
            set_storage: SetStorage::Zoned,
            over_provisioning_percent: 15,
            log_percent: 10,
            ..small_kangaroo()
        };
        let plan = KangarooPlan::new(&config, &ZONES).unwrap();
        check(|| Kangaroo::new(plan.clone()), ZONES);
    }
}

#[test]
fn fairywren_never_lies() {
    for (log_percent, over_provisioning_percent, filter_bytes) in
        [(5, 15, 24), (20, 50, 8), (10, 20, 8)]
    {
        let config = FairyWrenConfig {
            segment_pages: 3,
            segments_buffered: 2,
            log_percent,
            over_provisioning_percent,
            filter_bytes,
            ..FairyWrenConfig::default()
        };
        let plan = FairyWrenPlan::new(&config, &ZONES).unwrap();
        check(|| FairyWren::new(plan.clone()), ZONES);
    }
}

/// Runs tasks in any order and long searches, then with failing reads, then
/// with failing writes, too.
fn check_unruly<E: Engine>(engine: impl Fn() -> E, flash: Flash) {
    for seed in 0..8 {
        check_unruly_with(seed, (5_000, 400), &engine, flash);
    }
}

fn check_unruly_with<E: Engine>(
    seed: u64,
    (operations, keys): (u32, u64),
    engine: impl Fn() -> E,
    flash: Flash,
) {
    for (reads_fail, writes_fail) in [(0, 0), (10, 0), (10, 2_000)] {
        let unruly = Unruly {
            seed,
            operations,
            keys,
            reads_fail,
            writes_fail,
        };
        let hits = unruly.run(engine(), flash);
        assert!(hits > 100, "{hits} hits");
    }
}

/// Index groups of fifty set-groups are written, read, cached or excluded, and evicted.
#[test]
fn nemo_never_lies_with_slow_io() {
    let flash = Flash {
        zones: 130,
        zone_pages: 12,
        in_place: false,
    };
    let kinds = [FilterKind::Bloom, FilterKind::Fingerprints];
    let in_memory = [(7.0, 0.0), (0.0, 0.5)];
    for (filter_kind, (page_filter_bits, index_cache_share)) in kinds
        .into_iter()
        .flat_map(|kind| in_memory.map(|memory| (kind, memory)))
    {
        let config = NemoConfig {
            filter_kind,
            filter_sizing: FilterSizing::Published,
            page_filter_bits,
            index_cache_share,
            index_cache_admit_one_in: 1,
            hotness_window: 0.6,
            ..NemoConfig::default()
        };
        let plan = NemoPlan::new(&config, &flash).unwrap();
        for seed in 0..3 {
            check_unruly_with(seed, (30_000, 2_000), || Nemo::new(plan.clone()), flash);
        }
    }
}

#[test]
fn fifo_never_lies_with_slow_io() {
    check_unruly(|| Fifo::new(FLASH), FLASH);
}

#[test]
fn log_never_lies_with_slow_io() {
    let config = LogConfig {
        segment_pages: 3,
        segments_buffered: 2,
        readmit_hit: true,
    };
    let plan = LogPlan::new(&config, &FLASH).unwrap();
    check_unruly(|| Log::new(plan.clone()), FLASH);
    // Zones are evicted by twos.
    let flash = Flash {
        zones: 300,
        zone_pages: 2,
        in_place: true,
    };
    let plan = LogPlan::new(&config, &flash).unwrap();
    for seed in 0..3 {
        check_unruly_with(seed, (30_000, 4_000), || Log::new(plan.clone()), flash);
    }
}

#[test]
fn set_never_lies_with_slow_io() {
    for policy in [SetPolicy::Fifo, SetPolicy::Rrip] {
        let config = SetConfig {
            eviction: policy,
            ..SetConfig::default()
        };
        let plan = SetPlan::new(&config, &FLASH).unwrap();
        check_unruly(|| Set::new(plan.clone()), FLASH);
    }
}

#[test]
fn kangaroo_never_lies_with_slow_io() {
    for (sets, flash) in [(SetStorage::InPlace, FLASH), (SetStorage::Zoned, ZONES)] {
        let config = KangarooConfig {
            set_storage: sets,
            over_provisioning_percent: 20,
            log_percent: 10,
            ..small_kangaroo()
        };
        let plan = KangarooPlan::new(&config, &flash).unwrap();
        check_unruly(|| Kangaroo::new(plan.clone()), flash);
    }
}

#[test]
fn fairywren_never_lies_with_slow_io() {
    let config = FairyWrenConfig {
        segment_pages: 3,
        segments_buffered: 2,
        log_percent: 10,
        over_provisioning_percent: 20,
        filter_bytes: 8,
        ..FairyWrenConfig::default()
    };
    let plan = FairyWrenPlan::new(&config, &ZONES).unwrap();
    check_unruly(|| FairyWren::new(plan.clone()), ZONES);
}
