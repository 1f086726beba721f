//! Converts the flags of `floe bench` and `floe replay` into runs of the evaluation.

use floe::latency::{LatencyPreset, LatencyRule};
use floe_cli::failure::Failure;
use floe_core::ByteSize;
use floe_eval::experiment::CacheSpec;
use floe_eval::replay::policy::CacheUnit;
use floe_eval::replay::{ReplayOptions, ReplaySizes, UnitChoice};
use floe_eval::run::{Arrivals, BenchOptions, Pacing, Progress, RequestSource, Stop};
use floe_eval::trace::TraceOptions;
use floe_eval::workload::{Distribution, WorkloadSpec, working_set_items};

use crate::args::{
    ArrivalName, BenchArgs, CacheArgs, LoadArgs, OutputArgs, ReplayArgs, WorkloadName,
};

/// Default size of a cache under test.
pub(crate) const BENCH_SIZE: ByteSize = ByteSize::gib(1);

/// Default size of a server's objects.
pub(crate) const REMOTE_OBJECT_SIZE: ByteSize = ByteSize::kib(4);

/// The requests of a bench; a running server has no `spec`.
pub(crate) fn bench_source(
    args: &BenchArgs,
    object: ByteSize,
    spec: Option<&CacheSpec>,
) -> Result<RequestSource, Failure> {
    let object_bytes = object.bytes();
    if let Some(path) = &args.trace {
        return Ok(RequestSource::Trace {
            path: path.clone(),
            options: TraceOptions::default(),
            object_bytes,
        });
    }
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
            scrambled: !args.unscrambled,
        },
        WorkloadName::Hotspot => Distribution::Hotspot {
            hot_set: args.hot_set,
            hot_operations: args.hot_operations,
        },
        WorkloadName::Scan => Distribution::Scan,
    };
    let items = match (args.items, spec) {
        (Some(items), _) => items,
        (None, Some(spec)) => working_set(args.working_set, object_bytes, spec)?,
        (None, None) => {
            return Err(
                Failure::usage("it is not known how many objects the server has")
                    .cure("give their number: --items 10000"),
            );
        }
    };
    Ok(RequestSource::Synthetic {
        workload: WorkloadSpec {
            distribution,
            items,
            seed: args.drive.load.seed,
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

pub(crate) fn object_bytes(args: &CacheArgs, spec: &CacheSpec) -> ByteSize {
    args.object_size.unwrap_or(spec.chunk.size)
}

/// The run that the flags describe, without its requests.
pub(crate) fn options(
    name: &str,
    load: &LoadArgs,
    output: &OutputArgs,
    json: bool,
) -> BenchOptions {
    let source = RequestSource::Keys {
        keys: Vec::new(),
        read_bytes: None,
        seed: load.seed,
    };
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
        interruptible: true,
        seed: load.seed,
        ..BenchOptions::new(name, source)
    }
}

pub(crate) fn progress(output: &OutputArgs, json: bool) -> Progress {
    if output.quiet || json {
        Progress::Off
    } else {
        Progress::Auto
    }
}

pub(crate) fn policy_options(
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
        progress: progress(&args.drive.output, json),
        ..defaults
    })
}

pub(crate) fn latency(text: &str) -> Result<LatencyRule, Failure> {
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
        file if file.starts_with("file:") => LatencyRule::File {
            path: file["file:".len()..].into(),
        },
        _ => match text.trim_end_matches("ms").parse::<f64>() {
            Ok(ms) if ms.is_finite() && ms >= 0.0 => LatencyRule::Constant { ms },
            _ => {
                return Err(
                    Failure::usage(format!("`--origin-latency {text}` is no latency")).cure(
                        "write milliseconds, one of 64KiB, 256MiB, 512MiB, 1GiB, or file:PATH",
                    ),
                );
            }
        },
    })
}
