//! The journal of a cache of tiny objects: which hashes are dead in older
//! set-groups while only memory holds what replaced them, and which set-groups
//! of an instance there are.
//!
//! Behind the superblock come blocks of notes, linked as the chunk engine's
//! journal is ([`JournalChain`](crate::layout::JournalChain)). A note:
//!
//! | offset | bytes | fence | gone | written | checkpoint end |
//! |---|---|---|---|---|---|
//! | 0 | 8 | key hash | instance | instance | number of notes before it |
//! | 8 | 8, bits 0 to 55 | below | below | below | zero |
//! | | bits 56 to 63 | 1 | 2 | 3 | 4 |

use crate::hash::KeyHash;
use crate::layout::error::LayoutError;
use crate::layout::journal::JournalRecord;
use crate::layout::structure::Structure;
use crate::layout::wire::{first_mut, put_u64, u64_at};

/// Length of a note.
pub const TINY_NOTE_BYTES: usize = 16;

/// Bits of a sequence; the kind stands above them.
const SEQUENCE_BITS: u32 = 56;

/// The objects and tombstones of a hash count for nothing in all set-groups
/// with a sequence below this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence {
    /// The key's hash.
    pub hash: KeyHash,
    /// The lowest sequence in which it may live.
    pub below: u64,
}

/// Something the journal remembers. Sequences are below 2^56.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TinyNote {
    /// The objects and tombstones of a hash in older set-groups are dead.
    Fence(Fence),
    /// Set-groups of this instance with a lower sequence are gone, though
    /// their zone could not be emptied, or they are not believed.
    Gone {
        /// The instance.
        instance: u32,
        /// The lowest sequence that may be there.
        below: u64,
    },
    /// Set-groups of this instance with a lower sequence were written. If the
    /// newest cannot be found after a crash, then it cannot be read, and what
    /// it outdates must not be taken for the newest.
    Written {
        /// The instance.
        instance: u32,
        /// The lowest sequence that was not written.
        below: u64,
    },
    /// All notes that counted when this metadata zone was begun stand before
    /// this one.
    CheckpointEnd {
        /// How many notes stand before it in this metadata zone.
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
