//! The open-addressing table of entry numbers.
//!
//! A cell has an entry's number and, in the bits that numbers do not need yet,
//! a tag of the key's hash. The tag lets a lookup skip the cells of other keys
//! without a cache miss for each entry.

use crate::hash::fast_range;

const EMPTY: u32 = u32::MAX;
/// Fewest bits of a cell for the entry's number.
const ID_BITS_MIN: u32 = 16;

/// Entry numbers by 48-bit hash.
#[derive(Debug)]
pub(crate) struct Cells {
    cells: Vec<u32>,
    /// The low bits of a cell that have the number. They are wide enough that
    /// no number has all of them set, so a used cell is never [`EMPTY`].
    id_bits: u32,
    used: usize,
}

impl Cells {
    pub(crate) fn new() -> Self {
        Cells {
            cells: Vec::new(),
            id_bits: ID_BITS_MIN,
            used: 0,
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.cells.capacity() * size_of::<u32>()
    }

    /// The cell of `hash`. `is_it` checks the entry, because tags are
    /// ambiguous.
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        let (tag, ids) = (self.tag(hash), self.ids());
        self.probe(hash, |cell| cell & !ids == tag && is_it(cell & ids))
    }

    /// The cell of `hash` that has the number `id`.
    pub(crate) fn position_of(&self, hash: u64, id: u32) -> Option<usize> {
        let wanted = self.tag(hash) | id;
        self.probe(hash, |cell| cell == wanted)
    }

    pub(crate) fn id_at(&self, position: usize) -> u32 {
        self.cells[position] & self.ids()
    }

    /// Adds `id`. The table must have room.
    pub(crate) fn insert(&mut self, hash: u64, id: u32) {
        self.put(hash, id);
        self.used += 1;
    }

    /// Empties a cell and shifts the following ones back, so that the table
    /// needs no tombstones.
    pub(crate) fn remove(&mut self, mut hole: usize, hash_of: impl Fn(u32) -> u64) {
        let len = self.cells.len();
        let mut position = hole;
        loop {
            position = self.after(position);
            let cell = self.cells[position];
            if cell == EMPTY {
                break;
            }
            let home = fast_range(hash_of(cell & self.ids()) << 16, len);
            // Move the cell back unless its home lies cyclically in (hole,
            // position].
            let distance_home = (position + len - home) % len;
            let distance_hole = (position + len - hole) % len;
            if distance_home >= distance_hole {
                self.cells[hole] = cell;
                hole = position;
            }
        }
        self.cells[hole] = EMPTY;
        self.used -= 1;
    }

    /// Grows the table for `records` keys.
    pub(crate) fn reserve(&mut self, records: usize, hash_of: impl Fn(u32) -> u64) {
        let len = records + records / 4;
        if len > self.cells.len() {
            self.grow(len, hash_of);
        }
    }

    /// Makes room for one more key. The table is at most 90 % full and grows by
    /// a quarter.
    pub(crate) fn reserve_one(&mut self, hash_of: impl Fn(u32) -> u64) {
        let len = self.cells.len();
        if (self.used + 1) * 10 > len * 9 {
            self.grow((len + len / 4).max(64), hash_of);
        }
    }

    /// Widens the number's bits to hold numbers below `end`, and narrows the
    /// tags.
    pub(crate) fn widen_ids(&mut self, end: usize) {
        let needed = usize::BITS - end.leading_zeros();
        if needed <= self.id_bits {
            return;
        }
        debug_assert!(needed <= u32::BITS, "numbers have 32 bits");
        let (ids, id_bits) = (self.ids(), self.id_bits);
        self.id_bits = needed;
        for cell in self.cells.iter_mut().filter(|cell| **cell != EMPTY) {
            *cell = (*cell & ids) | (u64::from(*cell >> id_bits) << needed) as u32;
        }
    }

    fn probe(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        if self.cells.is_empty() {
            return None;
        }
        let mut position = fast_range(hash << 16, self.cells.len());
        loop {
            let cell = self.cells[position];
            if cell == EMPTY {
                return None;
            }
            if is_it(cell) {
                return Some(position);
            }
            position = self.after(position);
        }
    }

    fn put(&mut self, hash: u64, id: u32) {
        let mut position = fast_range(hash << 16, self.cells.len());
        while self.cells[position] != EMPTY {
            position = self.after(position);
        }
        self.cells[position] = self.tag(hash) | id;
    }

    fn grow(&mut self, len: usize, hash_of: impl Fn(u32) -> u64) {
        let mut cells = Vec::new();
        cells.reserve_exact(len);
        cells.resize(len, EMPTY);
        let old = std::mem::replace(&mut self.cells, cells);
        for cell in old.into_iter().filter(|&cell| cell != EMPTY) {
            let id = cell & self.ids();
            self.put(hash_of(id), id);
        }
    }

    fn after(&self, position: usize) -> usize {
        if position + 1 == self.cells.len() {
            0
        } else {
            position + 1
        }
    }

    /// Mask of the number's bits in a cell.
    fn ids(&self) -> u32 {
        u32::MAX >> (u32::BITS - self.id_bits)
    }

    /// The tag: low bits of the hash, which hardly depend on the position,
    /// above the number's bits.
    fn tag(&self, hash: u64) -> u32 {
        (hash << self.id_bits) as u32
    }
}
