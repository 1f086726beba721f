//! Where set-groups and index groups lie: extents of equal size, each whole
//! zones or an equal part of one.

use std::collections::VecDeque;
use std::ops::Range;

use crate::tiny::append::Pins;
use crate::tiny::engine::Label;
use crate::tiny::object::{Flash, PageAddress};

/// An extent's number: its first page is that times its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent(pub(super) u32);

/// What an extent is used for.
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
    /// What each extent is used for.
    owners: Vec<Owner>,
    /// Of each zone: extents in use.
    used: Vec<u32>,
    /// Of each zone: extents handed out since its last reset.
    handed_out: Vec<u32>,
    /// Of each extent: searches inside.
    readers: Pins,
    /// Of each zone: whether a write to it failed.
    retired: Vec<bool>,
}

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
        }
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Extents that will be free once zones that wait have been reset.
    pub(super) fn coming(&self) -> usize {
        let zones = self.dead_zones.len() as u32;
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

    /// What an extent holds is not needed any more.
    pub(super) fn release(&mut self, extent: Extent) {
        for zone in self.zones(extent) {
            self.used[zone as usize] -= 1;
            let parts = (self.flash.zone_pages / self.pages).max(1);
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

    /// The next zone to reset, if nobody reads in it.
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
            return;
        }
        self.handed_out[zone as usize] = 0;
        if self.pages < self.flash.zone_pages {
            let parts = self.flash.zone_pages / self.pages;
            self.free
                .extend((0..parts).map(|part| Extent(zone * parts + part)));
            return;
        }
        let extent = Extent(zone / (self.pages / self.flash.zone_pages));
        let whole = self.zones(extent).all(|zone| {
            let zone = zone as usize;
            self.handed_out[zone] == 0 && !self.retired[zone]
        });
        if whole {
            self.free.push_back(extent);
        }
    }

    /// What a page says of itself.
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
        let parts = (self.flash.zone_pages / self.pages).max(1);
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
        let count = (self.flash.zone_pages / self.pages).max(1);
        first..first + count
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let per_zone = 2 * size_of::<u32>() + size_of::<bool>();
        self.readers.memory_bytes()
            + (self.used.len() * per_zone
                + self.free.len() * size_of::<Extent>()
                + self.owners.len() * size_of::<Owner>()) as u64
    }
}

fn zones_of(flash: Flash, pages: u32, extent: Extent) -> impl Iterator<Item = u32> {
    let first = extent.0 * pages / flash.zone_pages;
    let count = (pages / flash.zone_pages).max(1);
    first..first + count
}
