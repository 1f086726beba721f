//! The records of groups and blocks, and these as elements of an order.

use super::order::{ABSENT, Ranked, Replacement};
use super::pages::Pages;
use super::regions::RegionHash;
use super::shape::{BlockId, Shape};
use crate::list::{Linked, Links};

/// No free slot in a group.
pub(super) const NO_SLOT: u32 = (1 << SLOT_BITS) - 1;
/// Bits of a number of slots: 256 at most.
pub(super) const SLOT_BITS: u32 = 9;

/// Records by number, with the links and marks that their order needs.
#[derive(Debug)]
pub(super) struct Members<T> {
    pub(super) records: Pages<T>,
    order: Option<Replacement>,
    links: Pages<Links>,
    marks: Pages<u8>,
}

/// The record of a group in use: first record of its blocks, number of blocks
/// in use, first free slot, class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Group {
    pub(super) first: u32,
    pub(super) state: u32,
}

const RETIRED_GROUP: u32 = 1 << 30;

impl Group {
    pub(super) fn used(self) -> u32 {
        self.state & NO_SLOT
    }

    pub(super) fn free_slot(self) -> u32 {
        self.state >> SLOT_BITS & NO_SLOT
    }

    pub(super) fn class(self) -> u32 {
        self.state >> (2 * SLOT_BITS) & 0xf
    }

    pub(super) fn is_in_use(self) -> bool {
        self.state >> 31 == 1
    }

    /// True if all of its blocks are retired.
    pub(super) fn is_retired(self) -> bool {
        self.state & RETIRED_GROUP != 0
    }

    pub(super) fn retired_if(self, is_retired: bool) -> Group {
        let flag = if is_retired { RETIRED_GROUP } else { 0 };
        Group {
            state: self.state | flag,
            ..self
        }
    }

    pub(super) fn of(first: u32, used: u32, free_slot: u32, class: u32) -> Group {
        Group {
            first,
            state: 1 << 31 | class << (2 * SLOT_BITS) | free_slot << SLOT_BITS | used,
        }
    }
}

/// The record of a block: above two flags the next free slot of its group, which
/// is [`NO_SLOT`] at most, or, above these numbers, the hash of its region.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block(u32);

pub(super) const DIRTY: u32 = 1;
pub(super) const PARTIAL: u32 = 2;
const FLAG_BITS: u32 = 2;
const _: () = assert!(
    RegionHash::BITS + FLAG_BITS < u32::BITS,
    "hashes stand above free slots"
);

impl Block {
    /// A slot whose block has left, and that may not be used yet.
    pub(super) const RETIRED: Block = Block(NO_SLOT << FLAG_BITS | DIRTY | PARTIAL);

    /// A free slot, and the next one of its group.
    pub(super) fn free(next: u32) -> Self {
        Block(next << FLAG_BITS)
    }

    pub(super) fn used(region: RegionHash, flags: u32) -> Self {
        Block((region.0 + NO_SLOT + 1) << FLAG_BITS | flags)
    }

    /// The next free slot, if this one is free.
    pub(super) fn next(self) -> u32 {
        self.0 >> FLAG_BITS
    }

    /// The hash of its region, unless the slot is free.
    pub(super) fn region(self) -> Option<RegionHash> {
        let hash = (self.0 >> FLAG_BITS).checked_sub(NO_SLOT + 1);
        hash.map(RegionHash)
    }

    pub(super) fn flags(self) -> u32 {
        self.0 & (DIRTY | PARTIAL)
    }

    pub(super) fn with_flag(self, flag: u32, is_set: bool) -> Self {
        Block(if is_set {
            self.0 | flag
        } else {
            self.0 & !flag
        })
    }
}

impl<T: Copy> Members<T> {
    pub(super) fn new(blank: T, order: Option<Replacement>) -> Self {
        Members {
            records: Pages::new(blank),
            order,
            links: Pages::new(Links::default()),
            marks: Pages::new(0),
        }
    }

    /// Makes the indexes of the page of `id` valid.
    pub(super) fn allocate(&mut self, id: u32) {
        self.records.allocate(id);
        if self.has_links() {
            self.links.allocate(id);
        }
        if self.has_marks() {
            self.marks.allocate(id);
        }
    }

    /// Frees the RAM of page `page`, none of whose members is in use.
    pub(super) fn release(&mut self, page: u32) {
        self.records.release(page);
        if self.has_links() {
            self.links.release(page);
        }
        if self.has_marks() {
            self.marks.release(page);
        }
    }

    /// Moves `len` members that follow `from` within a page to `to`, elsewhere.
    pub(super) fn move_run(&mut self, from: u32, to: u32, len: u32) {
        for at in 0..len {
            self.records[to + at] = self.records[from + at];
            if self.has_links() {
                self.links[to + at] = self.links[from + at];
            }
            if self.has_marks() {
                self.marks[to + at] = std::mem::replace(&mut self.marks[from + at], ABSENT);
            }
        }
    }

    /// Bytes of RAM of the links and marks of `len` members.
    pub(super) fn order_bytes(&self, len: usize) -> u64 {
        let links = if self.has_links() { len } else { 0 };
        let marks = if self.has_marks() { len } else { 0 };
        self.links.memory_of(links) + self.marks.memory_of(marks)
    }

    fn has_links(&self) -> bool {
        self.order.is_some_and(Replacement::has_links)
    }

    fn has_marks(&self) -> bool {
        self.order.is_some_and(Replacement::has_marks)
    }
}

/// The groups of a partition by place: those that it has, or all groups that
/// have been in use where no other partition is.
#[derive(Clone, Copy)]
pub(super) enum Ring<'a> {
    Members(&'a [u32]),
    All(u32),
}

impl<'a> Ring<'a> {
    /// The groups of one of several partitions, which has `members`, or all groups
    /// below `fresh`.
    pub(super) fn new(is_shared: bool, members: &'a [u32], fresh: u32) -> Self {
        if is_shared {
            Ring::Members(members)
        } else {
            Ring::All(fresh)
        }
    }

    /// The group at `place`, if the ring is that long.
    fn group(self, place: u32) -> Option<u32> {
        match self {
            Ring::Members(groups) => groups.get(place as usize).copied(),
            Ring::All(count) => (place < count).then_some(place),
        }
    }
}

/// Groups as elements of an order.
pub(super) struct LinkedGroups<'a> {
    pub(super) ring: Ring<'a>,
    pub(super) groups: &'a mut Members<Group>,
}

impl Linked for LinkedGroups<'_> {
    fn links(&self, id: u32) -> Links {
        self.groups.links[id]
    }

    fn links_mut(&mut self, id: u32) -> &mut Links {
        &mut self.groups.links[id]
    }
}

impl Ranked for LinkedGroups<'_> {
    fn mark(&mut self, id: u32) -> &mut u8 {
        &mut self.groups.marks[id]
    }

    fn at_or_after(&self, mut place: u32) -> (u32, u32) {
        loop {
            let Some(group) = self.ring.group(place) else {
                place = 0;
                continue;
            };
            place += 1;
            if self.groups.marks[group] != ABSENT {
                return (group, place);
            }
        }
    }
}

/// Blocks as elements of an order, by [`BlockId`].
pub(super) struct LinkedBlocks<'a> {
    pub(super) shape: Shape,
    pub(super) ring: Ring<'a>,
    pub(super) groups: &'a Pages<Group>,
    pub(super) blocks: &'a mut Members<Block>,
}

impl LinkedBlocks<'_> {
    fn record(&self, id: u32) -> u32 {
        record_in(self.groups, self.shape, BlockId(id))
    }
}

impl Linked for LinkedBlocks<'_> {
    fn links(&self, id: u32) -> Links {
        self.blocks.links[self.record(id)]
    }

    fn links_mut(&mut self, id: u32) -> &mut Links {
        let record = self.record(id);
        &mut self.blocks.links[record]
    }
}

impl Ranked for LinkedBlocks<'_> {
    fn mark(&mut self, id: u32) -> &mut u8 {
        let record = self.record(id);
        &mut self.blocks.marks[record]
    }

    /// A place is the granule that a block would begin at if the ring's groups
    /// lay in a row.
    fn at_or_after(&self, place: u32) -> (u32, u32) {
        let bits = self.shape.group_bits;
        let (mut at, mut within) = (place >> bits, place & ((1 << bits) - 1));
        loop {
            let Some(group) = self.ring.group(at) else {
                (at, within) = (0, 0);
                continue;
            };
            let record = self.groups[group];
            if record.is_in_use() {
                let class = record.class();
                let is_there = |&slot: &u32| self.blocks.marks[record.first + slot] != ABSENT;
                let mut slots = within.div_ceil(1 << class)..1 << (bits - class);
                if let Some(slot) = slots.find(is_there) {
                    let block = BlockId::new((group << bits) + (slot << class), class);
                    return (block.0, (at << bits) + ((slot + 1) << class));
                }
            }
            (at, within) = (at + 1, 0);
        }
    }
}

pub(super) fn record_in(groups: &Pages<Group>, shape: Shape, block: BlockId) -> u32 {
    let slot = block.granule() & ((1 << shape.group_bits) - 1);
    groups[shape.group_of(block)].first + (slot >> block.class())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next group at the old place would else have blocks before any enters.
    #[test]
    fn a_run_that_moves_leaves_no_mark_behind() {
        let mut blocks = Members::new(Block::default(), Some(Replacement::Clock));
        blocks.allocate(0);
        for at in 4..8 {
            blocks.records[at] = Block::used(RegionHash(at), DIRTY);
            blocks.marks[at] = ABSENT + 1;
        }
        blocks.move_run(4, 0, 4);
        for at in 0..4 {
            assert_eq!(blocks.records[at].region(), Some(RegionHash(at + 4)));
            assert_eq!(blocks.records[at].flags(), DIRTY);
            assert_eq!(
                (blocks.marks[at], blocks.marks[at + 4]),
                (ABSENT + 1, ABSENT)
            );
        }
    }
}
