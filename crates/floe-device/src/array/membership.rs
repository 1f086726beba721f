//! The rule by which drives that are found know whether they are the newest of their array:
//! `docs/format.md`, "Which drives count", as pure functions.

use floe_core::layout::ArrayLabel;

/// A label that was in force, and its drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    /// Its id.
    pub(super) id: u64,
    pub(super) epoch: u64,
    /// The drive of each slot. All were found.
    pub(super) drives: Vec<Option<u64>>,
    /// A drive has a newer label, which is not in force. It might open the array later, so a
    /// label that is in force must follow before anything is acknowledged.
    pub(super) is_disputed: bool,
}

/// The reason why no label counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Not all drives are found of a label that may be in force.
    Incomplete {
        /// Those that are found.
        there: usize,
        /// All that the label names.
        of: usize,
    },
    /// The labels contradict each other.
    Conflict,
}

/// The label that counts, given the newest one of each drive that is found. All are of one
/// array.
pub(super) fn choose(found: &[&ArrayLabel]) -> Result<Base, Refusal> {
    let newest = found.iter().map(|label| label.epoch).max();
    let newest = found.iter().filter(|label| Some(label.epoch) == newest);
    let newest: Vec<&ArrayLabel> = newest.copied().collect();
    if let Some(label) = newest.iter().find(|label| is_on_all(label, found)) {
        return Ok(Base::of(label, false));
    }
    if let Some(label) = newest.iter().find(|label| !is_refuted(label, found)) {
        return Err(incomplete(label, found));
    }
    let parent = newest.first().map(|label| label.parent);
    if newest.iter().any(|label| Some(label.parent) != parent) {
        return Err(Refusal::Conflict);
    }
    let parent = found.iter().find(|label| Some(label.id) == parent);
    let parent = parent.ok_or(Refusal::Conflict)?;
    match drives_of(parent).all(|drive| holder(drive, found).is_some()) {
        true => Ok(Base::of(parent, true)),
        false => Err(incomplete(parent, found)),
    }
}

impl Base {
    /// True if a label that names `drives` may follow: one of them at least has been told of
    /// every label so far, so that it tells those who would open the array without it.
    pub(super) fn may_become(&self, drives: &[Option<u64>]) -> bool {
        drives
            .iter()
            .any(|drive| drive.is_some() && self.drives.contains(drive))
    }

    fn of(label: &ArrayLabel, is_disputed: bool) -> Self {
        Base {
            id: label.id,
            epoch: label.epoch,
            drives: label.slots.clone(),
            is_disputed,
        }
    }
}

/// True if all drives that the label names have it: it is in force.
fn is_on_all(label: &ArrayLabel, found: &[&ArrayLabel]) -> bool {
    let has_it = |drive| holder(drive, found).is_some_and(|own| own.id == label.id);
    drives_of(label).all(has_it)
}

/// True if a drive that the label names is found with another one. So it was never in
/// force: a drive that has a label in force gets another one only if that follows it.
fn is_refuted(label: &ArrayLabel, found: &[&ArrayLabel]) -> bool {
    let has_other = |drive| holder(drive, found).is_some_and(|own| own.id != label.id);
    drives_of(label).any(has_other)
}

fn incomplete(label: &ArrayLabel, found: &[&ArrayLabel]) -> Refusal {
    let there = drives_of(label).filter(|drive| holder(*drive, found).is_some());
    Refusal::Incomplete {
        there: there.count(),
        of: drives_of(label).count(),
    }
}

fn drives_of(label: &ArrayLabel) -> impl Iterator<Item = u64> {
    label.slots.iter().flatten().copied()
}

fn holder<'a>(drive: u64, found: &[&'a ArrayLabel]) -> Option<&'a ArrayLabel> {
    found.iter().copied().find(|label| label.drive == drive)
}

#[cfg(test)]
mod tests;
