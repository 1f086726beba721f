//! The command line of `floe advise`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use floe_core::ByteSize;
use floe_eval::advise::AdviseOptions;

use crate::trace::FileArgs;

/// `floe advise`.
#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Read only this many requests
    #[arg(long, value_name = "COUNT")]
    requests: Option<u64>,
    /// Advise settings for a cache of this size, instead of a size
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["max_cache", "within"])]
    capacity: Option<ByteSize>,
    /// Advise no larger cache [default: the working set]
    #[arg(long, value_name = "SIZE")]
    max_cache: Option<ByteSize>,
    /// Advise the smallest cache whose hit ratio is at most this many percentage points below the best
    /// reachable one
    #[arg(long, value_name = "POINTS", default_value = "5", value_parser = percent)]
    within: f64,
    /// Treat figures of candidates that differ by this percentage as equal
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent)]
    tolerance: f64,
    /// Advise write-back only if it saves this percentage of the backing device's bytes
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = percent)]
    write_back_saves: f64,
    /// Sample at most so many blocks for the miss-ratio curve; it is exact while they suffice
    #[arg(long, value_name = "COUNT", default_value_t = AdviseOptions::SAMPLE)]
    sample: usize,
    /// Write results.jsonl, report.html and the figures into this folder
    #[arg(long, short, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) out: Option<PathBuf>,
}

impl AdviseArgs {
    pub(super) fn options(&self) -> AdviseOptions {
        AdviseOptions {
            trace: self.file.trace.clone(),
            options: self.file.options(),
            requests_max: self.requests,
            sample: self.sample,
            capacity: self.capacity,
            cache_max: self.max_cache,
            within: self.within,
            tolerance: self.tolerance,
            write_back_saves: self.write_back_saves,
        }
    }
}

/// A percentage as a share.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err(format!("`{text}` is no percentage from 0 to below 100")),
    }
}
