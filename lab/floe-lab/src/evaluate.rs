//! `floe bench` and `floe replay`: run the evaluation as the flags describe.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;
use floe::config::{ChunkSettings, Schema};
use floe_cli::COMMIT;
use floe_cli::failure::Failure;
use floe_cli::output;
use floe_cli::settings::{Request, check_admission};
use floe_core::ByteSize;
use floe_device::Clock;
use floe_device::config::DeviceKind;
use floe_eval::EvalError;
use floe_eval::experiment::{CacheSpec, ExperimentOptions, Kind, TargetKind};
use floe_eval::run::{BenchOptions, Pacing, RequestSource, RunResult, in_virtual_time};
use floe_eval::trace::{TraceOptions, generated};
use tokio::runtime::Builder;

use crate::args::{BenchArgs, ClockName, DriveArgs, ReplayArgs, SweepArgs};
use crate::load::{
    BENCH_SIZE, REMOTE_OBJECT_SIZE, bench_source, latency, object_bytes, options, policy_options,
    progress,
};
use crate::outcome::{Done, explain, finish, judge};
use crate::remote::{self, Remote, reject_remote_flags};
use crate::{volume, workload};

/// Default length of a bench.
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
    reject_sweep_flags(&args.sweep)?;
    if let Some(origin) = &args.origin.origin {
        return remote::origin(schema, matches, args, origin, json);
    }
    let mut options = options("bench", &args.drive.load, &args.drive.output, json);
    options.writes = args.writes;
    options.fill = args.fill;
    let endless = args.workload_file.is_none() && args.trace.is_none();
    if endless && options.stop.requests.is_none() && options.stop.duration.is_none() {
        options.stop.duration = Some(std::time::Duration::from_secs(BENCH_SECONDS));
    }
    let workload = args.write_workload.as_deref();
    Drive::new(schema, matches, &args.drive, json).run(
        "bench",
        options,
        workload,
        |object, spec| bench_source(args, object, spec),
    )
}

fn experiment(
    path: &Path,
    matches: &ArgMatches,
    args: &BenchArgs,
    json: bool,
) -> Result<(), Failure> {
    reject_other_flags(matches)?;
    let defaults = ExperimentOptions::new(path);
    let set = matches.get_many::<String>("set").unwrap_or_default();
    let set = set.map(|text| text.parse());
    let set = set.collect::<Result<_, String>>().map_err(|reason| {
        Failure::usage(format!("--set: {reason}"))
            .cure("name a key of the experiment, as its file has it")
    })?;
    let options = ExperimentOptions {
        results: args.drive.output.out.clone().unwrap_or(defaults.results),
        progress: progress(&args.drive.output, json),
        jobs: args.sweep.jobs,
        shard: args.sweep.shard,
        resume: args.sweep.resume.clone(),
        set,
        wipe: args.drive.cache.wipe,
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
            "curves": data.curves,
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

/// Only an experiment has cases.
fn reject_sweep_flags(sweep: &SweepArgs) -> Result<(), Failure> {
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

/// An experiment is complete: other flags would have no effect. `--set` names its own keys.
fn reject_other_flags(matches: &ArgMatches) -> Result<(), Failure> {
    const ALLOWED: [&str; 11] = [
        "file",
        "experiment",
        "jobs",
        "shard",
        "resume",
        "verdicts",
        "set",
        "wipe",
        "out",
        "quiet",
        "json",
    ];
    // Groups of flags are listed too, under the names of their types.
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
            Failure::usage(format!("`{id}` has no effect beside an experiment file")).cure(
                "put it into the file, name a key of the file with --set, or leave the file out",
            ),
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
    if !args.volume.is_empty() {
        return volume::replay(args, trace_options, json);
    }
    if !args.engine {
        let options = policy_options(args, trace_options, json)?;
        let config = format!("{options:?}");
        let found = floe_eval::replay(&options).map_err(explain)?;
        return finish(
            "replay",
            &config,
            &args.drive.output,
            json,
            args.drive.load.seed,
            "none".to_owned(),
            Done::Replay(found),
        );
    }
    let source = |object: ByteSize| RequestSource::Trace {
        path: args.trace.clone(),
        options: trace_options,
        object_bytes: object.bytes(),
    };
    // Of a generated trace, results say that nothing was recorded.
    let name = match generated(&args.trace) {
        Some(format) => format!("replay of a {format}"),
        None => "replay".to_owned(),
    };
    let mut options = options(&name, &args.drive.load, &args.drive.output, json);
    if let Some(speed) = args.speed {
        options.pacing = Pacing::Recorded {
            speed,
            in_flight_max: args.drive.load.in_flight_max,
        };
    }
    let drive = Drive::new(schema, matches, &args.drive, json);
    drive.run("replay", options, None, |object, _| Ok(source(object)))
}

/// The flags of a run against a cache or a server.
struct Drive<'a> {
    schema: &'a Schema,
    matches: &'a ArgMatches,
    args: &'a DriveArgs,
    json: bool,
}

impl<'a> Drive<'a> {
    fn new(schema: &'a Schema, matches: &'a ArgMatches, args: &'a DriveArgs, json: bool) -> Self {
        Drive {
            schema,
            matches,
            args,
            json,
        }
    }

    /// Runs the requests of `source`, which receives the size of objects and
    /// the cache under test, or only writes them to the file `workload`.
    fn run(
        &self,
        name: &str,
        mut options: BenchOptions,
        workload: Option<&Path>,
        source: impl Fn(ByteSize, Option<&CacheSpec>) -> Result<RequestSource, Failure>,
    ) -> Result<(), Failure> {
        let (run, device, config) = match &self.args.cache.target {
            TargetKind::Remote(address) => {
                let remote = Remote::new(self.schema, self.matches, &self.args.remote)?;
                let object = self.args.cache.object_size.unwrap_or(REMOTE_OBJECT_SIZE);
                options.source = source(object, None)?;
                if let Some(path) = workload {
                    return workload::write(path, &options, self.json);
                }
                let run = remote.run(address, &options, &self.args.load)?;
                (run, address.to_string(), format!("{:?}", remote.spec))
            }
            _ => {
                reject_remote_flags(self.matches)?;
                let scratch = Scratch::new(self.schema, self.matches, self.args)?;
                let object = object_bytes(&self.args.cache, &scratch.spec);
                options.source = source(object, Some(&scratch.spec))?;
                if let Some(path) = workload {
                    return workload::write(path, &options, self.json);
                }
                let (run, device) = scratch.run(&options)?;
                (run, device, format!("{:?}", scratch.spec))
            }
        };
        finish(
            name,
            &config,
            &self.args.output,
            self.json,
            self.args.load.seed,
            device,
            Done::Run(Box::new(run)),
        )
    }
}

/// A cache under test and its directory.
struct Scratch {
    spec: CacheSpec,
    folder: PathBuf,
    seed: u64,
    virtual_time: bool,
}

impl Scratch {
    fn new(schema: &Schema, matches: &ArgMatches, args: &DriveArgs) -> Result<Self, Failure> {
        let DriveArgs {
            load,
            cache,
            output,
            ..
        } = args;
        let request = Request::new(schema, matches)?;
        let effective = request.load(schema)?;
        let chunk: ChunkSettings = effective.section("chunk")?;
        check_admission("chunk", &chunk.admission)?;
        let mut spec = CacheSpec {
            target: cache.target.clone(),
            device: effective.section("device")?,
            chunk: chunk.engine,
            admission: chunk.admission.config(),
            ram: effective.section("ram")?,
            origin_latency: latency(&cache.origin_latency)?,
            origin_bandwidth_per_stream: cache.origin_bandwidth,
            ..CacheSpec::default()
        };
        spec.device.accept_foreign = cache.wipe;
        if !cache.wipe {
            let device = &spec.device;
            device
                .all_paths()
                .try_for_each(|path| reject_to_wipe(device.kind, path))?;
        }
        let has_path = spec.device.all_paths().next().is_some();
        if spec.device.size.is_none() && (!has_path || spec.device.kind != DeviceKind::File) {
            spec.device.size = Some(BENCH_SIZE);
        }
        let object = object_bytes(cache, &spec);
        if cache.target == TargetKind::Store && object > spec.chunk.size {
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

    /// Runs, and returns the device's description too.
    fn run(&self, options: &BenchOptions) -> Result<(RunResult, String), Failure> {
        let device = &self.spec.device;
        let is_own_file = device.kind == DeviceKind::File && device.all_paths().next().is_none();
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
            // The file of a cache under test is temporary.
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
        let run = cache.bench(&clock, options).await;
        let closed = cache.close().await;
        let run = run?;
        closed?;
        let device = run.device.as_ref().map(ToString::to_string);
        Ok((run, device.unwrap_or_default()))
    }
}

/// A cache under test gets formatted, so its path must not hold other data.
fn reject_to_wipe(kind: DeviceKind, path: &Path) -> Result<(), Failure> {
    let is_namespace = kind != DeviceKind::File || path.to_string_lossy().starts_with("nvme:");
    if is_namespace {
        return Err(
            Failure::usage(format!("this would wipe `{}`", path.display()))
                .cure("name another --device-path; or wipe the drive, for ever, with --wipe"),
        );
    }
    let Ok(file) = std::fs::File::open(path) else {
        // It does not exist, or opening it gives a better error.
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
