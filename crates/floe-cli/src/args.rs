//! The command line: subcommands and flags. The table of keys provides the settings' flags.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Command, CommandFactory, Subcommand, ValueHint};
use clap_complete::Shell;
use floe::config::Schema;

use crate::cli::Cli;
use crate::settings::with_settings;
use crate::version::VERSION;

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Serve objects of an origin through the cache
    #[command(after_help = "Examples:\n  \
        floe serve                                           built-in defaults under ./floe-data\n  \
        floe serve --data-dir /var/tmp/floe --s3-listen 127.0.0.1:9001\n  \
        floe serve --config /etc/floe/floe.toml              as configured\n  \
        floe serve --origin-kind s3 --origin-endpoint https://s3.example.com --s3-keys me:mysecret\n  \
        floe serve --volume disk=/dev/sdb,mode=write-back    a volume, served over NBD\n\n\
        SIGINT and SIGTERM finish the requests in flight and stop; a second one stops at once. SIGHUP reads\n\
        the configuration again and takes the log level, keys, users and certificates.")]
    Serve(ServeArgs),
    /// Drive a cache or a running server with requests and measure it, or measure an origin
    #[command(disable_help_flag = true)]
    Bench(LabArgs),
    /// Replay a trace against eviction policies, or against a cache
    #[command(disable_help_flag = true)]
    Replay(LabArgs),
    /// Make a report again, compare two, or merge the shards of one
    #[command(disable_help_flag = true)]
    Report(LabArgs),
    /// Describe a trace, write it in another format, or measure its miss-ratio curve
    #[command(disable_help_flag = true)]
    Trace(LabArgs),
    /// Advise a cache for a block trace: size, block sizes, promotion and mode
    #[command(disable_help_flag = true)]
    Advise(LabArgs),
    /// Print the content of a cache's device
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
    /// Format a device as a new, empty cache
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

/// The arguments of a subcommand of `floe-lab`, passed on unread.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    /// The arguments of `floe-lab`; --help lists them
    #[arg(
        value_name = "ARGUMENT",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) arguments: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Fail if the cache of tiny objects cannot be opened, instead of serving without it
    #[arg(long)]
    pub(crate) strict: bool,
    /// Cache a file or block device as a volume, and serve it over NBD
    #[arg(long, value_name = "NAME=BACKING[,mode=MODE][,read-only]")]
    pub(crate) volume: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FormatArgs {
    /// Wipe the device permanently, whatever it holds
    #[arg(long)]
    pub(crate) force: bool,
    /// The cache of tiny objects (`tiny.path`) instead of that of chunks
    #[arg(long)]
    pub(crate) tiny: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Only this zone, and the metadata
    #[arg(long, value_name = "ZONE")]
    pub(crate) zone: Option<u32>,
    /// Print every record, or every batch and block of a cache of volumes
    #[arg(long)]
    pub(crate) records: bool,
    /// Read and verify the values too
    #[arg(long)]
    pub(crate) values: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Verify the metadata and records, but not the values
    #[arg(long)]
    pub(crate) quick: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Print a commented file with every setting and its default
    Default,
    /// Check a configuration and report errors
    #[command(after_help = "Example:\n  floe config check /etc/floe/floe.toml")]
    Check {
        /// The file; the environment and flags are checked as well
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
    /// Print the effective settings with their sources
    #[command(after_help = "Example:\n  FLOE_RAM_SIZE=1GiB floe config show --chunk-size 256KiB")]
    Show,
    /// Print the reference of all settings as Markdown
    Reference,
}

/// The whole command, with the settings' flags for the subcommands that use them.
pub(crate) fn command(schema: &Schema) -> Command {
    let all = |_: &str| true;
    let device = |section: &str| section == "device";
    Cli::<Action>::command()
        .name("floe")
        .version(VERSION)
        .about("A flash cache for object stores")
        .long_about(
            "Floe keeps the objects of S3 and other object stores on flash: point any S3 client at it and\n\
                  what was read once comes from the local SSD.",
        )
        .after_help(
            "Examples:\n  \
        floe serve                                  start on built-in defaults under ./floe-data\n  \
        floe serve --config /etc/floe/floe.toml     start as configured\n  \
        floe config default > floe.toml             a file with every setting\n  \
        floe bench experiments/smoke.toml           run an experiment\n  \
        floe check --device-path cache.floe         verify a cache offline\n\n\
        Exit status: 0 done, 2 wrong usage or configuration, 3 the machine is in the way (device, port,\n\
        permission, origin), 4 a check found damage, 5 a verdict is not as expected (--verdicts), 70 a bug.",
        )
        .mut_subcommand("serve", |c| with_settings(c, schema, all))
        .mut_subcommand("format", |c| {
            let format = |section: &str| {
                matches!(section.split('.').next(), Some("device" | "chunk" | "tiny"))
            };
            with_settings(c, schema, format)
        })
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
