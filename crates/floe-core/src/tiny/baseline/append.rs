//! An append log over zones: objects are packed into pages, pages into
//! segments, and segments are appended to one zone after another.
//!
//! A page gets its address when its first object is packed. Its objects stay in
//! memory until the segment is on flash. Only one append is in flight, so
//! objects on flash are always older than those in memory. The engine keeps the
//! index; the log reports changed addresses to it.

use std::collections::VecDeque;

use crate::hash::KeyHash;
use crate::tiny::engine::Page;
use crate::tiny::object::{Flash, Object, PAGE_ROOM_BYTES, PageAddress};
use crate::tiny::statistics::{payload_bytes, room_bytes};

/// The log.
#[derive(Debug)]
pub(super) struct AppendLog {
    flash: Flash,
    first_zone: u32,
    segment_pages: u32,
    segments_max: usize,
    /// Zones that can be written.
    free: VecDeque<u32>,
    /// Written zones, oldest first, with the number of their written pages.
    full: VecDeque<(u32, u32)>,
    /// The zone that the next segment gets its pages from.
    active: Option<Active>,
    /// Segments in memory, oldest first. The last one may be open.
    segments: VecDeque<Segment>,
    /// Emptied pages, whose memory is reused.
    spare: Vec<Vec<Object>>,
    zones: u32,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    zone: u32,
    /// Pages of the zone that segments have.
    assigned: u32,
}

#[derive(Debug)]
struct Segment {
    first: PageAddress,
    pages: Vec<Vec<Object>>,
    /// Bytes that objects take in the last page.
    used: usize,
    pages_max: u32,
    state: State,
    /// The segment is the last one of its zone.
    last_of_zone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Ready,
    Writing,
    /// Its append failed, or an earlier one did, and it has no new address yet.
    Displaced,
}

/// The size of an append, for statistics.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    pub(super) pages: u64,
    pub(super) bytes_filled: u64,
}

impl AppendLog {
    pub(super) fn new(
        flash: Flash,
        first_zone: u32,
        zones: u32,
        segment_pages: u32,
        segments_max: usize,
    ) -> Self {
        AppendLog {
            flash,
            first_zone,
            segment_pages,
            segments_max,
            free: (first_zone..first_zone + zones).collect(),
            full: VecDeque::new(),
            active: None,
            segments: VecDeque::new(),
            spare: Vec::new(),
            zones,
        }
    }

    /// Packs an object into the open segment and returns its page.
    ///
    /// # Errors
    /// Returns the object if there is no room in memory or on flash.
    pub(super) fn push(&mut self, object: Object) -> Result<PageAddress, Object> {
        let bytes = object.stored_bytes();
        if !self.has_room(bytes) {
            return Err(object);
        }
        let spare = &mut self.spare;
        let Some(segment) = self.segments.back_mut() else {
            return Err(object);
        };
        if segment.pages.is_empty() || segment.used + bytes > PAGE_ROOM_BYTES {
            segment.pages.push(spare.pop().unwrap_or_default());
            segment.used = 0;
        }
        segment.used += bytes;
        let at = PageAddress(segment.first.0 + segment.pages.len() as u32 - 1);
        if let Some(page) = segment.pages.last_mut() {
            page.push(object);
        }
        Ok(at)
    }

    /// True if the open segment, or a new one, has room for `bytes` more.
    pub(super) fn has_room(&mut self, bytes: usize) -> bool {
        if let Some(open) = self.segments.back_mut().filter(|s| s.state == State::Open) {
            let full = open.pages.len() as u32 == open.pages_max;
            if !full || open.used + bytes <= PAGE_ROOM_BYTES {
                return true;
            }
            open.state = State::Ready;
        }
        self.open_segment()
    }

    fn open_segment(&mut self) -> bool {
        if self.segments.len() >= self.segments_max || self.has_displaced() {
            return false;
        }
        let Some((first, pages_max, last_of_zone)) = self.assign_pages(self.segment_pages) else {
            return false;
        };
        self.segments.push_back(Segment {
            first,
            pages: Vec::with_capacity(pages_max as usize),
            used: 0,
            pages_max,
            state: State::Open,
            last_of_zone,
        });
        true
    }

    /// Assigns up to `pages` pages of the active zone or the next free one.
    /// Returns the first page, their number, and whether they end the zone.
    fn assign_pages(&mut self, pages: u32) -> Option<(PageAddress, u32, bool)> {
        let Active { zone, assigned } = match self.active {
            Some(active) => active,
            None => Active {
                zone: self.free.pop_front()?,
                assigned: 0,
            },
        };
        let pages = pages.min(self.flash.zone_pages - assigned);
        let last_of_zone = assigned + pages == self.flash.zone_pages;
        self.active = (!last_of_zone).then_some(Active {
            zone,
            assigned: assigned + pages,
        });
        let first = PageAddress(self.flash.first_page(zone).0 + assigned);
        Some((first, pages, last_of_zone))
    }

    /// True if an append is ready and none is in flight.
    pub(super) fn has_append(&self) -> bool {
        self.segments
            .front()
            .is_some_and(|segment| segment.state == State::Ready)
    }

    /// Starts the next append, if one is ready. Its objects stay in memory
    /// until [`AppendLog::written`].
    pub(super) fn next_append(&mut self) -> Option<(PageAddress, Vec<Page>)> {
        let segment = self
            .segments
            .front_mut()
            .filter(|segment| segment.state == State::Ready)?;
        segment.state = State::Writing;
        let pages = segment.pages.iter().cloned().map(Page::Objects).collect();
        Some((segment.first, pages))
    }

    /// Handles the end of the append in flight.
    pub(super) fn written(&mut self) -> Written {
        let Some(segment) = self.segments.pop_front() else {
            return Written::default();
        };
        let mut written = Written::default();
        for mut page in segment.pages {
            written.pages += 1;
            written.bytes_filled += page.iter().map(Object::stored_bytes).sum::<usize>() as u64;
            page.clear();
            self.spare.push(page);
        }
        if segment.last_of_zone {
            let zone = self.flash.zone_of(segment.first);
            let end = segment.first.0 + written.pages as u32;
            let pages = end - self.flash.first_page(zone).0;
            self.full.push_back((zone, pages));
        }
        written
    }

    /// Handles a failed append. Its zone takes no more writes, and the segments
    /// in memory get new addresses once there is room
    /// ([`AppendLog::place_displaced`]).
    pub(super) fn failed(&mut self) {
        let Some(front) = self.segments.front() else {
            return;
        };
        let zone = self.flash.zone_of(front.first);
        let good = front.first.0 - self.flash.first_page(zone).0;
        self.full.push_back((zone, good));
        // Appends run in order, so later zones have no data.
        let mut untouched: Vec<u32> = self.active.take().map(|a| a.zone).into_iter().collect();
        for segment in &mut self.segments {
            segment.state = State::Displaced;
            untouched.push(self.flash.zone_of(segment.first));
        }
        self.segments.retain(|segment| !segment.pages.is_empty());
        untouched.sort_unstable();
        untouched.dedup();
        self.free
            .extend(untouched.into_iter().filter(|later| *later != zone));
    }

    /// Gives the segments that a failed append left in memory new pages, and
    /// reports each object's old and new page. Either all segments move or
    /// none, because the new page of one object may be the old page of another.
    pub(super) fn place_displaced(
        &mut self,
        mut moved: impl FnMut(&Object, PageAddress, PageAddress),
    ) {
        if !self.can_place_displaced() {
            return;
        }
        for at in 0..self.segments.len() {
            if self.segments[at].state != State::Displaced {
                continue;
            }
            let pages = self.segments[at].pages.len() as u32;
            let zone_pages = self.flash.zone_pages;
            let short = |active: Active| zone_pages - active.assigned < pages;
            if let Some(active) = self.active.take_if(|active| short(*active)) {
                // The rest of the zone is too short for the segment and stays
                // unused.
                match at.checked_sub(1) {
                    Some(before) => self.segments[before].last_of_zone = true,
                    None => self.full.push_back((active.zone, active.assigned)),
                }
            }
            let Some((first, _, last_of_zone)) = self.assign_pages(pages) else {
                return;
            };
            let segment = &mut self.segments[at];
            for (number, page) in (0..).zip(&segment.pages) {
                for object in page {
                    let old = PageAddress(segment.first.0 + number);
                    moved(object, old, PageAddress(first.0 + number));
                }
            }
            segment.first = first;
            segment.pages_max = pages;
            segment.last_of_zone = last_of_zone;
            segment.state = State::Ready;
        }
    }

    /// True if all displaced segments fit.
    fn can_place_displaced(&self) -> bool {
        let zone_pages = self.flash.zone_pages;
        let mut left = self.active.map_or(0, |active| zone_pages - active.assigned);
        let mut zones = self.free.len();
        let mut displaced = self.segments.iter().filter(|s| s.state == State::Displaced);
        displaced.all(|segment| {
            let pages = segment.pages.len() as u32;
            if left < pages {
                left = zone_pages;
                let Some(others) = zones.checked_sub(1) else {
                    return false;
                };
                zones = others;
            }
            left -= pages;
            true
        })
    }

    /// True if segments wait for a new address.
    pub(super) fn has_displaced(&self) -> bool {
        self.segments
            .back()
            .is_some_and(|segment| segment.state == State::Displaced)
    }

    pub(super) fn buffers(&self, page: PageAddress) -> bool {
        self.segment_of(page).is_some()
    }

    /// True if `page` is in memory, and neither on flash nor being written.
    pub(super) fn only_in_memory(&self, page: PageAddress) -> bool {
        self.segment_of(page)
            .is_some_and(|segment| matches!(segment.state, State::Open | State::Ready))
    }

    /// True if the segment of `page` still takes objects.
    pub(super) fn is_open(&self, page: PageAddress) -> bool {
        self.segment_of(page)
            .is_some_and(|segment| segment.state == State::Open)
    }

    /// The objects of a page in memory.
    pub(super) fn page(&self, page: PageAddress) -> Option<&[Object]> {
        let segment = self.segment_of(page)?;
        Some(&segment.pages[(page.0 - segment.first.0) as usize])
    }

    /// The object `hash` in a page in memory.
    pub(super) fn find(&self, page: PageAddress, hash: KeyHash) -> Option<&Object> {
        self.page(page)?.iter().find(|object| object.hash == hash)
    }

    /// The page that takes the next object, unless it is full.
    pub(super) fn page_open(&self) -> Option<PageAddress> {
        let open = self.segments.back().filter(|s| s.state == State::Open)?;
        let last = open.pages.len().checked_sub(1)?;
        Some(PageAddress(open.first.0 + last as u32))
    }

    /// Removes an object from a page of the open segment.
    pub(super) fn remove(&mut self, page: PageAddress, hash: KeyHash) -> Option<Object> {
        let segment = self.segments.back_mut()?;
        if segment.state != State::Open || page < segment.first {
            return None;
        }
        let number = (page.0 - segment.first.0) as usize;
        let is_last = number + 1 == segment.pages.len();
        let objects = segment.pages.get_mut(number)?;
        let slot = objects.iter().position(|object| object.hash == hash)?;
        let object = objects.swap_remove(slot);
        if is_last {
            segment.used -= object.stored_bytes();
        }
        Some(object)
    }

    fn segment_of(&self, page: PageAddress) -> Option<&Segment> {
        self.segments.iter().rev().find(|segment| {
            page >= segment.first && page.0 < segment.first.0 + segment.pages.len() as u32
        })
    }

    /// Pages that segments can still get.
    pub(super) fn pages_free(&self) -> u64 {
        let of_active = self
            .active
            .map_or(0, |active| self.flash.zone_pages - active.assigned);
        self.free.len() as u64 * u64::from(self.flash.zone_pages) + u64::from(of_active)
    }

    /// Pages of the log's zones.
    pub(super) fn pages(&self) -> u64 {
        u64::from(self.zones) * u64::from(self.flash.zone_pages)
    }

    /// Removes the oldest written zone, and returns it with the number of its
    /// written pages. A displaced segment still has its old addresses and so
    /// holds its old zone.
    pub(super) fn take_oldest(&mut self) -> Option<(u32, u32)> {
        let (zone, _) = *self.full.front()?;
        let held = self.segments.iter().any(|segment| {
            segment.state == State::Displaced && self.flash.zone_of(segment.first) == zone
        });
        if held {
            return None;
        }
        self.full.pop_front()
    }

    /// Adds a zone that was reset.
    pub(super) fn give_back(&mut self, zone: u32) {
        debug_assert!((self.first_zone..self.first_zone + self.zones).contains(&zone));
        self.free.push_back(zone);
    }

    /// Bytes of memory of segments and lists of zones, without keys and values.
    pub(super) fn buffer_bytes(&self) -> u64 {
        let of_page = |page: &Vec<Object>| room_bytes::<Object>(page.capacity());
        let buffered = self.segments.iter().flat_map(|segment| &segment.pages);
        let objects: u64 = buffered.chain(&self.spare).map(of_page).sum();
        let lists = self.segments.iter().map(|segment| &segment.pages);
        let lists = lists.chain(std::iter::once(&self.spare));
        let pages: u64 = lists
            .map(|pages| room_bytes::<Vec<Object>>(pages.capacity()))
            .sum();
        objects
            + pages
            + room_bytes::<Segment>(self.segments.capacity())
            + room_bytes::<u32>(self.free.capacity())
            + room_bytes::<(u32, u32)>(self.full.capacity())
    }

    /// Bytes of memory of the keys and values in segments.
    pub(super) fn payload_bytes(&self) -> u64 {
        let pages = self.segments.iter().flat_map(|segment| &segment.pages);
        payload_bytes(pages.flatten())
    }

    /// Objects in memory.
    pub(super) fn objects_buffered(&self) -> u64 {
        let pages = self.segments.iter().flat_map(|segment| &segment.pages);
        pages.map(|page| page.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::KeyHash;

    /// Checks that each zone is in one list, and that no two placed segments
    /// share a page.
    fn check(log: &AppendLog, cleaned: &[u32]) -> Result<(), TestCaseError> {
        let zones = log.free.iter().chain(log.full.iter().map(|(zone, _)| zone));
        let active = log.active.iter().map(|active| &active.zone);
        let mut zones: Vec<u32> = zones.chain(active).chain(cleaned).copied().collect();
        zones.sort_unstable();
        prop_assert!(zones.windows(2).all(|pair| pair[0] != pair[1]), "{zones:?}");
        let placed = log.segments.iter().filter(|s| s.state != State::Displaced);
        let mut pages: Vec<u32> = placed
            .flat_map(|s| s.first.0..s.first.0 + s.pages.len() as u32)
            .collect();
        let count = pages.len();
        pages.sort_unstable();
        pages.dedup();
        prop_assert_eq!(pages.len(), count);
        let has_displaced = |segment: &Segment| segment.state == State::Displaced;
        let displaced = log.segments.iter().filter(|s| has_displaced(s)).count();
        prop_assert!(displaced == 0 || displaced == log.segments.len());
        Ok(())
    }

    proptest! {
        #[test]
        fn after_any_failure_every_page_has_one_address(
            steps in prop::collection::vec(0u8..10, 1..400),
        ) {
            let flash = Flash { zones: 5, zone_pages: 7, in_place: false };
            let mut log = AppendLog::new(flash, 0, 5, 3, 4);
            let mut cleaned: Vec<u32> = Vec::new();
            let mut is_out = false;
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    0..5 => {
                        let _ = log.push(Object::sized(KeyHash(number as u64), 1500));
                    }
                    5 | 6 if is_out => {
                        log.written();
                        is_out = false;
                    }
                    7 if is_out => {
                        log.failed();
                        is_out = false;
                    }
                    5..8 => is_out = log.next_append().is_some(),
                    8 if log.has_displaced() => log.place_displaced(|_, _, _| ()),
                    8 => cleaned.extend(log.take_oldest().map(|(zone, _)| zone)),
                    _ => cleaned.drain(..).for_each(|zone| log.give_back(zone)),
                }
                check(&log, &cleaned)?;
            }
        }
    }
}
