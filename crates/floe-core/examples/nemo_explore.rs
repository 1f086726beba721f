//! Tries settings of Nemo: `nemo_explore [key=value…]`.
use std::time::Instant;

use floe_core::hash::KeyHash;
use floe_core::tiny::model::Model;
use floe_core::tiny::nemo::{FilterSizing, Nemo, NemoConfig, NemoPlan, WriteBack};
use floe_core::tiny::{Engine as _, Expiry, Flash};
use rand::{RngExt as _, SeedableRng as _};

fn main() {
    let mut config = NemoConfig::default();
    let (mut zones, mut zone_pages, mut alpha, mut ratio, mut turns) =
        (300u32, 1024u32, 1.0f64, 1.0f64, 3.0f64);
    for argument in std::env::args().skip(1) {
        let (key, value) = argument.split_once('=').unwrap_or((&argument, ""));
        match key {
            "published" => config = NemoConfig::published(),
            "cand" => config.candidates = value.parse().unwrap(),
            "move" => config.relocate = value == "1",
            "mem" => config.memory_set_groups = value.parse().unwrap(),
            "p" => config.flush_threshold = value.parse().unwrap(),
            "wb" => {
                config.write_back = match value {
                    "off" => WriteBack::Off,
                    "pub" => WriteBack::Published,
                    _ => WriteBack::Everywhere,
                }
            }
            "share" => config.write_back_share = value.parse().unwrap(),
            "fp" => config.filter_false_positives = value.parse().unwrap(),
            "cached" => config.index_cached = value.parse().unwrap(),
            "window" => config.hotness_window = value.parse().unwrap(),
            "sizing" => {
                config.filter_sizing = if value == "pub" {
                    FilterSizing::Published
                } else {
                    FilterSizing::Measured
                }
            }
            "zones" => zones = value.parse().unwrap(),
            "pages" => zone_pages = value.parse().unwrap(),
            "alpha" => alpha = value.parse().unwrap(),
            "ratio" => ratio = value.parse().unwrap(),
            "turns" => turns = value.parse().unwrap(),
            _ => panic!("{key}?"),
        }
    }
    let flash = Flash {
        zones,
        zone_pages,
        in_place: false,
    };
    let plan = NemoPlan::new(&config, flash).unwrap();
    let mut model = Model::new(Nemo::new(plan), flash);
    let items = (flash.pages() as f64 * 4096.0 * ratio / 246.0) as u64;
    let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(7);
    let total = (flash.pages() as f64 * 4096.0 * turns) as u64;
    let start = Instant::now();
    let (mut ops, mut misses) = (0u64, 0u64);
    let mut half: Option<(floe_core::tiny::Statistics, u64, u64)> = None;
    let end = 1.0 - alpha;
    while model.engine().statistics().bytes_in < total {
        let u: f64 = rng.random();
        let rank = if (alpha - 1.0).abs() < 1e-6 {
            (u * (items as f64).ln()).exp()
        } else {
            (u * ((items as f64).powf(end) - 1.0) + 1.0).powf(1.0 / end)
        };
        let id = rank as u64;
        let hash = KeyHash(xxhash_rust::xxh3::xxh3_64(&id.to_le_bytes()));
        ops += 1;
        if model.get(hash, 0).is_none() {
            misses += 1;
            let z =
                xxhash_rust::xxh3::xxh3_64_with_seed(&id.to_le_bytes(), 3) as f64 / u64::MAX as f64;
            // Exponential above 40, mean 246.
            let bytes = (40.0 - 206.0 * (1.0 - z).max(1e-8).ln()).min(2000.0) as u32;
            model.put(hash, bytes, Expiry::NEVER, 0);
        }
        if half.is_none() && model.engine().statistics().bytes_in > total / 2 {
            half = Some((model.engine().statistics().clone(), ops, misses));
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    let (then, ops_then, misses_then) = half.unwrap();
    let s = model.engine().statistics().since(&then);
    let m = model.engine().memory();
    let (o, mi) = (ops - ops_then, misses - misses_then);
    println!(
        "{:.2} Mop/s  miss {:.4}  ALWA {:.3}  fill {:.3}",
        ops as f64 / elapsed / 1e6,
        mi as f64 / o as f64,
        s.write_amplification(),
        s.fill_rate()
    );
    println!(
        "  dropped early {:.4} of in; written back {:.3} of written; written {:?}",
        s.bytes_dropped_early as f64 / s.bytes_in as f64,
        s.bytes_written_back as f64 / s.bytes_written() as f64,
        s.written
            .map(|w| (w as f64 / s.bytes_in as f64 * 1000.0).round() / 1000.0)
    );
    println!(
        "  bits/object: index {:.2} hot {:.2} buffer {:.2} index buffer {:.2} other {:.3}; objects/set {:.1}",
        m.bits_per_object(m.index_bytes),
        m.bits_per_object(m.hotness_bytes),
        m.bits_per_object(m.buffer_bytes),
        m.bits_per_object(m.index_buffer_bytes),
        m.bits_per_object(m.other_bytes),
        m.objects_on_flash as f64 / flash.pages() as f64
    );
    println!(
        "  pages/search {:.3}  false/search {:.3}  index searches {:.4}  index pages/search {:.3}  maintained {:.3}/op",
        s.pages_searched as f64 / s.searches as f64,
        s.false_positives as f64 / s.searches as f64,
        s.index_searches as f64 / o as f64,
        s.index_pages_searched as f64 / s.searches as f64,
        s.pages_maintained as f64 / o as f64
    );
}
