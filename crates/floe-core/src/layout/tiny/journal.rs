//! The journal of a cache of tiny objects: which hashes are dead in older
//! set-groups, where what says so is only in memory.
//!
//! Behind the superblock come blocks, each padded to whole device blocks and
//! linked to the one before, with the header of the chunk engine's journal
//! ([`JournalChain`]). Kind 1 is notes; kind 2 is notes too, the last of a
//! checkpoint. The count is the fences that follow the header:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | key hash |
//! | 8 | 8 | below: it is dead in set-groups with a lower sequence |

use crate::hash::KeyHash;
use crate::layout::error::LayoutError;
use crate::layout::frame::Frame;
use crate::layout::ids::CacheId;
use crate::layout::journal::{JOURNAL_HEADER_BYTES, JournalChain, block_position};
use crate::layout::structure::Structure;
use crate::layout::wire::{narrow, prefix_mut, put_u64, round_up_len, u64_at};

/// Length of a fence.
pub const FENCE_BYTES: usize = 16;

/// The objects and tombstones of a hash count for nothing in all set-groups
/// with a sequence below this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence {
    /// The key's hash.
    pub hash: KeyHash,
    /// The lowest sequence in which it may live.
    pub below: u64,
}

impl Fence {
    fn put(&self, bytes: &mut [u8; FENCE_BYTES]) {
        put_u64(bytes, 0, self.hash.0);
        put_u64(bytes, 8, self.below);
    }

    fn read(bytes: &[u8; FENCE_BYTES]) -> Self {
        Fence {
            hash: KeyHash(u64_at(bytes, 0)),
            below: u64_at(bytes, 8),
        }
    }
}

/// What a block of fences is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FenceKind {
    /// It only carries fences.
    Notes,
    /// It carries the last of the fences that counted when this metadata zone
    /// was begun, perhaps none. A metadata zone without such a block does not
    /// count: its predecessor does.
    CheckpointEnd,
}

impl FenceKind {
    fn code(self) -> u16 {
        match self {
            FenceKind::Notes => 1,
            FenceKind::CheckpointEnd => 2,
        }
    }

    fn from_code(code: u16) -> Result<Self, LayoutError> {
        match code {
            1 => Ok(FenceKind::Notes),
            2 => Ok(FenceKind::CheckpointEnd),
            _ => Err(LayoutError::Malformed("fences of unknown kind")),
        }
    }
}

/// A checked block of fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceBlock<'a> {
    /// What it is for.
    pub kind: FenceKind,
    fences: &'a [[u8; FENCE_BYTES]],
    encoded_bytes: usize,
}

impl<'a> FenceBlock<'a> {
    /// How many fences fill one device block.
    pub fn capacity(block_size: u32) -> usize {
        (block_size as usize).saturating_sub(JOURNAL_HEADER_BYTES) / FENCE_BYTES
    }

    /// Length of a block with so many fences; one device block up to
    /// [`capacity`](Self::capacity).
    pub fn bytes_for(fences: usize, block_size: u32) -> usize {
        round_up_len(
            JOURNAL_HEADER_BYTES.saturating_add(fences.saturating_mul(FENCE_BYTES)),
            block_size,
        )
    }

    /// Writes the chain's next block and steps past it. Returns its length.
    ///
    /// # Errors
    /// [`LayoutError::TooShort`] if `out` is shorter than
    /// [`bytes_for`](Self::bytes_for) says; the chain is then as before.
    pub fn encode(
        chain: &mut JournalChain,
        block_size: u32,
        kind: FenceKind,
        fences: &[Fence],
        out: &mut [u8],
    ) -> Result<usize, LayoutError> {
        let out = prefix_mut(out, Self::bytes_for(fences.len(), block_size))?;
        out.fill(0);
        let covered = prefix_mut(out, JOURNAL_HEADER_BYTES + fences.len() * FENCE_BYTES)?;
        let (slots, _) = covered[JOURNAL_HEADER_BYTES..].as_chunks_mut();
        for (slot, fence) in slots.iter_mut().zip(fences) {
            fence.put(slot);
        }
        let frame = Frame {
            structure: Structure::Fences,
            kind: kind.code(),
            count: narrow(fences.len())?,
        };
        chain.seal_next(frame, covered)?;
        Ok(out.len())
    }

    /// Reads the chain's next block, which `bytes` start with, and steps past
    /// it.
    ///
    /// # Errors
    /// Any error means that the journal ended before these bytes, except
    /// [`LayoutError::TooShort`], which may mean that a longer block is cut off;
    /// the chain is then as before. [`LayoutError::Malformed`] for a block of
    /// another epoch or not the next one.
    pub fn decode(
        chain: &mut JournalChain,
        block_size: u32,
        bytes: &'a [u8],
    ) -> Result<Self, LayoutError> {
        let (opened, fences) = chain.open_next(Structure::Fences, bytes)?;
        let kind = FenceKind::from_code(opened.kind)?;
        chain.step(&opened);
        Ok(FenceBlock {
            kind,
            fences,
            encoded_bytes: Self::bytes_for(fences.len(), block_size),
        })
    }

    /// Its fences, in order.
    pub fn fences(&self) -> impl ExactSizeIterator<Item = Fence> + use<'a> {
        self.fences.iter().map(Fence::read)
    }

    /// Its length, padding included: where the next one starts.
    pub fn encoded_bytes(&self) -> usize {
        self.encoded_bytes
    }
}

/// The epoch and number of the block of fences that `bytes` start with,
/// wherever in the chain it stands: tells a journal that ended from one with a
/// damaged block in its middle.
///
/// # Errors
/// As every decoder.
pub fn fence_block_position(id: CacheId, bytes: &[u8]) -> Result<(u64, u64), LayoutError> {
    block_position(id, Structure::Fences, bytes)
}
