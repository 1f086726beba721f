//! Maps of sectors: which of a block's sectors are valid, and which are dirty.
//!
//! Only *partial* blocks have one: those with sectors that are not valid, or
//! with dirty and clean ones. Of other blocks the block's dirty flag says it all.

use std::collections::HashMap;

use super::address::SECTOR_BYTES;
use super::shape::BlockId;
use crate::hash::{ByKeyHash, KeyHash};

/// Sectors of one word of a map.
const WORD_SECTORS: u32 = u64::BITS;

/// The maps of a shard's partial blocks.
#[derive(Debug, Default)]
pub(super) struct SectorMaps {
    maps: HashMap<KeyHash, SectorMap, ByKeyHash>,
    words: usize,
}

/// A range of a block's sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sectors {
    pub(super) first: u32,
    pub(super) end: u32,
}

impl Sectors {
    pub(super) fn count(self) -> u32 {
        self.end - self.first
    }
}

/// Sectors of a block of `bytes`.
pub(super) fn sectors_in(bytes: u64) -> u32 {
    (bytes / SECTOR_BYTES) as u32
}

/// The map of one block: a bit per sector for valid, then as many for dirty.
/// No sector is dirty and not valid.
#[derive(Debug)]
pub(super) struct SectorMap {
    bits: Box<[u64]>,
}

/// The summary of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// Still partial.
    No,
    /// Every sector is valid and clean.
    Clean,
    /// Every sector is dirty.
    Dirty,
    /// No sector is valid.
    Empty,
}

impl SectorMaps {
    /// The map of `block`, which is partial.
    pub(super) fn get(&self, block: BlockId) -> Option<&SectorMap> {
        self.maps.get(&key(block))
    }

    pub(super) fn get_mut(&mut self, block: BlockId) -> Option<&mut SectorMap> {
        self.maps.get_mut(&key(block))
    }

    /// Gives `block` of `sectors` sectors a map.
    pub(super) fn insert(&mut self, block: BlockId, sectors: u32, map: SectorMap) {
        debug_assert_eq!(map.bits.len(), 2 * words(sectors));
        self.words += map.bits.len();
        self.maps.insert(key(block), map);
    }

    pub(super) fn remove(&mut self, block: BlockId) -> Option<SectorMap> {
        let map = self.maps.remove(&key(block))?;
        self.words -= map.bits.len();
        Some(map)
    }

    pub(super) fn len(&self) -> usize {
        self.maps.len()
    }

    /// Bytes of RAM: the maps, and a table of 7/8 load at most with a byte of
    /// its own per place.
    pub(super) fn memory_bytes(&self) -> u64 {
        let place = size_of::<(KeyHash, SectorMap)>() + 1;
        (self.words * size_of::<u64>() + self.maps.capacity() * 8 / 7 * place) as u64
    }
}

/// An odd factor keeps different blocks different.
fn key(block: BlockId) -> KeyHash {
    KeyHash(u64::from(block.0).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn words(sectors: u32) -> usize {
    sectors.div_ceil(WORD_SECTORS) as usize
}

impl SectorMap {
    /// The map of a block of `sectors` sectors, of which none is valid.
    pub(super) fn empty(sectors: u32) -> Self {
        SectorMap {
            bits: vec![0; 2 * words(sectors)].into(),
        }
    }

    /// The map of a block whose sectors all are valid, and dirty if `is_dirty`.
    pub(super) fn full(sectors: u32, is_dirty: bool) -> Self {
        let mut map = SectorMap::empty(sectors);
        let all = Sectors {
            first: 0,
            end: sectors,
        };
        map.write(all, is_dirty);
        map
    }

    /// Makes `sectors` valid, and dirty or clean.
    pub(super) fn write(&mut self, sectors: Sectors, is_dirty: bool) {
        let (valid, dirty) = self.halves_mut();
        set(valid, sectors, true);
        set(dirty, sectors, is_dirty);
    }

    /// True if all of `sectors` are valid, and all dirty or all clean.
    pub(super) fn is_all(&self, sectors: Sectors, is_dirty: bool) -> bool {
        self.runs(sectors).all(|(_, state)| state == Some(is_dirty))
    }

    /// Makes those of `sectors` valid that are not; they are clean.
    pub(super) fn fill(&mut self, sectors: Sectors) {
        let (valid, _) = self.halves_mut();
        set(valid, sectors, true);
    }

    /// Makes `sectors` neither valid nor dirty.
    pub(super) fn forget(&mut self, sectors: Sectors) {
        let (valid, dirty) = self.halves_mut();
        set(valid, sectors, false);
        set(dirty, sectors, false);
    }

    /// Makes every sector clean.
    pub(super) fn clean(&mut self) {
        self.halves_mut().1.fill(0);
    }

    /// Runs of `sectors` that are alike: the run, and whether it is valid and dirty.
    pub(super) fn runs(&self, sectors: Sectors) -> impl Iterator<Item = (Sectors, Option<bool>)> {
        let mut at = sectors.first;
        std::iter::from_fn(move || {
            if at >= sectors.end {
                return None;
            }
            let state = self.state(at);
            let first = at;
            while at < sectors.end && self.state(at) == state {
                at += 1;
            }
            Some((Sectors { first, end: at }, state))
        })
    }

    /// The dirty runs of the whole block.
    pub(super) fn dirty_runs(&self, sectors: u32) -> impl Iterator<Item = Sectors> {
        let all = Sectors {
            first: 0,
            end: sectors,
        };
        let dirty = |(run, state)| (state == Some(true)).then_some(run);
        self.runs(all).filter_map(dirty)
    }

    pub(super) fn dirty_bytes(&self) -> u64 {
        let sectors = self
            .halves()
            .1
            .iter()
            .map(|word| u64::from(word.count_ones()));
        sectors.sum::<u64>() * SECTOR_BYTES
    }

    /// The state of a block of `sectors` sectors, if it needs no map.
    pub(super) fn settled(&self, sectors: u32) -> Settled {
        let (valid, dirty) = self.halves();
        let count = |bits: &[u64]| bits.iter().map(|word| word.count_ones()).sum::<u32>();
        match (count(valid), count(dirty)) {
            (0, _) => Settled::Empty,
            (valid, 0) if valid == sectors => Settled::Clean,
            (_, dirty) if dirty == sectors => Settled::Dirty,
            _ => Settled::No,
        }
    }

    /// True if the sector is dirty; `None` if it is not valid.
    fn state(&self, sector: u32) -> Option<bool> {
        let (word, bit) = ((sector / WORD_SECTORS) as usize, sector % WORD_SECTORS);
        let (valid, dirty) = self.halves();
        (valid[word] >> bit & 1 == 1).then_some(dirty[word] >> bit & 1 == 1)
    }

    fn halves(&self) -> (&[u64], &[u64]) {
        self.bits.split_at(self.bits.len() / 2)
    }

    fn halves_mut(&mut self) -> (&mut [u64], &mut [u64]) {
        let half = self.bits.len() / 2;
        self.bits.split_at_mut(half)
    }
}

/// Sets or clears the bits of `sectors`.
fn set(bits: &mut [u64], sectors: Sectors, to: bool) {
    let mut at = sectors.first;
    while at < sectors.end {
        let bit = at % WORD_SECTORS;
        let len = (WORD_SECTORS - bit).min(sectors.end - at);
        let mask = (u64::MAX >> (WORD_SECTORS - len)) << bit;
        let word = &mut bits[(at / WORD_SECTORS) as usize];
        *word = if to { *word | mask } else { *word & !mask };
        at += len;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares a map with an array of states.
        #[test]
        fn a_map_is_an_array_of_sectors(
            steps in prop::collection::vec((0_u8..5, 0_u32..200, 1_u32..200), 0..60),
        ) {
            const SECTORS: u32 = 200;
            let mut map = SectorMap::full(SECTORS, false);
            let mut model = [Some(false); SECTORS as usize];
            for (step, first, len) in steps {
                let end = (first + len).min(SECTORS);
                let sectors = Sectors { first, end };
                let touched = &mut model[first as usize..end as usize];
                match step {
                    0 => { map.write(sectors, true); touched.fill(Some(true)); }
                    1 => { map.write(sectors, false); touched.fill(Some(false)); }
                    2 => { map.forget(sectors); touched.fill(None); }
                    3 => {
                        map.fill(sectors);
                        touched.iter_mut().for_each(|s| *s = s.or(Some(false)));
                    }
                    _ => {
                        map.clean();
                        model.iter_mut().for_each(|s| *s = s.map(|_| false));
                    }
                }
                let all = Sectors { first: 0, end: SECTORS };
                let mut seen = Vec::new();
                for (run, state) in map.runs(all) {
                    seen.extend((0..run.count()).map(|_| state));
                }
                prop_assert_eq!(&seen[..], &model[..]);
                let dirty = model.iter().filter(|s| **s == Some(true)).count();
                prop_assert_eq!(map.dirty_bytes(), dirty as u64 * SECTOR_BYTES);
                let settled = if model.iter().all(|s| s.is_none()) { Settled::Empty }
                    else if dirty == 200 { Settled::Dirty }
                    else if model.iter().all(|s| *s == Some(false)) { Settled::Clean }
                    else { Settled::No };
                prop_assert_eq!(map.settled(SECTORS), settled);
            }
        }
    }
}
