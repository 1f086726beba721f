//! `floe bench --target` of a running server, and `floe bench --origin`.

use std::path::Path;
use std::sync::Arc;

use clap::ArgMatches;
use clap::parser::ValueSource;
use floe::config::Schema;
use floe::latency::{LatencyFile, Quantiles};
use floe::origin::{Origin, OriginConfig, OriginKind};
use floe_cli::failure::Failure;
use floe_cli::output;
use floe_cli::settings::Request;
use floe_cli::style::Style;
use floe_core::ByteSize;
use floe_device::Clock;
use floe_eval::EvalError;
use floe_eval::run::{
    BenchOptions, OriginProbe, Pacing, RemoteAddress, RemoteSpec, RemoteTarget, RequestSource,
    RunResult, Target, in_virtual_time,
};
use tokio::runtime::Builder;

use crate::args::{BenchArgs, ClockName, LoadArgs, RemoteArgs};
use crate::load::options;
use crate::outcome::{Done, explain, finish};

/// Most keys to list at an origin.
const KEYS_MAX: usize = 100_000;

/// Default number of requests to an origin.
const ORIGIN_REQUESTS: u64 = 1000;

/// Default number of concurrent requests to an origin.
const ORIGIN_CLIENTS: usize = 8;

/// How to drive a running server.
pub(crate) struct Remote {
    pub(crate) spec: RemoteSpec,
}

impl Remote {
    pub(crate) fn new(
        schema: &Schema,
        matches: &ArgMatches,
        args: &RemoteArgs,
    ) -> Result<Self, Failure> {
        reject_cache_flags(matches)?;
        let request = Request::new(schema, matches)?;
        Ok(Remote {
            spec: RemoteSpec {
                pipeline: args.pipeline,
                connections: args.connections,
                key: args.key.clone(),
                set_on_miss: !args.no_set_on_miss,
                timeout_s: args.timeout.as_secs_f64(),
                bucket: args.bucket.clone(),
                s3: request.load(schema)?.section("origin")?,
            },
        })
    }

    /// Drives the server at `address`.
    pub(crate) fn run(
        &self,
        address: &RemoteAddress,
        options: &BenchOptions,
        load: &LoadArgs,
    ) -> Result<RunResult, Failure> {
        real_time_only(load)?;
        let drive = async {
            let clock = Clock::real();
            let target = RemoteTarget::connect(address, &self.spec, options, &clock).await?;
            floe_eval::bench(&Target::Remote(Arc::new(target)), &clock, None, options).await
        };
        block_on(drive)
    }
}

fn block_on<T>(drive: impl Future<Output = Result<T, EvalError>>) -> Result<T, Failure> {
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::environment("cannot start the runtime").because(error))?
        .block_on(drive)
        .map_err(explain)
}

fn real_time_only(load: &LoadArgs) -> Result<(), Failure> {
    match load.virtual_time || load.clock == ClockName::Virtual {
        true => {
            Err(Failure::usage("a server that runs is driven in real time")
                .cure("leave --clock out"))
        }
        false => Ok(()),
    }
}

/// A running server has its own cache.
fn reject_cache_flags(matches: &ArgMatches) -> Result<(), Failure> {
    const OF_A_CACHE: [&str; 4] = ["origin_latency", "origin_bandwidth", "wipe", "working_set"];
    let given = given_flag(matches, |id| {
        let section = id.split_once('.').map(|(section, _)| section);
        matches!(section, Some("device" | "chunk" | "ram")) || OF_A_CACHE.contains(&id)
    });
    match given {
        None => Ok(()),
        Some(id) => Err(
            Failure::usage(format!("`{id}` has no effect on a server that runs"))
                .cure("leave it out; the server has its own settings"),
        ),
    }
}

/// Rejects flags for a running server if the command drives its own cache.
pub(crate) fn reject_remote_flags(matches: &ArgMatches) -> Result<(), Failure> {
    const OF_A_SERVER: [&str; 6] = [
        "pipeline",
        "connections",
        "key",
        "no_set_on_miss",
        "timeout",
        "bucket",
    ];
    match given_flag(matches, |id| OF_A_SERVER.contains(&id)) {
        None => Ok(()),
        Some(id) => Err(Failure::usage(format!(
            "`{id}` has no effect on a cache of the command's own"
        ))
        .cure("name a server with --target, or leave it out")),
    }
}

fn given_flag(matches: &ArgMatches, wanted: impl Fn(&str) -> bool) -> Option<&str> {
    let mut ids = matches.ids().map(clap::Id::as_str).filter(|id| wanted(id));
    ids.find(|id| matches.value_source(id) == Some(ValueSource::CommandLine))
}

/// `floe bench --origin`.
pub(crate) fn origin(
    schema: &Schema,
    matches: &ArgMatches,
    args: &BenchArgs,
    named: &str,
    json: bool,
) -> Result<(), Failure> {
    reject_cache_flags(matches)?;
    let (mut config, bucket) = origin_config(schema, matches, args, named)?;
    let requests = &mut config.requests;
    // A retry would hide the latency of the first attempt.
    requests.max_attempts = 1;
    requests.max_concurrent = requests.max_concurrent.max(1 << 16);
    let mut options = options("origin", &args.drive.load, &args.drive.output, json);
    if matches.value_source("clients") != Some(ValueSource::CommandLine)
        && let Pacing::Closed { clients } = &mut options.pacing
    {
        *clients = ORIGIN_CLIENTS;
    }
    if options.stop.requests.is_none() && options.stop.duration.is_none() {
        options.stop.requests = Some(ORIGIN_REQUESTS);
    }
    let given = given_keys(args)?;
    let measure = async |clock: Clock| {
        let origin = Origin::open(&config, clock.clone())?;
        let probe = Arc::new(OriginProbe::new(origin, bucket.clone(), clock.clone()));
        let keys = match given {
            Some(keys) => keys,
            None => probe.keys(KEYS_MAX).await?,
        };
        options.source = RequestSource::Keys {
            keys,
            read_bytes: args.read_size.map(ByteSize::bytes),
            seed: args.drive.load.seed,
        };
        let target = Target::Origin(Arc::clone(&probe));
        let run = floe_eval::bench(&target, &clock, None, &options).await?;
        let about = about(named, &bucket, &options);
        Ok::<_, EvalError>((run, probe.latencies(about)))
    };
    let (run, latencies) =
        match args.drive.load.virtual_time || args.drive.load.clock == ClockName::Virtual {
            true => in_virtual_time(args.drive.load.seed, measure).map_err(explain)?,
            false => block_on(measure(Clock::real()))?,
        };
    if let (Some(path), Some(latencies)) = (&args.origin.latency_file, &latencies) {
        write(path, latencies)?;
    }
    let config = format!("{config:?}");
    let device = format!("origin {named}");
    let seed = args.drive.load.seed;
    let done = Done::Run(Box::new(run));
    finish(
        "bench --origin",
        &config,
        &args.drive.output,
        json,
        seed,
        device,
        done,
    )?;
    if json {
        return Ok(());
    }
    if let Some(latencies) = &latencies {
        output::print(&table(latencies))?;
    }
    match &args.origin.latency_file {
        Some(path) => output::print(&format!("\nlatencies: {}\n", path.display())),
        None => Ok(()),
    }
}

/// The origin of the flags, and its bucket.
fn origin_config(
    schema: &Schema,
    matches: &ArgMatches,
    args: &BenchArgs,
    named: &str,
) -> Result<(OriginConfig, String), Failure> {
    let mut request = Request::new(schema, matches)?;
    let is_url = ["s3:", "http://", "https://"]
        .iter()
        .any(|scheme| named.starts_with(scheme));
    if !is_url {
        if !Path::new(named).is_file() {
            return Err(
                Failure::usage(format!("there is no configuration `{named}`")).cure(
                    "name a file with [origin], s3:URL/BUCKET, or the URL of a web server's bucket",
                ),
            );
        }
        request.read_file(named.into());
        let mut config: OriginConfig = request.load(schema)?.section("origin")?;
        if config.kind == OriginKind::Directory && config.root.is_none() {
            config.root = Some(request.places.data_dir.join("origin"));
        }
        return Ok((config, args.drive.remote.bucket.clone()));
    }
    let credentials: OriginConfig = request.load(schema)?.section("origin")?;
    let s3 = match named.starts_with("s3:") {
        true => named.to_owned(),
        false => format!("s3:{named}"),
    };
    let address = s3.parse();
    let (endpoint, bucket) = match address {
        Ok(RemoteAddress::S3 { endpoint, bucket }) => (endpoint, bucket),
        Ok(_) | Err(_) => {
            return Err(Failure::usage(format!("`{named}` names no bucket"))
                .cure("write s3:URL/BUCKET, or for a web server http://HOST/BUCKET"));
        }
    };
    let shared = OriginConfig {
        allow_http: endpoint.starts_with("http://"),
        endpoint: Some(endpoint),
        redirects: credentials.redirects,
        requests: credentials.requests,
        ..OriginConfig::default()
    };
    let config = match named.starts_with("s3:") {
        false => OriginConfig {
            kind: OriginKind::Http,
            ..shared
        },
        true => OriginConfig {
            kind: OriginKind::S3,
            region: credentials.region,
            access_key: credentials.access_key,
            secret_key: credentials.secret_key,
            session_token: credentials.session_token,
            anonymous: credentials.anonymous,
            virtual_host_style: credentials.virtual_host_style,
            ..shared
        },
    };
    Ok((config, bucket))
}

/// The keys of the flags; `None` to use the origin's listing.
fn given_keys(args: &BenchArgs) -> Result<Option<Vec<String>>, Failure> {
    if let Some(path) = &args.origin.origin_keys {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!("cannot read `{}`", path.display())).because(error)
        })?;
        let keys = text.lines().filter(|line| !line.is_empty());
        return Ok(Some(keys.map(str::to_owned).collect()));
    }
    let Some(items) = args.items else {
        return Ok(None);
    };
    let items = usize::try_from(items).unwrap_or(usize::MAX).min(KEYS_MAX);
    let object = args.drive.cache.object_size.unwrap_or(ByteSize::kib(64));
    let size = object.bytes().to_string();
    let key = args.drive.remote.key.replace("{size}", &size);
    let keys = (0..items).map(|id| key.replace("{id}", &id.to_string()));
    Ok(Some(keys.collect()))
}

/// The `about` line of a latency file: the origin that it was measured at.
fn about(named: &str, bucket: &str, options: &BenchOptions) -> String {
    let load = match options.pacing {
        Pacing::Closed { clients } => format!("{clients} requests at a time"),
        Pacing::Open { rate, .. } => format!("{rate} requests per second"),
        Pacing::Recorded { .. } => "the times of a trace".to_owned(),
    };
    format!("floe bench --origin {named}, bucket {bucket}, {load}")
}

fn write(path: &Path, latencies: &LatencyFile) -> Result<(), Failure> {
    let text = latencies
        .to_text()
        .map_err(|error| Failure::bug("the latencies cannot be written").because(error))?;
    std::fs::write(path, text).map_err(|error| {
        Failure::environment(format!("cannot write `{}`", path.display())).because(error)
    })
}

/// Latencies by the size of reads.
fn table(latencies: &LatencyFile) -> String {
    use std::fmt::Write as _;

    let style = Style::stdout();
    let head = format!(
        "\n{:<12}{:>10}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "up to",
        "requests",
        "first p50",
        "first p99",
        "first max",
        "whole p50",
        "whole p99",
        "whole max"
    );
    let mut text = format!("{}\n", style.bold(&head));
    for class in &latencies.class {
        let _ = write!(
            text,
            "{:<12}{:>10}",
            class.at_most.to_string(),
            class.requests
        );
        for quantiles in [&class.first_byte, &class.whole] {
            for share in [0.5, 0.99, 1.0] {
                let _ = write!(text, "{:>12.3}", at(quantiles, share));
            }
        }
        text.push('\n');
    }
    text
}

/// Milliseconds at a recorded fraction.
fn at(quantiles: &Quantiles, share: f64) -> f64 {
    let found = quantiles.iter().find(|(at, _)| *at == share);
    found.map_or(f64::NAN, |(_, ms)| *ms)
}
