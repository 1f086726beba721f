//! A queue of 64 levels, as dm-cache's SMQ has three of: entries rise by hits, and
//! levels are kept equally long, so that a level says how an entry compares with
//! all others and nothing has to be aged.

use crate::list::{Linked, Links, List, NONE};

/// The number of levels.
pub(super) const LEVELS: usize = 64;
/// Levels that hold a fixed number of entries, if a queue has such.
const TOP_LEVELS: usize = 8;

/// The level and links of each entry, shared by queues over the same entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    links: Vec<Links>,
    levels: Vec<u8>,
}

impl Entries {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Entries {
            links: Vec::with_capacity(capacity),
            levels: Vec::with_capacity(capacity),
        }
    }

    /// Adds an entry in level 0 of no queue.
    pub(super) fn add(&mut self) -> u32 {
        self.links.push(Links::default());
        self.levels.push(0);
        self.links.len() as u32 - 1
    }

    pub(super) fn level(&self, id: u32) -> usize {
        usize::from(self.levels[id as usize])
    }

    pub(super) fn set_level(&mut self, id: u32, level: usize) {
        self.levels[id as usize] = level as u8;
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.links.capacity() * size_of::<Links>() + self.levels.capacity()) as u64
    }
}

impl Linked for Entries {
    fn links(&self, id: u32) -> Links {
        self.links[id as usize]
    }

    fn links_mut(&mut self, id: u32) -> &mut Links {
        &mut self.links[id as usize]
    }
}

/// The queue. It keeps an entry in the list of its level.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    lists: [List; LEVELS],
    counts: [usize; LEVELS],
    /// Entries that the top eight levels share, instead of an equal part.
    in_top: Option<usize>,
}

impl Levels {
    /// An empty queue.
    pub(super) fn new(in_top: Option<usize>) -> Self {
        Levels {
            lists: [List::EMPTY; LEVELS],
            counts: [0; LEVELS],
            in_top,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Adds `id` to its level, as the entry that rises next.
    pub(super) fn push(&mut self, entries: &mut Entries, id: u32) {
        let level = entries.level(id);
        self.lists[level].push_newest(entries, id);
        self.counts[level] += 1;
    }

    /// Adds `id` to its level, as the entry that leaves next.
    pub(super) fn push_oldest(&mut self, entries: &mut Entries, id: u32) {
        let level = entries.level(id);
        self.lists[level].push_oldest(entries, id);
        self.counts[level] += 1;
    }

    /// Removes `id`, which is in this queue.
    pub(super) fn remove(&mut self, entries: &mut Entries, id: u32) {
        let level = entries.level(id);
        self.lists[level].unlink(entries, id);
        self.counts[level] -= 1;
    }

    /// Removes the coldest entry: the oldest of the lowest level.
    pub(super) fn pop(&mut self, entries: &mut Entries) -> Option<u32> {
        self.pop_from(entries, 0)
    }

    /// Lets `id` rise by `jump` levels. The oldest entry there takes its place,
    /// so that levels keep their lengths. Without a jump `id` becomes the newest
    /// of its level.
    pub(super) fn requeue(&mut self, entries: &mut Entries, id: u32, jump: usize) {
        let from = entries.level(id);
        let to = (from + jump).min(LEVELS - 1);
        let swapped = self.lists[to].oldest();
        if to != from && swapped != NONE {
            self.remove(entries, swapped);
            entries.set_level(swapped, from);
            self.push(entries, swapped);
        }
        self.remove(entries, id);
        entries.set_level(id, to);
        self.push(entries, id);
    }

    /// Moves entries between neighbouring levels until all have their lengths:
    /// the newest go up, the oldest come down.
    pub(super) fn redistribute(&mut self, entries: &mut Entries) {
        let targets = self.targets();
        for (level, target) in targets.into_iter().enumerate().take(LEVELS - 1) {
            while self.counts[level] < target {
                let Some(id) = self.pop_from(entries, level + 1) else {
                    break;
                };
                entries.set_level(id, level);
                self.push(entries, id);
            }
            while self.counts[level] > target {
                let id = self.lists[level].newest();
                self.remove(entries, id);
                entries.set_level(id, level + 1);
                self.push(entries, id);
            }
        }
    }

    /// The lengths that levels should have.
    fn targets(&self) -> [usize; LEVELS] {
        let mut targets = [0; LEVELS];
        let len = self.len();
        let (below, top) = targets.split_at_mut(LEVELS - TOP_LEVELS);
        match self.in_top {
            None => share(len, &mut targets),
            Some(in_top) => {
                share(in_top.min(len), top);
                share(len.saturating_sub(in_top), below);
            }
        }
        targets
    }

    /// Removes the oldest entry of the lowest level from `level` upwards.
    fn pop_from(&mut self, entries: &mut Entries, level: usize) -> Option<u32> {
        let level = (level..LEVELS).find(|level| self.counts[*level] > 0)?;
        let id = self.lists[level].oldest();
        self.remove(entries, id);
        Some(id)
    }
}

/// Divides `count` over `targets`; the first ones take the remainder.
fn share(count: usize, targets: &mut [usize]) {
    let (each, rest) = (count / targets.len(), count % targets.len());
    for (at, target) in targets.iter_mut().enumerate() {
        *target = each + usize::from(at < rest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lengths(levels: &Levels) -> Vec<usize> {
        levels.counts.to_vec()
    }

    proptest! {
        /// Whatever happened before, redistribution makes levels equally long and
        /// loses nothing, and pops come out in the order of levels.
        #[test]
        fn levels_are_equally_long_after_redistribution(
            hits in prop::collection::vec((0_u32..200, 0_usize..5), 0..600),
            in_top in prop::option::of(0_usize..64),
        ) {
            let mut entries = Entries::with_capacity(200);
            let mut levels = Levels::new(in_top);
            for _ in 0..200 {
                let id = entries.add();
                levels.push(&mut entries, id);
            }
            for (id, jump) in hits {
                levels.requeue(&mut entries, id, jump);
            }
            levels.redistribute(&mut entries);
            prop_assert_eq!(lengths(&levels), levels.targets().to_vec());
            let mut popped = vec![];
            let mut last = 0;
            while let Some(id) = levels.pop(&mut entries) {
                prop_assert!(entries.level(id) >= last);
                last = entries.level(id);
                popped.push(id);
            }
            popped.sort_unstable();
            prop_assert_eq!(popped, (0..200).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_rising_entry_swaps_with_the_oldest_of_its_new_level() {
        let mut entries = Entries::default();
        let mut levels = Levels::new(None);
        for level in [0, 4, 4, 63] {
            let id = entries.add();
            entries.set_level(id, level);
            levels.push(&mut entries, id);
        }
        levels.requeue(&mut entries, 0, 4);
        let after: Vec<_> = (0..4).map(|id| entries.level(id)).collect();
        assert_eq!(after, [4, 0, 4, 63]);
        levels.requeue(&mut entries, 3, 4);
        assert_eq!(entries.level(3), 63, "no level is above the last");
    }
}
