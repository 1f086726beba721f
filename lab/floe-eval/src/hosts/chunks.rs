//! CLRU: which chunk is evicted next. The least recently read or written one;
//! its place is overwritten on a conventional device, and becomes garbage of its
//! zone on a zoned one, until host garbage collection has moved the rest.

use std::collections::BTreeMap;

use super::zones::Place;

/// Chunks that are stored, in the order of their last use.
#[derive(Debug)]
pub(super) struct Chunks {
    slots: u32,
    order: BTreeMap<u64, Place>,
    /// The key in `order` of each place's chunk; zero where there is none.
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

    /// Chunks that could be stored beside those that are.
    pub(super) fn left(&self) -> usize {
        self.stamps.len() - self.order.len()
    }

    /// Stored chunks of a zone.
    pub(super) fn live(&self, zone: u32) -> u32 {
        self.live[zone as usize]
    }

    /// A chunk is stored at a place.
    pub(super) fn insert(&mut self, place: Place) {
        self.clock += 1;
        let number = self.number(place);
        self.stamps[number] = self.clock;
        self.order.insert(self.clock, place);
        self.live[place.zone as usize] += 1;
    }

    /// The chunk at a place is no longer wanted there. Whether there was one.
    pub(super) fn remove(&mut self, place: Place) -> bool {
        let number = self.number(place);
        let stamp = std::mem::take(&mut self.stamps[number]);
        let was_there = self.order.remove(&stamp).is_some();
        self.live[place.zone as usize] -= u32::from(was_there);
        was_there
    }

    /// The chunk at a place was read, unless it has been evicted meanwhile.
    pub(super) fn touch(&mut self, place: Place) {
        if self.remove(place) {
            self.insert(place);
        }
    }

    /// Evicts the chunk that was used least recently.
    pub(super) fn evict(&mut self) -> Option<Place> {
        let (_, &place) = self.order.first_key_value()?;
        self.remove(place);
        Some(place)
    }

    fn number(&self, place: Place) -> usize {
        place.zone as usize * self.slots as usize + place.slot as usize
    }
}
