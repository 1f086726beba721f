//! The journal of a cache of tiny objects. It records key hashes that are dead
//! in older set-groups while their newer value is only in memory, and the
//! set-groups that each instance has.
//!
//! The blocks of notes follow the superblock and are linked as in the chunk
//! engine's journal ([`JournalChain`](crate::layout::JournalChain)). A note:
//!
//! | offset | bytes | fence | gone | written | checkpoint end |
//! |---|---|---|---|---|---|
//! | 0 | 8 | key hash | instance | instance | number of notes before it |
//! | 8 | 8, bits 0 to 55 | below | below | below | zero |
//! | | bits 56 to 63 | 1 | 2 | 3 | 4 |
//!
//! Kind 5 is a set-group's summary that is about to be written: instance and first page, 4 bytes
//! each, and the sequence. Kind 6, zero otherwise, begins writes without fences.

use crate::hash::KeyHash;
use crate::layout::error::LayoutError;
use crate::layout::journal::JournalRecord;
use crate::layout::structure::Structure;
use crate::layout::wire::{first_mut, put_u64, u64_at};

/// Length of a note.
pub const TINY_NOTE_BYTES: usize = 16;

/// Bits of a sequence; the kind is above them.
const SEQUENCE_BITS: u32 = 56;

/// Objects and tombstones of a hash are void in all set-groups with a sequence
/// below this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence {
    /// The key's hash.
    pub hash: KeyHash,
    /// The lowest sequence of a set-group that may have a valid object of the
    /// hash.
    pub below: u64,
}

/// A durable note about a key hash or an instance. Sequences are below 2^56.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TinyNote {
    /// Objects and tombstones of a hash in older set-groups are dead.
    Fence(Fence),
    /// Set-groups of this instance with a lower sequence are gone or not
    /// trusted, although their zone could not be reset.
    Gone {
        /// The instance.
        instance: u32,
        /// The lowest sequence that may still be on flash.
        below: u64,
    },
    /// Set-groups of this instance with a lower sequence were written. If
    /// recovery cannot find the newest of them, it is unreadable, and objects
    /// that it supersedes must not be served.
    Written {
        /// The instance.
        instance: u32,
        /// The lowest sequence not yet written.
        below: u64,
    },
    /// A set-group's summary is about to be written. If recovery can neither find
    /// the set-group nor read its place, its objects may come back later, and its
    /// sequence must not be used again.
    Sealing {
        /// The instance.
        instance: u32,
        /// The first page of the summary.
        page: u32,
        /// The sequence of the set-group.
        sequence: u64,
    },
    /// From here on, writes superseded objects on flash without a fence. If this note counts
    /// when the cache is opened, no object on flash may be served.
    Unfenced,
    /// All notes that counted when this metadata zone was begun are before this
    /// one.
    CheckpointEnd {
        /// Number of notes before it in this metadata zone.
        notes: u64,
    },
}

impl JournalRecord for TinyNote {
    const BLOCK: Structure = Structure::Fences;

    fn encoded_bytes(&self) -> usize {
        TINY_NOTE_BYTES
    }

    fn encode(&self, out: &mut [u8]) -> Result<(), LayoutError> {
        let (kind, first, below) = match *self {
            TinyNote::Fence(Fence { hash, below }) => (1, hash.0, below),
            TinyNote::Gone { instance, below } => (2, u64::from(instance), below),
            TinyNote::Written { instance, below } => (3, u64::from(instance), below),
            TinyNote::CheckpointEnd { notes } => (4, notes, 0),
            TinyNote::Sealing {
                instance,
                page,
                sequence,
            } => (5, u64::from(page) << 32 | u64::from(instance), sequence),
            TinyNote::Unfenced => (6, 0, 0),
        };
        if below >> SEQUENCE_BITS != 0 {
            return Err(LayoutError::Malformed("a sequence of more than 56 bits"));
        }
        let out = first_mut::<TINY_NOTE_BYTES>(out)?;
        put_u64(out, 0, first);
        put_u64(out, 8, kind << SEQUENCE_BITS | below);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (note, rest) = bytes.split_first_chunk::<TINY_NOTE_BYTES>()?;
        let (first, second) = (u64_at(note, 0), u64_at(note, 8));
        let below = second & ((1 << SEQUENCE_BITS) - 1);
        let note = match second >> SEQUENCE_BITS {
            1 => TinyNote::Fence(Fence {
                hash: KeyHash(first),
                below,
            }),
            2 => TinyNote::Gone {
                instance: u32::try_from(first).ok()?,
                below,
            },
            3 => TinyNote::Written {
                instance: u32::try_from(first).ok()?,
                below,
            },
            4 if below == 0 => TinyNote::CheckpointEnd { notes: first },
            5 => TinyNote::Sealing {
                instance: first as u32,
                page: (first >> 32) as u32,
                sequence: below,
            },
            6 if first == 0 && below == 0 => TinyNote::Unfenced,
            _ => return None,
        };
        Some((note, rest))
    }

    fn checkpoint_end(records: u64) -> Self {
        TinyNote::CheckpointEnd { notes: records }
    }

    fn as_checkpoint_end(&self) -> Option<u64> {
        match *self {
            TinyNote::CheckpointEnd { notes } => Some(notes),
            _ => None,
        }
    }
}
