//! Running an experiment's cases and writing what they found.

use std::path::{Path, PathBuf};
use std::time::Duration;

use floe_device::virtual_time::VirtualTime;
use floe_device::{Clock, Device as _};

use super::cases::{self, Case};
use super::schema::{BenchCase, CurveSpec, Experiment, ReplayCase, TimeKind};
use crate::error::EvalError;
use crate::replay::policy::CacheUnit;
use crate::replay::{ReplayOptions, ReplaySizes, UnitChoice, replay};
use crate::report::{Curve, CurveLine, ReportData};
use crate::results::{Provenance, run_figures};
use crate::run::{BenchOptions, Progress, RequestSource, RunResult, Stop, bench};
use crate::trace::TraceOptions;
use crate::workload::{WorkloadSpec, working_set_items};

/// How to run an experiment.
#[derive(Clone, Debug)]
pub struct ExperimentOptions {
    /// The experiment file.
    pub path: PathBuf,
    /// Where the folder of results is made.
    pub results: PathBuf,
    /// Whether to show progress.
    pub progress: Progress,
}

/// Runs all cases of an experiment and writes `<results>/<name>-<time>/`;
/// returns that folder.
///
/// Blocks, and makes the runtimes it needs: it must be called outside of any.
///
/// # Errors
/// When the file makes no sense, a case fails, or results cannot be written.
pub fn run(options: &ExperimentOptions) -> Result<PathBuf, EvalError> {
    let path = &options.path;
    let text = std::fs::read_to_string(path).map_err(EvalError::file("read", path))?;
    let (experiment, cases) = cases::parse(path, &text)?;
    let folder = make_folder(&options.results, &experiment.name)?;
    let mut data = ReportData::new(
        &experiment.name,
        &experiment.title,
        &text,
        Provenance::here(&text, experiment.seed, "none"),
        Vec::new(),
        Vec::new(),
    );
    data.about = experiment.about.clone();
    let mut devices = Vec::new();
    for case in &cases {
        let replayed = case.experiment.replay.as_ref();
        if let Some(replayed) = replayed {
            let options = replay_options(case, replayed, options)?;
            data.replays.push(replay(&options)?);
        }
        if let Some(driven) = &case.experiment.bench {
            let run = run_case(case, driven, options, &folder)?;
            devices.push(run.device);
            data.runs.push(run.result);
        }
    }
    data = complete(data, &experiment, &cases, &devices);
    let copy = folder.join("experiment.toml");
    std::fs::write(&copy, &text).map_err(EvalError::file("write", &copy))?;
    data.write(&folder)?;
    Ok(folder)
}

/// Rows, published figures beside them, and curves; `devices` are the runs'.
fn complete(
    mut data: ReportData,
    experiment: &Experiment,
    cases: &[Case],
    devices: &[String],
) -> ReportData {
    let mut different = devices.to_vec();
    different.sort_unstable();
    different.dedup();
    if !different.is_empty() {
        data.provenance.device = different.join("; ");
    }
    let mut whole = ReportData::new(
        data.name,
        data.title,
        data.config,
        data.provenance,
        data.runs,
        data.replays,
    );
    whole.about = data.about;
    for row in &mut whole.rows {
        let run = whole.runs.iter().position(|run| run.name == row.case);
        if let Some(device) = run.and_then(|run| devices.get(run)) {
            row.provenance.device = device.clone();
        }
        let published = experiment
            .published
            .iter()
            .find(|published| published.case == row.case && published.metric == row.metric);
        if let Some(published) = published {
            row.paper = Some(published.value);
            row.source = Some(published.source.clone());
            row.verdict = Some(published.verdict(row.measured));
        }
    }
    let runs: Vec<(&Case, &RunResult)> = cases.iter().zip(&whole.runs).collect();
    whole.curves = experiment
        .curves
        .iter()
        .map(|spec| curve(spec, &runs))
        .collect();
    whole
}

fn make_folder(results: &Path, name: &str) -> Result<PathBuf, EvalError> {
    let format = time::macros::format_description!("[year][month][day]-[hour][minute][second]");
    let now = time::OffsetDateTime::now_utc();
    let stamp = now.format(format).unwrap_or_default();
    std::fs::create_dir_all(results).map_err(EvalError::file("create", results))?;
    // Two runs within a second each have a folder of their own.
    for attempt in 0.. {
        let suffix = if attempt == 0 {
            String::new()
        } else {
            format!("-{attempt}")
        };
        let folder = results.join(format!("{name}-{stamp}{suffix}"));
        match std::fs::create_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && attempt < 100 => {}
            made => {
                return made
                    .map(|()| folder.clone())
                    .map_err(EvalError::file("create", &folder));
            }
        }
    }
    Ok(results.to_owned())
}

struct CaseRun {
    result: RunResult,
    device: String,
}

fn run_case(
    case: &Case,
    driven: &BenchCase,
    options: &ExperimentOptions,
    folder: &Path,
) -> Result<CaseRun, EvalError> {
    let scratch = folder.join("scratch");
    std::fs::create_dir_all(&scratch).map_err(EvalError::file("create", &scratch))?;
    let found = match case.experiment.time {
        TimeKind::Virtual => {
            let run = VirtualTime::new(case.experiment.seed)
                .run(|clock| drive(case, driven, options, &scratch, clock));
            run.unwrap_or_else(|error| Err(EvalError::Cache(error.to_string())))
        }
        TimeKind::Real => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .map_err(|error| EvalError::Cache(format!("no runtime: {error}")))?;
            runtime.block_on(drive(case, driven, options, &scratch, Clock::real()))
        }
    };
    let removed = std::fs::remove_dir_all(&scratch).map_err(EvalError::file("remove", &scratch));
    let found = found?;
    removed?;
    Ok(found)
}

async fn drive(
    case: &Case,
    driven: &BenchCase,
    options: &ExperimentOptions,
    scratch: &Path,
    clock: Clock,
) -> Result<CaseRun, EvalError> {
    let seed = case.experiment.seed;
    let cache = driven.cache.open(&clock, seed, scratch).await?;
    let geometry = cache.device.geometry().clone();
    let object_bytes = driven
        .object_size
        .unwrap_or(driven.cache.chunk.size)
        .bytes();
    let source = source(case, driven, &options.path, object_bytes, &geometry)?;
    let run = BenchOptions {
        pacing: driven.pacing,
        stop: Stop {
            requests: driven.requests,
            duration: driven.duration_s.map(seconds).transpose()?,
        },
        warm_up_requests: driven.warm_up_requests,
        bin: seconds(driven.bin_s)?,
        verify_seed: driven.verify.then_some(seed),
        progress: options.progress,
        seed,
        ..BenchOptions::new(&case.name, source)
    };
    let result = bench(&cache.target, &clock, Some(&cache.device), &run).await?;
    cache.close().await?;
    Ok(CaseRun {
        result,
        device: format!(
            "{:?}, {} zones of {}",
            driven.cache.device.kind,
            geometry.zone_count,
            floe_core::ByteSize(geometry.zone_capacity)
        )
        .to_lowercase()
        .replace("mib", "MiB")
        .replace("gib", "GiB")
        .replace("kib", "KiB"),
    })
}

fn source(
    case: &Case,
    driven: &BenchCase,
    experiment: &Path,
    object_bytes: u64,
    geometry: &floe_core::Geometry,
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
    geometry: &floe_core::Geometry,
) -> Result<u64, EvalError> {
    match (driven.items, driven.ratio) {
        (Some(items), None) => Ok(items),
        (None, Some(ratio)) => {
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
        reason: format!("{seconds} s is no length of time: {error}"),
    })
}

fn replay_options(
    case: &Case,
    replayed: &ReplayCase,
    options: &ExperimentOptions,
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
        progress: options.progress,
        ..ReplayOptions::new(&case.name, replayed.trace.find(&options.path)?)
    })
}

/// A chart of metrics over one coordinate; the other coordinates make lines.
fn curve(spec: &CurveSpec, runs: &[(&Case, &RunResult)]) -> Curve {
    let mut lines: Vec<CurveLine> = Vec::new();
    let mut ticks: Vec<(f64, String)> = Vec::new();
    let mut unit = "";
    for metric in &spec.y {
        for (case, run) in runs {
            let figures = run_figures(run);
            let figure = figures.iter().find(|figure| figure.metric == *metric);
            let (Some(x), Some(figure)) = (place(spec, case, &mut ticks), figure) else {
                continue;
            };
            unit = figure.unit;
            let name = line_name(spec, metric, case);
            let point = (x, figure.value);
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => lines.push(CurveLine {
                    name,
                    points: vec![point],
                }),
            }
        }
    }
    let y_label = match scale_rates(unit, &mut lines) {
        "ratio" | "count" | "" => spec.y_label.clone(),
        unit => format!("{} ({unit})", spec.y_label),
    };
    Curve {
        title: spec.title.clone(),
        x_label: spec.x_label.clone().unwrap_or_else(|| spec.x.clone()),
        y_label,
        x_ticks: ticks,
        y_is_log: spec.y_log,
        lines,
    }
}

/// Where a case lies along a curve. On an even axis that is the order in which
/// the values are met, which are remembered in `ticks`.
fn place(spec: &CurveSpec, case: &Case, ticks: &mut Vec<(f64, String)>) -> Option<f64> {
    let along = case.coordinates.iter().find(|c| c.label == spec.x)?;
    if !spec.x_even {
        return along.position;
    }
    if let Some((at, _)) = ticks.iter().find(|(_, name)| *name == along.name) {
        return Some(*at);
    }
    let at = ticks.len() as f64;
    ticks.push((at, along.name.clone()));
    Some(at)
}

fn line_name(spec: &CurveSpec, metric: &str, case: &Case) -> String {
    let others = case.coordinates.iter().filter(|c| c.label != spec.x);
    let mut parts: Vec<String> = others.map(|c| format!("{} {}", c.label, c.name)).collect();
    if spec.y.len() > 1 || parts.is_empty() {
        parts.insert(0, metric.replace('_', " "));
    }
    parts.join(", ")
}

/// Shows rates in MiB/s; returns the unit that is shown.
fn scale_rates(unit: &'static str, lines: &mut [CurveLine]) -> &'static str {
    if unit != "B/s" {
        return unit;
    }
    for point in lines.iter_mut().flat_map(|line| &mut line.points) {
        point.1 /= f64::from(1 << 20);
    }
    "MiB/s"
}
