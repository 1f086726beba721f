//! `floe bench`, `floe replay`, `floe report`: the evaluation, driven by flags.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;
use floe::config::{ChunkSettings, Schema};
use floe::origin::emulated::{LatencyPreset, LatencyRule};
use floe_core::ByteSize;
use floe_device::config::DeviceKind;
use floe_device::{Clock, Device as _};
use floe_eval::EvalError;
use floe_eval::experiment::{CacheSpec, ExperimentOptions, Kind, TargetKind};
use floe_eval::replay::policy::CacheUnit;
use floe_eval::replay::{ReplayOptions, ReplayResult, ReplaySizes, UnitChoice};
use floe_eval::report::ReportData;
use floe_eval::results::Provenance;
use floe_eval::run::{
    Arrivals, BenchOptions, Pacing, Progress, RequestSource, RunResult, Stop, in_virtual_time,
};
use floe_eval::trace::TraceOptions;
use floe_eval::workload::{Distribution, WorkloadSpec, working_set_items};
use tokio::runtime::Builder;

use super::figures;
use crate::args::{
    ArrivalName, BenchArgs, COMMIT, CacheArgs, ClockName, LoadArgs, OutputArgs, ReplayArgs,
    SweepArgs, TargetName, WorkloadName,
};
use crate::device;
use crate::failure::Failure;
use crate::output;
use crate::settings::{Request, check_admission};

/// The size of a cache under test that nobody gave a size.
const BENCH_SIZE: ByteSize = ByteSize::gib(1);

/// How long a bench takes that nobody gave an end.
const BENCH_SECONDS: u64 = 30;

/// `floe bench`: an experiment, or a run that the flags describe.
pub(crate) fn bench(
    schema: &Schema,
    matches: &ArgMatches,
    args: &BenchArgs,
    json: bool,
) -> Result<(), Failure> {
    if let Some(path) = args.file.as_ref().or(args.experiment.as_ref()) {
        return experiment(path, matches, args, json);
    }
    refuse_sweep_flags(&args.sweep)?;
    let scratch = Scratch::new(schema, matches, &args.cache, &args.load, &args.output)?;
    let source = bench_source(args, &scratch.spec)?;
    let mut options = options("bench", source, &args.load, &args.output, json);
    let endless = args.workload_file.is_none();
    if endless && options.stop.requests.is_none() && options.stop.duration.is_none() {
        options.stop.duration = Some(std::time::Duration::from_secs(BENCH_SECONDS));
    }
    let (run, device) = scratch.run(&options)?;
    finish(
        "bench",
        &format!("{:?}", scratch.spec),
        &args.output,
        json,
        args.load.seed,
        device,
        Done::Run(Box::new(run)),
    )
}

fn experiment(
    path: &Path,
    matches: &ArgMatches,
    args: &BenchArgs,
    json: bool,
) -> Result<(), Failure> {
    refuse_other_flags(matches)?;
    let defaults = ExperimentOptions::new(path);
    let options = ExperimentOptions {
        results: args.output.out.clone().unwrap_or(defaults.results),
        progress: progress(&args.output, json),
        jobs: args.sweep.jobs,
        shard: args.sweep.shard,
        resume: args.sweep.resume.clone(),
        commit: Some(COMMIT.to_owned()),
        ..defaults
    };
    let folder = floe_eval::experiment::run(&options).map_err(explain)?;
    let page = folder.join("report.html");
    let data = floe_eval::report::read_data(&folder).map_err(explain)?;
    if json {
        let of = |kind| -> Vec<_> {
            let rows = data.published_rows();
            rows.filter(|row| row.kind == Some(kind)).collect()
        };
        output::print_json(&serde_json::json!({
            "folder": folder, "report": page, "published": of(Kind::Published),
            "derived": of(Kind::Derived), "goals": of(Kind::Goal),
        }))?;
    } else {
        output::print(&format!(
            "{}report: {}\n",
            data.published_text(),
            page.display()
        ))?;
    }
    match args.sweep.verdicts {
        true => judge(&data),
        false => Ok(()),
    }
}

/// Fails where a verdict is not as expected.
pub(super) fn judge(data: &ReportData) -> Result<(), Failure> {
    let surprises = data.surprises();
    match &surprises[..] {
        [] => Ok(()),
        surprises => Err(Failure::verdict(format!(
            "{} verdicts are not as expected\n  {}",
            surprises.len(),
            surprises.join("\n  ")
        ))
        .cure("find out what changed; list what is understood in known-to-differ.toml, with its reason")),
    }
}

/// Cases are an experiment's.
fn refuse_sweep_flags(sweep: &SweepArgs) -> Result<(), Failure> {
    let flag = match sweep {
        SweepArgs { jobs: Some(_), .. } => "--jobs",
        SweepArgs { shard: Some(_), .. } => "--shard",
        SweepArgs {
            resume: Some(_), ..
        } => "--resume",
        SweepArgs { verdicts: true, .. } => "--verdicts",
        _ => return Ok(()),
    };
    Err(Failure::usage(format!("`{flag}` needs an experiment file"))
        .cure("name one: floe bench experiments/smoke.toml"))
}

/// An experiment says everything itself; a flag beside it would be ignored.
fn refuse_other_flags(matches: &ArgMatches) -> Result<(), Failure> {
    const ALLOWED: [&str; 9] = [
        "file",
        "experiment",
        "jobs",
        "shard",
        "resume",
        "verdicts",
        "out",
        "quiet",
        "json",
    ];
    // Groups of flags are listed too, under their types' names.
    let is_flag = |id: &&str| id.starts_with(|first: char| first.is_ascii_lowercase());
    let given = matches
        .ids()
        .map(clap::Id::as_str)
        .filter(is_flag)
        .find(|id| {
            !ALLOWED.contains(id) && matches.value_source(id) == Some(ValueSource::CommandLine)
        });
    match given {
        None => Ok(()),
        Some(id) => Err(
            Failure::usage(format!("`{id}` has no effect beside an experiment file"))
                .cure("put it into the file, or leave the file out"),
        ),
    }
}

/// `floe replay`.
pub(crate) fn replay(
    schema: &Schema,
    matches: &ArgMatches,
    args: &ReplayArgs,
    json: bool,
) -> Result<(), Failure> {
    let trace_options = TraceOptions {
        format: args.format,
        skip_bad: args.skip_bad,
    };
    if !args.engine {
        let options = policy_options(args, trace_options, json)?;
        let config = format!("{options:?}");
        let found = floe_eval::replay(&options).map_err(explain)?;
        return finish(
            "replay",
            &config,
            &args.output,
            json,
            args.load.seed,
            "none".to_owned(),
            Done::Replay(found),
        );
    }
    let scratch = Scratch::new(schema, matches, &args.cache, &args.load, &args.output)?;
    let source = RequestSource::Trace {
        path: args.trace.clone(),
        options: trace_options,
        object_bytes: object_bytes(&args.cache, &scratch.spec).bytes(),
    };
    let mut options = options("replay", source, &args.load, &args.output, json);
    if let Some(speed) = args.speed {
        options.pacing = Pacing::Recorded {
            speed,
            in_flight_max: args.load.in_flight_max,
        };
    }
    let (run, device) = scratch.run(&options)?;
    finish(
        "replay",
        &format!("{:?}", scratch.spec),
        &args.output,
        json,
        args.load.seed,
        device,
        Done::Run(Box::new(run)),
    )
}

fn bench_source(args: &BenchArgs, spec: &CacheSpec) -> Result<RequestSource, Failure> {
    let object_bytes = object_bytes(&args.cache, spec).bytes();
    if let Some(path) = &args.workload_file {
        return Ok(RequestSource::WorkloadFile {
            path: path.clone(),
            object_bytes,
        });
    }
    let distribution = match args.workload {
        WorkloadName::Uniform => Distribution::Uniform,
        WorkloadName::Zipf => Distribution::Zipf {
            skew: args.skew,
            scrambled: true,
        },
        WorkloadName::Hotspot => Distribution::Hotspot {
            hot_set: args.hot_set,
            hot_operations: args.hot_operations,
        },
        WorkloadName::Scan => Distribution::Scan,
    };
    let items = match args.items {
        Some(items) => items,
        None => working_set(args.working_set, object_bytes, spec)?,
    };
    Ok(RequestSource::Synthetic {
        workload: WorkloadSpec {
            distribution,
            items,
            seed: args.load.seed,
        },
        object_bytes,
        read_bytes: args.read_size.map(ByteSize::bytes),
    })
}

fn working_set(ratio: f64, object_bytes: u64, spec: &CacheSpec) -> Result<u64, Failure> {
    let size = spec.device.size.unwrap_or(BENCH_SIZE);
    let geometry = spec
        .device
        .geometry(size)
        .map_err(|error| Failure::usage("the device cannot be used like this").because(error))?;
    let per_zone = (geometry.zone_capacity / object_bytes.max(1)).max(1);
    working_set_items(ratio, per_zone, u64::from(geometry.zone_count))
        .map_err(|error| Failure::usage("the working set makes no sense").because(error))
}

fn object_bytes(args: &CacheArgs, spec: &CacheSpec) -> ByteSize {
    args.object_size.unwrap_or(spec.chunk.size)
}

fn options(
    name: &str,
    source: RequestSource,
    load: &LoadArgs,
    output: &OutputArgs,
    json: bool,
) -> BenchOptions {
    let pacing = match load.rate {
        None => Pacing::Closed {
            clients: load.clients,
        },
        Some(rate) => Pacing::Open {
            rate,
            arrivals: match load.arrivals {
                ArrivalName::Poisson => Arrivals::Poisson,
                ArrivalName::Fixed => Arrivals::Fixed,
            },
            in_flight_max: load.in_flight_max,
        },
    };
    BenchOptions {
        pacing,
        stop: Stop {
            requests: load.requests,
            duration: load.duration,
        },
        warm_up_requests: load.warm_up,
        bin: load.bin,
        verify_seed: load.verify.then_some(load.seed),
        progress: progress(output, json),
        seed: load.seed,
        ..BenchOptions::new(name, source)
    }
}

fn progress(output: &OutputArgs, json: bool) -> Progress {
    if output.quiet || json {
        Progress::Off
    } else {
        Progress::Auto
    }
}

fn policy_options(
    args: &ReplayArgs,
    options: TraceOptions,
    json: bool,
) -> Result<ReplayOptions, Failure> {
    let name = args.trace.file_name().unwrap_or(args.trace.as_os_str());
    let defaults = ReplayOptions::new(name.to_string_lossy(), &args.trace);
    let sizes = if !args.sizes.is_empty() {
        ReplaySizes::Bytes(args.sizes.iter().map(|size| size.bytes()).collect())
    } else if !args.shares.is_empty() {
        ReplaySizes::WorkingSetShares(args.shares.clone())
    } else {
        defaults.sizes.clone()
    };
    let unit = match args.unit.as_str() {
        "auto" => UnitChoice::Auto,
        "object" => UnitChoice::Fixed(CacheUnit::Object),
        text => match text.parse::<ByteSize>() {
            Ok(size) if size.bytes() > 0 => UnitChoice::Fixed(CacheUnit::Chunk(size.bytes())),
            _ => {
                return Err(Failure::usage(format!("`--unit {text}` is no unit"))
                    .cure("write auto, object, or a chunk size such as 4KiB"));
            }
        },
    };
    Ok(ReplayOptions {
        options,
        unit,
        policies: match args.policies.is_empty() {
            true => defaults.policies.clone(),
            false => args.policies.clone(),
        },
        sizes,
        progress: progress(&args.output, json),
        ..defaults
    })
}

/// A cache under test and the folder it may lie in.
struct Scratch {
    spec: CacheSpec,
    folder: PathBuf,
    seed: u64,
    virtual_time: bool,
}

impl Scratch {
    fn new(
        schema: &Schema,
        matches: &ArgMatches,
        args: &CacheArgs,
        load: &LoadArgs,
        output: &OutputArgs,
    ) -> Result<Self, Failure> {
        let request = Request::new(schema, matches)?;
        let effective = request.load(schema)?;
        let chunk: ChunkSettings = effective.section("chunk")?;
        check_admission("chunk", &chunk.admission)?;
        let mut spec = CacheSpec {
            target: match args.target {
                TargetName::Store => TargetKind::Store,
                TargetName::Object => TargetKind::Object,
            },
            device: effective.section("device")?,
            chunk: chunk.engine,
            admission: chunk.admission.config(),
            ram: effective.section("ram")?,
            origin_latency: latency(&args.origin_latency)?,
            origin_bandwidth_per_stream: args.origin_bandwidth,
            ..CacheSpec::default()
        };
        match &spec.device.path {
            Some(path) if !args.wipe => refuse_to_wipe(path)?,
            _ => {}
        }
        if spec.device.size.is_none()
            && (spec.device.path.is_none() || spec.device.kind != DeviceKind::File)
        {
            spec.device.size = Some(BENCH_SIZE);
        }
        let object = object_bytes(args, &spec);
        if args.target == TargetName::Store && object > spec.chunk.size {
            return Err(Failure::usage(format!(
                "objects of {object} do not fit chunks of {}",
                spec.chunk.size
            ))
            .cure("choose a smaller --object-size, a larger --chunk-size, or --target object"));
        }
        let folder = match &output.out {
            Some(out) => out.clone(),
            None => request.places.data_dir.join("bench"),
        };
        Ok(Scratch {
            spec,
            folder,
            seed: load.seed,
            virtual_time: load.virtual_time || load.clock == ClockName::Virtual,
        })
    }

    /// Runs, and answers with the device's description too.
    fn run(&self, options: &BenchOptions) -> Result<(RunResult, String), Failure> {
        let is_own_file =
            self.spec.device.kind == DeviceKind::File && self.spec.device.path.is_none();
        if is_own_file {
            std::fs::create_dir_all(&self.folder).map_err(|error| {
                Failure::environment(format!("cannot create `{}`", self.folder.display()))
                    .because(error)
                    .cure("choose another folder with --out or --data-dir")
            })?;
        }
        let result = if self.virtual_time {
            in_virtual_time(self.seed, |clock| self.drive(options, clock)).map_err(explain)
        } else {
            Builder::new_multi_thread()
                .enable_all()
                .build()
                .map_err(|error| Failure::environment("cannot start the runtime").because(error))?
                .block_on(self.drive(options, Clock::real()))
                .map_err(explain)
        };
        if is_own_file {
            // What is left of a cache under test is of no use to anybody.
            let _ = std::fs::remove_file(self.folder.join("cache.flash"));
            let _ = std::fs::remove_dir(&self.folder);
        }
        result
    }

    async fn drive(
        &self,
        options: &BenchOptions,
        clock: Clock,
    ) -> Result<(RunResult, String), EvalError> {
        let cache = self.spec.open(&clock, self.seed, &self.folder).await?;
        let run = floe_eval::bench(&cache.target, &clock, Some(&cache.device), options).await;
        let device = cache.device.describe();
        let closed = cache.close().await;
        let run = run?;
        closed?;
        Ok((run, device))
    }
}

/// A cache under test is formatted; what somebody else wrote must not be.
fn refuse_to_wipe(path: &Path) -> Result<(), Failure> {
    let Ok(file) = std::fs::File::open(path) else {
        // It does not exist, or opening it says better what is wrong.
        return Ok(());
    };
    let mut start = Vec::new();
    file.take(1 << 20)
        .read_to_end(&mut start)
        .map_err(|error| {
            Failure::environment(format!("cannot read `{}`", path.display())).because(error)
        })?;
    if start.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "`{}` holds data, which this would overwrite",
        path.display()
    ))
    .cure("name another --device-path; or wipe what is there, for ever, with --wipe"))
}

fn latency(text: &str) -> Result<LatencyRule, Failure> {
    let measured = |preset| LatencyRule::Measured {
        preset,
        constant: false,
    };
    Ok(match text {
        "0" | "none" => LatencyRule::None,
        "64KiB" => measured(LatencyPreset::Kib64),
        "256MiB" => measured(LatencyPreset::Mib256),
        "512MiB" => measured(LatencyPreset::Mib512),
        "1GiB" => measured(LatencyPreset::Gib1),
        _ => match text.trim_end_matches("ms").parse::<f64>() {
            Ok(ms) if ms.is_finite() && ms >= 0.0 => LatencyRule::Constant { ms },
            _ => {
                return Err(
                    Failure::usage(format!("`--origin-latency {text}` is no latency"))
                        .cure("write milliseconds, or one of 64KiB, 256MiB, 512MiB, 1GiB"),
                );
            }
        },
    })
}

/// What was found.
enum Done {
    Run(Box<RunResult>),
    Replay(ReplayResult),
}

fn finish(
    name: &str,
    config: &str,
    output: &OutputArgs,
    json: bool,
    seed: u64,
    device: String,
    done: Done,
) -> Result<(), Failure> {
    let text = match &done {
        Done::Run(run) => figures::run(run),
        Done::Replay(replay) => figures::replay(replay),
    };
    let (runs, replays) = match done {
        Done::Run(run) => (vec![*run], Vec::new()),
        Done::Replay(replay) => (Vec::new(), vec![replay]),
    };
    let provenance = Provenance::here(Some(COMMIT), config, seed, device);
    let title = format!("floe {name}");
    let data = ReportData::new(name, title, config, provenance, runs, replays);
    let page = match &output.out {
        Some(folder) => Some(data.write(folder).map_err(explain)?),
        None => None,
    };
    if json {
        return output::print_json(&data.rows);
    }
    output::print(&text)?;
    match page {
        Some(page) => output::print(&format!("\nreport: {}\n", page.display())),
        None => Ok(()),
    }
}

/// Whether it is the flags, the machine or Floe that is at fault.
pub(crate) fn explain(error: EvalError) -> Failure {
    match error {
        EvalError::Device(error) => device::explain(device::Part::Chunks, error),
        EvalError::Case {
            case,
            folder,
            source,
        } => {
            let failure = explain(*source).within(format!("case `{case}`"));
            failure.cure(format!(
                "cases that are done are kept: go on with --resume {}",
                folder.display()
            ))
        }
        EvalError::VirtualTime(halt) => Failure::bug("virtual time came to a halt").because(halt),
        EvalError::Option { .. }
        | EvalError::Workload(_)
        | EvalError::WorkloadFile(_)
        | EvalError::Trace(_)
        | EvalError::Origin(_)
        | EvalError::Experiment { .. } => Failure::usage("this cannot be run").because(error),
        EvalError::File { ref source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Failure::usage("this cannot be run").because(error)
        }
        EvalError::WrongBytes { .. } | EvalError::WrongLength { .. } | EvalError::Client(_) => {
            Failure::bug("the run was broken off").because(error)
        }
        _ => Failure::environment("the run was broken off").because(error),
    }
}
