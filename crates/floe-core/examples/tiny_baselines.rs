//! Write amplification and speed of the tiny engines on modelled flash, with a
//! Zipfian mix of gets where each miss is followed by a set:
//! `cargo run --release -p floe-core --example tiny_baselines -- [engine] [mebibytes] [million operations]`

// The example measures time; the engine cores read no clock.
#![allow(clippy::disallowed_types)]

use std::time::Instant;

use floe_core::hash::KeyHash;
use floe_core::tiny::model::Model;
use floe_core::tiny::{
    Cause, Engine, Expiry, FairyWren, FairyWrenConfig, FairyWrenPlan, Flash, Kangaroo,
    KangarooConfig, KangarooPlan, Log, LogConfig, LogPlan, Memory, PlanError, Set, SetConfig,
    SetPlan, SetStorage, Statistics,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const ZONE_PAGES: u32 = 64;
const BYTES_MEAN: u64 = 246;
const PAGE_BYTES: u64 = floe_core::tiny::PAGE_BYTES as u64;

fn main() -> Result<(), PlanError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u32| {
        arguments
            .get(at)
            .map_or(default, |text| text.parse().unwrap_or(default))
    };
    let only = arguments.first().map_or("all", String::as_str);
    let flash = Flash {
        zones: number(1, 512) * 256 / ZONE_PAGES,
        zone_pages: ZONE_PAGES,
        in_place: true,
    };
    let run = Run {
        flash,
        operations: u64::from(number(2, 30)) * 1_000_000,
    };
    let is_selected = |name: &str| only == "all" || name.starts_with(only);
    println!(
        "engine               M ops/s   WA  gets hit %  set WA P  A  p %  fill %  bits/object  false positives"
    );
    if is_selected("log") {
        run.report(
            "log",
            Log::new(LogPlan::new(&LogConfig::default(), &flash)?),
        );
    }
    if is_selected("set") {
        run.report(
            "set",
            Set::new(SetPlan::new(&SetConfig::default(), &flash)?),
        );
    }
    for (sets, name) in [
        (SetStorage::InPlace, "kangaroo in place"),
        (SetStorage::Zoned, "kangaroo zoned"),
    ] {
        if is_selected(name) {
            let config = KangarooConfig {
                set_storage: sets,
                ..KangarooConfig::default()
            };
            run.report(name, Kangaroo::new(KangarooPlan::new(&config, &flash)?));
        }
    }
    for (log_percent, over_provisioning_percent) in [(5, 5), (5, 20), (5, 35), (5, 50), (20, 5)] {
        let name = format!("fairywren {log_percent}/{over_provisioning_percent}");
        if is_selected(&name) {
            let config = FairyWrenConfig {
                log_percent,
                over_provisioning_percent,
                hot_free_zones_percent: number(
                    3,
                    FairyWrenConfig::default().hot_free_zones_percent,
                ),
                zones_free_permille: number(4, FairyWrenConfig::default().zones_free_permille),
                ..FairyWrenConfig::default()
            };
            run.report(&name, FairyWren::new(FairyWrenPlan::new(&config, &flash)?));
        }
    }
    Ok(())
}

struct Run {
    flash: Flash,
    operations: u64,
}

impl Run {
    fn report<E: Engine>(&self, name: &str, engine: E) {
        let keys = self.flash.pages() * PAGE_BYTES / BYTES_MEAN * 8;
        let zipf = Zipf::new(keys, 0.9);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut model = Model::new(engine, self.flash);
        let mut early = Statistics::default();
        let mut early_hits = 0;
        let mut hits = 0;
        // Drawn before the clock starts, because draws are not the engine's work.
        let mut drawn = vec![KeyHash(0); 1 << 16];
        let mut seconds = 0.0;
        let rounds = self.operations >> 16;
        for round in 0..rounds {
            if round == rounds / 2 {
                early = model.statistics();
                early_hits = hits;
            }
            drawn.fill_with(|| KeyHash(scatter(zipf.draw(random.random()))));
            let started = Instant::now();
            for hash in &drawn {
                if model.get(*hash, 1).is_some() {
                    hits += 1;
                } else {
                    model.put(*hash, length_of(*hash), Expiry::NEVER, 1);
                }
            }
            seconds += started.elapsed().as_secs_f64();
        }
        let million_per_s = (rounds << 16) as f64 / seconds / 1e6;
        let late_gets = (rounds - rounds / 2) << 16;
        let hit_percent = (hits - early_hits) as f64 * 100.0 / late_gets as f64;
        let late = model.statistics().since(&early);
        print(name, million_per_s, hit_percent, &late, &model.memory());
    }
}

/// Prints an engine's speed, and the statistics of the run's second half.
fn print(name: &str, million_per_s: f64, hit_percent: f64, late: &Statistics, memory: &Memory) {
    let set_wa = |rewrites: u64, bytes: u64| (rewrites * PAGE_BYTES) as f64 / bytes.max(1) as f64;
    let rewrites = late.rewrites_passive + late.rewrites_active;
    let all = memory.index_bytes + memory.hotness_bytes + memory.buffer_bytes + memory.other_bytes;
    println!(
        "{name:20} {million_per_s:7.2} {:5.2} {hit_percent:9.1} {:8.2} {:5.2} {:5.1} {:6.1} {:8.1} ({:.1} index) {:.4}",
        late.bytes_written() as f64 / late.bytes_in as f64,
        set_wa(late.rewrites_passive, late.bytes_migrated_passive),
        set_wa(late.rewrites_active, late.bytes_migrated_active),
        late.rewrites_passive as f64 * 100.0 / rewrites.max(1) as f64,
        late.bytes_filled as f64 * 100.0 / (late.object_pages_written * PAGE_BYTES) as f64,
        memory.bits_per_object(all),
        memory.bits_per_object(memory.index_bytes),
        late.false_positives as f64 / late.pages_searched.max(1) as f64,
    );
    let causes = Cause::ALL.map(|cause| {
        let write_amplification = late.written_for(cause) as f64 / late.bytes_in as f64;
        format!("{} {write_amplification:.2}", cause.name())
    });
    println!(
        "    {}, {} objects on flash, {} evicted, {} kept",
        causes.join(", "),
        memory.objects_on_flash,
        late.evicted,
        late.written_back
    );
}

/// The length of a key and its value: 32 to 460 bytes, 246 on average. It
/// depends on the key alone.
fn length_of(hash: KeyHash) -> u32 {
    32 + (hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 % 429
}

fn scatter(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// An approximation of Zipf's law: the inverse of its continuous form.
struct Zipf {
    exponent: f64,
    span: f64,
}

impl Zipf {
    /// The skew is not 1.
    fn new(items: u64, skew: f64) -> Self {
        let exponent = 1.0 - skew;
        Zipf {
            exponent,
            span: (items as f64 + 1.0).powf(exponent) - 1.0,
        }
    }

    fn draw(&self, uniform: f64) -> u64 {
        (1.0 + uniform * self.span).powf(1.0 / self.exponent) as u64 - 1
    }
}
