//! Replaying traces: here against pure policies, in [`run`](crate::run)
//! against a cache with a device.

pub mod policy;

use std::collections::HashMap;
use std::path::PathBuf;

use floe_core::ByteSize;
use floe_core::policy::object::ObjectPolicyKind;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use crate::error::EvalError;
use crate::run::Progress;
use crate::trace::{Trace, TraceOptions, check_rereadable};
use policy::{CacheUnit, PolicyCounts, for_each_access};

/// The unit that the cache stores; by default the trace's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnitChoice {
    /// 4 KiB blocks for block traces, whole objects for all others.
    #[default]
    Auto,
    /// A fixed unit.
    Fixed(CacheUnit),
}

/// The cache sizes to replay.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplaySizes {
    /// Bytes (objects, if sizes are unknown).
    Bytes(Vec<u64>),
    /// Shares of the bytes of all objects of the trace, which needs another
    /// pass over it.
    WorkingSetShares(Vec<f64>),
}

impl Default for ReplaySizes {
    fn default() -> Self {
        ReplaySizes::WorkingSetShares(vec![0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8])
    }
}

/// A replay against pure policies.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The name of the replay in results.
    pub name: String,
    /// The trace.
    pub trace: PathBuf,
    /// How to read the trace.
    pub options: TraceOptions,
    /// The unit that the cache stores.
    pub unit: UnitChoice,
    /// The policies.
    pub policies: Vec<ObjectPolicyKind>,
    /// The cache sizes.
    pub sizes: ReplaySizes,
    /// The display of progress.
    pub progress: Progress,
}

impl ReplayOptions {
    /// Replays all policies at eight shares of the working set.
    pub fn new(name: impl Into<String>, trace: impl Into<PathBuf>) -> Self {
        ReplayOptions {
            name: name.into(),
            trace: trace.into(),
            options: TraceOptions::default(),
            unit: UnitChoice::default(),
            policies: ObjectPolicyKind::ALL.to_vec(),
            sizes: ReplaySizes::default(),
            progress: Progress::Auto,
        }
    }
}

/// The result of a replay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayResult {
    /// The replay's name.
    pub name: String,
    /// The trace's file name.
    pub trace: String,
    /// The trace's format.
    pub format: String,
    /// `objects` or the chunk size.
    pub unit: String,
    /// Sizes are in bytes; otherwise in objects.
    pub sizes_are_bytes: bool,
    /// Requests of the trace.
    pub requests: u64,
    /// Lines or records skipped as bad.
    pub skipped: u64,
    /// The counts, by policy and size.
    pub counts: Vec<PolicyCounts>,
}

impl ReplayResult {
    /// A cache size in readable form.
    pub fn size_label(&self, cache_bytes: u64) -> String {
        if self.sizes_are_bytes {
            ByteSize(cache_bytes).to_string()
        } else {
            format!("{cache_bytes} objects")
        }
    }
}

/// Replays a trace against pure policies.
///
/// # Errors
/// If the trace cannot be read, or an option is invalid.
pub fn replay(options: &ReplayOptions) -> Result<ReplayResult, EvalError> {
    if options.policies.is_empty() {
        return Err(EvalError::Option {
            option: "policies",
            reason: "name at least one".into(),
        });
    }
    let mut trace = Trace::open(&options.trace, options.options)?;
    let unit = match options.unit {
        UnitChoice::Fixed(unit) => unit,
        UnitChoice::Auto if trace.format().is_block_trace() => CacheUnit::Chunk(4096),
        UnitChoice::Auto => CacheUnit::Object,
    };
    let (sizes, sizes_are_bytes) = sizes(options, unit)?;
    let bar = bar(options);
    let found = policy::replay(&mut trace, &options.policies, &sizes, unit, |requests| {
        bar.set_position(requests);
    });
    bar.finish_and_clear();
    let found = found?;
    let file = options.trace.file_name().unwrap_or_default();
    Ok(ReplayResult {
        name: options.name.clone(),
        trace: file.to_string_lossy().into_owned(),
        format: trace.format().to_string(),
        unit: match unit {
            CacheUnit::Object => "objects".into(),
            CacheUnit::Chunk(bytes) => format!("{} chunks", ByteSize(bytes)),
        },
        sizes_are_bytes,
        requests: found.requests,
        skipped: found.skipped,
        counts: found.counts,
    })
}

/// The sizes, and whether they are in bytes.
fn sizes(options: &ReplayOptions, unit: CacheUnit) -> Result<(Vec<u64>, bool), EvalError> {
    let fail = |reason: String| {
        Err(EvalError::Option {
            option: "sizes",
            reason,
        })
    };
    let shares = match &options.sizes {
        ReplaySizes::Bytes(sizes) if sizes.is_empty() => return fail("name at least one".into()),
        ReplaySizes::Bytes(sizes) => return Ok((sizes.clone(), true)),
        ReplaySizes::WorkingSetShares(shares) => shares,
    };
    if shares.is_empty() {
        return fail("name at least one".into());
    }
    if let Some(share) = shares
        .iter()
        .find(|share| !(**share > 0.0 && **share <= 1.0))
    {
        return fail(format!(
            "{share} is not a share of the working set between 0 and 1"
        ));
    }
    check_rereadable(&options.trace)?;
    let set = working_set(options, unit)?;
    let part = |share: &f64| ((set.bytes as f64 * share) as u64).max(1);
    Ok((shares.iter().map(part).collect(), set.sizes_are_known))
}

struct WorkingSet {
    bytes: u64,
    sizes_are_known: bool,
}

/// The objects of a trace, each at its largest size.
fn working_set(options: &ReplayOptions, unit: CacheUnit) -> Result<WorkingSet, EvalError> {
    let mut trace = Trace::open(&options.trace, options.options)?;
    let mut objects: HashMap<u64, u64> = HashMap::new();
    let mut sizes_are_known = matches!(unit, CacheUnit::Chunk(_));
    for request in trace.by_ref() {
        let request = request?;
        sizes_are_known |= request.size.is_some();
        for_each_access(&request, unit, |key, bytes| {
            let largest = objects.entry(key).or_default();
            *largest = bytes.max(*largest);
        });
    }
    Ok(WorkingSet {
        bytes: objects.values().sum(),
        sizes_are_known,
    })
}

fn bar(options: &ReplayOptions) -> ProgressBar {
    if options.progress == Progress::Off {
        return ProgressBar::hidden();
    }
    // Draws on standard error, and only on a terminal.
    let bar = ProgressBar::new_spinner();
    if let Ok(style) =
        ProgressStyle::with_template("{prefix} {spinner} {human_pos} requests {per_sec}")
    {
        bar.set_style(style);
    }
    bar.set_prefix(options.name.clone());
    bar
}
