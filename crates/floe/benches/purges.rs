//! The price of live purges: metadata of objects in memory, read in mode `immutable`,
//! with no purge and with many, by processor time.
//!
//! `cargo bench -p floe --bench purges [-- --quick] [--json]`
//!
//! The purges are of prefixes of 12 to 61 bytes, 50 lengths, of the bucket that is read; an
//! object's key has 70 bytes, so that each read asks for all lengths. Cases alternate in
//! slices; a case has its fastest slice.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use floe::object::{Consistency, ObjectCache, ObjectConfig, ObjectKey, Purge};
use floe::origin::{Origin, OriginConfig};
use floe::{Store, StoreConfig};
use floe_core::Geometry;
use floe_device::baseline::Stopwatch;
use floe_device::{Clock, MemoryDevice};
use serde_json::json;

const BUCKET: &str = "bucket";
const OBJECTS: usize = 1_000;
const PURGES: [usize; 4] = [0, 100, 10_000, 60_000];
const SLICES: usize = 7;

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let given = |flag: &str| std::env::args().any(|argument| argument == flag);
    let slice = match given("--quick") {
        true => Duration::from_millis(20),
        false => Duration::from_millis(300),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join(BUCKET))?;
    let keys: Vec<ObjectKey> = (0..OBJECTS)
        .map(|number| ObjectKey::new(BUCKET, format!("{:070}", number)))
        .collect();
    for key in &keys {
        std::fs::write(folder.path().join(BUCKET).join(key.key()), b"x")?;
    }
    let mut cases = Vec::new();
    for purges in PURGES {
        let cache = runtime.block_on(cache(folder.path(), purges))?;
        cases.push((purges, cache, f64::INFINITY));
    }
    for _ in 0..SLICES {
        for (_, cache, best) in &mut cases {
            let ns = runtime.block_on(read(cache, &keys, slice))?;
            *best = best.min(ns);
        }
    }
    let without = cases[0].2;
    for (purges, _, ns) in cases {
        let row = json!({
            "purges": purges,
            "cpu_ns_per_read": ns.round(),
            "added_ns": (ns - without).round(),
        });
        match given("--json") {
            true => println!("{row}"),
            false => println!(
                "{purges:>6} purges: {ns:.0} ns, {:.0} ns more",
                ns - without
            ),
        }
    }
    Ok(())
}

async fn cache(root: &std::path::Path, purges: usize) -> Result<ObjectCache, AnyError> {
    let clock = Clock::real();
    let device = Arc::new(MemoryDevice::new(Geometry::in_place(8, 32 << 20)));
    let store = Store::open(device, clock.clone(), &StoreConfig::default()).await?;
    let origin = OriginConfig {
        root: Some(root.to_owned()),
        ..OriginConfig::default()
    };
    let origin = Origin::open(&origin, clock.clone())?;
    let config = ObjectConfig {
        consistency: Consistency::Immutable,
        ..ObjectConfig::default()
    };
    let cache = ObjectCache::new(store, origin, clock, config)?;
    let sets: Vec<Purge> = (0..purges)
        .map(|number| Purge::Prefix {
            bucket: BUCKET.into(),
            prefix: format!("{number:0width$}", width = 12 + number % 50),
        })
        .collect();
    for sets in sets.chunks(1_000) {
        cache.purge(sets).await?;
    }
    assert_eq!(cache.purges_remembered(), purges);
    Ok(cache)
}

/// Nanoseconds of processor time of a read.
async fn read(cache: &ObjectCache, keys: &[ObjectKey], time: Duration) -> Result<f64, AnyError> {
    for key in keys {
        cache.head(key).await?;
    }
    let stopwatch = Stopwatch::start();
    let (begun, mut reads) = (Instant::now(), 0_u64);
    while begun.elapsed() < time {
        for key in keys {
            black_box(cache.head(key).await?);
        }
        reads += keys.len() as u64;
    }
    Ok(stopwatch.stop(reads).cpu_per_operation().as_secs_f64() * 1e9)
}
