//! The objective: which of several candidates is best.

use serde::Serialize;

use super::candidate::Candidate;

/// The shares by which the choice treats figures as equal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) tolerance: f64,
    pub(super) write_back_saves: f64,
}

/// The figure that told the best candidate from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecidedBy {
    /// Bytes moved on the backing device: no other candidate is within the tolerance.
    BackingBytes,
    /// Bytes written to the cache device.
    CacheWrites,
    /// RAM. Equal candidates are taken in their order.
    Memory,
}

/// The best of several candidates.
pub(super) struct Best<'a> {
    pub(super) candidate: &'a Candidate,
    /// The others within the tolerance of the fewest bytes on the backing device.
    pub(super) tied: Vec<&'a Candidate>,
    pub(super) decided_by: DecidedBy,
}

/// The candidate to take.
pub(super) struct Choice<'a> {
    /// The best candidate of its modes.
    pub(super) best: Best<'a>,
    /// The best one of the other modes: write-back, or those without dirty data.
    pub(super) other: Option<&'a Candidate>,
}

impl Rule {
    /// The candidate that moves the fewest bytes on the backing device; among those
    /// within the tolerance, the one that writes the fewest to the cache device; among
    /// those within the tolerance again, the one with the least memory.
    pub(super) fn best<'a>(
        self,
        candidates: impl IntoIterator<Item = &'a Candidate>,
    ) -> Option<Best<'a>> {
        let candidates = candidates.into_iter().collect();
        let tied = self.least(candidates, |candidate| candidate.backing_bytes);
        let left = self.least(tied.clone(), |candidate| candidate.cache_written.bytes);
        let decided_by = match (tied.len(), left.len()) {
            (1, _) => DecidedBy::BackingBytes,
            (_, 1) => DecidedBy::CacheWrites,
            _ => DecidedBy::Memory,
        };
        let least = left
            .into_iter()
            .min_by_key(|candidate| candidate.memory_bytes);
        least.map(|candidate| Best {
            candidate,
            tied: tied
                .into_iter()
                .filter(|other| other.settings != candidate.settings)
                .collect(),
            decided_by,
        })
    }

    /// The candidates whose figure is within the tolerance of the least.
    fn least(
        self,
        mut candidates: Vec<&Candidate>,
        figure: impl Fn(&Candidate) -> u64,
    ) -> Vec<&Candidate> {
        let least = candidates.iter().map(|candidate| figure(candidate)).min();
        let most = least.unwrap_or_default() as f64 * (1.0 + self.tolerance);
        candidates.retain(|candidate| figure(candidate) as f64 <= most);
        candidates
    }

    /// The best of all candidates. Write-back must save a share of the backing
    /// device's bytes over the best candidate without dirty data.
    pub(super) fn choose(self, candidates: &[Candidate]) -> Option<Choice<'_>> {
        let is_write_back = |candidate: &&Candidate| candidate.settings.is_write_back();
        let write_back = self.best(candidates.iter().filter(is_write_back));
        let safe = self.best(
            candidates
                .iter()
                .filter(|candidate| !is_write_back(candidate)),
        );
        let (write_back, safe) = match (write_back, safe) {
            (Some(write_back), Some(safe)) => (write_back, safe),
            (only, none) => {
                let best = only.or(none)?;
                return Some(Choice { best, other: None });
            }
        };
        let most = safe.candidate.backing_bytes as f64 * (1.0 - self.write_back_saves);
        let (best, other) = match (write_back.candidate.backing_bytes as f64) <= most {
            true => (write_back, safe),
            false => (safe, write_back),
        };
        Some(Choice {
            other: Some(other.candidate),
            best,
        })
    }
}
