//! The command line of `floe trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use floe_core::ByteSize;
use floe_eval::convert::{Target, Unit};
use floe_eval::trace::{TraceFormat, TraceOptions};

/// `floe trace`.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceAction {
    /// Describe a trace: operations, sizes, reuse, skew, sequentiality
    #[command(after_help = "Examples:\n  \
        floe trace stat vscsi.zst\n  \
        floe trace stat tpcc.trace --format mqsim --block-size 64KiB --json\n  \
        floe trace stat vscsi.zst --out results/vscsi        with figures, as a page\n\n\
        Requests of block traces are cut into blocks; of other traces, objects are counted.")]
    Stat(StatArgs),
    /// Write a trace in another format, and say what that loses
    #[command(after_help = "Examples:\n  \
        floe trace convert vscsi.zst vscsi.oracleGeneral.zst           blocks of 4KiB as objects\n  \
        floe trace convert vscsi.zst vscsi.oracleGeneral --unit request\n  \
        floe trace convert vscsi.oracleGeneral.zst vscsi.csv --to alibaba\n\n\
        Block traces are written as oracle-general or alibaba, oracle-general as alibaba. A file that ends\n\
        in .zst is compressed. For oracle-general FILE is read twice, so it cannot be a pipe.")]
    Convert(ConvertArgs),
    /// Miss ratios of LRU at every size, exact or from a sample (SHARDS)
    #[command(after_help = "Examples:\n  \
        floe trace mrc vscsi.zst                             a sample of 8192 blocks\n  \
        floe trace mrc vscsi.zst --rate 0.01 --compare       and how far off it is\n  \
        floe trace mrc vscsi.zst --exact --block-size 64KiB --json\n\n\
        Reads and writes count alike, and every access inserts. Trims are ignored.")]
    Mrc(MrcArgs),
}

/// A trace and how to read it.
#[derive(Debug, Args)]
pub(crate) struct FileArgs {
    /// The trace; may be compressed with zstd
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) trace: PathBuf,
    /// The trace's format [default: recognised]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<TraceFormat>,
    /// Count and skip lines and records that make no sense
    #[arg(long)]
    pub(crate) skip_bad: bool,
}

impl FileArgs {
    pub(crate) fn options(&self) -> TraceOptions {
        TraceOptions {
            format: self.format,
            skip_bad: self.skip_bad,
        }
    }
}

/// `floe trace stat`.
#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Cut the requests of a block trace into blocks of this size
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    pub(crate) block_size: ByteSize,
    /// Write results.jsonl, report.html and the figures into this folder
    #[arg(long, short, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
}

/// `floe trace convert`.
#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// The file to write; one that exists is overwritten
    #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub(crate) into: PathBuf,
    /// The format to write: oracle-general or alibaba
    #[arg(long, value_name = "FORMAT", default_value = "oracle-general")]
    pub(crate) to: Target,
    /// The objects of oracle-general: blocks of a size, or `request` for whole requests by their first sector
    #[arg(long, value_name = "UNIT", default_value = "4KiB")]
    pub(crate) unit: Unit,
}

/// `floe trace mrc`.
#[derive(Debug, Args)]
pub(crate) struct MrcArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Cut the requests of a block trace into blocks of this size
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    pub(crate) block_size: ByteSize,
    /// Sample this share of the blocks, above 0 and at most 1
    #[arg(long, value_name = "SHARE", value_parser = share, conflicts_with_all = ["sample", "exact"])]
    pub(crate) rate: Option<f64>,
    /// Sample at most so many blocks
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 8192,
        conflicts_with = "exact"
    )]
    pub(crate) sample: usize,
    /// Measure every access
    #[arg(long)]
    pub(crate) exact: bool,
    /// Measure every access, too, and report the error of the sample
    #[arg(long, conflicts_with = "exact")]
    pub(crate) compare: bool,
    /// Sizes of the curve that are shown, equally far apart
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) points: u64,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(format!("`{text}` is no share above 0 and at most 1")),
    }
}
