//! The command line of the laboratory: `bench`, `replay`, `report`, `trace`, `advise`. The table
//! of keys provides the settings' flags.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Command, CommandFactory, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use floe::config::Schema;
use floe_cli::cli::Cli;
use floe_cli::settings::with_settings;
use floe_core::ByteSize;
use floe_core::policy::object::ObjectPolicyKind;
use floe_eval::experiment::{Shard, TargetKind};
use floe_eval::trace::TraceFormat;
use floe_eval::volume::VolumeCase;

use crate::advise::AdviseArgs;
use crate::trace::TraceAction;

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Drive a cache or a running server with requests and measure it, or measure an origin
    #[command(after_help = "Examples:\n  \
        floe bench experiments/zero-latency.toml             run an experiment, write results/…\n  \
        floe bench --duration 30s --clients 64               Zipfian reads, a cache file of 1GiB\n  \
        floe bench --rate 20000 --device-kind memory --device-size 256MiB --origin-latency 64KiB\n  \
        floe bench --clock virtual --device-kind sim --requests 100000 --origin-latency 64KiB\n  \
        floe bench experiments/zncache-table5.toml --shard 2/8 --out results/shard-2\n  \
        floe bench experiments/zncache-table5.toml --resume results/zncache-table5-20260101-120000\n  \
        floe bench experiments/drives-store.toml --wipe --set bench.cache.device.kind=zns --set bench.cache.device.path=nvme:SERIAL\n  \
        floe bench --device-path /dev/nvme1n1 --wipe --chunk-size 1MiB --out results/nvme\n  \
        floe bench --target memcached:127.0.0.1:11211 --items 100000 --object-size 1KiB --pipeline 16\n  \
        floe bench --target s3:http://127.0.0.1:9000/bench --items 1000 --object-size 1MiB --fill --verify\n  \
        floe bench --target unix:/run/oxcache.sock --items 1000 --object-size 64KiB --key {id}\n  \
        floe bench --origin s3:https://s3.example.com/photos --requests 1000 --latency-file photos.toml\n\n\
        Without a --device-path the cache is a file that is removed afterwards. Ctrl-C ends a run in real time\n\
        and prints what was measured. Credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or settings of\n\
        [origin] (--set origin.anonymous=true sends requests unsigned); MEMCACHED_USERNAME, MEMCACHED_PASSWORD.")]
    Bench(Box<BenchArgs>),
    /// Replay a trace against eviction policies, or against a cache
    #[command(after_help = "Examples:\n  \
        floe replay w06.oracleGeneral.zst --policies lru,fifo --shares 0.01,0.1\n  \
        floe replay spc.csv --engine --device-size 2GiB --speed 10 --out results/spc\n  \
        floe replay disk.csv --volume sizes=32KiB..256KiB --volume sizes=32KiB --volume sizes=256KiB\n  \
        floe replay disk.csv --volume sizes=4KiB,capacity=1GiB,promotion=nhit-2,cleaning=acp --json\n\n\
        Against policies the miss counts are exact: no bytes are stored and no time passes. Against caches of\n\
        volumes the requests are served whole, in the trace's own time.")]
    Replay(Box<ReplayArgs>),
    /// Render a report again, compare two, or merge the shards of one
    #[command(after_help = "Examples:\n  \
        floe report results/smoke-20260101-120000                    make the page again\n  \
        floe report results/before results/after                     compare two sets of results\n  \
        floe report results/sim results/drive --same 0               fail if they count anything else\n  \
        floe report results/shard-*/zncache-table5-*                 merge what --shard spread\n  \
        floe report results/smoke-20260101-120000 --export paper     tables and figures as files\n\n\
        --export writes tables as Markdown, CSV and LaTeX, and figures as SVG and PNG.")]
    Report(ReportArgs),
    /// Describe a trace, write it in another format, or measure its miss-ratio curve
    #[command(subcommand)]
    Trace(TraceAction),
    /// Advise a cache for a block trace: size, block sizes, promotion and mode
    #[command(after_help = "Examples:\n  \
        floe advise disk.csv                                 the smallest cache that hits almost as much as any\n  \
        floe advise disk.csv --max-cache 8GiB --out results/disk\n  \
        floe advise disk.csv --capacity 4GiB --json          the best cache of a given size\n\n\
        Candidates replay the whole trace, so time grows with its requests; --requests shortens it. The last\n\
        lines of the output are the limits of the advice and the command that confirms it.")]
    Advise(AdviseArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  floe-lab completions bash > /etc/bash_completion.d/floe-lab"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write one for each subcommand
    #[command(after_help = "Example:\n  floe-lab man --dir /usr/local/share/man/man1")]
    Man {
        /// Write floe-lab.1, floe-lab-bench.1 and so on into this folder
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

/// The whole command, with the settings' flags of a cache under test.
pub(crate) fn command(schema: &Schema) -> Command {
    let cache = |section: &str| matches!(section, "device" | "chunk" | "ram");
    Cli::<Action>::command()
        .name("floe-lab")
        .version(floe_cli::VERSION)
        .about("Drive Floe and its peers, and report what was measured")
        .long_about(
            "The laboratory of Floe: experiments, traces and reports. `floe bench`, `floe replay`,\n\
                  `floe report`, `floe trace` and `floe advise` run it.",
        )
        .after_help(
            "Examples:\n  \
        floe bench experiments/smoke.toml           run an experiment\n\n\
        Exit status: 0 done, 2 wrong usage or configuration, 3 the machine is in the way (device, port,\n\
        permission, origin), 5 a verdict is not as expected (--verdicts), 70 a bug.",
        )
        .mut_subcommand("bench", |c| with_settings(c, schema, cache))
        .mut_subcommand("replay", |c| with_settings(c, schema, cache))
}

/// The distribution of a bench's object ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkloadName {
    /// Every object equally often
    Uniform,
    /// Zipfian as in YCSB, with --skew
    Zipf,
    /// A hot set: --hot-operations of the requests go to --hot-set of the objects
    Hotspot,
    /// One object after another
    Scan,
}

/// The distribution of arrivals in an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArrivalName {
    /// Independent of each other
    Poisson,
    /// At equal intervals
    Fixed,
}

/// The clock of a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClockName {
    /// The machine's
    Real,
    /// Virtual time, as fast as the machine computes it
    Virtual,
}

/// The rate and the end of a load.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArgs {
    /// Clients that each wait for their response (closed loop)
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 64,
        conflicts_with = "rate"
    )]
    pub(crate) clients: usize,
    /// Requests per second, independent of responses (open loop)
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<f64>,
    /// The distribution of arrivals in an open loop
    #[arg(long, value_enum, default_value = "poisson", requires = "rate")]
    pub(crate) arrivals: ArrivalName,
    /// Most pending requests of an open loop
    #[arg(long, value_name = "COUNT", default_value_t = 4096)]
    pub(crate) in_flight_max: usize,
    /// End after this many requests
    #[arg(long, value_name = "COUNT")]
    pub(crate) requests: Option<u64>,
    /// End after this time: 90s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Send this many requests first, without measuring them
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) warm_up: u64,
    /// Bin length of graphs over time; 60s in the papers
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) bin: Duration,
    /// Seed of all randomness
    #[arg(long, value_name = "SEED", default_value_t = 42)]
    pub(crate) seed: u64,
    /// The clock. Virtual time needs a simulated SSD (--device-kind sim) or
    /// memory, and always gives the same result
    #[arg(long, value_enum, value_name = "TIME", default_value = "real")]
    pub(crate) clock: ClockName,
    /// The same as --clock virtual
    #[arg(long, conflicts_with = "clock")]
    pub(crate) virtual_time: bool,
    /// Compare every byte with the origin's
    #[arg(long)]
    pub(crate) verify: bool,
}

/// The cache under test and the origin behind it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cache under test")]
pub(crate) struct CacheArgs {
    /// The target: the layer of a new cache, store (keys and values: get,
    /// and on a miss fetch and put) or object (read through); or a running
    /// server: unix:PATH (OxCache's protocol), s3:URL/BUCKET,
    /// memcached:HOST:PORT
    #[arg(long, value_name = "TARGET", default_value = "store", value_parser = target)]
    pub(crate) target: TargetKind,
    /// Size of objects without a known size [default: the chunk size, 4KiB for a server]
    #[arg(long, value_name = "SIZE")]
    pub(crate) object_size: Option<ByteSize>,
    /// Latency of the origin: milliseconds, the measured 64KiB, 256MiB, 512MiB
    /// or 1GiB, or file:PATH, written by --latency-file
    #[arg(long, value_name = "MS|PRESET|FILE", default_value = "0")]
    pub(crate) origin_latency: String,
    /// Bytes per second of one stream from the origin [default: unlimited]
    #[arg(long, value_name = "SIZE")]
    pub(crate) origin_bandwidth: Option<ByteSize>,
    /// Wipe the device of --device-path, or those that an experiment names, permanently
    #[arg(long)]
    pub(crate) wipe: bool,
}

/// How to drive a running server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Running server")]
pub(crate) struct RemoteArgs {
    /// Pending requests of each client, over one connection
    #[arg(long, value_name = "DEPTH", default_value_t = 1)]
    pub(crate) pipeline: usize,
    /// Connections of an open loop; in a closed loop each client has one
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub(crate) connections: usize,
    /// Names of objects: {id} is the number or the trace's key, {size} the bytes
    #[arg(long, value_name = "TEMPLATE", default_value = "{id}-{size}")]
    pub(crate) key: String,
    /// memcached: send no set after a miss
    #[arg(long)]
    pub(crate) no_set_on_miss: bool,
    /// A request without a response for this long has failed
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// The bucket: that of --origin, or of a unix: server for --verify
    #[arg(long, value_name = "NAME", default_value = "bench")]
    pub(crate) bucket: String,
}

/// The results that a bench or replay writes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct OutputArgs {
    /// Write results.jsonl, report.html and the figures into this directory
    #[arg(long, short, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// A run that drives a cache or a server.
#[derive(Debug, Args)]
pub(crate) struct DriveArgs {
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The cases of an experiment, and how many run concurrently.
#[derive(Debug, Args)]
#[command(next_help_heading = "Experiment")]
pub(crate) struct SweepArgs {
    /// Concurrent cases in virtual time [default: one per core]
    #[arg(long, value_name = "COUNT")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Run only one shard of the cases: 2/5 is the second of five
    #[arg(long, value_name = "PART")]
    pub(crate) shard: Option<Shard>,
    /// Continue a directory of results; finished cases are kept
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "out")]
    pub(crate) resume: Option<PathBuf>,
    /// Fail with exit status 5 if a verdict differs and known-to-differ.toml,
    /// beside the experiment, does not list it, or if a listed one holds
    #[arg(long)]
    pub(crate) verdicts: bool,
}

/// `floe report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Directories of results; one is reported, two are compared, shards are merged
    #[arg(required = true, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) folders: Vec<PathBuf>,
    /// Write the comparison or merge into this directory [default: beside the first]
    #[arg(long, short, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
    /// Write tables and figures for papers and pages into this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) export: Option<PathBuf>,
    /// Fail with exit status 5 where a verdict is not as expected; see `floe bench --verdicts`
    #[arg(long)]
    pub(crate) verdicts: bool,
    /// Of two: fail with exit status 5 if hits, misses, appends, writes, resets, finishes or
    /// the bytes written differ by more than this share: 0, or 0.01 and one operation
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) same: Option<f64>,
}

/// `floe bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// An experiment; without one the flags describe the run
    #[arg(value_name = "EXPERIMENT.toml", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// The same as EXPERIMENT.toml
    #[arg(
        long,
        value_name = "EXPERIMENT.toml",
        conflicts_with = "file",
        value_hint = ValueHint::FilePath,
        help_heading = "Experiment"
    )]
    pub(crate) experiment: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
    /// The distribution of requests
    #[arg(long, value_enum, default_value = "zipf", help_heading = "Requests")]
    pub(crate) workload: WorkloadName,
    /// Exponent of the Zipfian distribution
    #[arg(
        long,
        value_name = "SKEW",
        default_value_t = 0.99,
        help_heading = "Requests"
    )]
    pub(crate) skew: f64,
    /// Fraction of the objects that is hot, from 0 to 1
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.1,
        help_heading = "Requests"
    )]
    pub(crate) hot_set: f64,
    /// Fraction of the requests that goes to them, from 0 to 1
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.9,
        help_heading = "Requests"
    )]
    pub(crate) hot_operations: f64,
    /// Objects, as a multiple of the cache's chunks
    #[arg(
        long,
        value_name = "RATIO",
        default_value_t = 2.0,
        help_heading = "Requests"
    )]
    pub(crate) working_set: f64,
    /// Objects, as a number
    #[arg(
        long,
        value_name = "COUNT",
        conflicts_with = "working_set",
        help_heading = "Requests"
    )]
    pub(crate) items: Option<u64>,
    /// Read this many bytes of each object [default: all]
    #[arg(long, value_name = "SIZE", help_heading = "Requests")]
    pub(crate) read_size: Option<ByteSize>,
    /// Take the ids from a workload file of ZNCache instead
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Requests")]
    pub(crate) workload_file: Option<PathBuf>,
    /// Give most requests to the lowest ids, as the papers' generators do,
    /// instead of scattered ids
    #[arg(long, help_heading = "Requests")]
    pub(crate) unscrambled: bool,
    /// Run nothing: write the ids of --requests requests into a workload file
    /// of ZNCache's and OxCache's format
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["workload_file", "trace"],
        requires = "requests",
        value_hint = ValueHint::FilePath,
        help_heading = "Requests"
    )]
    pub(crate) write_workload: Option<PathBuf>,
    /// Take the requests from a trace instead; `floe replay --engine` also keeps its times
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "workload_file",
        value_hint = ValueHint::FilePath,
        help_heading = "Requests"
    )]
    pub(crate) trace: Option<PathBuf>,
    /// Fraction of the reads that become writes of the whole object, from 0 to 1
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.0,
        help_heading = "Requests"
    )]
    pub(crate) writes: f64,
    /// Write every object first, without measuring it
    #[arg(long, help_heading = "Requests")]
    pub(crate) fill: bool,
    #[command(flatten)]
    pub(crate) drive: DriveArgs,
    #[command(flatten)]
    pub(crate) origin: OriginArgs,
}

/// Measurements of an origin instead of a cache.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measuring an origin")]
pub(crate) struct OriginArgs {
    /// Measure reads of an origin: a configuration with [origin],
    /// s3:URL/BUCKET, or the URL of a web server's bucket
    #[arg(long, value_name = "CONFIG|URL", conflicts_with_all = ["target", "verify", "fill", "trace", "workload_file"])]
    pub(crate) origin: Option<String>,
    /// Read the keys in this file, one per line [default: the origin's listing,
    /// or --items of --key]
    #[arg(long, value_name = "FILE", requires = "origin", conflicts_with = "items", value_hint = ValueHint::FilePath)]
    pub(crate) origin_keys: Option<PathBuf>,
    /// Write the measured distribution into this file, for `origin.emulated.latency`
    #[arg(long, value_name = "FILE", requires = "origin", value_hint = ValueHint::FilePath)]
    pub(crate) latency_file: Option<PathBuf>,
}

/// `floe replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The trace; may be compressed with zstd
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) trace: PathBuf,
    /// The trace's format [default: recognised]
    #[arg(long, value_name = "FORMAT", value_parser = trace_format)]
    pub(crate) format: Option<TraceFormat>,
    /// Count and skip malformed lines and records
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Policies to replay against: lru, fifo, clock, sieve, s3fifo, lfu [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) policies: Vec<ObjectPolicyKind>,
    /// Cache sizes (numbers of objects if the trace has no sizes)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) sizes: Vec<ByteSize>,
    /// Cache sizes as fractions of all the trace's bytes [default: 0.01 to 0.8]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "sizes"
    )]
    pub(crate) shares: Vec<f64>,
    /// The unit that the cache keeps: auto, object, or chunks of a size
    #[arg(long, value_name = "UNIT", default_value = "auto")]
    pub(crate) unit: String,
    /// Replay a block trace against a cache of volumes with these settings; may be given
    /// several times to compare caches. An empty text has the defaults: sizes=32KiB..256KiB,
    /// capacity=10% of the distinct bytes, mode=write-back, promotion=always, cleaning=none,
    /// cut-off=never. More keys: when-dirty, fill, read-miss, write-miss, level, replacement, shards
    #[arg(
        long,
        value_name = "KEY=VALUE,…",
        conflicts_with_all = ["engine", "policies", "sizes", "shares", "out"]
    )]
    pub(crate) volume: Vec<VolumeCase>,
    /// Drive a cache with a device instead of only policies
    #[arg(long)]
    pub(crate) engine: bool,
    /// With --engine: at the trace's own times, this many times as fast
    #[arg(
        long,
        value_name = "FACTOR",
        requires = "engine",
        conflicts_with = "rate"
    )]
    pub(crate) speed: Option<f64>,
    #[command(flatten)]
    pub(crate) drive: DriveArgs,
}

fn target(text: &str) -> Result<TargetKind, String> {
    match text.parse()? {
        TargetKind::Zncache | TargetKind::Oxcache => Err(format!(
            "`{text}` is a model, which only experiments run; for a server of OxCache's write unix:PATH"
        )),
        target => Ok(target),
    }
}

pub(crate) fn trace_format(text: &str) -> Result<TraceFormat, String> {
    text.parse()
        .map_err(|error: floe_eval::trace::UnknownFormat| error.to_string())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok();
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is no share from 0 to 1"))
}

/// Parses a length of time.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("`{text}` is no length of time; write 500ms, 90s, 5m or 1h");
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| invalid())?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" | "" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(invalid()),
    };
    if !(seconds > 0.0 && seconds <= 31_536_000.0) {
        return Err(format!("`{text}` is not between 1ms and a year"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_parse() {
        for (text, ms) in [
            ("500ms", 500),
            ("90s", 90_000),
            ("1.5m", 90_000),
            ("1h", 3_600_000),
            ("2", 2000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1s", "0s", "1y", "1e9h", "99999999h", "NaN"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
