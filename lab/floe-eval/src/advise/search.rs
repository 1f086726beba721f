//! The candidates that replay the trace at one size.
//!
//! The search climbs: all candidates that differ from the best one so far in one
//! setting replay the trace in one pass, until no new one is better. It does so
//! twice, with write-back and with modes that keep no dirty blocks, so that each
//! mode has the block sizes and promotion that suit it.

use super::candidate::{Candidate, Replaying, Settings};
use super::choose::Rule;
use super::drive::Drive;
use super::facts::TraceFacts;
use super::options::AdviseOptions;
use crate::error::EvalError;
use crate::trace::BlockTrace;
use crate::volume::each_request;

/// Replays candidates of `capacity_bytes` until the best one has no better
/// neighbour. Returns all that replayed the trace.
pub(super) fn search(
    options: &AdviseOptions,
    facts: &TraceFacts,
    rule: Rule,
    capacity_bytes: u64,
) -> Result<Vec<Candidate>, EvalError> {
    let drive = Drive::new(capacity_bytes)?;
    let has_writes = facts.operations.writes > 0;
    let families: &[&[&'static str]] = match has_writes {
        true => &[&Settings::SAFE_MODES, &[Settings::WRITE_BACK]],
        // Without writes all modes are the same.
        false => &[&[Settings::SAFE_MODES[0]]],
    };
    let mut all = Vec::new();
    for modes in families {
        let mut best = Settings {
            sizes: "32KiB..256KiB",
            promotion: "always",
            mode: modes[0],
        };
        let mut family = Vec::new();
        loop {
            let new: Vec<Settings> = star(best, modes)
                .filter(|settings| family.iter().all(|c: &Candidate| c.settings != *settings))
                .collect();
            if new.is_empty() {
                break;
            }
            family.extend(replay(
                options,
                facts,
                &new,
                capacity_bytes,
                drive.as_ref(),
            )?);
            best = rule
                .best(&family)
                .map_or(best, |found| found.candidate.settings);
        }
        all.append(&mut family);
    }
    Ok(all)
}

/// `centre`, and all settings that differ from it in one.
fn star(centre: Settings, modes: &[&'static str]) -> impl Iterator<Item = Settings> {
    let sizes = Settings::SIZES.map(|sizes| Settings { sizes, ..centre });
    let promotions = Settings::PROMOTIONS.map(|promotion| Settings {
        promotion,
        ..centre
    });
    let modes = modes.iter().map(move |mode| Settings { mode, ..centre });
    let rest = promotions.into_iter().chain(modes);
    let rest = rest.filter(move |settings| *settings != centre);
    sizes.into_iter().chain(rest)
}

/// Replays the trace against all `settings` in one pass, each with a drive like
/// `drive`.
fn replay(
    options: &AdviseOptions,
    facts: &TraceFacts,
    settings: &[Settings],
    capacity_bytes: u64,
    drive: Option<&Drive>,
) -> Result<Vec<Candidate>, EvalError> {
    let replaying = settings
        .iter()
        .map(|settings| Replaying::new(*settings, capacity_bytes, drive.cloned()));
    let mut replaying = replaying.collect::<Result<Vec<_>, _>>()?;
    let mut trace = BlockTrace::open(&options.trace, options.options)?;
    each_request(&mut trace, options.requests_max, |request, volume| {
        let mut all = replaying.iter_mut();
        all.try_for_each(|candidate| candidate.serve(request, volume))
    })?;
    let finished = replaying.into_iter();
    Ok(finished.map(|candidate| candidate.finish(facts)).collect())
}
