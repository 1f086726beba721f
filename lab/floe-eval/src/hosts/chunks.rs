//! CLRU: evicts the chunk that was read or written least recently. On a
//! conventional device, the next chunk overwrites its place. On a zoned one it
//! becomes garbage, until host garbage collection has moved the rest of its
//! zone.

use std::collections::BTreeMap;

use super::zones::Place;

/// Stored chunks in the order of their last use.
#[derive(Debug)]
pub(super) struct Chunks {
    slots: u32,
    order: BTreeMap<u64, Place>,
    /// The key in `order` of the chunk at each place; zero without a chunk.
    stamps: Vec<u64>,
    /// Stored chunks of each zone.
    live: Vec<u32>,
    clock: u64,
}

impl Chunks {
    pub(super) fn new(zones: u32, slots: u32) -> Self {
        Chunks {
            slots,
            order: BTreeMap::new(),
            stamps: vec![0; zones as usize * slots as usize],
            live: vec![0; zones as usize],
            clock: 0,
        }
    }

    /// Number of further chunks that could be stored.
    pub(super) fn left(&self) -> usize {
        self.stamps.len() - self.order.len()
    }

    /// Number of stored chunks of a zone.
    pub(super) fn live(&self, zone: u32) -> u32 {
        self.live[zone as usize]
    }

    /// Adds a chunk at a place.
    pub(super) fn insert(&mut self, place: Place) {
        self.clock += 1;
        let number = self.number(place);
        self.stamps[number] = self.clock;
        self.order.insert(self.clock, place);
        self.live[place.zone as usize] += 1;
    }

    /// Removes the chunk at a place; returns whether there was one.
    pub(super) fn remove(&mut self, place: Place) -> bool {
        let number = self.number(place);
        let stamp = std::mem::take(&mut self.stamps[number]);
        let was_there = self.order.remove(&stamp).is_some();
        self.live[place.zone as usize] -= u32::from(was_there);
        was_there
    }

    /// Records a read of the chunk at a place, if it has not been evicted.
    pub(super) fn touch(&mut self, place: Place) {
        if self.remove(place) {
            self.insert(place);
        }
    }

    /// Evicts the least recently used chunk.
    pub(super) fn evict(&mut self) -> Option<Place> {
        let (_, &place) = self.order.first_key_value()?;
        self.remove(place);
        Some(place)
    }

    fn number(&self, place: Place) -> usize {
        place.zone as usize * self.slots as usize + place.slot as usize
    }
}
