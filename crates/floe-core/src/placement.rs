//! Streams of writes, and the placement handles that they get.
//!
//! If data that is freed together is also written together, a drive with flexible
//! data placement (FDP) has nothing to move before it erases. A store names the
//! streams that it writes, and [`Handles`] shares the drive's handles out among them.

use std::collections::BTreeMap;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// An FDP reclaim-unit handle: separates a write from data of other
/// lifetimes. Devices without handles ignore it; a handle at or above
/// [`Geometry::placement_handles`](crate::Geometry::placement_handles) is taken
/// modulo that number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placement(pub u16);

impl Placement {
    /// The handle of [`Stream::Metadata`] in every store.
    pub const METADATA: Placement = Placement(0);
}

/// Data of one lifetime and one place of writing.
///
/// The order is that in which kinds of streams share a handle if there are too few:
/// neighbours first, of which the earlier ones write less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Superblocks, logs and tables: little data, soon replaced.
    Metadata,
    /// Values that host GC moved, which live longer than new ones.
    Moved,
    /// New values, by the open zone that takes them, numbered from zero.
    New(u32),
    /// Index pages of an instance of a tiny engine.
    Index(u32),
    /// Pages of objects that an instance of a tiny engine appends.
    Appended(u32),
    /// Pages that an instance of a tiny engine writes in place.
    InPlace(u32),
}

impl Stream {
    /// The first stream of the same kind, and this one's number in the kind.
    fn split(self) -> (Stream, u32) {
        match self {
            Stream::New(number) => (Stream::New(0), number),
            Stream::Index(number) => (Stream::Index(0), number),
            Stream::InPlace(number) => (Stream::InPlace(0), number),
            Stream::Appended(number) => (Stream::Appended(0), number),
            Stream::Metadata | Stream::Moved => (self, 0),
        }
    }
}

/// The handles of a store's streams.
///
/// Each stream has its own if there are enough. If not, streams of one kind share
/// before those of different kinds do, and the metadata shares first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handles(BTreeMap<Stream, Range<u16>>);

impl Handles {
    /// Shares `count` handles out among `streams`, which are distinct and have the
    /// metadata among them.
    pub fn new(count: u16, streams: impl IntoIterator<Item = Stream>) -> Self {
        let mut kinds: BTreeMap<Stream, u32> = BTreeMap::new();
        for stream in streams {
            *kinds.entry(stream.split().0).or_default() += 1;
        }
        let (count, kind_count) = (usize::from(count.max(1)), kinds.len());
        let sizes: Vec<u32> = kinds.values().copied().collect();
        let mut widths = vec![1; kind_count];
        // Handles beyond one for each kind go where most streams share one.
        for _ in kind_count..count {
            let streams_per_handle = |&kind: &usize| sizes[kind].div_ceil(widths[kind]);
            match (0..kind_count).max_by_key(streams_per_handle) {
                Some(kind) if sizes[kind] > widths[kind] => widths[kind] += 1,
                _ => break,
            }
        }
        let mut next = 0;
        let ranges = widths.iter().enumerate().map(|(rank, &width)| {
            let first = match count < kind_count {
                true => (rank * count / kind_count) as u16,
                false => next,
            };
            // There are no more of them than `count`.
            next = first + width as u16;
            first..next
        });
        Handles(kinds.into_keys().zip(ranges).collect())
    }

    /// The handle of `stream`.
    pub fn of(&self, stream: Stream) -> Placement {
        let (kind, number) = stream.split();
        let handle = self.0.get(&kind).map_or(0, |range| {
            range.start + (number % range.len() as u32) as u16
        });
        Placement(handle)
    }
}
