//! The command line: subcommands and flags. Flags of settings come from the
//! table of keys.

mod evaluate;

use std::path::PathBuf;

use clap::{Arg, Args, Command, CommandFactory, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use floe::config::Schema;

use crate::settings;

pub(crate) use evaluate::{
    ArrivalName, BenchArgs, CacheArgs, ClockName, LoadArgs, OutputArgs, RemoteArgs, ReplayArgs,
    ReportArgs, SweepArgs, WorkloadName,
};

/// The version, with the commit where it is known.
pub(crate) const VERSION: &str = env!("BUILD_VERSION");

/// The commit this was built from; empty where it is not known.
pub(crate) const COMMIT: &str = env!("BUILD_COMMIT");

pub(crate) const CONFIG: &str = "config-file";
pub(crate) const DATA_DIR: &str = "data-dir";
pub(crate) const SET: &str = "set";

/// A flash cache for object stores.
#[derive(Debug, Parser)]
#[command(
    name = "floe",
    version = VERSION,
    about = "A flash cache for object stores",
    long_about = "Floe keeps the objects of S3 and other object stores on flash: point any S3 client at it and\n\
                  what was read once comes from the local SSD.",
    after_help = "Examples:\n  \
        floe serve                                  start on built-in defaults under ./floe-data\n  \
        floe serve --config /etc/floe/floe.toml     start as configured\n  \
        floe config default > floe.toml             a file with every setting\n  \
        floe bench experiments/smoke.toml           run an experiment\n  \
        floe check --device-path cache.floe         verify a cache offline\n\n\
        Exit status: 0 done, 2 wrong usage or configuration, 3 the machine is in the way (device, port,\n\
        permission, origin), 4 a check found damage, 5 a verdict is not as expected (--verdicts), 70 a bug.",
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    /// Print the result as JSON on standard output
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Action,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Serve objects of an origin through the cache
    #[command(after_help = "Examples:\n  \
        floe serve                                           built-in defaults under ./floe-data\n  \
        floe serve --data-dir /var/tmp/floe --s3-listen 127.0.0.1:9001\n  \
        floe serve --config /etc/floe/floe.toml              as configured\n  \
        floe serve --origin-kind s3 --origin-endpoint https://s3.example.com --s3-keys me:mysecret\n\n\
        SIGINT and SIGTERM finish the requests in flight and stop; a second one stops at once. SIGHUP reads\n\
        the configuration again and takes the log level, keys, users and certificates.")]
    Serve(ServeArgs),
    /// Drive a cache or a running server with requests and measure it, or measure an origin
    #[command(after_help = "Examples:\n  \
        floe bench experiments/zero-latency.toml             run an experiment, write results/…\n  \
        floe bench --duration 30s --clients 64               Zipfian reads, a cache file of 1GiB\n  \
        floe bench --rate 20000 --device-kind memory --device-size 256MiB --origin-latency 64KiB\n  \
        floe bench --clock virtual --device-kind sim --requests 100000 --origin-latency 64KiB\n  \
        floe bench experiments/zncache-table5.toml --shard 2/8 --out results/shard-2\n  \
        floe bench experiments/zncache-table5.toml --resume results/zncache-table5-20260101-120000\n  \
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
        floe replay spc.csv --engine --device-size 2GiB --speed 10 --out results/spc\n\n\
        Against policies the miss counts are exact: no bytes are stored and no time passes.")]
    Replay(Box<ReplayArgs>),
    /// Make a report again, compare two, or merge the shards of one
    #[command(after_help = "Examples:\n  \
        floe report results/smoke-20260101-120000                    make the page again\n  \
        floe report results/before results/after                     compare two sets of results\n  \
        floe report results/shard-*/zncache-table5-*                 merge what --shard spread\n  \
        floe report results/smoke-20260101-120000 --export paper     tables and figures as files\n\n\
        --export writes tables as Markdown, CSV and LaTeX, and figures as SVG and PNG.")]
    Report(ReportArgs),
    /// Print what lies on a cache's device
    #[command(after_help = "Examples:\n  \
        floe inspect --data-dir /var/lib/floe\n  \
        floe inspect --device-path /dev/nvme1n1 --zone 7 --records\n\n\
        Nothing is changed. The cache must not be in use. With --json, one JSON object a line.")]
    Inspect(InspectArgs),
    /// Verify every checksum of a cache offline
    #[command(after_help = "Examples:\n  \
        floe check --data-dir /var/lib/floe\n  \
        floe check --device-path cache.floe --json\n\n\
        The file of tiny objects is checked too, unless --device-path names one device alone.\n\
        Exit status 4 if there is damage. Nothing is changed. The cache must not be in use.")]
    Check(CheckArgs),
    /// Make a device a new, empty cache
    #[command(after_help = "Examples:\n  \
        floe format --device-path /dev/nvme1n1\n  \
        floe format --device-path cache.floe --device-size 16GiB --chunk-size 1MiB --force\n  \
        floe format --tiny --tiny-engine log --force\n\n\
        Without --force only a blank device is formatted.")]
    Format(FormatArgs),
    /// Print, check or explain the configuration
    #[command(subcommand)]
    Config(ConfigAction),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  floe completions bash > /etc/bash_completion.d/floe")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write one for each subcommand
    #[command(
        after_help = "Examples:\n  floe man | man -l -\n  floe man --dir /usr/local/share/man/man1"
    )]
    Man {
        /// Write floe.1, floe-serve.1 and so on into this folder
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Fail where the file of tiny objects cannot be opened, and do not serve without it
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FormatArgs {
    /// Wipe whatever the device holds, for ever
    #[arg(long)]
    pub(crate) force: bool,
    /// The cache of tiny objects (`tiny.path`), and not that of chunks
    #[arg(long)]
    pub(crate) tiny: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Only this zone, beside the metadata
    #[arg(long, value_name = "ZONE")]
    pub(crate) zone: Option<u32>,
    /// Print every record
    #[arg(long)]
    pub(crate) records: bool,
    /// Read the values too and check them
    #[arg(long)]
    pub(crate) values: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Check what describes values, but not the values
    #[arg(long)]
    pub(crate) quick: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Print a commented file with every setting and its default
    Default,
    /// Check a configuration and say what is wrong
    #[command(after_help = "Example:\n  floe config check /etc/floe/floe.toml")]
    Check {
        /// The file; the environment and flags are checked as well
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
    /// Print the settings that hold and where each came from
    #[command(after_help = "Example:\n  FLOE_RAM_SIZE=1GiB floe config show --chunk-size 256KiB")]
    Show,
    /// Print the reference of all settings as Markdown
    Reference,
}

/// The whole command, with a flag for each setting where settings matter.
pub(crate) fn command(schema: &Schema) -> Command {
    let all = |_: &str| true;
    let device = |section: &str| section == "device";
    let cache = |section: &str| matches!(section, "device" | "chunk" | "ram");
    Cli::command()
        .mut_subcommand("serve", |c| with_settings(c, schema, all))
        .mut_subcommand("format", |c| {
            let format = |section: &str| {
                matches!(section.split('.').next(), Some("device" | "chunk" | "tiny"))
            };
            with_settings(c, schema, format)
        })
        .mut_subcommand("bench", |c| with_settings(c, schema, cache))
        .mut_subcommand("replay", |c| with_settings(c, schema, cache))
        .mut_subcommand("inspect", |c| with_settings(c, schema, device))
        .mut_subcommand("check", |c| {
            with_settings(c, schema, |section| matches!(section, "device" | "tiny"))
        })
        .mut_subcommand("config", |config| {
            config
                .mut_subcommand("check", |c| with_settings(c, schema, all))
                .mut_subcommand("show", |c| with_settings(c, schema, all))
        })
}

/// Adds the flags of the sections that `wanted` names.
fn with_settings(command: Command, schema: &Schema, wanted: impl Fn(&str) -> bool) -> Command {
    let command = command
        .arg(
            Arg::new(CONFIG)
                .long("config")
                .short('c')
                .value_name("FILE")
                .env("FLOE_CONFIG")
                .value_hint(ValueHint::FilePath)
                .value_parser(clap::value_parser!(PathBuf))
                .help("Read settings from this TOML file"),
        )
        .arg(
            Arg::new(DATA_DIR)
                .long("data-dir")
                .value_name("DIR")
                .env("FLOE_DATA_DIR")
                .value_hint(ValueHint::DirPath)
                .value_parser(clap::value_parser!(PathBuf))
                .help("Keep whatever has no place of its own in this folder [default: ./floe-data]"),
        )
        .arg(
            Arg::new(SET)
                .long("set")
                .value_name("SECTION.KEY=VALUE")
                .action(clap::ArgAction::Append)
                .help("Set any setting; `floe config default` lists them, --help shows their own flags"),
        );
    schema
        .sections()
        .iter()
        .filter(|section| wanted(section.name))
        .flat_map(|section| section.keys.iter().map(move |key| (section, key)))
        .fold(command, |command, (section, key)| {
            command.arg(settings::flag_argument(section, key))
        })
}
