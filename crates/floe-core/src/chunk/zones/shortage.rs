//! A device that is smaller than it says: a sparse file on a disk that is full.

use std::collections::VecDeque;

use super::{ZonePhase, ZoneTable};
use crate::ZoneId;
use crate::chunk::plan::{METADATA_ZONES, WaterMarks};

impl ZoneTable {
    /// There is no space below the device for a write to `zone` (or for one of
    /// the journal if `None`), which is not the zone's fault: the device is
    /// smaller than it says. Zones that nothing is known to lie below are
    /// withdrawn, and one more: as many as are in use do not fit. Others are
    /// evicted instead, whose reset gives space back. Returns how many were
    /// withdrawn now.
    pub fn out_of_space(&mut self, zone: Option<ZoneId>) -> usize {
        let before = self.withdrawn.len();
        let phase = zone.map(|zone| (zone, self.zones[zone.index()].info.phase));
        let one_too_many = match phase {
            None => true,
            Some((zone, ZonePhase::Open)) => {
                if let Some(index) = self.open.iter().position(|&z| z == zone) {
                    self.start_closing(index);
                }
                true
            }
            Some((zone, ZonePhase::Opening)) => {
                self.withdraw(zone);
                false
            }
            // A write before this one told of the same shortage.
            Some(_) => false,
        };
        self.withdraw_unwritten();
        if one_too_many {
            match self.free.front() {
                Some(&zone) => self.withdraw(zone),
                None if self.usable_zones() > self.to_withdraw + 1 => self.to_withdraw += 1,
                // With the last one it is tried again.
                None => {}
            }
        }
        self.withdrawn.len() - before
    }

    /// Withdraws the free zones that nothing is known to lie below. Returns how
    /// many those were.
    pub fn withdraw_unwritten(&mut self) -> usize {
        // All at once: there may be very many.
        let (gave_back, unwritten): (VecDeque<ZoneId>, VecDeque<ZoneId>) = self
            .free
            .drain(..)
            .partition(|zone| self.zones[zone.index()].gave_back);
        self.free = gave_back;
        for &zone in &unwritten {
            self.withdraw(zone);
        }
        unwritten.len()
    }

    pub(super) fn withdraw(&mut self, zone: ZoneId) {
        self.retire(zone);
        self.zones[zone.index()].gave_back = false;
        self.withdrawn.push(zone);
    }

    /// Puts back what was withdrawn for want of space: there may be some again.
    /// Returns how many zones that were.
    pub fn restore_withdrawn(&mut self) -> usize {
        self.to_withdraw = 0;
        let zones = std::mem::take(&mut self.withdrawn);
        self.retired -= zones.len();
        for zone in &zones {
            let info = &mut self.zones[zone.index()].info;
            info.phase = ZonePhase::Empty;
            info.used_bytes = 0;
            info.records = 0;
            info.in_flight = 0;
            self.free.push_back(*zone);
        }
        zones.len()
    }

    /// Whether zones are out of use for want of space.
    pub fn any_withdrawn(&self) -> bool {
        !self.withdrawn.is_empty()
    }

    /// Data zones that are not retired.
    pub(super) fn usable_zones(&self) -> usize {
        self.data_zones() - self.retired
    }

    fn data_zones(&self) -> usize {
        self.zones.len() - METADATA_ZONES as usize
    }

    /// The share of `zones`, which were chosen for all data zones, once some are
    /// out of use; at least a quarter of those left.
    fn share(&self, zones: usize) -> usize {
        let usable = self.usable_zones();
        let share = zones * usable / self.data_zones().max(1);
        zones.min(share.max(usable / 4))
    }

    /// How many zones may be open.
    pub(super) fn open_most(&self) -> usize {
        self.share(self.open_most).max(1)
    }

    /// How many zones to keep free, of `marks` for all of them: where many are
    /// out of use, what is left is not emptied for the sake of a water mark.
    pub fn water(&self, marks: WaterMarks) -> WaterMarks {
        let least = self.gc_reserve as u32 + 1;
        let low = (self.share(marks.low as usize) as u32)
            .max(least)
            .min(marks.low);
        WaterMarks {
            high: marks.high.min(low.saturating_sub(1)),
            low,
        }
    }
}
