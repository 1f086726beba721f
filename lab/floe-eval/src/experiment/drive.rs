//! Runs one case: opens its cache, drives it, closes it.

use std::path::Path;
use std::time::Duration;

use floe_device::config::DeviceKind;
use floe_device::sim::SimModel;
use floe_device::{Clock, Device as _, DeviceConfig};
use indicatif::{ProgressBar, ProgressStyle};

use super::cache::TargetKind;
use super::cases::{Case, KINDS};
use super::host;
use super::schema::{BenchCase, ReplayCase, TimeKind};
use crate::error::EvalError;
use crate::fleet::drive_fleet;
use crate::hosts::{self, HostProgress};
use crate::replay::policy::CacheUnit;
use crate::replay::{ReplayOptions, ReplayResult, ReplaySizes, UnitChoice, replay};
use crate::results::Figure;
use crate::run::{
    BenchOptions, Progress, RemoteTarget, RequestSource, RunResult, Stop, Target, bench,
    in_virtual_time,
};
use crate::tiny::{self, TinyCase, TinyProgress};
use crate::trace::TraceOptions;
use crate::volume::{VolumeBench, drive_volumes, replay_volumes, volume_figures};
use crate::workload::{WorkloadSpec, working_set_items};

/// The result of a case.
#[derive(Default)]
pub(super) struct Found {
    pub(super) run: Option<RunResult>,
    pub(super) replay: Option<ReplayResult>,
    /// The figures of a cache of volumes.
    pub(super) figures: Vec<Figure>,
    /// The distribution of the sizes of its requests.
    pub(super) request_sizes: Vec<(u64, f64)>,
    /// The device of the run.
    pub(super) device: String,
}

/// The files of a case.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// The experiment's file, next to which traces are searched.
    pub(super) experiment: &'a Path,
    /// The case's folder for temporary files.
    pub(super) scratch: &'a Path,
    pub(super) progress: Progress,
}

/// Runs one case. Blocks, and must be called outside of any runtime.
pub(super) fn run_case(case: &Case, place: Place<'_>) -> Result<Found, EvalError> {
    if let Some(replayed) = &case.experiment.replay {
        return Ok(Found {
            replay: Some(replay(&replay_options(case, replayed, place)?)?),
            device: "none".into(),
            ..Found::default()
        });
    }
    if let Some(spec) = &case.experiment.volume {
        let result = replay_volumes(&spec.options(place.experiment)?)?;
        return Ok(Found {
            figures: volume_figures(&result),
            request_sizes: result.sizes.cumulative(),
            device: "none".into(),
            ..Found::default()
        });
    }
    if let Some(driven) = &case.experiment.volume_bench {
        return run_volumes(case, driven, place);
    }
    if let Some(fleet) = &case.experiment.fleet {
        let seed = case.experiment.seed;
        return in_time(case, place, None, async |clock| {
            Ok(Found {
                figures: drive_fleet(fleet, seed, clock).await?,
                device: "simulated nodes".into(),
                ..Found::default()
            })
        });
    }
    if let Some(driven) = &case.experiment.tiny {
        return run_tiny(case, driven, place);
    }
    let Some(driven) = &case.experiment.bench else {
        return Err(EvalError::Experiment {
            path: place.experiment.to_owned(),
            reason: format!("give one of {KINDS}"),
        });
    };
    if let Some(config) = host::config(&case.name, driven)? {
        let bar = host::bar(place.progress, &config);
        let mut show = |progress: HostProgress| bar.set_position(progress.done);
        let found = hosts::run(&config, case.experiment.seed, &mut show);
        bar.finish_and_clear();
        let found = found?;
        return Ok(Found {
            run: Some(host::figures(&config, found)?),
            device: host::device(&config),
            ..Found::default()
        });
    }
    in_time(case, place, None, |clock| drive(case, driven, place, clock))
}

/// Runs `main` in the time of the experiment, with a folder for temporary files.
fn in_time<F>(
    case: &Case,
    place: Place<'_>,
    workers: Option<usize>,
    main: impl FnOnce(Clock) -> F,
) -> Result<Found, EvalError>
where
    F: Future<Output = Result<Found, EvalError>>,
{
    let scratch = place.scratch;
    std::fs::create_dir_all(scratch).map_err(EvalError::file("create", scratch))?;
    let found = match case.experiment.time() {
        TimeKind::Virtual => in_virtual_time(case.experiment.seed, main),
        TimeKind::Real => {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            if let Some(workers) = workers {
                runtime.worker_threads(workers.max(1));
            }
            let runtime = runtime.enable_all().build();
            let runtime =
                runtime.map_err(|error| EvalError::Cache(format!("no runtime: {error}")))?;
            runtime.block_on(main(Clock::real()))
        }
    };
    let removed = std::fs::remove_dir_all(scratch).map_err(EvalError::file("remove", scratch));
    let found = found?;
    removed?;
    Ok(found)
}

fn run_volumes(case: &Case, driven: &VolumeBench, place: Place<'_>) -> Result<Found, EvalError> {
    let seed = case.experiment.seed;
    in_time(case, place, driven.workers, async |clock| {
        let Place {
            experiment,
            scratch,
            ..
        } = place;
        let figures = drive_volumes(driven, seed, experiment, scratch, clock).await?;
        Ok(Found {
            figures,
            device: driven.describe(),
            ..Found::default()
        })
    })
}

fn run_tiny(case: &Case, driven: &TinyCase, place: Place<'_>) -> Result<Found, EvalError> {
    let bar = tiny_bar(place.progress, &case.name);
    let mut show = |progress: TinyProgress| {
        bar.set_length(progress.bytes);
        bar.set_position(progress.bytes_done);
        bar.set_message(format!(
            "{:.1} M operations",
            progress.operations as f64 / 1e6
        ));
    };
    let seed = case.experiment.seed;
    let run = tiny::run(
        driven,
        &case.name,
        seed,
        place.experiment,
        place.scratch,
        &mut show,
    );
    bar.finish_and_clear();
    Ok(Found {
        run: Some(run?),
        device: driven.describe(),
        ..Found::default()
    })
}

/// A progress bar over the bytes that the engine accepts, if the case runs
/// alone.
fn tiny_bar(progress: Progress, name: &str) -> ProgressBar {
    if progress == Progress::Off {
        return ProgressBar::hidden();
    }
    // Draws on standard error, and only on a terminal.
    let bar = ProgressBar::new(0);
    let template = "{prefix} {bar:24} {binary_bytes}/{binary_total_bytes} {eta}  {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.with_prefix(name.to_owned())
}

async fn drive(
    case: &Case,
    driven: &BenchCase,
    place: Place<'_>,
    clock: Clock,
) -> Result<Found, EvalError> {
    if let TargetKind::Remote(address) = &driven.cache.target {
        let options = options(case, driven, place, None)?;
        let remote = &driven.cache.remote;
        let target = RemoteTarget::connect(address, remote, &options, &clock).await?;
        let result = bench(&Target::Remote(target.into()), &clock, None, &options).await?;
        return Ok(Found {
            run: Some(result),
            device: address.to_string(),
            ..Found::default()
        });
    }
    let seed = case.experiment.seed;
    let cache = driven.cache.open(&clock, seed, place.scratch).await?;
    let geometry = cache.device.geometry().clone();
    let run = options(case, driven, place, Some(&geometry))?;
    let result = cache.bench(&clock, &run).await?;
    cache.close().await?;
    Ok(Found {
        run: Some(result),
        device: describe(&driven.cache.device, &geometry),
        ..Found::default()
    })
}

/// The options of a case's run. A running server has no `geometry`.
fn options(
    case: &Case,
    driven: &BenchCase,
    place: Place<'_>,
    geometry: Option<&floe_core::Geometry>,
) -> Result<BenchOptions, EvalError> {
    let seed = case.experiment.seed;
    let chunk = driven.cache.chunk.size;
    let object_bytes = driven.object_size.unwrap_or(chunk).bytes();
    let source = source(case, driven, place.experiment, object_bytes, geometry)?;
    Ok(BenchOptions {
        pacing: driven.pacing,
        stop: Stop {
            requests: driven.requests,
            duration: driven.duration_s.map(seconds).transpose()?,
        },
        warm_up_requests: driven.warm_up_requests,
        bin: seconds(driven.bin_s)?,
        verify_seed: driven.verify.then_some(seed),
        progress: place.progress,
        writes: driven.writes,
        fill: driven.fill,
        settle: driven.settle,
        seed,
        ..BenchOptions::new(&case.name, source)
    })
}

/// Description of the device.
fn describe(device: &DeviceConfig, geometry: &floe_core::Geometry) -> String {
    let kind = match (device.kind, device.sim.model) {
        (DeviceKind::File, _) => "file".to_owned(),
        (DeviceKind::Zns | DeviceKind::Fdp | DeviceKind::Nvme, _) => {
            format!("{:?}", device.kind).to_lowercase()
        }
        (DeviceKind::Memory, _) => "memory".to_owned(),
        (DeviceKind::Sim, SimModel::Queues) => "sim".to_owned(),
        (DeviceKind::Sim, model) => format!("simulated {model:?}").to_lowercase(),
    };
    let zone = floe_core::ByteSize(geometry.zone_capacity);
    format!("{kind}, {} zones of {zone}", geometry.zone_count)
}

fn source(
    case: &Case,
    driven: &BenchCase,
    experiment: &Path,
    object_bytes: u64,
    geometry: Option<&floe_core::Geometry>,
) -> Result<RequestSource, EvalError> {
    match (&driven.workload, &driven.workload_file, &driven.trace) {
        (Some(distribution), None, None) => Ok(RequestSource::Synthetic {
            workload: WorkloadSpec {
                distribution: distribution.clone(),
                items: items(driven, object_bytes, geometry)?,
                seed: case.experiment.seed,
            },
            object_bytes,
            read_bytes: driven.read_size.map(|size| size.bytes()),
        }),
        (None, Some(path), None) => Ok(RequestSource::WorkloadFile {
            path: path.clone(),
            object_bytes,
        }),
        (None, None, Some(trace)) => Ok(RequestSource::Trace {
            path: trace.find(experiment)?,
            options: TraceOptions {
                format: trace.format()?,
                skip_bad: trace.skip_bad,
            },
            object_bytes,
        }),
        _ => Err(EvalError::Experiment {
            path: experiment.to_owned(),
            reason: "[bench] needs exactly one of workload, workload-file and trace".into(),
        }),
    }
}

fn items(
    driven: &BenchCase,
    object_bytes: u64,
    geometry: Option<&floe_core::Geometry>,
) -> Result<u64, EvalError> {
    match (driven.items, driven.ratio, geometry) {
        (Some(items), None, _) => Ok(items),
        (None, Some(_), None) => Err(EvalError::Option {
            option: "ratio",
            reason: "the size of a server's cache is not known; give items".into(),
        }),
        (None, Some(ratio), Some(geometry)) => {
            let per_zone = geometry.zone_capacity / object_bytes.max(1);
            let zones = u64::from(geometry.zone_count);
            Ok(working_set_items(ratio, per_zone, zones)?)
        }
        _ => Err(EvalError::Option {
            option: "items",
            reason: "a workload needs exactly one of items and ratio".into(),
        }),
    }
}

fn seconds(seconds: f64) -> Result<Duration, EvalError> {
    Duration::try_from_secs_f64(seconds).map_err(|error| EvalError::Option {
        option: "seconds",
        reason: format!("{seconds} s is not a duration: {error}"),
    })
}

fn replay_options(
    case: &Case,
    replayed: &ReplayCase,
    place: Place<'_>,
) -> Result<ReplayOptions, EvalError> {
    let sizes = match (&replayed.sizes, &replayed.shares) {
        (Some(sizes), None) => ReplaySizes::Bytes(sizes.iter().map(|size| size.bytes()).collect()),
        (None, Some(shares)) => ReplaySizes::WorkingSetShares(shares.clone()),
        (None, None) => ReplaySizes::default(),
        (Some(_), Some(_)) => {
            return Err(EvalError::Option {
                option: "sizes",
                reason: "give sizes or shares, not both".into(),
            });
        }
    };
    Ok(ReplayOptions {
        options: TraceOptions {
            format: replayed.trace.format()?,
            skip_bad: replayed.trace.skip_bad,
        },
        unit: match replayed.chunk {
            Some(size) => UnitChoice::Fixed(CacheUnit::Chunk(size.bytes())),
            None => UnitChoice::Auto,
        },
        policies: replayed.policies.clone(),
        sizes,
        progress: place.progress,
        ..ReplayOptions::new(&case.name, replayed.trace.find(place.experiment)?)
    })
}
