//! Compares write amplification with the papers.
//!
//! Scale: 32 MiB of flash in 512 zones of 16 pages (as many zones as a drive of
//! half a tebibyte with zones of a gibibyte) and objects of 246 bytes on
//! average. Keys are drawn uniformly from four times as many as fit. Each miss
//! is followed by a put. Measured after the flash was filled twice. The papers
//! used 360 GB and Twitter's traces.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::hash::{HashSeed, KeyHash};
use crate::tiny::model::Model;
use crate::tiny::{
    Cause, Engine, Expiry, FairyWren, FairyWrenConfig, FairyWrenPlan, Flash, Kangaroo,
    KangarooConfig, KangarooPlan, Log, LogConfig, LogPlan, PAGE_BYTES, Set, SetConfig, SetPlan,
    SetStorage, Statistics,
};

const FLASH: Flash = Flash {
    zones: 512,
    zone_pages: 16,
    in_place: true,
};
const BYTES_MEAN: u64 = 246;

/// The counts of an engine in its steady state.
fn measure<E: Engine>(engine: E) -> Statistics {
    let objects = FLASH.pages() * PAGE_BYTES as u64 / BYTES_MEAN;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut model = Model::new(engine, FLASH);
    let mut settled = Statistics::default();
    let mut puts = 0;
    while puts < 3 * objects {
        let key = random.random_range(0..4 * objects);
        let hash = KeyHash::of(HashSeed(1), &key.to_le_bytes());
        if model.get(hash, 1).is_none() {
            // 32 to 460 bytes, always the same for a key.
            model.put(hash, 32 + (hash.0 >> 20) as u32 % 429, Expiry::NEVER, 1);
            puts += 1;
        }
        if puts == 2 * objects && settled.objects_in < puts {
            settled = model.statistics();
        }
    }
    model.statistics().since(&settled)
}

fn amplification(statistics: &Statistics) -> f64 {
    statistics.bytes_written() as f64 / statistics.bytes_in as f64
}

/// Asserts that `measured` is near `expected`, and prints both.
fn assert_near(what: &str, measured: f64, expected: f64, tolerance: f64) {
    println!("{what}: {measured:.2}, expected {expected:.2}");
    assert!(
        (measured / expected - 1.0).abs() <= tolerance,
        "{what}: {measured}, expected {expected} within {tolerance}"
    );
}

#[test]
fn log_writes_little_more_than_it_is_given() {
    let plan = LogPlan::new(&LogConfig::default(), &FLASH).unwrap();
    assert_near("log", amplification(&measure(Log::new(plan))), 1.08, 0.03);
}

#[test]
fn set_writes_a_page_per_object() {
    let plan = SetPlan::new(&SetConfig::default(), &FLASH).unwrap();
    assert_near("set", amplification(&measure(Set::new(plan))), 16.31, 0.05);
}

#[test]
fn kangaroo_amplifies_twice_on_zones() {
    let config = KangarooConfig {
        set_storage: SetStorage::Zoned,
        ..KangarooConfig::default()
    };
    let plan = KangarooPlan::new(&config, &FLASH).unwrap();
    let statistics = measure(Kangaroo::new(plan));
    let amplification = amplification(&statistics);
    println!("kangaroo on zones: {amplification:.1}, the paper's 55.59");
    // The paper's collected zones have 50 to 80 % of valid sets. Ours have
    // more, because the zones kept free are part of the 5 %.
    assert!((35.0..110.0).contains(&amplification), "{amplification}");
}

/// A setting of FairyWREN, and the paper's figures for it.
struct Setting {
    log_percent: u32,
    over_provisioning_percent: u32,
    /// Write amplification (Nemo Fig. 12b), if published.
    amplification: Option<f64>,
    /// Share of passive rewrites in percent (Nemo §3.2.3), if published.
    passive_percent: Option<f64>,
    /// Tolerance of Eq. 6 and 8.
    tolerance: f64,
}

fn check_fairywren(setting: &Setting) {
    let config = FairyWrenConfig {
        log_percent: setting.log_percent,
        over_provisioning_percent: setting.over_provisioning_percent,
        ..FairyWrenConfig::default()
    };
    let plan = FairyWrenPlan::new(&config, &FLASH).unwrap();
    let (set_pages, log_pages) = (f64::from(2 * plan.sets()), plan.log_pages() as f64);
    let statistics = measure(FairyWren::new(plan));

    if let Some(expected) = setting.amplification {
        assert_near("fairywren", amplification(&statistics), expected, 0.15);
    }
    let rewrites = statistics.rewrites_passive + statistics.rewrites_active;
    let passive = statistics.rewrites_passive as f64 / rewrites as f64;
    println!("passive rewrites: {:.1} %", passive * 100.0);
    if let Some(expected) = setting.passive_percent {
        assert!(
            (passive * 100.0 - expected).abs() <= 10.0,
            "{passive}, expected {expected} %"
        );
    }

    // Eq. 3: bytes written to sets per byte that is new to them. Writes of hot
    // halves follow from those of cold halves and count with them.
    let from_log = statistics.bytes_migrated_passive + statistics.bytes_migrated_active;
    let passive_written = statistics.written_for(Cause::Set);
    let written = passive_written + statistics.written_for(Cause::Gc);
    let measured_passive = passive_written as f64 / statistics.bytes_migrated_passive as f64;
    let measured = written as f64 / from_log as f64;
    let eq_6 = set_pages / (2.0 * log_pages);
    let eq_8 = (2.0 - passive) * eq_6;
    assert_near("L2SWA(P), Eq. 6", measured_passive, eq_6, setting.tolerance);
    assert_near("L2SWA, Eq. 8", measured, eq_8, setting.tolerance);
}

#[test]
fn fairywren_with_5_percent_op_amplifies_as_in_the_paper() {
    check_fairywren(&Setting {
        log_percent: 5,
        over_provisioning_percent: 5,
        amplification: Some(15.2),
        passive_percent: Some(25.0),
        tolerance: 0.15,
    });
}

#[test]
fn fairywren_with_20_percent_op_amplifies_as_in_the_paper() {
    check_fairywren(&Setting {
        log_percent: 5,
        over_provisioning_percent: 20,
        amplification: None,
        passive_percent: Some(63.0),
        tolerance: 0.15,
    });
}

#[test]
fn fairywren_with_35_percent_op_amplifies_as_in_the_paper() {
    check_fairywren(&Setting {
        log_percent: 5,
        over_provisioning_percent: 35,
        amplification: None,
        passive_percent: Some(84.0),
        tolerance: 0.15,
    });
}

#[test]
fn fairywren_with_50_percent_op_amplifies_as_in_the_paper() {
    check_fairywren(&Setting {
        log_percent: 5,
        over_provisioning_percent: 50,
        amplification: Some(6.56),
        passive_percent: Some(96.0),
        // Hot halves cost a fifth, which Eq. 6 ignores. An object's shorter
        // stay in the log saves little here.
        tolerance: 0.20,
    });
}

#[test]
fn fairywren_with_a_log_of_20_percent_amplifies_as_in_the_paper() {
    check_fairywren(&Setting {
        log_percent: 20,
        over_provisioning_percent: 5,
        amplification: Some(4.12),
        passive_percent: None,
        // The paper does not evaluate Eq. 6 here. It assumes a full log; three
        // of the twenty percent are kept free.
        tolerance: 0.35,
    });
}
