//! The command line: subcommands and flags. The table of keys provides the settings' flags.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Command, CommandFactory, Subcommand, ValueHint};
use clap_complete::Shell;
use floe::config::Schema;
use floe::volume::Mode;
use floe_core::ByteSize;
use floe_device::upkeep::Condition;

use crate::cli::Cli;
use crate::ring::{Consistency, RingHash};
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
        The files of tiny objects and of volumes are checked too, unless --device-path names one device alone.\n\
        Exit status 4 if there is damage. Nothing is changed. The cache must not be in use.")]
    Check(CheckArgs),
    /// Format a device as a new, empty cache
    #[command(after_help = "Examples:\n  \
        floe format --device-path /dev/nvme1n1\n  \
        floe format --device-path cache.floe --device-size 16GiB --chunk-size 1MiB --force\n  \
        floe format --tiny --tiny-engine log --force\n\n\
        Without --force only a blank device is formatted.")]
    Format(FormatArgs),
    /// List, warm, purge and pin the cached objects of the running server
    #[command(subcommand)]
    Cache(CacheAction),
    /// Make, attach, watch and detach volumes
    #[command(subcommand)]
    Volume(VolumeAction),
    /// Show drives, and format, prepare or measure one
    #[command(subcommand)]
    Device(DeviceAction),
    /// Show nodes: their place in a ring, and what is wrong between them
    #[command(after_help = "Examples:\n  \
        floe status\n  \
        floe status --nodes 10.77.0.11:9091,10.77.0.12:9091,10.77.0.13:9091\n\n\
        The addresses are those of admin.listen. Exit status 1 if a node does not answer, answers with\n\
        misses, or disagrees with another one.")]
    Status(StatusArgs),
    /// Examine the proxies before a ring of nodes
    #[command(subcommand)]
    Ring(RingAction),
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
    #[arg(long, value_name = "NAME=BACKING[,OPTION…]")]
    pub(crate) volume: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct StatusArgs {
    /// Addresses of the nodes' admin frontends; without them `admin.listen`
    #[arg(long, value_name = "ADDRESS,…", value_delimiter = ',')]
    pub(crate) nodes: Vec<String>,

    /// A PEM file with the authorities of nodes that are named by https://HOST:PORT
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RingAction {
    /// Find what makes a ring of nodes behind nutcracker or HAProxy return stale values
    #[command(after_help = "Examples:\n  \
        floe ring check nutcracker.yml\n  \
        floe ring check nutcracker.yml --ring-hash nutcracker\n  \
        floe ring check haproxy.cfg --consistency ttl --json\n  \
        floe ring check proxy1/nutcracker.yml proxy2/nutcracker.yml   one ring in both?\n\n\
        Exit status 1 if a finding lies: a read can return a value that a later write has replaced.\n\
        Nothing is changed, and no proxy or node is asked.")]
    Check(RingCheckArgs),
    /// Show which share of the keys each server of nutcracker's pools owns
    #[command(after_help = "Examples:\n  \
        floe ring shares nutcracker.yml\n  \
        floe ring shares nutcracker.yml --json\n\n\
        The shares are exact for keys whose hashes are uniform. A server that is left out moves its own share\n\
        to the others, and a new one takes its share from them.")]
    Shares {
        /// Configurations of nutcracker
        #[arg(value_name = "CONFIG", required = true, value_hint = ValueHint::FilePath)]
        configs: Vec<PathBuf>,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RingCheckArgs {
    /// Configurations of nutcracker (YAML) or HAProxy; several are compared too
    #[arg(value_name = "CONFIG", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) configs: Vec<PathBuf>,
    /// `node.ring_hash` of the nodes, how a node computes the owner of a key: off, nutcracker,
    /// pymemcache or emcache
    #[arg(long, value_name = "HASH", default_value = "off")]
    pub(crate) ring_hash: RingHash,
    /// `object.consistency` of the nodes: etag, immutable, ttl or events
    #[arg(long, value_name = "MODE")]
    pub(crate) consistency: Option<Consistency>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DeviceAction {
    /// List the NVMe namespaces of this machine
    #[command(after_help = "Example:\n  floe device list --json")]
    List,
    /// Describe a namespace: kind, limits, health and data placement
    #[command(after_help = "Examples:\n  \
        floe device info /dev/ng0n1\n  \
        floe device info nvme:S5XYNG0K123456 --json\n\n\
        Health and the statistics of data placement need root or CAP_SYS_ADMIN. Nothing is changed.")]
    Info(NamespaceArgs),
    /// Draw the zones of a zoned namespace: states and write pointers
    #[command(after_help = "Example:\n  \
        floe device zones /dev/ng0n1\n\n\
        Nothing is changed. A namespace in use can be read too.")]
    Zones(NamespaceArgs),
    /// Empty a device: reset its zones, or discard all of it
    #[command(after_help = "Examples:\n  \
        floe device format nvme:S5XYNG0K123456\n  \
        floe device format /dev/sdb --force\n  \
        floe device format /dev/ng0n1 --lba-format 1 --force\n\n\
        Without --force nothing is changed: the command succeeds if the device is empty. A device that is\n\
        mounted or in use is refused.")]
    Format(DeviceFormatArgs),
    /// Check a device, and bring it into a known state before a measurement
    #[command(after_help = "Examples:\n  \
        floe device prepare /dev/nvme0n1 --state fresh --dry-run\n  \
        floe device prepare nvme:S5XYNG0K123456 --state random --passes 3 --force\n  \
        floe device prepare /dev/nvme0n1 --state sequential --share 0.8 --force\n\n\
        --dry-run prints the checks and the plan. The device is emptied, and written except for `fresh`:\n\
        without --force only a blank one.")]
    Prepare(DevicePrepareArgs),
    /// Measure latencies and bandwidth of a device
    #[command(after_help = "Examples:\n  \
        floe device bench /dev/nvme0n1                                         reads only\n  \
        floe device bench nvme:S5XYNG0K123456 --writes --profile drive.toml    a blank device only\n  \
        floe device bench nvme:S5XYNG0K123456 --writes --force                 WIPES the device\n  \
        floe device bench --sim drive.toml                                     in virtual time\n\n\
        --profile writes settings of a simulated SSD with the same figures, which `floe bench --config` and\n\
        experiments take.")]
    Bench(DeviceBenchArgs),
}

/// The argument that names a device to work on.
const DEVICE_HELP: &str = "The device: a file, /dev/sdb, /dev/nvme0n1, or by passthrough /dev/ng0n1 or nvme:SERIAL[:NAMESPACE]";

#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceFormatArgs {
    #[arg(value_name = "DEVICE", help = DEVICE_HELP, value_hint = ValueHint::FilePath)]
    pub(crate) device: PathBuf,
    /// Wipe the device permanently, whatever it holds
    #[arg(long)]
    pub(crate) force: bool,
    /// Give a namespace this block format, by the number that `floe device info` shows
    #[arg(long, value_name = "NUMBER", requires = "force")]
    pub(crate) lba_format: Option<u8>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceBenchArgs {
    #[arg(value_name = "DEVICE", help = DEVICE_HELP, value_hint = ValueHint::FilePath)]
    #[arg(required_unless_present = "sim", conflicts_with = "sim")]
    pub(crate) device: Option<PathBuf>,
    /// The simulated SSD of this file's [device] section instead, in virtual time
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) sim: Option<PathBuf>,
    /// Seconds of all loads together
    #[arg(long, default_value_t = 30.0)]
    pub(crate) seconds: f64,
    /// Measure writes too, to a blank device, which is empty again then
    #[arg(long, conflicts_with = "sim")]
    pub(crate) writes: bool,
    /// With --writes: wipe the device permanently, whatever it holds
    #[arg(long, requires = "writes")]
    pub(crate) force: bool,
    /// Write the settings of a simulated SSD with these figures to this new file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) profile: Option<PathBuf>,
    /// Seed of random places and bytes
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DevicePrepareArgs {
    #[arg(value_name = "DEVICE", help = DEVICE_HELP, value_hint = ValueHint::FilePath)]
    pub(crate) device: PathBuf,
    /// The state: fresh (empty), sequential (filled), or random (filled, then overwritten)
    #[arg(long)]
    pub(crate) state: Condition,
    /// Most passes over the device. Default: 1, or 2 of random writes
    #[arg(long)]
    pub(crate) passes: Option<u32>,
    /// The share of the device that is written; the rest stays empty
    #[arg(long, default_value_t = 1.0)]
    pub(crate) share: f64,
    /// Seed of random places and bytes
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// Print the checks and the plan, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Wipe the device permanently, whatever it holds
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct NamespaceArgs {
    /// The namespace: /dev/ng0n1, /dev/nvme0n1, or nvme:SERIAL[:NAMESPACE]
    #[arg(value_name = "NAMESPACE", value_hint = ValueHint::FilePath)]
    pub(crate) namespace: PathBuf,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum CacheAction {
    /// List objects of the origin, with how much of each is cached
    #[command(after_help = "Examples:\n  \
        floe cache ls data/train/\n  \
        floe cache ls data --json\n\n\
        The columns: size, cached bytes, `-`, `part`, `whole` or `stale`, and the key. `stale` is another\n\
        version than the origin lists. The names come from the origin, which gets a request for each 500 of them.\n\
        With --json, one JSON object a line.")]
    Ls {
        /// A bucket, or the objects whose keys begin with a prefix
        #[arg(value_name = "BUCKET[/PREFIX]")]
        objects: String,
        /// Only objects whose keys are after this one
        #[arg(long, value_name = "KEY")]
        after: Option<String>,
        /// Objects a second at most; a request to the origin then asks for so many at once
        #[arg(long, value_name = "OBJECTS")]
        rate: Option<NonZeroU32>,
    },
    /// Fetch what is not cached of objects, so that later reads find it
    #[command(
        override_usage = "floe cache warm [OPTIONS] <BUCKET[/PREFIX]|--manifest FILE>",
        after_help = "Examples:\n  \
        floe cache warm data/train/ --rate 200MiB\n  \
        floe cache warm --manifest objects.txt\n\n\
        Requests of clients go first. Bytes that are cached are not fetched again: to resume, run the command\n\
        again. A manifest has a line BUCKET/KEY for each object."
    )]
    Warm {
        /// A bucket, or the objects whose keys begin with a prefix
        #[arg(value_name = "BUCKET[/PREFIX]", required_unless_present = "manifest")]
        objects: Option<String>,
        /// The objects of this file instead; `-` reads standard input
        #[arg(long, value_name = "FILE", conflicts_with = "objects", value_hint = ValueHint::FilePath)]
        manifest: Option<PathBuf>,
        /// Bytes a second at most
        #[arg(long, default_value = "0", hide_default_value = true)]
        rate: ByteSize,
        /// Only objects whose keys are after this one
        #[arg(long, value_name = "KEY", conflicts_with = "manifest")]
        after: Option<String>,
    },
    /// Remove objects from the cache, in every consistency mode
    #[command(after_help = "Examples:\n  \
        floe cache purge data/config.json data/model.bin\n  \
        floe cache purge --prefix data/logs/2026-\n  \
        floe cache purge --bucket data\n\n\
        When the command has ended, no read that begins finds what was cached before: not after a crash either.\n\
        It costs the same for one object and for all of them. The origin does not change.")]
    Purge {
        /// Objects
        #[arg(value_name = "BUCKET/KEY", required_unless_present_any = ["prefixes", "buckets", "all"])]
        objects: Vec<String>,
        /// The objects of a bucket whose keys begin with a prefix
        #[arg(long = "prefix", value_name = "BUCKET/PREFIX")]
        prefixes: Vec<String>,
        /// The objects of a bucket
        #[arg(long = "bucket", value_name = "BUCKET")]
        buckets: Vec<String>,
        /// All objects
        #[arg(long)]
        all: bool,
    },
    /// Keep objects in the cache while others are evicted
    #[command(after_help = "Examples:\n  \
        floe cache pin data/models/\n  \
        floe cache pin data/models/ --cap 200GiB\n\n\
        The pin counts at once, for what is cached already too, and survives a restart. Above its cap, and above\n\
        object.pinned_percent of the flash for all pins together, objects are evicted like any other. It fetches\n\
        nothing: `floe cache warm` does. A second pin of the same prefix replaces the cap.")]
    Pin {
        /// A bucket, or the objects whose keys begin with a prefix
        #[arg(value_name = "BUCKET[/PREFIX]")]
        objects: String,
        /// Most bytes of flash that are kept
        #[arg(long)]
        cap: Option<ByteSize>,
    },
    /// Remove a pin: its objects are evicted like any other
    #[command(after_help = "Example:\n  \
        floe cache unpin data/models/")]
    Unpin {
        /// The bucket, or the prefix, exactly as it was pinned
        #[arg(value_name = "BUCKET[/PREFIX]")]
        objects: String,
    },
    /// List the pins
    #[command(after_help = "Examples:\n  \
        floe cache pins\n  \
        floe cache pins --json\n\n\
        The columns: bytes that are kept from eviction, the cap, and the prefix. With --json, one JSON object a line.")]
    Pins,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum VolumeAction {
    /// Make a file that can be a backing device
    #[command(after_help = "Examples:\n  \
        floe volume create disk.img --size 100GiB\n  \
        floe volume create disk.img --size 100GiB --allocate\n\n\
        Without --allocate the file is sparse: writes fail once the file system is full.")]
    Create {
        /// The file, which must not exist
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Its size, a multiple of 4KiB
        #[arg(long)]
        size: ByteSize,
        /// Allocate its space now
        #[arg(long)]
        allocate: bool,
    },
    /// Attach a volume to the running server, and export it over NBD
    #[command(after_help = "Example:\n  \
        floe volume attach disk=/dev/sdb,mode=write-back\n\n\
        The volume is attached until the server stops: name it in the configuration to keep it.")]
    Attach {
        /// Its name, its backing device and its options
        #[arg(value_name = "NAME=BACKING[,mode=MODE][,read-only][,allow-data-loss]")]
        attached: String,
    },
    /// Print the state of the running server's volumes
    Status {
        /// Only this volume
        name: Option<String>,
    },
    /// Write the dirty data of volumes to their backing devices
    #[command(after_help = "Examples:\n  \
        floe volume flush disk                                  of the running server\n  \
        floe volume flush --offline --config /etc/floe/floe.toml\n\n\
        With --offline no server may have the cache open. The cache and the backing devices of the\n\
        settings are opened, and closed when all dirty data is written.")]
    Flush {
        /// Only this volume
        name: Option<String>,
        /// Without a running server
        #[arg(long)]
        offline: bool,
        /// With --offline: a volume of the cache, if the configuration does not name it
        #[arg(long, value_name = "NAME=BACKING[,OPTION…]", requires = "offline")]
        volume: Vec<String>,
    },
    /// Change the cache mode of a volume of the running server
    #[command(after_help = "Example:\n  \
        floe volume mode disk write-through\n\n\
        With a mode that makes nothing dirty, ends when all dirty data is written back.")]
    Mode {
        /// The volume
        name: String,
        /// The mode
        mode: Mode,
    },
    /// Read all cached data of the running server, to find what the cache device has damaged
    #[command(after_help = "Examples:\n  \
        floe volume scrub\n  \
        floe volume scrub --rate 50MiB\n\n\
        Damaged clean data leaves the cache: the backing device has it. Dirty data that is damaged is\n\
        reported, with exit status 4; the log names it. Without `volumes.checksums` only errors that the device\n\
        reports are found. Ends early if it is interrupted.")]
    Scrub {
        /// Bytes a second at most
        #[arg(long, default_value = "0", hide_default_value = true)]
        rate: ByteSize,
    },
    /// Give a volume of the running server, or its cache, another size
    #[command(
        override_usage = "floe volume resize [OPTIONS] <NAME|--cache>",
        after_help = "Examples:\n  \
        floe volume resize disk                        take over the size of its backing device\n  \
        floe volume resize disk --size 200GiB          enlarge a backing file\n  \
        floe volume resize disk --size 50GiB --shrink  LOSE what lies past 50GiB\n  \
        floe volume resize --cache                     use what was added to the cache device\n  \
        floe volume resize --cache --size 64GiB        enlarge the cache file\n\n\
        Only files are enlarged or truncated: resize other devices with their own tools, to\n\
        enlarge a volume first and to shrink it afterwards. NBD clients must connect again."
    )]
    Resize {
        /// The volume
        #[arg(required_unless_present = "cache", conflicts_with = "cache")]
        name: Option<String>,
        /// The cache instead of a volume: it only grows
        #[arg(long)]
        cache: bool,
        /// The size that the volume, or the cache device, is to have
        #[arg(long)]
        size: Option<ByteSize>,
        /// LOSE data past the new end of the volume
        #[arg(long, conflicts_with = "cache")]
        shrink: bool,
    },
    /// Detach a volume from the running server, and disconnect its clients
    #[command(after_help = "Examples:\n  \
        floe volume detach disk                   write its dirty data back first\n  \
        floe volume detach disk --keep-dirty      leave its dirty data in the cache\n  \
        floe volume detach disk --discard-dirty   LOSE its dirty data")]
    Detach {
        /// The volume
        name: String,
        /// Leave dirty data in the cache, for the next time that the volume is attached
        #[arg(long, conflicts_with = "discard_dirty")]
        keep_dirty: bool,
        /// LOSE dirty data: acknowledged writes that only the cache has
        #[arg(long)]
        discard_dirty: bool,
    },
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
        Exit status: 0 done, 1 a ring or node is wrong (ring check, status), 2 wrong usage or configuration,\n\
        3 the machine is in the way (device, port, permission, origin), 4 a check found damage,\n\
        5 a verdict is not as expected (--verdicts), 70 a bug.",
        )
        .mut_subcommand("serve", |c| with_settings(c, schema, all))
        .mut_subcommand("format", |c| {
            let format = |section: &str| {
                matches!(section.split('.').next(), Some("device" | "chunk" | "tiny"))
            };
            with_settings(c, schema, format)
        })
        .mut_subcommand("inspect", |c| {
            with_settings(c, schema, |section| matches!(section, "device" | "volumes"))
        })
        .mut_subcommand("check", |c| {
            let all = |section: &str| matches!(section, "device" | "tiny" | "volumes");
            with_settings(c, schema, all)
        })
        .mut_subcommand("status", |c| {
            with_settings(c, schema, |section| section == "admin")
        })
        .mut_subcommand("cache", |cache| {
            ["ls", "warm", "purge"].into_iter().fold(cache, |cache, name| {
                cache.mut_subcommand(name, |c| with_settings(c, schema, |section| section == "control"))
            })
        })
        .mut_subcommand("volume", |volume| {
            let control = |section: &str| section == "control";
            let offline = |section: &str| matches!(section, "volumes" | "control");
            volume
                .mut_subcommand("attach", |c| with_settings(c, schema, control))
                .mut_subcommand("status", |c| with_settings(c, schema, control))
                .mut_subcommand("flush", |c| with_settings(c, schema, offline))
                .mut_subcommand("mode", |c| with_settings(c, schema, control))
                .mut_subcommand("detach", |c| with_settings(c, schema, control))
        })
        .mut_subcommand("config", |config| {
            config
                .mut_subcommand("check", |c| with_settings(c, schema, all))
                .mut_subcommand("show", |c| with_settings(c, schema, all))
        })
}
