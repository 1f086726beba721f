//! The cache that a block trace needs: its size, block sizes, promotion and mode,
//! and what each choice costs.
//!
//! | file | has |
//! |---|---|
//! | `options.rs` | the trace, the rules' parameters, and sizes that are given |
//! | `facts.rs` | one pass: the facts of the trace, and its miss-ratio curve |
//! | `sizing.rs` | the size, from the curve |
//! | `candidate.rs`, `drive.rs` | one cache that replays the trace, and the SSD under it |
//! | `choose.rs` | the better of several candidates |
//! | `search.rs` | the candidates that replay the trace |
//! | `limits.rs` | the limits of the advice |
//! | `report.rs` | the advice as a page |
//!
//! # The rules
//! **Size.** The smallest cache whose LRU hit ratio, per access of a 4 KiB block, is at
//! most 5 points ([`AdviseOptions::within`]) below the best reachable one: that of a
//! cache of the whole working set, or of [`AdviseOptions::cache_max`]. If the best is 5
//! points or less, no cache is worth its room. The curve is SHARDS of a fixed size, and
//! so exact while the sample has room for every block.
//!
//! **Settings.** Candidates of that size replay the whole trace. The best one moves the
//! fewest bytes on the backing device. Those within 5 % ([`AdviseOptions::tolerance`])
//! of it tie, and the one that writes the fewest bytes to the cache device is better;
//! those within 5 % of that tie again, and the one with the least memory is better.
//! Bytes that are dirty at the end count as written back.
//!
//! **Mode.** Write-back loses acknowledged writes with the cache device. It is advised
//! only if it moves 10 % ([`AdviseOptions::write_back_saves`]) fewer bytes on the backing
//! device than the best candidate that keeps no dirty blocks.
//!
//! **Nothing.** If the best candidate moves as many bytes as a host without a cache,
//! none is advised.
//!
//! # What it costs
//! Writes to the cache device are those of the replay, per day of the trace. A
//! simulated SSD of the cache's size carries them out in virtual time, each at its
//! place, without trims; its write amplification is the bytes it programs per byte
//! written. The metadata of a volume on the device is not among them.

mod candidate;
mod choose;
mod drive;
mod facts;
mod limits;
mod options;
mod report;
mod search;
mod sizing;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::error::EvalError;
use crate::trace::check_rereadable;
use crate::volume::file_name;
use choose::{Choice, Rule};
use options::bad_option;

pub use candidate::{Candidate, Settings};
pub use choose::DecidedBy;
pub use facts::TraceFacts;
pub use options::AdviseOptions;
pub use sizing::{SizePoint, Sizing};

/// Fewest reads and writes that allow advice.
const REQUESTS_MIN: u64 = 1000;

/// The outcome of advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The first candidate is.
    Cache,
    /// None: even the largest hits too little.
    NoReuse,
    /// None: the best candidate moves as much on the backing device as a host
    /// without a cache.
    NoSaving,
}

/// Advice on a trace.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The trace's file name.
    pub trace: String,
    /// Its facts.
    pub facts: TraceFacts,
    /// The size, and the curve that says why.
    pub sizing: Sizing,
    /// The outcome.
    pub verdict: Verdict,
    /// The candidates of that size: the best first, then by the bytes that they move
    /// on the backing device.
    pub candidates: Vec<Candidate>,
    /// Candidates, as `floe replay --volume` reads them, that the best one's bytes on the
    /// backing device tie with.
    pub ties: Vec<String>,
    /// The figure that decided between them.
    pub decided_by: Option<DecidedBy>,
    /// The share of the backing device's bytes that the best candidate with write-back
    /// saves over the best without; `None` if the trace has no writes.
    pub write_back_saves: Option<f64>,
    /// The limits of the advice, a sentence or two each.
    pub limits: Vec<String>,
    /// The command that replays the best candidate beside the next best ones.
    pub confirm: Option<String>,
}

/// Advises a cache for a block trace. Memory is bounded by the sample of the curve, and
/// for the replays by the size of the cache; time grows with the requests.
///
/// # Errors
/// When the trace cannot be read, is a pipe, has no block requests or too few, or an option makes
/// no sense.
pub fn advise(options: &AdviseOptions) -> Result<Advice, EvalError> {
    check(options)?;
    check_rereadable(&options.trace)?;
    let measured = facts::measure(options)?;
    let operations = &measured.facts.operations;
    let requests = operations.reads + operations.writes;
    if requests < REQUESTS_MIN {
        return Err(bad_option(
            "trace",
            format!("{requests} reads and writes are too few for advice; it takes {REQUESTS_MIN}"),
        ));
    }
    let sizing = sizing::choose(&measured, options)?;
    let facts = measured.facts;
    let rule = Rule {
        tolerance: options.tolerance,
        write_back_saves: options.write_back_saves,
    };
    let candidates = match sizing.capacity_bytes {
        Some(capacity_bytes) => search::search(options, &facts, rule, capacity_bytes)?,
        None => Vec::new(),
    };
    let mut advice = Advice {
        trace: file_name(&options.trace),
        limits: limits::limits(&facts, &sizing),
        verdict: Verdict::NoReuse,
        candidates: Vec::new(),
        ties: Vec::new(),
        decided_by: None,
        write_back_saves: None,
        confirm: None,
        facts,
        sizing,
    };
    if let Some(choice) = rule.choose(&candidates) {
        let best = choice.best.candidate;
        advice.verdict = match best.backing_bytes < advice.facts.requested_bytes {
            true => Verdict::Cache,
            false => Verdict::NoSaving,
        };
        let tied = choice.best.tied.iter();
        advice.ties = tied.map(|candidate| candidate.volume.clone()).collect();
        advice.decided_by = Some(choice.best.decided_by);
        advice.write_back_saves = choice.other.map(|other| write_back_saves(best, other));
        advice.confirm = Some(confirm(options, rule, &choice, &candidates));
        advice.candidates = ordered(best, &candidates);
    }
    Ok(advice)
}

fn check(options: &AdviseOptions) -> Result<(), EvalError> {
    if options.sample == 0 {
        return Err(bad_option("sample", "a sample of no blocks has no curve"));
    }
    for (name, share) in [
        ("within", options.within),
        ("tolerance", options.tolerance),
        ("write-back-saves", options.write_back_saves),
    ] {
        if !(0.0..1.0).contains(&share) {
            return Err(bad_option(name, "give a share from 0% to below 100%"));
        }
    }
    Ok(())
}

fn write_back_saves(best: &Candidate, other: &Candidate) -> f64 {
    let (write_back, safe) = match best.settings.is_write_back() {
        true => (best, other),
        false => (other, best),
    };
    1.0 - write_back.backing_bytes as f64 / safe.backing_bytes.max(1) as f64
}

fn ordered(best: &Candidate, candidates: &[Candidate]) -> Vec<Candidate> {
    let mut ordered = candidates.to_vec();
    ordered.sort_by_key(|candidate| {
        let is_best = candidate.settings == best.settings;
        (
            !is_best,
            candidate.backing_bytes,
            candidate.cache_written.bytes,
        )
    });
    ordered
}

/// The command that replays the best candidate, the next best of its modes and the
/// best of the other modes.
fn confirm(
    options: &AdviseOptions,
    rule: Rule,
    choice: &Choice<'_>,
    candidates: &[Candidate],
) -> String {
    let best = choice.best.candidate;
    let rest = candidates.iter().filter(|candidate| {
        candidate.settings != best.settings
            && candidate.settings.is_write_back() == best.settings.is_write_back()
    });
    let next = rule.best(rest).map(|next| next.candidate);
    let mut command = format!("floe replay {}", options.trace.display());
    if let Some(format) = options.options.format {
        command += &format!(" --format {format}");
    }
    if options.options.skip_bad {
        command += " --skip-bad";
    }
    if let Some(requests) = options.requests_max {
        command += &format!(" --requests {requests}");
    }
    for candidate in [Some(best), next, choice.other].into_iter().flatten() {
        command += &format!(" --volume {}", candidate.volume);
    }
    command
}
