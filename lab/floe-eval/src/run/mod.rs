//! Drives a cache with requests and measures it.
//!
//! [`bench()`] sends the requests of a [`RequestSource`] at a [`Pacing`] to a
//! [`Target`] and returns a [`RunResult`]. It waits only through its clock, so
//! that the same run works in real and in virtual time.

mod bins;
mod charge;
mod driver;
mod probe;
mod progress;
mod remote;
mod requests;
mod response;
mod settle;
mod target;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use floe::origin::emulated::EmulatedConfig;
use floe::origin::{Origin, OriginConfig};
use floe_core::{ByteSize, Geometry};
use floe_device::Clock;
use floe_device::upkeep::DriveFacts;
use floe_device::virtual_time::VirtualTime;
use serde::{Deserialize, Serialize};

use crate::error::EvalError;
use crate::metrics::{Distributions, Measures};
use crate::trace::TraceOptions;
use crate::workload::WorkloadSpec;

pub use charge::HostCharge;
pub use driver::bench;
pub use probe::OriginProbe;
pub use remote::{RemoteAddress, RemoteSpec, RemoteTarget};
pub use requests::{Planned, RequestStream};
pub use response::{BENCH_BUCKET, object_key};
pub(crate) use settle::until;
pub use target::{ObjectTarget, StoreTarget, Target};

/// Runs `main` in virtual time. Blocks, and must be called outside of any
/// runtime.
///
/// # Errors
/// The error of `main`, or a deadlock: every task waits for an event that never
/// comes.
pub fn in_virtual_time<T, E, F>(seed: u64, main: impl FnOnce(Clock) -> F) -> Result<T, E>
where
    E: From<EvalError>,
    F: Future<Output = Result<T, E>>,
{
    let run = VirtualTime::new(seed).run(main);
    run.unwrap_or_else(|halt| Err(EvalError::from(halt).into()))
}

/// Opens an emulated origin whose contents follow from `seed`, and which never limits its
/// clients: they are the limit, as in the papers.
pub(crate) fn emulated_origin(
    emulated: EmulatedConfig,
    seed: u64,
    clock: &Clock,
) -> Result<Origin, EvalError> {
    let mut config = OriginConfig::emulated(EmulatedConfig { seed, ..emulated });
    config.requests.seed = Some(seed);
    config.requests.max_concurrent = config.requests.max_concurrent.max(4096);
    Ok(Origin::open(&config, clock.clone())?)
}

/// The source of requests.
#[derive(Clone, Debug)]
pub enum RequestSource {
    /// Reads of drawn ids.
    Synthetic {
        /// The distribution of ids.
        workload: WorkloadSpec,
        /// Bytes of every object.
        object_bytes: u64,
        /// Bytes read of each, from its start; `None` for all.
        read_bytes: Option<u64>,
    },
    /// Reads of the ids of a ZNCache workload file, one pass.
    WorkloadFile {
        /// The file.
        path: PathBuf,
        /// Bytes of every object.
        object_bytes: u64,
    },
    /// Endless reads of named objects in random order.
    Keys {
        /// Their keys.
        keys: Vec<String>,
        /// Bytes read of each, from its start; `None` for all.
        read_bytes: Option<u64>,
        /// Seed of the order.
        seed: u64,
    },
    /// The requests of a trace.
    Trace {
        /// The file.
        path: PathBuf,
        /// How to read it.
        options: TraceOptions,
        /// Bytes of objects of unknown size.
        object_bytes: u64,
    },
}

/// The length of a read of an object of unknown size.
pub(crate) const WHOLE_OBJECT: u64 = u64::MAX;

/// The timing of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "mode", deny_unknown_fields)]
pub enum Pacing {
    /// Each client sends its next request after the response to the last.
    Closed {
        /// Number of clients.
        clients: usize,
    },
    /// Requests start at their own times, whether or not earlier ones have
    /// completed. Latency counts from the intended start, so it includes
    /// waiting.
    Open {
        /// Requests per second.
        rate: f64,
        /// The distribution of start times.
        #[serde(default)]
        arrivals: Arrivals,
        /// Most requests in flight. At the limit, requests start late, and
        /// their latency includes the delay.
        #[serde(default = "default_in_flight_max")]
        in_flight_max: usize,
    },
    /// As `Open`, at the trace's own times.
    Recorded {
        /// Speed relative to the recording.
        #[serde(default = "default_speed")]
        speed: f64,
        /// See `Open`.
        #[serde(default = "default_in_flight_max")]
        in_flight_max: usize,
    },
}

fn default_in_flight_max() -> usize {
    4096
}

fn default_speed() -> f64 {
    1.0
}

/// The distribution of start times of an open loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Independent of each other, like those of many clients.
    #[default]
    Poisson,
    /// At equal intervals.
    Fixed,
}

/// The end of a run: the first condition that holds. Traces and workload files
/// also end by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    /// After this many requests, not counting the warm-up.
    pub requests: Option<u64>,
    /// After this long, not counting the warm-up.
    pub duration: Option<Duration>,
}

/// The display of progress: a live line on the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// On standard error, if that is a terminal.
    #[default]
    Auto,
    /// Never (`--quiet`, `--json`).
    Off,
}

/// A run.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The name of the run in results.
    pub name: String,
    /// The source of requests.
    pub source: RequestSource,
    /// The timing of requests.
    pub pacing: Pacing,
    /// The end of the run.
    pub stop: Stop,
    /// Number of requests before the measurement.
    pub warm_up_requests: u64,
    /// Length of a time bin of the graphs; 60 s in the papers.
    pub bin: Duration,
    /// The emulated origin's seed, to compare every byte with; `None` to skip
    /// that.
    pub verify_seed: Option<u64>,
    /// The display of progress.
    pub progress: Progress,
    /// Share of the reads, from 0 to 1, that become writes of the whole object.
    pub writes: f64,
    /// Write every object of a drawn workload before the measurement.
    pub fill: bool,
    /// Wait after each request of a closed loop until the store is at rest.
    pub settle: bool,
    /// End a run in real time on Ctrl-C, with the figures so far.
    pub interruptible: bool,
    /// Seed of the arrivals of an open loop.
    pub seed: u64,
}

impl BenchOptions {
    /// 64 clients, bins of 60 s, no warm-up, no verification.
    pub fn new(name: impl Into<String>, source: RequestSource) -> Self {
        BenchOptions {
            name: name.into(),
            source,
            pacing: Pacing::Closed { clients: 64 },
            stop: Stop::default(),
            warm_up_requests: 0,
            bin: Duration::from_secs(60),
            verify_seed: None,
            progress: Progress::Auto,
            writes: 0.0,
            fill: false,
            settle: false,
            interruptible: false,
            seed: 42,
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    /// The run's name.
    pub name: String,
    /// Start of the run in Unix seconds.
    pub started_unix_s: f64,
    /// Time was virtual.
    pub is_virtual: bool,
    /// Completed requests, including failed ones.
    pub requests: u64,
    /// Requests that failed.
    pub failed: u64,
    /// The reason of the first failure.
    pub first_failure: Option<String>,
    /// Ctrl-C ended it.
    #[serde(default)]
    pub interrupted: bool,
    /// Lines or records of the trace that were skipped as bad.
    pub skipped: u64,
    /// Bytes that were compared with the origin's.
    pub verified_bytes: u64,
    /// The series over the whole run.
    pub whole: Measures,
    /// Distributions of latencies over the whole run.
    #[serde(default)]
    pub distributions: Distributions,
    /// The series over time.
    pub bins: Vec<Measures>,
    /// Largest resident memory at the end of a bin, in bytes.
    pub rss_bytes_max: Option<u64>,
    /// CPU microseconds per request, in real time.
    pub cpu_us_per_request: Option<f64>,
    /// Bytes written to the device per byte stored; `None` if nothing was
    /// stored or the device is not metered.
    pub write_amplification: Option<f64>,
    /// Additional figures, such as those of the device.
    #[serde(default)]
    pub extra: Vec<ExtraFigure>,
    /// The device under the cache.
    #[serde(default)]
    pub device: Option<DeviceRecord>,
    /// Series over something other than time.
    #[serde(default)]
    pub series: Vec<ExtraSeries>,
}

/// A device under a cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// Its kind and path.
    pub description: String,
    /// Its drives; none if it is in memory or simulated.
    pub drives: Vec<DriveFacts>,
    /// Its shape.
    pub geometry: Geometry,
}

impl fmt::Display for DeviceRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.description)?;
        for drive in &self.drives {
            let facts = [
                ("", &drive.model),
                ("serial …", &drive.serial_suffix),
                ("firmware ", &drive.firmware),
                ("scheduler ", &drive.scheduler),
                ("cache ", &drive.write_cache),
            ];
            let known = facts
                .iter()
                .filter_map(|(name, fact)| Some((name, fact.as_ref()?)));
            write!(f, "; {}", drive.kind)?;
            for (name, fact) in known {
                write!(f, ", {name}{fact}")?;
            }
        }
        let Geometry {
            zone_count,
            zone_size,
            zone_capacity,
            block_size,
            ..
        } = self.geometry;
        let [size, capacity, block] = [zone_size, zone_capacity, block_size.into()].map(ByteSize);
        write!(
            f,
            "; {zone_count} zones of {size}, {capacity} writable, blocks of {block}"
        )?;
        for (limit, name) in [
            (self.geometry.max_open_zones, "open"),
            (self.geometry.max_active_zones, "active"),
        ] {
            if let Some(limit) = limit {
                write!(f, ", at most {limit} {name}")?;
            }
        }
        Ok(())
    }
}

/// A series that only some runs have, over operations or shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtraSeries {
    /// Its name in panels.
    pub name: String,
    /// Its title in reports.
    pub title: String,
    /// The unit of its values; `%` for shares from 0 to 1.
    pub unit: String,
    /// The label of the horizontal axis, with its unit.
    pub x_label: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// A figure that only some runs have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtraFigure {
    /// The metric.
    pub metric: String,
    /// The unit.
    pub unit: String,
    /// The value.
    pub value: f64,
}
