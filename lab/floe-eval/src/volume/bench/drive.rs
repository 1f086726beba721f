//! One run: opening the cache, warming it up, measuring.

use std::path::Path;
use std::sync::Arc;

use floe::volume::{Volume, VolumeCache};
use floe_core::ByteSize;
use floe_device::{Clock, SharedBlockDevice};

use super::clients::Clients;
use super::devices::{BLOCK_BYTES, Role};
use super::figures::{Counts, figures};
use super::load::Load;
use super::spec::{self, VolumeBench};
use crate::error::EvalError;
use crate::metrics::ProcessProbe;
use crate::results::Figure;

/// Requests of the prefill at a time.
const PREFILL_BYTES: u64 = 128 << 10;

/// Opens the cache of `bench`, warms it up, drives it, and measures.
///
/// # Errors
/// When the devices, the cache or the load cannot be set up, or a request fails.
pub async fn drive_volumes(
    bench: &VolumeBench,
    seed: u64,
    experiment: &Path,
    scratch: &Path,
    clock: Clock,
) -> Result<Vec<Figure>, EvalError> {
    let load = Load::new(bench, seed, experiment)?;
    let case = bench.case()?;
    let plan = case.plan(load.working_set_bytes);
    let capacity = plan
        .map_err(|error| EvalError::cache(&error))?
        .capacity_bytes();
    let (settings, of_volume) = spec::driver_settings(&case, bench.locks);
    let device = settings.device_bytes(ByteSize(capacity), BLOCK_BYTES);
    let device = device.map_err(|error| EvalError::cache(&error))?;
    let device = bench
        .cache_device
        .open(Role::Cache, device, &clock, scratch)?;
    let cache = VolumeCache::open_seeded(Arc::clone(&device), clock.clone(), &settings, seed);
    let cache = cache.await.map_err(|error| EvalError::cache(&error))?;
    let mut volumes: Vec<(Volume, SharedBlockDevice)> = Vec::new();
    for (number, bytes) in load.volumes.iter().enumerate() {
        let size = ByteSize(*bytes);
        let backing = bench
            .backing_device
            .open(Role::Backing(number), size, &clock, scratch)?;
        let name = format!("volume-{number}");
        let volume = cache.attach(&name, Arc::clone(&backing), &of_volume).await;
        volumes.push((volume.map_err(|error| EvalError::cache(&error))?, backing));
    }
    prefill(bench, &volumes).await?;
    let (warm_up, measured) = match load.recorded {
        None => (bench.warm_up_requests, bench.requests.unwrap_or(0)),
        Some(all) => {
            let warm_up = (all as f64 * bench.warm_up_share) as u64;
            (warm_up, all - warm_up)
        }
    };
    let handles = volumes.iter().map(|(volume, _)| volume.clone()).collect();
    let clients = Clients::new(bench.pacing, load, handles, clock.clone(), seed);
    clients.send(warm_up).await?;
    let count = || Counts::of(&cache, &device, &volumes);
    let (before, began) = (count(), clock.now());
    let mut process = ProcessProbe::new();
    let tally = clients.send(measured).await?;
    let elapsed = clock.now().since(began);
    let process = process.sample().filter(|_| !clock.is_virtual());
    Ok(figures(&tally, elapsed, &count().since(&before), process))
}

/// Reads or writes the start of the first volume in order.
async fn prefill(
    bench: &VolumeBench,
    volumes: &[(Volume, SharedBlockDevice)],
) -> Result<(), EvalError> {
    let Some((volume, _)) = volumes.first() else {
        return Ok(());
    };
    let end = bench.prefill.bytes().min(volume.size_bytes());
    for at in (0..end).step_by(PREFILL_BYTES as usize) {
        let bytes = PREFILL_BYTES.min(end - at);
        let done = match bench.reads > 0.0 {
            true => volume.prefetch(at, bytes).await,
            false => {
                let data = volume.allocate(bytes as usize).freeze();
                volume.write_at(at, data, false).await
            }
        };
        done.map_err(|error| EvalError::cache(&error))?;
    }
    Ok(())
}
