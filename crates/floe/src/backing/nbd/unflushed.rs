//! The changes since the last flush, with their content.
//!
//! A server that dies may lose every change that was not flushed, answered or not. The
//! client repeats those here after it has connected again, so that a later flush covers
//! them. Of overlapping changes only the newest content of each byte is kept: an older
//! one that lands late could not be told from a newer one.

use std::collections::BTreeMap;
use std::ops::Range;

use floe_device::IoData;

/// The new content of a range.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Data(IoData),
    Zeroes,
    Discarded,
}

/// The change of a range.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) range: Range<u64>,
    pub(super) content: Content,
}

impl Change {
    /// The bytes that travel to the server.
    pub(super) fn payload(&self) -> Option<&IoData> {
        match &self.content {
            Content::Data(data) => Some(data),
            Content::Zeroes | Content::Discarded => None,
        }
    }

    /// The part of the change in `range`, which lies inside.
    fn part(&self, range: Range<u64>) -> Change {
        let content = match &self.content {
            Content::Data(data) => {
                let from = (range.start - self.range.start) as usize;
                let len = (range.end - range.start) as usize;
                Content::Data(data.slice(from..from + len))
            }
            other => other.clone(),
        };
        Change { range, content }
    }
}

/// The newest content of every byte that was changed and not flushed.
#[derive(Debug, Default)]
pub(super) struct Unflushed {
    pieces: BTreeMap<u64, Piece>,
    bytes: u64,
}

#[derive(Debug)]
struct Piece {
    change: Change,
    /// The number of changes that had ended when this one did; `None` before.
    ended: Option<u64>,
}

impl Piece {
    /// Memory of the piece.
    fn bytes(&self) -> u64 {
        let data = self.change.payload().map_or(0, |data| data.len() as u64);
        data + 2 * size_of::<Piece>() as u64
    }
}

impl Unflushed {
    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a change that has started. It replaces what it overlaps.
    pub(super) fn start(&mut self, change: Change) {
        let range = change.range.clone();
        while let Some(at) = self.first_in(&range) {
            let Some(piece) = self.remove(at) else { break };
            let old = piece.change.range.clone();
            for rest in [old.start..range.start, range.end..old.end] {
                if rest.start < rest.end {
                    self.add(Piece {
                        change: piece.change.part(rest),
                        ended: piece.ended,
                    });
                }
            }
        }
        self.add(Piece {
            change,
            ended: None,
        });
    }

    /// Notes that the change of `range` is the `number`-th that has ended.
    pub(super) fn end(&mut self, range: &Range<u64>, number: u64) {
        for piece in self.pieces.range_mut(range.start..range.end) {
            piece.1.ended = Some(number);
        }
    }

    /// Notes that all changes have ended.
    pub(super) fn end_all(&mut self, number: u64) {
        for piece in self.pieces.values_mut() {
            piece.ended = piece.ended.or(Some(number));
        }
    }

    /// Forgets the first `number` changes that have ended: they were flushed.
    pub(super) fn forget(&mut self, number: u64) {
        let is_kept = |piece: &Piece| piece.ended.is_none_or(|ended| ended > number);
        self.pieces.retain(|_, piece| is_kept(piece));
        self.bytes = self.pieces.values().map(Piece::bytes).sum();
    }

    /// True if a change of a byte of `range` has not ended.
    pub(super) fn is_changing(&self, range: &Range<u64>) -> bool {
        let before = self.pieces.range(..range.end).rev();
        let mut overlapping = before.take_while(|(_, piece)| piece.change.range.end > range.start);
        overlapping.any(|(_, piece)| piece.ended.is_none())
    }

    /// All changes, without overlaps.
    pub(super) fn changes(&self) -> impl Iterator<Item = Change> {
        self.pieces.values().map(|piece| piece.change.clone())
    }

    /// The key of a piece that overlaps `range`.
    fn first_in(&self, range: &Range<u64>) -> Option<u64> {
        let (at, piece) = self.pieces.range(..range.end).next_back()?;
        (piece.change.range.end > range.start).then_some(*at)
    }

    fn add(&mut self, piece: Piece) {
        self.bytes += piece.bytes();
        self.pieces.insert(piece.change.range.start, piece);
    }

    fn remove(&mut self, at: u64) -> Option<Piece> {
        let piece = self.pieces.remove(&at)?;
        self.bytes -= piece.bytes();
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floe_device::IoBuf;
    use proptest::prelude::*;

    fn data(range: Range<u64>, byte: u8) -> Change {
        let mut buf = IoBuf::zeroed((range.end - range.start) as usize);
        buf.fill(byte);
        Change {
            range,
            content: Content::Data(buf.freeze()),
        }
    }

    /// Bytes of the unit in which data can be cut.
    const BLOCK: u64 = 512;

    /// The content of a server that lost everything, once all changes are repeated.
    fn repeated(unflushed: &Unflushed) -> Vec<u8> {
        let mut bytes = vec![0; 64 * BLOCK as usize];
        for change in unflushed.changes() {
            let range = change.range.start as usize..change.range.end as usize;
            match change.content {
                Content::Data(data) => bytes[range].copy_from_slice(&data),
                Content::Zeroes | Content::Discarded => bytes[range].fill(0),
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn repeating_yields_the_newest_content(
            changes in proptest::collection::vec((0_u64..56, 1_u64..8, 1_u8..), 0..40),
        ) {
            let mut unflushed = Unflushed::default();
            let mut model = vec![0; 64 * BLOCK as usize];
            for (number, (at, len, byte)) in (1..).zip(changes) {
                let range = at * BLOCK..(at + len) * BLOCK;
                unflushed.start(data(range.clone(), byte));
                prop_assert!(unflushed.is_changing(&(range.end - 1..range.end)));
                unflushed.end(&range, number);
                prop_assert!(!unflushed.is_changing(&(0..64 * BLOCK)));
                model[range.start as usize..range.end as usize].fill(byte);
                prop_assert_eq!(repeated(&unflushed), model.clone());
            }
            unflushed.forget(u64::MAX);
            prop_assert_eq!(unflushed.bytes(), 0);
        }
    }

    #[test]
    fn a_flush_covers_what_had_ended_before() {
        let mut unflushed = Unflushed::default();
        let (first, second) = (0..BLOCK, BLOCK..2 * BLOCK);
        unflushed.start(data(first.clone(), 1));
        unflushed.end(&first, 1);
        unflushed.start(data(second.clone(), 2));
        unflushed.forget(1);
        assert_eq!(
            unflushed.changes().next().map(|change| change.range),
            Some(second.clone())
        );
        unflushed.end(&second, 2);
        unflushed.forget(1);
        assert_eq!(unflushed.changes().count(), 1);
        unflushed.forget(2);
        assert_eq!(unflushed.changes().count(), 0);
    }
}
