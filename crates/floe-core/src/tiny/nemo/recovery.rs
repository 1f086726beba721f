//! Nemo after a restart, from the summaries that lie on flash.

use super::config::NemoPlan;
use super::directory::Nemo;
use super::extents::{Extent, Owner};
use super::filters::Shape;
use super::index::Group;
use crate::hash::KeyHash;
use crate::tiny::engine::Summary;

/// An extent with a whole summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Its number: its first page is that times [`NemoPlan::extent_pages`].
    pub extent: u32,
    /// Its summary; the filters may be left out at first.
    pub summary: Summary,
}

/// The survivors that are believed, and those whose filters must be read.
///
/// Set-groups are believed only as a run without gaps up to the newest: behind
/// a gap an older copy could come back of what a missing set-group replaced.
/// Where the newest itself is missing, which index groups or a journal know to
/// have been there, nothing is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    groups: Vec<Survivor>,
    set_groups: Vec<Survivor>,
    /// How many of the set-groups, from the oldest, index groups speak of.
    indexed: usize,
    /// Sequence of the next set-group. No number is used twice.
    next: u64,
    /// Survivors that are not believed.
    pub disbelieved: usize,
}

/// Facts about set-groups that the metadata log holds, not their summaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Those before this one are gone.
    pub oldest: u64,
    /// Those before this one were written.
    pub next: u64,
}

impl Recovery {
    /// Sorts out what survived.
    pub fn new(survivors: Vec<Survivor>, known: Known) -> Self {
        let all = survivors.len();
        let (mut groups, mut set_groups): (Vec<Survivor>, Vec<Survivor>) = survivors
            .into_iter()
            .filter(|survivor| sane(&survivor.summary))
            .partition(|survivor| survivor.summary.of_index);
        let oldest = groups
            .iter()
            .chain(&set_groups)
            .map(|survivor| survivor.summary.oldest)
            .max()
            .unwrap_or(0)
            .max(known.oldest);
        for list in [&mut groups, &mut set_groups] {
            list.sort_unstable_by_key(|survivor| survivor.summary.sequence);
            // A summary whose write failed may be there all the same, beside
            // that of the second attempt. They say the same.
            list.dedup_by_key(|survivor| survivor.summary.sequence);
        }
        let found = set_groups
            .last()
            .map_or(0, |newest| newest.summary.sequence + 1);
        let spoken_of = groups.iter().map(end).max().unwrap_or(0);
        let next = found.max(spoken_of).max(known.next).max(oldest);
        if found < next {
            // The newest could not be read.
            set_groups.clear();
        }
        set_groups.retain(|survivor| survivor.summary.sequence >= oldest);
        keep_unbroken(&mut set_groups);
        let indexed = keep_indexed(&mut groups, &mut set_groups);
        Recovery {
            disbelieved: all - groups.len() - set_groups.len(),
            groups,
            set_groups,
            indexed,
            next,
        }
    }

    /// Sequence of the oldest set-group that is believed, or of the next one.
    pub fn oldest(&self) -> u64 {
        let first = self.set_groups.first();
        first.map_or(self.next, |first| first.summary.sequence)
    }

    /// The set-groups whose [`Summary::filters`] must be read: no index group
    /// speaks of them.
    pub fn unindexed(&mut self) -> &mut [Survivor] {
        &mut self.set_groups[self.indexed..]
    }

    /// Set-groups that are believed.
    pub fn set_groups(&self) -> usize {
        self.set_groups.len()
    }

    /// Objects in them.
    pub fn objects(&self) -> u64 {
        self.set_groups
            .iter()
            .map(|survivor| survivor.summary.objects)
            .sum()
    }
}

/// Keeps the longest run of consecutive sequences that ends with the newest.
fn keep_unbroken(set_groups: &mut Vec<Survivor>) {
    let sequences: Vec<u64> = set_groups
        .iter()
        .map(|survivor| survivor.summary.sequence)
        .collect();
    let breaks = sequences
        .windows(2)
        .rposition(|pair| pair[0].checked_add(1) != Some(pair[1]));
    if let Some(at) = breaks {
        set_groups.drain(..=at);
    }
}

/// Keeps what index groups speak of without a gap, and the set-groups behind
/// them; returns how many of the set-groups are spoken of.
fn keep_indexed(groups: &mut Vec<Survivor>, set_groups: &mut Vec<Survivor>) -> usize {
    let Some(oldest) = set_groups.first().map(|first| first.summary.sequence) else {
        groups.clear();
        return 0;
    };
    let newest = oldest + set_groups.len() as u64;
    groups.retain(|group| end(group) > oldest && end(group) <= newest);
    // Each begins where the one before ended.
    let breaks = (1..groups.len())
        .rev()
        .find(|at| end(&groups[at - 1]) != groups[*at].summary.sequence);
    if let Some(at) = breaks {
        groups.drain(..at);
    }
    let Some(first) = groups.first().map(|group| group.summary.sequence) else {
        keep_open(set_groups, 0);
        return 0;
    };
    if first > oldest {
        set_groups.drain(..(first - oldest) as usize);
    }
    let indexed = groups
        .last()
        .map_or(0, |last| end(last) - oldest.max(first)) as usize;
    if keep_open(set_groups, indexed) {
        return indexed;
    }
    groups.clear();
    0
}

/// The set-groups from `indexed` on must fit one index group, of one shape.
/// Where they do not, for their index group is lost, all older ones go; says
/// whether none had to.
fn keep_open(set_groups: &mut Vec<Survivor>, indexed: usize) -> bool {
    let Some(newest) = set_groups.last().map(|last| shape_of(&last.summary)) else {
        return true;
    };
    let open = set_groups[indexed..]
        .iter()
        .rev()
        .take_while(|survivor| shape_of(&survivor.summary) == newest)
        .take(newest.columns as usize)
        .count();
    let whole = indexed + open == set_groups.len();
    if !whole {
        set_groups.drain(..set_groups.len() - open);
    }
    whole
}

fn end(group: &Survivor) -> u64 {
    group
        .summary
        .sequence
        .saturating_add(u64::from(group.summary.columns))
}

fn shape_of(summary: &Summary) -> Shape {
    if summary.of_index {
        return Shape::of_index_group(summary.columns, summary.rows, summary.probes);
    }
    // Of a set-group there are Bloom filters, whatever its index group was to
    // be: it will be one of Bloom filters.
    Shape {
        columns: summary.columns,
        rows: summary.rows,
        probes: summary.probes,
        buckets: 0,
    }
}

/// Whether a summary is one that an engine could have written.
fn sane(summary: &Summary) -> bool {
    shape_of(summary).is_sane() && summary.sequence < u64::MAX / 2
}

impl Summary {
    /// The filters of a set-group whose summary has none: of each set, in
    /// order, the hashes of its objects, or `None` if it cannot be read. Then
    /// its filter says that everything may be there.
    pub fn filters_of(&self, sets: &[Option<Vec<KeyHash>>]) -> Box<[u8]> {
        let shape = shape_of(self);
        let hashes = sets.iter().map(|set| set.iter().flatten().copied());
        let mut bits = shape.filters_of(hashes);
        for (at, set) in sets.iter().enumerate() {
            if set.is_none() {
                let start = at * shape.rows as usize;
                for bit in start..start + shape.rows as usize {
                    bits[bit / 8] |= 1 << (bit % 8);
                }
            }
        }
        bits
    }
}

impl Nemo {
    /// The engine as it was, as far as flash tells. `written` says of a zone
    /// whether anything may lie in it; such zones are reset before they are
    /// used, unless something in them is believed.
    pub fn recover(plan: NemoPlan, recovery: &Recovery, written: impl Fn(u32) -> bool) -> Self {
        let mut nemo = Nemo::new(plan);
        let oldest = recovery.oldest();
        let used: Vec<(Extent, Owner)> = recovery
            .groups
            .iter()
            .map(|group| {
                (
                    Extent(group.extent),
                    Owner::IndexGroup(group.summary.sequence),
                )
            })
            .chain(recovery.set_groups.iter().map(|set_group| {
                (
                    Extent(set_group.extent),
                    Owner::SetGroup(set_group.summary.sequence),
                )
            }))
            .collect();
        nemo.extents.recover(&used, written);
        nemo.pool.start_at(oldest);
        for survivor in &recovery.set_groups {
            nemo.pool
                .push(Extent(survivor.extent), survivor.summary.objects);
        }
        let open = &recovery.set_groups[recovery.indexed..];
        let shape = open
            .first()
            .map_or(nemo.index.open.shape, |first| shape_of(&first.summary));
        let open_first = recovery.groups.last().map_or(oldest, end);
        let groups = recovery
            .groups
            .iter()
            .map(|group| Group {
                shape: shape_of(&group.summary),
                first: group.summary.sequence,
                extent: Extent(group.extent),
            })
            .collect();
        nemo.durable = nemo.pool.next();
        nemo.filter_objects = shape.objects();
        nemo.index.recover(groups, shape, open_first);
        for survivor in open {
            nemo.index.open.push_filters(&survivor.summary.filters);
        }
        nemo.allow_for_false_positives();
        if nemo.index.open.is_full() {
            nemo.flush.begin();
        }
        nemo
    }
}
