//! Rebuilds Nemo after a restart, from the summaries on flash.

use super::config::NemoPlan;
use super::directory::Nemo;
use super::extents::{Extent, Owner};
use super::filters::Shape;
use super::index::Group;
use super::page_filter::PageFilterShape;
use crate::hash::KeyHash;
use crate::tiny::engine::Summary;

/// An extent with a readable summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// The extent's number. Its first page is the number times
    /// [`NemoPlan::extent_pages`].
    pub extent: u32,
    /// The extent's summary. Its filters may be added later.
    pub summary: Summary,
}

/// The survivors that are accepted, and those whose filters must be read.
///
/// Set-groups are accepted only as a run of sequences without a gap that ends
/// with the newest. Otherwise an older copy could come back whose newer copy
/// was in a missing set-group. If index groups or the metadata log show that
/// the newest set-group itself is missing, all are rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    groups: Vec<Survivor>,
    set_groups: Vec<Survivor>,
    /// Number of the oldest set-groups that index groups cover.
    indexed: usize,
    /// Sequence of the next set-group. No sequence is used twice.
    next: u64,
    /// Number of survivors that are rejected.
    pub rejected: usize,
}

/// Bounds of the sequences of set-groups, from the metadata log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoggedBounds {
    /// Set-groups before this one were evicted.
    pub oldest: u64,
    /// Set-groups before this one were written.
    pub next: u64,
}

impl Recovery {
    /// Decides which survivors are accepted.
    pub fn new(survivors: Vec<Survivor>, logged: LoggedBounds) -> Self {
        let all = survivors.len();
        let (mut groups, mut set_groups): (Vec<Survivor>, Vec<Survivor>) = survivors
            .into_iter()
            .filter(|survivor| is_valid(&survivor.summary))
            .partition(|survivor| survivor.summary.of_index);
        let oldest = groups
            .iter()
            .chain(&set_groups)
            .map(|survivor| survivor.summary.oldest)
            .max()
            .unwrap_or(0)
            .max(logged.oldest);
        for list in [&mut groups, &mut set_groups] {
            list.sort_unstable_by_key(|survivor| survivor.summary.sequence);
            // A summary whose write failed may be on flash next to that of the
            // second attempt. Both have the same content.
            list.dedup_by_key(|survivor| survivor.summary.sequence);
        }
        let found = set_groups
            .last()
            .map_or(0, |newest| newest.summary.sequence + 1);
        let indexed_end = groups.iter().map(end).max().unwrap_or(0);
        let next = found.max(indexed_end).max(logged.next).max(oldest);
        if found < next {
            // The newest set-group is missing.
            set_groups.clear();
        }
        set_groups.retain(|survivor| survivor.summary.sequence >= oldest);
        keep_unbroken(&mut set_groups);
        let indexed = keep_indexed(&mut groups, &mut set_groups);
        Recovery {
            rejected: all - groups.len() - set_groups.len(),
            groups,
            set_groups,
            indexed,
            next,
        }
    }

    /// Sequence of the oldest accepted set-group, or of the next one if none is
    /// accepted.
    pub fn oldest(&self) -> u64 {
        let first = self.set_groups.first();
        first.map_or(self.next, |first| first.summary.sequence)
    }

    /// The accepted set-groups that no index group covers. Their
    /// [`Summary::filters`] must be read.
    pub fn unindexed(&mut self) -> &mut [Survivor] {
        &mut self.set_groups[self.indexed..]
    }

    /// Number of accepted set-groups.
    pub fn set_groups(&self) -> usize {
        self.set_groups.len()
    }

    /// Number of objects in the accepted set-groups.
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

/// Keeps the newest index groups without a gap between them, the set-groups
/// that they cover, and the set-groups behind these. Returns the number of
/// covered set-groups.
fn keep_indexed(groups: &mut Vec<Survivor>, set_groups: &mut Vec<Survivor>) -> usize {
    let Some(oldest) = set_groups.first().map(|first| first.summary.sequence) else {
        groups.clear();
        return 0;
    };
    let newest = oldest + set_groups.len() as u64;
    groups.retain(|group| end(group) > oldest && end(group) <= newest);
    // Each index group must begin where the previous one ends.
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

/// Checks that the set-groups from `indexed` on fit one open index group, all
/// of one shape. If they do not, because their index group is lost, drops all
/// older set-groups. Returns whether none had to be dropped.
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
        return Shape::of_index_group(
            summary.columns,
            summary.rows,
            summary.probes,
            summary.page_filter,
        );
    }
    // A set-group's summary has Bloom filters, even if its index group was to
    // have fingerprints. The recovered index group has Bloom filters, too, and
    // no page filters.
    Shape {
        columns: summary.columns,
        rows: summary.rows,
        probes: summary.probes,
        buckets: 0,
        page_filter: PageFilterShape::NONE,
    }
}

/// True if an engine could have written the summary.
fn is_valid(summary: &Summary) -> bool {
    shape_of(summary).is_valid() && summary.sequence < u64::MAX / 2
}

impl Summary {
    /// Builds the filters of a set-group whose summary has none. `sets` has the
    /// hashes of each set's objects, or `None` if the set cannot be read. Its
    /// filter then matches every key.
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

/// A restart may load as many times the configured bytes of page filters: page filters have whole
/// lines, and a group that has none takes more.
const LOAD_SLACK: f64 = 1.25;

impl Nemo {
    /// Rebuilds the engine from what recovery accepted. `written` tells whether
    /// anything may lie in a zone. Such a zone is reset before it is used,
    /// unless it holds something accepted.
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
            .map(|group| {
                let (shape, first) = (shape_of(&group.summary), group.summary.sequence);
                Group {
                    shape,
                    first,
                    extent: Extent(group.extent),
                    wrong: nemo.wrong_of(shape, first..end(group)),
                }
            })
            .collect();
        nemo.durable = nemo.pool.next();
        nemo.filter_objects = shape.objects();
        // Objects may be shorter than the plan expects.
        let bits = nemo.plan.config.page_filter_bits * nemo.pool.objects() as f64;
        let load_bytes = (bits * LOAD_SLACK / 8.0) as u64;
        nemo.index.recover(groups, shape, open_first, load_bytes);
        for survivor in open {
            nemo.index.open.push_filters(&survivor.summary.filters);
        }
        nemo.index.open_wrong = nemo.wrong_of(shape, open_first..nemo.pool.next());
        nemo.update_candidates_max();
        if nemo.index.open.is_full() {
            nemo.flush.begin();
        }
        nemo
    }
}
