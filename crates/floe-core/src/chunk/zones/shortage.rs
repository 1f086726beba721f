//! Handles a device with less space than it reports, such as a sparse file on a
//! full disk.

use std::collections::VecDeque;

use super::{ZonePhase, ZoneTable};
use crate::ZoneId;
use crate::chunk::plan::{METADATA_ZONES, WaterMarks};

impl ZoneTable {
    /// Handles a write to `zone` (or to the metadata log if `None`) that failed
    /// because the device has less space than it reports. No more zones fit
    /// than are in use. So this withdraws all zones that are not known to have
    /// space, and one more. Others are evicted instead, and their reset frees
    /// space. Returns the number of zones withdrawn now.
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
            // An earlier write to the zone reported the same shortage.
            Some(_) => false,
        };
        self.withdraw_unwritten();
        if one_too_many {
            match self.free.front() {
                Some(&zone) => self.withdraw(zone),
                None if self.usable_zones() > self.to_withdraw + 1 => self.to_withdraw += 1,
                // The last zone is never withdrawn: its write is tried again.
                None => {}
            }
        }
        self.withdrawn.len() - before
    }

    /// Withdraws the free zones that are not known to have space. Returns their
    /// number.
    pub fn withdraw_unwritten(&mut self) -> usize {
        // In one pass, because there may be very many.
        let (has_space, unwritten): (VecDeque<ZoneId>, VecDeque<ZoneId>) = self
            .free
            .drain(..)
            .partition(|zone| self.zones[zone.index()].has_space);
        self.free = has_space;
        for &zone in &unwritten {
            self.withdraw(zone);
        }
        unwritten.len()
    }

    pub(super) fn withdraw(&mut self, zone: ZoneId) {
        self.retire(zone);
        self.zones[zone.index()].has_space = false;
        self.withdrawn.push(zone);
    }

    /// Restores withdrawn zones, because there may be space again. Returns
    /// their number.
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

    /// True if any zone is withdrawn.
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

    /// Scales `zones`, a number chosen for all data zones, to those in use, but
    /// not below a quarter of these.
    fn share(&self, zones: usize) -> usize {
        let usable = self.usable_zones();
        let share = zones * usable / self.data_zones().max(1);
        zones.min(share.max(usable / 4))
    }

    /// Most open zones.
    pub(super) fn open_max(&self) -> usize {
        self.share(self.open_max).max(1)
    }

    /// Scales the water marks to the zones in use, so that few zones are not
    /// emptied only to reach a mark.
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
