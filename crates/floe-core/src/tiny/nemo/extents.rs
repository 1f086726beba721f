//! Allocation of flash to set-groups and index groups, in extents of equal
//! size: whole zones, or an equal part of one.

use std::collections::VecDeque;
use std::ops::Range;

use crate::tiny::engine::Label;
use crate::tiny::object::{Flash, PageAddress};
use crate::tiny::pins::Pins;

/// An extent's number. Its first page is the number times the extent's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent(pub(super) u32);

/// The use of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Unused,
    /// Holds the set-group with this sequence.
    SetGroup(u64),
    /// Holds the index group whose first set-group has this sequence.
    IndexGroup(u64),
}

/// Allocates extents, and hands out zones to reset once nothing in them is
/// needed.
#[derive(Debug)]
pub(super) struct Extents {
    flash: Flash,
    /// Pages of an extent.
    pages: u32,
    /// Extents that can be allocated, in the order in which their zones became
    /// empty.
    free: VecDeque<Extent>,
    /// Zones to reset, in the order in which they became dead. Another order
    /// could bring back, after a crash, an older copy whose newer copy is gone.
    dead_zones: VecDeque<u32>,
    /// The use of each extent.
    owners: Vec<Owner>,
    /// Extents in use, by zone.
    used: Vec<u32>,
    /// Extents allocated since the last reset, by zone.
    allocated: Vec<u32>,
    /// Searches that read an extent, by extent.
    readers: Pins,
    /// Zones with a failed write or reset, by zone.
    retired: Vec<bool>,
    shortage: Shortage,
}

/// State for a device with less space than it reports, such as a sparse file on
/// a full disk. An extent is excluded while it has no space.
#[derive(Debug)]
struct Shortage {
    /// Extents whose last reset freed space, by extent. The space is available
    /// unless another file has taken it.
    has_space: Vec<bool>,
    /// Zones with a write that failed for want of space, by zone. Once the zone
    /// is reset, its extents are excluded.
    starved: Vec<bool>,
    /// Excluded extents, in the order in which they can be written.
    excluded: Vec<Extent>,
    /// When a write last failed for want of space.
    since_seconds: u32,
}

/// How long extents without space stay excluded.
const EXCLUDED_SECONDS: u32 = 60;

impl Extents {
    pub(super) fn new(flash: Flash, pages: u32) -> Self {
        let zones = flash.zones as usize;
        let count = (flash.pages() / u64::from(pages)) as u32;
        Extents {
            flash,
            pages,
            free: (0..count).map(Extent).collect(),
            dead_zones: VecDeque::new(),
            owners: vec![Owner::Unused; count as usize],
            used: vec![0; zones],
            allocated: vec![0; zones],
            readers: Pins::new(count),
            retired: vec![false; zones],
            shortage: Shortage {
                has_space: vec![false; count as usize],
                starved: vec![false; zones],
                excluded: Vec::new(),
                since_seconds: 0,
            },
        }
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Extents that the reset of dead zones will make free.
    pub(super) fn freeable(&self) -> usize {
        let starved = &self.shortage.starved;
        let dead_zones = self.dead_zones.iter();
        let zones = dead_zones.filter(|zone| !starved[**zone as usize]).count() as u32;
        if self.pages >= self.flash.zone_pages {
            (zones / (self.pages / self.flash.zone_pages)) as usize
        } else {
            (zones * (self.flash.zone_pages / self.pages)) as usize
        }
    }

    pub(super) fn take(&mut self, owner: Owner) -> Option<Extent> {
        let extent = self.free.pop_front()?;
        self.owners[extent.0 as usize] = owner;
        for zone in self.zones(extent) {
            self.used[zone as usize] += 1;
            self.allocated[zone as usize] += 1;
        }
        Some(extent)
    }

    /// Marks an extent's content as no longer needed.
    pub(super) fn release(&mut self, extent: Extent) {
        for zone in self.zones(extent) {
            self.used[zone as usize] -= 1;
            let parts = self.parts();
            let over = self.used[zone as usize] == 0 && self.allocated[zone as usize] == parts;
            if over && !self.retired[zone as usize] {
                self.dead_zones.push_back(zone);
            }
        }
    }

    /// Stops using the zones of an extent whose write failed.
    pub(super) fn retire(&mut self, extent: Extent) {
        for zone in self.zones(extent) {
            self.retired[zone as usize] = true;
        }
        self.leave_retired();
        self.release(extent);
    }

    /// Stops using zones that are read-only or offline. What they hold may stay readable:
    /// until flash records that it is gone, it counts as unsettled.
    pub(super) fn retire_zones(&mut self, is_unwritable: &dyn Fn(u32) -> bool) {
        for (zone, retired) in (0..).zip(&mut self.retired) {
            *retired |= is_unwritable(zone);
        }
        self.leave_retired();
        let retired = &self.retired;
        self.dead_zones.retain(|zone| !retired[*zone as usize]);
    }

    fn leave_retired(&mut self) {
        let (flash, pages, retired) = (self.flash, self.pages, &self.retired);
        self.free
            .retain(|extent| !zones_of(flash, pages, *extent).any(|zone| retired[zone as usize]));
    }

    /// Handles a write that failed for want of space: no more extents fit than
    /// are in use. Excludes this extent once its zone is reset, and every free
    /// extent that is not known to have space.
    pub(super) fn exclude(&mut self, extent: Extent, now_seconds: u32) {
        let parts = self.parts();
        for zone in self.zones(extent) {
            self.shortage.starved[zone as usize] = true;
            // Extents in the rest of the zone are not written before its reset.
            self.allocated[zone as usize] = parts;
        }
        let (flash, pages, shortage) = (self.flash, self.pages, &mut self.shortage);
        for other in std::mem::take(&mut self.free) {
            let mut zones = zones_of(flash, pages, other);
            if zones.any(|zone| shortage.starved[zone as usize]) {
                // The reset of its zone frees it.
            } else if shortage.has_space[other.0 as usize] {
                self.free.push_back(other);
            } else {
                shortage.excluded.push(other);
            }
        }
        shortage.since_seconds = now_seconds;
        self.release(extent);
    }

    /// True if any extent has no space.
    pub(super) fn any_excluded(&self) -> bool {
        !self.shortage.excluded.is_empty() || self.shortage.starved.contains(&true)
    }

    /// Makes excluded extents free again once `EXCLUDED_SECONDS` have passed,
    /// because there may be space now.
    pub(super) fn readmit(&mut self, now_seconds: u32) {
        let shortage = &mut self.shortage;
        if now_seconds < shortage.since_seconds.saturating_add(EXCLUDED_SECONDS) {
            return;
        }
        let (flash, pages, retired) = (self.flash, self.pages, &self.retired);
        let usable =
            |extent: &Extent| !zones_of(flash, pages, *extent).any(|zone| retired[zone as usize]);
        self.free.extend(shortage.excluded.drain(..).filter(usable));
    }

    /// Takes the next zone to reset, unless a search reads it.
    pub(super) fn take_dead_zone(&mut self) -> Option<u32> {
        let zone = *self.dead_zones.front()?;
        let mut extents = self.extents_of(zone);
        if !extents.all(|extent| self.readers.is_free(extent)) {
            return None;
        }
        self.dead_zones.pop_front()
    }

    pub(super) fn waits_for_readers(&self) -> bool {
        !self.dead_zones.is_empty()
    }

    /// Handles the end of a reset. A zone whose reset failed is no longer used.
    pub(super) fn was_reset(&mut self, zone: u32, succeeded: bool) {
        if !succeeded {
            self.retired[zone as usize] = true;
            self.shortage.starved[zone as usize] = false;
            return;
        }
        self.allocated[zone as usize] = 0;
        let extents = self.extents_of(zone);
        let zones = || zones_of(self.flash, self.pages, Extent(extents.start));
        // An extent of several zones is free when all of them are reset.
        if !zones().all(|zone| self.allocated[zone as usize] == 0 && !self.retired[zone as usize]) {
            return;
        }
        let shortage = &mut self.shortage;
        let starved = zones().any(|zone| shortage.starved[zone as usize]);
        zones().for_each(|zone| shortage.starved[zone as usize] = false);
        for extent in extents.clone() {
            shortage.has_space[extent as usize] = !starved;
        }
        let extents = extents.map(Extent);
        match starved {
            true => shortage.excluded.extend(extents),
            false => self.free.extend(extents),
        }
    }

    /// The label that the page at `page` has or gets.
    pub(super) fn label(&self, page: PageAddress) -> Label {
        let sequence = match self.owners.get((page.0 / self.pages) as usize) {
            Some(Owner::SetGroup(sequence) | Owner::IndexGroup(sequence)) => *sequence,
            Some(Owner::Unused) | None => 0,
        };
        Label {
            sequence,
            number: page.0 % self.pages,
        }
    }

    /// Restores the extents in use after a restart. All other zones that
    /// `written` names are reset before they are used.
    pub(super) fn recover(&mut self, used: &[(Extent, Owner)], written: impl Fn(u32) -> bool) {
        let parts = self.parts();
        self.free.clear();
        for (extent, owner) in used {
            self.owners[extent.0 as usize] = *owner;
            for zone in self.zones(*extent) {
                self.used[zone as usize] += 1;
            }
        }
        for zone in 0..self.flash.zones {
            let at = zone as usize;
            if self.used[at] > 0 {
                // The zone's write pointer is unknown, so its other extents
                // stay unused until the whole zone is reset.
                self.allocated[at] = parts;
            } else if written(zone) {
                self.allocated[at] = parts;
                self.dead_zones.push_back(zone);
            }
        }
        let fresh: Vec<Extent> = (0..self.owners.len() as u32)
            .map(Extent)
            .filter(|extent| {
                self.zones(*extent)
                    .all(|zone| self.allocated[zone as usize] == 0)
            })
            .collect();
        self.free.extend(fresh);
    }

    pub(super) fn pin(&mut self, extent: Extent) {
        self.readers.pin(extent.0);
    }

    pub(super) fn unpin(&mut self, extent: Extent) {
        self.readers.unpin(extent.0);
    }

    pub(super) fn page(&self, extent: Extent, page: u32) -> PageAddress {
        PageAddress(extent.0 * self.pages + page)
    }

    fn zones(&self, extent: Extent) -> impl Iterator<Item = u32> + use<> {
        zones_of(self.flash, self.pages, extent)
    }

    /// The extents in a zone, or the extent that the zone is a part of.
    fn extents_of(&self, zone: u32) -> Range<u32> {
        let first = zone * self.flash.zone_pages / self.pages;
        first..first + self.parts()
    }

    /// Extents of a zone, at least one.
    fn parts(&self) -> u32 {
        (self.flash.zone_pages / self.pages).max(1)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let per_zone = 2 * size_of::<u32>() + 2 * size_of::<bool>();
        let per_extent = size_of::<Owner>() + size_of::<bool>();
        self.readers.memory_bytes()
            + (self.used.len() * per_zone
                + self.free.capacity() * size_of::<Extent>()
                + self.dead_zones.capacity() * size_of::<u32>()
                + self.shortage.excluded.capacity() * size_of::<Extent>()
                + self.owners.len() * per_extent) as u64
    }
}

fn zones_of(flash: Flash, pages: u32, extent: Extent) -> impl Iterator<Item = u32> {
    let first = extent.0 * pages / flash.zone_pages;
    let count = (pages / flash.zone_pages).max(1);
    first..first + count
}
