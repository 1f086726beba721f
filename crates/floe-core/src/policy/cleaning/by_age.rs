//! Dirty blocks in the order of their last write: 12 bytes for each block of the
//! cache, as in OCF.

use crate::Tick;
use crate::list::{Links, List, NONE};

/// The time of a block that is not dirty.
const NOT_DIRTY: u32 = u32::MAX;

#[derive(Clone, Debug, Default)]
pub(super) struct ByAge {
    list: List,
    links: Vec<Links>,
    /// When a block was last written, in seconds, or [`NOT_DIRTY`].
    written_at: Vec<u32>,
}

impl ByAge {
    pub(super) fn note_dirty(&mut self, block: u32, now: Tick) {
        let at = block as usize;
        if at >= self.links.len() {
            self.links.resize(at + 1, Links::default());
            self.written_at.resize(at + 1, NOT_DIRTY);
        }
        if self.written_at[at] == NOT_DIRTY {
            self.list.push_newest(&mut self.links[..], block);
        } else {
            self.list.refresh(&mut self.links[..], block);
        }
        self.written_at[at] = seconds(now).min(NOT_DIRTY - 1);
    }

    pub(super) fn note_clean(&mut self, block: u32) {
        let Some(written_at) = self.written_at.get_mut(block as usize) else {
            return;
        };
        if std::mem::replace(written_at, NOT_DIRTY) != NOT_DIRTY {
            self.list.unlink(&mut self.links[..], block);
        }
    }

    /// The dirty blocks and the seconds of their last writes, oldest first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = (u32, u32)> {
        let some = |block: u32| (block != NONE).then_some(block);
        let newer = move |block: &u32| some(self.list.newer_than(&self.links[..], *block));
        std::iter::successors(some(self.list.oldest()), newer)
            .map(|block| (block, self.written_at[block as usize]))
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let links = self.links.capacity() * size_of::<Links>();
        (links + self.written_at.capacity() * size_of::<u32>()) as u64
    }
}

/// Whole seconds until `tick`, up to 136 years.
pub(super) fn seconds(tick: Tick) -> u32 {
    u32::try_from(tick.0 / 1_000_000_000).unwrap_or(u32::MAX)
}
