//! Allocates slots that are rewritten in place: which slots are free, and which
//! ones take the next values.
//!
//! A zone is divided into slots of equal length behind a table that describes
//! them. Many slots share a table block, so a run of slots of one block costs
//! one table write. [`SlotMap`] therefore serves runs from the block with the
//! most free slots. It costs one bit per slot and a few bytes per table block,
//! and must not depend on what slots hold. ZNCache §3.3 has a list of free
//! chunks instead.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

use crate::layout::SlotGeometry;
use crate::{Address, ZoneId};

/// A slot of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId {
    /// The zone.
    pub zone: ZoneId,
    /// Its number in the zone, from zero.
    pub slot: u32,
}

/// Neighbouring slots that share a table block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRun {
    /// The zone.
    pub zone: ZoneId,
    /// The slots' numbers; never empty.
    pub slots: Range<u32>,
}

impl SlotRun {
    /// The slots, in order.
    pub fn ids(&self) -> impl Iterator<Item = SlotId> + use<> {
        let zone = self.zone;
        self.slots.clone().map(move |slot| SlotId { zone, slot })
    }
}

/// Order in which table blocks are served: the last one of the set first.
type Roomy = (u32, Reverse<ZoneId>, Reverse<u32>);

#[derive(Debug)]
struct ZoneSlots {
    /// One bit per slot, set while the slot is taken.
    taken: Box<[u64]>,
    /// Free slots of each table block.
    free: Box<[u32]>,
    /// Table blocks that are out of use, by number.
    withdrawn: Box<[bool]>,
    free_slots: u32,
}

/// The free slots of all open zones.
#[derive(Debug)]
pub struct SlotMap {
    geometry: SlotGeometry,
    zones: Vec<Option<ZoneSlots>>,
    roomy: BTreeSet<Roomy>,
    /// The table block that was served last. It is served on while it has long
    /// enough runs, so that a filling cache writes in order.
    current: Option<(ZoneId, u32)>,
    free: u64,
    open: u64,
    withdrawn: u64,
}

impl SlotMap {
    /// A map without open zones.
    pub fn new(geometry: SlotGeometry, zone_count: u32) -> Self {
        SlotMap {
            geometry,
            zones: (0..zone_count).map(|_| None).collect(),
            roomy: BTreeSet::new(),
            current: None,
            free: 0,
            open: 0,
            withdrawn: 0,
        }
    }

    /// The division of zones into slots.
    pub fn geometry(&self) -> &SlotGeometry {
        &self.geometry
    }

    /// Number of slots that can be taken.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Number of slots in open zones that are in use or can be.
    pub fn usable(&self) -> u64 {
        self.open - self.withdrawn
    }

    /// Number of slots withdrawn after a failure.
    pub fn withdrawn(&self) -> u64 {
        self.withdrawn
    }

    /// Number of slots of `zone` that can be taken.
    pub fn free_in(&self, zone: ZoneId) -> u32 {
        self.zone(zone).map_or(0, |z| z.free_slots)
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        let zones: usize = self
            .zones
            .iter()
            .flatten()
            .map(|z| z.taken.len() * 8 + z.free.len() * 4 + z.withdrawn.len())
            .sum();
        zones
            + self.zones.capacity() * size_of::<Option<ZoneSlots>>()
            + self.roomy.len() * 2 * size_of::<Roomy>()
    }

    /// Adds a zone whose slots are all free.
    pub fn open(&mut self, zone: ZoneId) {
        self.open_with(zone, &[]);
    }

    /// Adds a zone that recovery found. `taken` tells which of its slots are;
    /// slots missing from it are free.
    pub fn open_with(&mut self, zone: ZoneId, taken: &[bool]) {
        let geometry = self.geometry;
        let is_taken = |slot: u32| taken.get(slot as usize).is_some_and(|&taken| taken);
        let Some(entry) = self.zones.get_mut(zone.index()) else {
            return;
        };
        if entry.is_some() {
            return;
        }
        let blocks = 0..geometry.table_blocks;
        let mut bits = vec![0; geometry.slots.div_ceil(64) as usize];
        for slot in (0..geometry.slots).filter(|&slot| is_taken(slot)) {
            bits[slot as usize / 64] |= 1 << (slot % 64);
        }
        let free: Box<[u32]> = blocks
            .map(|block| geometry.slots_of_block(block))
            .map(|slots| slots.filter(|&slot| !is_taken(slot)).count() as u32)
            .collect();
        for (&free, block) in free.iter().zip(0..).filter(|&(&free, _)| free > 0) {
            self.roomy.insert((free, Reverse(zone), Reverse(block)));
        }
        let free_slots = free.iter().sum();
        *entry = Some(ZoneSlots {
            taken: bits.into(),
            free,
            withdrawn: vec![false; geometry.table_blocks as usize].into(),
            free_slots,
        });
        self.free += u64::from(free_slots);
        self.open += u64::from(geometry.slots);
    }

    /// Takes up to `most` neighbouring slots: from the last table block if it
    /// has a run of that length, else from the block with the most free slots.
    /// `None` if no slot is free.
    pub fn take_run(&mut self, most: u32) -> Option<SlotRun> {
        let most = most.max(1);
        let going_on = self.current.and_then(|(zone, block)| {
            let slots = self.longest_run(zone, block, most)?;
            (slots.len() >= most as usize).then_some((zone, block, slots))
        });
        let (zone, block, slots) = match going_on {
            Some(found) => found,
            None => {
                let &(_, Reverse(zone), Reverse(block)) = self.roomy.last()?;
                (zone, block, self.longest_run(zone, block, most)?)
            }
        };
        self.current = Some((zone, block));
        for slot in slots.clone() {
            self.set_taken(SlotId { zone, slot }, true);
        }
        self.count_free(zone, block, -(slots.len() as i64));
        Some(SlotRun { zone, slots })
    }

    /// Returns a slot to the map. Returns whether it can be taken again.
    pub fn give_back(&mut self, id: SlotId) -> bool {
        if !self.exists(id) || !self.is_taken(id) {
            debug_assert!(false, "a slot is returned once: {id:?}");
            return false;
        }
        let block = self.geometry.table_block_of(id.slot);
        if self.is_withdrawn(id.zone, block) {
            self.withdrawn += 1;
            return false;
        }
        self.set_taken(id, false);
        self.count_free(id.zone, block, 1);
        true
    }

    /// Withdraws a taken slot whose write failed.
    pub fn withdraw(&mut self, id: SlotId) {
        if self.exists(id) && self.is_taken(id) {
            self.withdrawn += 1;
        }
    }

    /// Withdraws the slots of a table block: the free ones now, the taken ones
    /// when they are returned.
    pub fn withdraw_block(&mut self, zone: ZoneId, block: u32) {
        if self.zone(zone).is_none() || self.is_withdrawn(zone, block) {
            return;
        }
        let mut count = 0;
        for slot in self.geometry.slots_of_block(block) {
            let id = SlotId { zone, slot };
            if !self.is_taken(id) {
                self.set_taken(id, true);
                count += 1;
            }
        }
        self.count_free(zone, block, -count);
        self.withdrawn += count as u64;
        if let Some(Some(entry)) = self.zones.get_mut(zone.index())
            && let Some(withdrawn) = entry.withdrawn.get_mut(block as usize)
        {
            *withdrawn = true;
        }
    }

    /// The slot whose payload or descriptor starts at `place`.
    pub fn slot_at(&self, place: Address) -> Option<SlotId> {
        slot_at(&self.geometry, place)
    }

    fn zone(&self, zone: ZoneId) -> Option<&ZoneSlots> {
        self.zones.get(zone.index())?.as_ref()
    }

    fn exists(&self, id: SlotId) -> bool {
        id.slot < self.geometry.slots && self.zone(id.zone).is_some()
    }

    fn is_withdrawn(&self, zone: ZoneId, block: u32) -> bool {
        self.zone(zone)
            .and_then(|z| z.withdrawn.get(block as usize))
            .is_none_or(|&withdrawn| withdrawn)
    }

    fn is_taken(&self, id: SlotId) -> bool {
        self.zone(id.zone)
            .and_then(|z| z.taken.get(id.slot as usize / 64))
            .is_none_or(|word| word >> (id.slot % 64) & 1 != 0)
    }

    fn set_taken(&mut self, id: SlotId, taken: bool) {
        if let Some(Some(zone)) = self.zones.get_mut(id.zone.index())
            && let Some(word) = zone.taken.get_mut(id.slot as usize / 64)
        {
            let bit = 1 << (id.slot % 64);
            *word = if taken { *word | bit } else { *word & !bit };
        }
    }

    /// The first run of `most` free slots of a table block, or its longest.
    fn longest_run(&self, zone: ZoneId, block: u32, most: u32) -> Option<Range<u32>> {
        let mut longest = 0..0;
        let mut run = 0..0;
        for slot in self.geometry.slots_of_block(block) {
            if self.is_taken(SlotId { zone, slot }) {
                continue;
            }
            run = if run.end == slot {
                run.start..slot + 1
            } else {
                slot..slot + 1
            };
            if run.len() > longest.len() {
                longest = run.clone();
                if longest.len() >= most as usize {
                    break;
                }
            }
        }
        (!longest.is_empty()).then_some(longest)
    }

    fn count_free(&mut self, zone: ZoneId, block: u32, change: i64) {
        let Some(Some(entry)) = self.zones.get_mut(zone.index()) else {
            return;
        };
        let Some(free) = entry.free.get_mut(block as usize) else {
            return;
        };
        self.roomy.remove(&(*free, Reverse(zone), Reverse(block)));
        *free = free.saturating_add_signed(change as i32);
        entry.free_slots = entry.free_slots.saturating_add_signed(change as i32);
        self.free = self.free.saturating_add_signed(change);
        if *free > 0 {
            self.roomy.insert((*free, Reverse(zone), Reverse(block)));
        }
    }
}

/// The slot whose payload or descriptor starts at `place`.
pub fn slot_at(geometry: &SlotGeometry, place: Address) -> Option<SlotId> {
    let within = place.offset.checked_sub(geometry.slots_offset)?;
    let slot = u32::try_from(within / geometry.slot_bytes.max(1)).ok()?;
    (slot < geometry.slots).then_some(SlotId {
        zone: place.zone,
        slot,
    })
}
