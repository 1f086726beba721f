//! One pass of a block trace over several caches.

use std::path::{Path, PathBuf};

use floe_core::volume::VolumeId;

use super::case::{Capacity, VolumeCase};
use super::result::VolumeReplayResult;
use super::simulate::Simulation;
use super::working_set::WorkingSet;
use crate::error::EvalError;
use crate::stat::Sizes;
use crate::trace::{BlockOp, BlockRequest, BlockTrace, TraceOptions, check_rereadable};

/// A replay of a block trace.
#[derive(Clone, Debug)]
pub struct VolumeReplayOptions {
    /// The trace.
    pub trace: PathBuf,
    /// How to read it.
    pub options: TraceOptions,
    /// The caches.
    pub cases: Vec<VolumeCase>,
    /// Requests to replay; all if absent.
    pub requests_max: Option<u64>,
}

/// Replays a block trace. Every request is served whole.
///
/// # Errors
/// When the trace cannot be read or has no block requests, or a setting cannot
/// work.
pub fn replay_volumes(options: &VolumeReplayOptions) -> Result<VolumeReplayResult, EvalError> {
    let is_share = |case: &VolumeCase| matches!(case.capacity, Capacity::WorkingSet(_));
    let working_set_bytes = match options.cases.iter().any(is_share) {
        true => {
            check_rereadable(&options.trace)?;
            Some(working_set(options)?.bytes())
        }
        false => None,
    };
    let plan = |case: &VolumeCase| {
        let plan = case.plan(working_set_bytes.unwrap_or_default());
        let plan = plan.map_err(|error| bad_option(&case.name, &error))?;
        Ok(Simulation::new(&case.name, &plan))
    };
    let simulations: Result<Vec<_>, EvalError> = options.cases.iter().map(plan).collect();
    let mut simulations = simulations?;
    let mut trace = open(options)?;
    let (mut first_ns, mut last_ns) = (None, 0);
    let mut sizes = Sizes::default();
    let requests = each_request(&mut trace, options.requests_max, |request, volume| {
        for simulation in &mut simulations {
            simulation.serve(request, volume);
        }
        if matches!(request.op, BlockOp::Read | BlockOp::Write) {
            sizes.add(request.length);
        }
        if let Some(time_ns) = request.time_ns {
            first_ns.get_or_insert(time_ns);
            last_ns = last_ns.max(time_ns);
        }
        Ok(())
    })?;
    Ok(VolumeReplayResult {
        trace: file_name(&options.trace),
        format: trace.format().to_string(),
        requests,
        skipped: trace.skipped(),
        volumes: trace.volumes().len(),
        working_set_bytes,
        sizes,
        span_s: first_ns.map_or(0.0, |first| last_ns.saturating_sub(first) as f64 / 1e9),
        caches: simulations.into_iter().map(Simulation::finish).collect(),
    })
}

/// Hands at most `requests_max` requests, with the numbers of their volumes, to
/// `each`. Returns how many there were.
pub(crate) fn each_request(
    trace: &mut BlockTrace,
    requests_max: Option<u64>,
    mut each: impl FnMut(&BlockRequest, VolumeId) -> Result<(), EvalError>,
) -> Result<u64, EvalError> {
    let requests_max = usize::try_from(requests_max.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let mut requests = 0;
    for request in trace.by_ref().take(requests_max) {
        let request = request?;
        let volume = u16::try_from(request.volume).map(VolumeId).map_err(|_| {
            bad_option(
                "volumes",
                &"a cache has 65,536 volumes at most; the trace has more",
            )
        })?;
        each(&request, volume)?;
        requests += 1;
    }
    Ok(requests)
}

/// The distinct bytes of the requests that are replayed.
fn working_set(options: &VolumeReplayOptions) -> Result<WorkingSet, EvalError> {
    let mut working_set = WorkingSet::default();
    each_request(&mut open(options)?, options.requests_max, |request, _| {
        working_set.add(request);
        Ok(())
    })?;
    Ok(working_set)
}

fn open(options: &VolumeReplayOptions) -> Result<BlockTrace, EvalError> {
    Ok(BlockTrace::open(&options.trace, options.options)?)
}

fn bad_option(option: &str, error: &dyn std::fmt::Display) -> EvalError {
    EvalError::Option {
        option: "volume",
        reason: format!("{option}: {error}"),
    }
}

pub(crate) fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
