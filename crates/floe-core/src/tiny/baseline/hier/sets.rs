//! The sets behind the log: their pages and filters.
//!
//! A set has one part (Kangaroo) or two, cold and hot (FairyWREN). Each part is
//! a page with its own filter, so that a search reads only parts that may hold
//! the object.

use std::collections::{BTreeSet, VecDeque};

use crate::hash::KeyHash;
use crate::tiny::baseline::filter::PageFilters;
use crate::tiny::baseline::rrip::{self, HitBits};
use crate::tiny::object::{Flash, PageAddress};
use crate::tiny::statistics::room_bytes;

/// Most parts of a set.
pub(super) const PARTS_MAX: usize = 2;
/// The part that new objects join.
pub(super) const COLD: usize = 0;
/// The part for used objects.
pub(super) const HOT: usize = 1;

const NOWHERE: u32 = u32::MAX;

/// Pages compared together in a scan for the sets of a zone.
const SCAN_CHUNK: usize = 32;

#[derive(Debug)]
pub(super) struct Sets {
    sets: u32,
    parts: usize,
    places: Places,
    filters: PageFilters,
    hits: Vec<HitBits>,
    /// Sets in place whose page could not be written. They stay empty.
    dead: BTreeSet<u32>,
    objects: u64,
}

#[derive(Debug)]
enum Places {
    /// One part, always at the same page.
    InPlace { first: PageAddress },
    /// The page of each part of each set, in zones.
    Zoned(Vec<u32>),
}

impl Sets {
    /// Empty sets: in place from the page `in_place` on, or in zones.
    pub(super) fn new(
        sets: u32,
        parts: usize,
        in_place: Option<PageAddress>,
        filter_bytes: u32,
        objects_per_page: u32,
    ) -> Self {
        let pages = sets as usize * parts;
        Sets {
            sets,
            parts,
            places: match in_place {
                Some(first) => Places::InPlace { first },
                None => Places::Zoned(vec![NOWHERE; pages]),
            },
            filters: PageFilters::new(pages, filter_bytes, objects_per_page),
            hits: vec![0; pages],
            dead: BTreeSet::new(),
            objects: 0,
        }
    }

    pub(super) fn parts(&self) -> usize {
        self.parts
    }

    fn slot(&self, part: usize, set: u32) -> usize {
        part * self.sets as usize + set as usize
    }

    pub(super) fn are_in_place(&self) -> bool {
        matches!(self.places, Places::InPlace { .. })
    }

    /// The page of a part, if it has objects.
    pub(super) fn page_of(&self, part: usize, set: u32) -> Option<PageAddress> {
        let slot = self.slot(part, set);
        match &self.places {
            Places::InPlace { first } => {
                (!self.filters.is_empty(slot)).then_some(PageAddress(first.0 + set))
            }
            Places::Zoned(places) => (places[slot] != NOWHERE).then_some(PageAddress(places[slot])),
        }
    }

    /// The fixed page of a set in place.
    pub(super) fn place(&self, set: u32) -> Option<PageAddress> {
        match &self.places {
            Places::InPlace { first } => Some(PageAddress(first.0 + set)),
            Places::Zoned(_) => None,
        }
    }

    /// True if a part may hold `hash`.
    pub(super) fn may_hold(&self, part: usize, set: u32, hash: KeyHash) -> bool {
        self.filters.may_hold(self.slot(part, set), hash)
    }

    /// True if any part may hold `hash`.
    pub(super) fn any_may_hold(&self, set: u32, hash: KeyHash) -> bool {
        (0..self.parts).any(|part| self.may_hold(part, set, hash))
    }

    /// Marks an object of a part as used.
    pub(super) fn hit(&mut self, part: usize, set: u32, slot: usize) {
        let at = self.slot(part, set);
        rrip::mark(&mut self.hits[at], slot);
    }

    pub(super) fn hits(&self, part: usize, set: u32) -> HitBits {
        self.hits[self.slot(part, set)]
    }

    /// Records that a part was written at `page` with these objects.
    pub(super) fn written(&mut self, part: usize, set: u32, page: PageAddress, hashes: &[KeyHash]) {
        let slot = self.slot(part, set);
        if let Places::Zoned(places) = &mut self.places {
            places[slot] = page.0;
        }
        self.filters.rebuild(slot, hashes.iter().copied());
        self.hits[slot] = 0;
    }

    /// Drops the objects of a part.
    pub(super) fn forget(&mut self, part: usize, set: u32) {
        let slot = self.slot(part, set);
        if let Places::Zoned(places) = &mut self.places {
            places[slot] = NOWHERE;
        }
        self.filters.rebuild(slot, std::iter::empty());
        self.hits[slot] = 0;
    }

    /// Drops a set whose page could not be written.
    pub(super) fn mark_dead(&mut self, set: u32) {
        self.forget(COLD, set);
        self.dead.insert(set);
    }

    pub(super) fn is_dead(&self, set: u32) -> bool {
        self.dead.contains(&set)
    }

    /// Adds the sets with a part in `zone` to `found`.
    pub(super) fn sets_in(&self, part: usize, zone: u32, flash: &Flash, found: &mut Vec<u32>) {
        let Places::Zoned(places) = &self.places else {
            return;
        };
        let first = flash.first_page(zone).0;
        // Pages before the zone wrap around to large numbers.
        let is_inside = |page: u32| page.wrapping_sub(first) < flash.zone_pages;
        let of_part = &places[self.slot(part, 0)..][..self.sets as usize];
        for (chunk, pages) in (0..).zip(of_part.chunks(SCAN_CHUNK)) {
            // Most chunks have none. The fold finds that without a branch per
            // page.
            if pages.iter().fold(false, |any, page| any | is_inside(*page)) {
                let inside = (0..).zip(pages).filter(|(_, page)| is_inside(**page));
                found.extend(inside.map(|(at, _): (u32, _)| chunk * SCAN_CHUNK as u32 + at));
            }
        }
    }

    /// Updates the number of objects.
    pub(super) fn count(&mut self, added: usize, removed: usize) {
        self.objects = (self.objects + added as u64).saturating_sub(removed as u64);
    }

    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// Bytes of memory of filters and map.
    pub(super) fn index_bytes(&self) -> u64 {
        let map = match &self.places {
            Places::InPlace { .. } => 0,
            Places::Zoned(places) => places.capacity() * size_of::<u32>(),
        };
        self.filters.memory_bytes() + map as u64
    }

    pub(super) fn hotness_bytes(&self) -> u64 {
        (self.hits.capacity() * size_of::<HitBits>()) as u64
    }
}

/// The zones of one part of the sets, which are written and collected in the
/// same order.
#[derive(Debug)]
pub(super) struct Ring {
    zone_pages: u32,
    free: VecDeque<u32>,
    full: VecDeque<u32>,
    /// The zone being written, and its write pointer.
    active: Option<(u32, u32)>,
    /// Free zones at or below which the oldest zone is collected.
    collect_at: u32,
    /// Pages reserved for active rewrites.
    reserved: u32,
}

impl Ring {
    pub(super) fn new(zones: std::ops::Range<u32>, zone_pages: u32, collect_at: u32) -> Self {
        Ring {
            zone_pages,
            free: zones.collect(),
            full: VecDeque::new(),
            active: None,
            collect_at,
            reserved: 0,
        }
    }

    fn room(&self) -> u32 {
        let of_active = self.active.map_or(0, |(_, next)| self.zone_pages - next);
        (self.free.len() as u32 * self.zone_pages + of_active).saturating_sub(self.reserved)
    }

    /// Reserves a page; returns whether there was one. The last zone's pages
    /// are only for collection, which could otherwise never free a zone.
    pub(super) fn reserve(&mut self, for_collection: bool) -> bool {
        let least = if for_collection { 0 } else { self.zone_pages };
        let has_room = self.room() > least;
        self.reserved += u32::from(has_room);
        has_room
    }

    /// True if a page could be reserved.
    pub(super) fn can_reserve(&self, for_collection: bool) -> bool {
        self.room() > if for_collection { 0 } else { self.zone_pages }
    }

    /// Releases a reservation, used or not.
    pub(super) fn release(&mut self) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// Takes up to `pages` consecutive pages of one zone: the zone, the first
    /// page in it, and their number.
    pub(super) fn take(&mut self, pages: u32) -> Option<(u32, u32, u32)> {
        let (zone, next) = match self.active {
            Some(active) => active,
            None => (self.free.pop_front()?, 0),
        };
        let taken = pages.min(self.zone_pages - next);
        self.active = Some((zone, next + taken));
        if next + taken == self.zone_pages {
            self.end_active();
        }
        Some((zone, next, taken))
    }

    /// Ends the active zone, full or not.
    pub(super) fn end_active(&mut self) {
        if let Some((zone, _)) = self.active.take() {
            self.full.push_back(zone);
        }
    }

    /// The zone being written.
    pub(super) fn active_zone(&self) -> Option<u32> {
        self.active.map(|(zone, _)| zone)
    }

    /// Removes the oldest zone if it is time to collect it.
    pub(super) fn take_oldest(&mut self) -> Option<u32> {
        if self.free.len() as u32 > self.collect_at {
            return None;
        }
        self.full.pop_front()
    }

    pub(super) fn give_back(&mut self, zone: u32) {
        self.free.push_back(zone);
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        room_bytes::<u32>(self.free.capacity()) + room_bytes::<u32>(self.full.capacity())
    }
}
