//! The places of set-groups and index groups: extents of equal size, each whole
//! zones or an equal part of one.

use std::collections::VecDeque;
use std::ops::Range;

use crate::tiny::engine::Label;
use crate::tiny::object::{Flash, PageAddress};
use crate::tiny::pins::Pins;

/// An extent's number: its first page is that times its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent(pub(super) u32);

/// The use of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Nobody,
    /// A set-group, by its sequence.
    SetGroup(u64),
    /// An index group, by its first set-group's sequence.
    IndexGroup(u64),
}

/// Hands out extents, and gives zones back when nothing in them is needed.
#[derive(Debug)]
pub(super) struct Extents {
    flash: Flash,
    /// Pages of an extent.
    pages: u32,
    /// Extents that can be handed out, in the order in which their zones
    /// became empty.
    free: VecDeque<Extent>,
    /// Zones that hold nothing needed, in the order in which that came to be,
    /// which is the order in which they are reset: otherwise, after a crash,
    /// something could be back of which the newer copy is gone.
    dead_zones: VecDeque<u32>,
    /// The use of each extent.
    owners: Vec<Owner>,
    /// Of each zone: extents in use.
    used: Vec<u32>,
    /// Of each zone: extents handed out since its last reset.
    handed_out: Vec<u32>,
    /// Of each extent: searches inside.
    readers: Pins,
    /// Of each zone: whether a write to it failed.
    retired: Vec<bool>,
    shortage: Shortage,
}

/// A device that is smaller than it says: a sparse file on a disk that is full.
#[derive(Debug)]
struct Shortage {
    /// Of each extent: was written and emptied, so that there is space below
    /// the device for it unless others have taken that.
    gave_back: Vec<bool>,
    /// Of each zone: there was no space for a write to it. Once it is emptied
    /// its extents are left out.
    starved: Vec<bool>,
    /// Extents that are left out, in the order in which they can be written.
    left_out: Vec<Extent>,
    /// When space was short last.
    since_seconds: u32,
}

/// How long extents without space below the device are left out.
const LEFT_OUT_SECONDS: u32 = 60;

impl Extents {
    pub(super) fn new(flash: Flash, pages: u32) -> Self {
        let zones = flash.zones as usize;
        let count = (flash.pages() / u64::from(pages)) as u32;
        Extents {
            flash,
            pages,
            free: (0..count).map(Extent).collect(),
            dead_zones: VecDeque::new(),
            owners: vec![Owner::Nobody; count as usize],
            used: vec![0; zones],
            handed_out: vec![0; zones],
            readers: Pins::new(count),
            retired: vec![false; zones],
            shortage: Shortage {
                gave_back: vec![false; count as usize],
                starved: vec![false; zones],
                left_out: Vec::new(),
                since_seconds: 0,
            },
        }
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Extents that will be free once zones that wait have been reset.
    pub(super) fn coming(&self) -> usize {
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
            self.handed_out[zone as usize] += 1;
        }
        Some(extent)
    }

    /// The content of an extent is not needed any more.
    pub(super) fn release(&mut self, extent: Extent) {
        for zone in self.zones(extent) {
            self.used[zone as usize] -= 1;
            let parts = self.parts();
            let over = self.used[zone as usize] == 0 && self.handed_out[zone as usize] == parts;
            if over && !self.retired[zone as usize] {
                self.dead_zones.push_back(zone);
            }
        }
    }

    /// Gives up the zones of an extent that could not be written.
    pub(super) fn retire(&mut self, extent: Extent) {
        for zone in self.zones(extent) {
            self.retired[zone as usize] = true;
        }
        let flash = self.flash;
        let (pages, retired) = (self.pages, &self.retired);
        self.free
            .retain(|other| !zones_of(flash, pages, *other).any(|zone| retired[zone as usize]));
        self.release(extent);
    }

    /// There was no space below the device for an extent: as many as are in use
    /// do not fit. It is left out for a while, once it is emptied, and so are
    /// those that nothing is known to lie below.
    pub(super) fn leave_out(&mut self, extent: Extent, now_seconds: u32) {
        let parts = self.parts();
        for zone in self.zones(extent) {
            self.shortage.starved[zone as usize] = true;
            // The rest of it is not written before it is emptied.
            self.handed_out[zone as usize] = parts;
        }
        let (flash, pages, shortage) = (self.flash, self.pages, &mut self.shortage);
        for other in std::mem::take(&mut self.free) {
            let mut zones = zones_of(flash, pages, other);
            if zones.any(|zone| shortage.starved[zone as usize]) {
                // Until its zone is emptied.
            } else if shortage.gave_back[other.0 as usize] {
                self.free.push_back(other);
            } else {
                shortage.left_out.push(other);
            }
        }
        shortage.since_seconds = now_seconds;
        self.release(extent);
    }

    /// Whether extents are left out for want of space.
    pub(super) fn any_left_out(&self) -> bool {
        !self.shortage.left_out.is_empty() || self.shortage.starved.contains(&true)
    }

    /// Takes what was left out in again, if it is time: there may be space.
    pub(super) fn take_in_again(&mut self, now_seconds: u32) {
        let shortage = &mut self.shortage;
        if now_seconds < shortage.since_seconds.saturating_add(LEFT_OUT_SECONDS) {
            return;
        }
        let (flash, pages, retired) = (self.flash, self.pages, &self.retired);
        let usable =
            |extent: &Extent| !zones_of(flash, pages, *extent).any(|zone| retired[zone as usize]);
        self.free.extend(shortage.left_out.drain(..).filter(usable));
    }

    /// The next zone to reset, if no search reads in it.
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

    /// A zone was reset, or that failed: then it is given up.
    pub(super) fn was_reset(&mut self, zone: u32, succeeded: bool) {
        if !succeeded {
            self.retired[zone as usize] = true;
            self.shortage.starved[zone as usize] = false;
            return;
        }
        self.handed_out[zone as usize] = 0;
        let extents = self.extents_of(zone);
        let zones = || zones_of(self.flash, self.pages, Extent(extents.start));
        // Of several zones of an extent the last one counts.
        if !zones().all(|zone| self.handed_out[zone as usize] == 0 && !self.retired[zone as usize])
        {
            return;
        }
        let shortage = &mut self.shortage;
        let starved = zones().any(|zone| shortage.starved[zone as usize]);
        zones().for_each(|zone| shortage.starved[zone as usize] = false);
        for extent in extents.clone() {
            shortage.gave_back[extent as usize] = !starved;
        }
        let extents = extents.map(Extent);
        match starved {
            true => shortage.left_out.extend(extents),
            false => self.free.extend(extents),
        }
    }

    /// The label of a page.
    pub(super) fn label(&self, page: PageAddress) -> Label {
        let sequence = match self.owners.get((page.0 / self.pages) as usize) {
            Some(Owner::SetGroup(sequence) | Owner::IndexGroup(sequence)) => *sequence,
            Some(Owner::Nobody) | None => 0,
        };
        Label {
            sequence,
            number: page.0 % self.pages,
        }
    }

    /// Takes back, after a restart, what is in use. The zones of all other
    /// extents that anything may have been written to are to be reset first.
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
                // Where a write would go on is not known: the rest of the zone
                // is left alone until all of it can be reset.
                self.handed_out[at] = parts;
            } else if written(zone) {
                self.handed_out[at] = parts;
                self.dead_zones.push_back(zone);
            }
        }
        let fresh: Vec<Extent> = (0..self.owners.len() as u32)
            .map(Extent)
            .filter(|extent| {
                self.zones(*extent)
                    .all(|zone| self.handed_out[zone as usize] == 0)
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

    /// The extents that share a zone, or the one that it is a part of.
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
                + self.shortage.left_out.capacity() * size_of::<Extent>()
                + self.owners.len() * per_extent) as u64
    }
}

fn zones_of(flash: Flash, pages: u32, extent: Extent) -> impl Iterator<Item = u32> {
    let first = extent.0 * pages / flash.zone_pages;
    let count = (pages / flash.zone_pages).max(1);
    first..first + count
}
