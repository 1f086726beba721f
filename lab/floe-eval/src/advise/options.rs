//! The options of advice.

use std::path::PathBuf;

use floe_core::ByteSize;

use crate::error::EvalError;
use crate::trace::TraceOptions;

/// A block trace that needs a cache.
#[derive(Clone, Debug)]
pub struct AdviseOptions {
    /// The trace.
    pub trace: PathBuf,
    /// Its format, and the treatment of bad lines.
    pub options: TraceOptions,
    /// Requests to read; all if absent.
    pub requests_max: Option<u64>,
    /// Most blocks that the miss-ratio curve samples.
    pub sample: usize,
    /// The size of the cache, instead of the advised one.
    pub capacity: Option<ByteSize>,
    /// The largest size to advise, instead of the working set.
    pub cache_max: Option<ByteSize>,
    /// The hit ratio that a smaller cache may lose to the best reachable one.
    pub within: f64,
    /// The share by which figures of candidates may differ and still tie.
    pub tolerance: f64,
    /// The least share of the I/O of the backing device that write-back must save.
    pub write_back_saves: f64,
}

impl AdviseOptions {
    /// Advice on a trace by the default rules.
    pub fn new(trace: impl Into<PathBuf>) -> Self {
        AdviseOptions {
            trace: trace.into(),
            options: TraceOptions::default(),
            requests_max: None,
            sample: AdviseOptions::SAMPLE,
            capacity: None,
            cache_max: None,
            within: 0.05,
            tolerance: 0.05,
            write_back_saves: 0.1,
        }
    }

    /// Most blocks of the miss-ratio curve by default: it is exact up to 4 GiB of
    /// distinct bytes.
    pub const SAMPLE: usize = 1 << 20;
}

/// An error of an option, or of a trace that allows no advice.
pub(super) fn bad_option(option: &'static str, reason: impl Into<String>) -> EvalError {
    EvalError::Option {
        option,
        reason: reason.into(),
    }
}
