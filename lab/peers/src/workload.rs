//! The phases that every peer runs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::{Bytes, BytesMut};
use hdrhistogram::Histogram;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::measure::{Usage, Used, resident_bytes};
use crate::peer::{Cache, Name, Sizes, settle};

/// The share of flash that the burst fills, so small that no peer evicts.
const FILL: f64 = 0.6;
/// The keys of the mixed phase, relative to those that fit, so that peers evict.
const MIXED_SPREAD: f64 = 1.5;
const MIXED_PUT_PERCENT: u32 = 30;
/// The skew of YCSB.
const ZIPF_SKEW: f64 = 0.99;

/// The load and the duration of a phase.
#[derive(Clone, Copy, Debug)]
pub struct Pressure {
    /// Operations in flight.
    pub depth: u64,
    /// Seconds of each timed phase.
    pub seconds: u64,
}

/// Measurements of the process that loaded the cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Loaded {
    pub entries: u64,
    pub insert_per_second: f64,
    pub insert_cpu_us: f64,
    pub refused_percent: f64,
    pub dropped_percent: f64,
    pub burst_write_amplification: f64,
    pub get_per_second: f64,
    pub get_cpu_us: f64,
    pub get_per_cpu_second: f64,
    pub get_p50_us: f64,
    pub get_p999_us: f64,
    pub mixed_per_second: f64,
    pub mixed_cpu_us: f64,
    pub mixed_p999_us: f64,
    pub mixed_write_amplification: f64,
}

/// Measurements of the process that opened the cache again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reopened {
    pub recovery_cpu_seconds: f64,
    pub recovery_wall_seconds: f64,
    pub resident_bytes: u64,
    pub found_percent: f64,
}

/// Runs burst, steady gets and mixed, and closes the cache.
pub async fn load(name: Name, folder: &Path, sizes: Sizes, pressure: Pressure) -> Result<Loaded> {
    let cache = Cache::open(name, folder, sizes).await?;
    let values = Arc::new(Values::new(sizes.value_bytes));
    let entries = (sizes.flash_bytes as f64 * FILL) as u64 / sizes.value_bytes as u64;

    let burst = burst(&cache, &values, entries, pressure.depth).await?;
    let before_drop = present(&cache, &values, entries, pressure.depth).await?;
    let dropped = entries - burst.rejected - before_drop.len() as u64;
    if before_drop.is_empty() {
        bail!("{}: nothing of the burst can be read back", name.label());
    }

    // Gets need equal contents: entries that the burst lost are inserted again, slowly.
    let found = fill_up(&cache, &values, entries, before_drop, pressure.depth).await?;
    let picks = Picks::Uniform(found);
    let steady = timed(&cache, &values, picks, 0, pressure).await?;
    let keys = (entries as f64 / FILL * MIXED_SPREAD) as u64;
    let mixed = timed(
        &cache,
        &values,
        Picks::zipf(keys),
        MIXED_PUT_PERCENT,
        pressure,
    )
    .await?;
    cache.close().await?;

    Ok(Loaded {
        entries,
        insert_per_second: entries as f64 / burst.insert.wall.as_secs_f64(),
        insert_cpu_us: micros(burst.whole.cpu) / entries as f64,
        refused_percent: 100.0 * burst.rejected as f64 / entries as f64,
        dropped_percent: 100.0 * dropped as f64 / entries as f64,
        burst_write_amplification: burst.whole.written_bytes as f64
            / ((entries - burst.rejected - dropped).max(1) * sizes.value_bytes as u64) as f64,
        get_per_second: steady.operations as f64 / steady.used.wall.as_secs_f64(),
        get_cpu_us: micros(steady.used.cpu) / steady.operations as f64,
        get_per_cpu_second: steady.operations as f64 / steady.used.cpu.as_secs_f64(),
        get_p50_us: steady.latency.value_at_quantile(0.5) as f64 / 1e3,
        get_p999_us: steady.latency.value_at_quantile(0.999) as f64 / 1e3,
        mixed_per_second: mixed.operations as f64 / mixed.used.wall.as_secs_f64(),
        mixed_cpu_us: micros(mixed.used.cpu) / mixed.operations as f64,
        mixed_p999_us: mixed.latency.value_at_quantile(0.999) as f64 / 1e3,
        mixed_write_amplification: mixed.used.written_bytes as f64
            / (mixed.puts.max(1) * sizes.value_bytes as u64) as f64,
    })
}

/// Runs only the burst, and closes the cache for [`reopen`].
pub async fn fill(name: Name, folder: &Path, sizes: Sizes, pressure: Pressure) -> Result<u64> {
    let cache = Cache::open(name, folder, sizes).await?;
    let values = Arc::new(Values::new(sizes.value_bytes));
    let entries = (sizes.flash_bytes as f64 * FILL) as u64 / sizes.value_bytes as u64;
    burst(&cache, &values, entries, pressure.depth).await?;
    let found = present(&cache, &values, entries, pressure.depth).await?;
    let found = fill_up(&cache, &values, entries, found, pressure.depth).await?;
    cache.close().await?;
    Ok(found.len() as u64)
}

/// Opens the cache in `folder` and measures the cost.
pub async fn reopen(name: Name, folder: &Path, sizes: Sizes, entries: u64) -> Result<Reopened> {
    let began = Usage::now()?;
    let cache = Cache::open(name, folder, sizes).await?;
    let used = began.since()?;
    let resident_bytes = resident_bytes()?;
    let values = Arc::new(Values::new(sizes.value_bytes));
    let found = match entries {
        0 => 0.0,
        _ => {
            let all = (sizes.flash_bytes as f64 * FILL) as u64 / sizes.value_bytes as u64;
            100.0 * present(&cache, &values, all, 32).await?.len() as f64 / entries as f64
        }
    };
    cache.close().await?;
    Ok(Reopened {
        recovery_cpu_seconds: used.cpu.as_secs_f64(),
        recovery_wall_seconds: used.wall.as_secs_f64(),
        resident_bytes,
        found_percent: found,
    })
}

/// Distinguishable values that are cheap to make.
struct Values {
    noise: Vec<u8>,
    len: usize,
}

impl Values {
    fn new(len: usize) -> Self {
        let mut noise = vec![0; 2 * len];
        Xoshiro256PlusPlus::seed_from_u64(7).fill_bytes(&mut noise);
        Values { noise, len }
    }

    fn make(&self, key: u64) -> Bytes {
        let mut value = BytesMut::with_capacity(self.len);
        value.extend_from_slice(&key.to_le_bytes());
        let start = key as usize % self.len;
        value.extend_from_slice(&self.noise[start..start + self.len - 8]);
        value.freeze()
    }

    /// Compares only the key and the value's end, at negligible cost.
    fn check(&self, key: u64, value: &[u8]) -> Result<()> {
        let start = key as usize % self.len;
        let end = &self.noise[start + self.len - 24..start + self.len - 8];
        if value.len() != self.len
            || value[..8] != key.to_le_bytes()
            || &value[self.len - 16..] != end
        {
            bail!("the cache returned wrong bytes for key {key}");
        }
        Ok(())
    }
}

struct Burst {
    /// Until the last insert returned.
    insert: Used,
    /// Until everything was written.
    whole: Used,
    rejected: u64,
}

async fn burst(cache: &Cache, values: &Arc<Values>, entries: u64, depth: u64) -> Result<Burst> {
    let began = Usage::now()?;
    let (next, rejected) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..depth)
        .map(|_| {
            let (cache, values) = (cache.clone(), values.clone());
            let (next, rejected) = (next.clone(), rejected.clone());
            tokio::spawn(async move {
                loop {
                    let key = next.fetch_add(1, Ordering::Relaxed);
                    if key >= entries {
                        return anyhow::Ok(());
                    }
                    if !cache.put(key, values.make(key)).await? {
                        rejected.fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::task::consume_budget().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let insert = began.since()?;
    settle().await?;
    Ok(Burst {
        insert,
        whole: began.since()?,
        rejected: rejected.load(Ordering::Relaxed),
    })
}

/// The keys below `entries` that the cache has.
async fn present(
    cache: &Cache,
    values: &Arc<Values>,
    entries: u64,
    depth: u64,
) -> Result<Vec<u64>> {
    let next = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..depth)
        .map(|_| {
            let (cache, values, next) = (cache.clone(), values.clone(), next.clone());
            tokio::spawn(async move {
                let mut found = Vec::new();
                loop {
                    let key = next.fetch_add(1, Ordering::Relaxed);
                    if key >= entries {
                        return anyhow::Ok(found);
                    }
                    if let Some(value) = cache.get(key).await? {
                        values.check(key, &value)?;
                        found.push(key);
                    }
                }
            })
        })
        .collect();
    let mut found = Vec::new();
    for task in tasks {
        found.extend(task.await??);
    }
    Ok(found)
}

/// Inserts the missing entries at a rate that every peer sustains.
async fn fill_up(
    cache: &Cache,
    values: &Arc<Values>,
    entries: u64,
    mut found: Vec<u64>,
    depth: u64,
) -> Result<Vec<u64>> {
    const PASSES: u32 = 4;
    const STEP_BYTES: usize = 8 << 20;
    const STEP_PAUSE: Duration = Duration::from_millis(100);
    for _ in 0..PASSES {
        found.sort_unstable();
        let missing: Vec<u64> = (0..entries)
            .filter(|key| found.binary_search(key).is_err())
            .collect();
        if missing.is_empty() {
            break;
        }
        for step in missing.chunks((STEP_BYTES / values.len).max(1)) {
            for &key in step {
                cache.put(key, values.make(key)).await?;
            }
            tokio::time::sleep(STEP_PAUSE).await;
        }
        settle().await?;
        found = present(cache, values, entries, depth).await?;
    }
    Ok(found)
}

/// The distribution of keys.
#[derive(Clone)]
enum Picks {
    Uniform(Vec<u64>),
    /// The cumulated weight of each rank.
    Zipf(Vec<f64>),
}

impl Picks {
    fn zipf(keys: u64) -> Self {
        let mut sum = 0.0;
        let weights = (1..=keys).map(|rank| {
            sum += (rank as f64).powf(-ZIPF_SKEW);
            sum
        });
        Picks::Zipf(weights.collect())
    }

    fn pick(&self, random: &mut impl Rng) -> u64 {
        match self {
            Picks::Uniform(keys) => keys[random.random_range(0..keys.len())],
            Picks::Zipf(sums) => {
                let point = random.random::<f64>() * sums[sums.len() - 1];
                let rank = sums.partition_point(|sum| *sum < point) as u64;
                // Spreads popular keys over the key space.
                rank.wrapping_mul(0x9E37_79B9_7F4A_7C15) % sums.len() as u64
            }
        }
    }
}

struct Timed {
    used: Used,
    operations: u64,
    puts: u64,
    latency: Histogram<u64>,
}

/// Runs `depth` tasks, each one operation after the other, for the phase's seconds.
async fn timed(
    cache: &Cache,
    values: &Arc<Values>,
    picks: Picks,
    put_percent: u32,
    pressure: Pressure,
) -> Result<Timed> {
    let picks = Arc::new(picks);
    let began = Usage::now()?;
    let end = Instant::now() + Duration::from_secs(pressure.seconds);
    let tasks: Vec<_> = (0..pressure.depth)
        .map(|seed| {
            let (cache, values, picks) = (cache.clone(), values.clone(), picks.clone());
            tokio::spawn(async move {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
                let mut latency = Histogram::<u64>::new(3)?;
                let mut puts = 0u64;
                loop {
                    let start = Instant::now();
                    if start >= end {
                        return anyhow::Ok((latency, puts));
                    }
                    let key = picks.pick(&mut random);
                    if random.random_range(0..100) < put_percent {
                        puts += u64::from(cache.put(key, values.make(key)).await?);
                    } else if let Some(value) = cache.get(key).await? {
                        values.check(key, &value)?;
                    }
                    latency.record(start.elapsed().as_nanos() as u64)?;
                    tokio::task::consume_budget().await;
                }
            })
        })
        .collect();
    let mut latency = Histogram::<u64>::new(3)?;
    let mut puts = 0;
    for task in tasks {
        let (part, part_puts) = task.await??;
        latency.add(part)?;
        puts += part_puts;
    }
    let timed_part = began.since()?;
    let mut used = timed_part;
    if put_percent > 0 {
        settle().await?;
        let whole = began.since()?;
        used = Used {
            wall: timed_part.wall,
            cpu: whole.cpu,
            written_bytes: whole.written_bytes,
        };
    }
    Ok(Timed {
        used,
        operations: latency.len(),
        puts,
        latency,
    })
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
