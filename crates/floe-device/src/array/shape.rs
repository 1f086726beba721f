//! The place of each zone of an array.

use floe_core::layout::ArrayLabel;
use floe_core::{Geometry, ZoneId};

/// The zones of labels.
pub(super) const LABEL_ZONES: [ZoneId; 2] = [ZoneId(0), ZoneId(1)];

/// Most blocks of labels in a zone: two copies of each, of one run.
pub(super) const LABELS_MAX: u64 = 64;

/// Zones of the array that every drive has a copy of.
pub(super) const MIRRORED_ZONES: u32 = 2;

/// The first zone for values of a drive.
const FIRST_OF_VALUES: u32 = LABEL_ZONES.len() as u32 + MIRRORED_ZONES;

/// Zones of labels of each drive that may be open or active.
pub(super) const LABELS_ACTIVE: u32 = LABEL_ZONES.len() as u32;

/// The places of zones on drives.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// The array as a device.
    pub(super) geometry: Geometry,
    /// Number of slots.
    pub(super) drives: u32,
    /// Zones used of each drive.
    pub(super) drive_zones: u32,
}

/// The place of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This zone of every drive.
    Mirrored(ZoneId),
    /// This zone of the drive in this slot.
    On(usize, ZoneId),
}

impl Shape {
    /// The shape of an array with `slots` drives, of which those of `drives` are there.
    ///
    /// # Errors
    /// Why they cannot be one device.
    pub(super) fn new(
        slots: usize,
        drives: &[&Geometry],
        label: Option<&ArrayLabel>,
    ) -> Result<Self, &'static str> {
        let (first, rest) = drives.split_first().ok_or("no drive is there")?;
        for drive in rest {
            if drive.zone_size != first.zone_size || drive.zone_capacity != first.zone_capacity {
                return Err("its drives have zones of different sizes; set device.zone_size");
            }
            if drive.block_size != first.block_size {
                return Err("its drives have blocks of different sizes; set device.block_size");
            }
        }
        let smallest = drives.iter().map(|drive| drive.zone_count).min();
        let drive_zones = label.map_or(smallest.unwrap_or(0), |label| label.zone_count);
        if smallest.is_some_and(|zones| zones < drive_zones) {
            return Err("a drive is smaller than the array was created with");
        }
        if let Some(label) = label
            && (label.zone_size != first.zone_size
                || label.zone_capacity != first.zone_capacity
                || label.block_size != first.block_size)
        {
            return Err("its drives have other zones or blocks than it was created with");
        }
        if drive_zones <= FIRST_OF_VALUES {
            return Err("each drive needs at least 5 zones; set a smaller device.zone_size");
        }
        if first.zone_capacity / u64::from(first.block_size) < LABELS_MAX {
            return Err("each zone needs at least 64 blocks; set a larger device.zone_size");
        }
        let drives_count = slots as u32;
        let zone_count = (drive_zones - FIRST_OF_VALUES)
            .checked_mul(drives_count)
            .and_then(|zones| zones.checked_add(MIRRORED_ZONES))
            .ok_or("it has more than 2^32 zones; set a larger device.zone_size")?;
        let lowest = |limit: fn(&Geometry) -> Option<u32>| {
            let lowest = drives.iter().filter_map(|drive| limit(drive)).min();
            lowest.map(|zones| zones.saturating_sub(LABELS_ACTIVE))
        };
        let limits = [
            lowest(|drive| drive.max_open_zones),
            lowest(|drive| drive.max_active_zones),
        ];
        if limits
            .into_iter()
            .flatten()
            .any(|limit| limit <= MIRRORED_ZONES)
        {
            return Err("each drive needs at least 5 zones that may be open and active");
        }
        let least = |number: fn(&Geometry) -> u32| drives.iter().map(|drive| number(drive)).min();
        let geometry = Geometry {
            zone_count,
            max_open_zones: limits[0],
            max_active_zones: limits[1],
            max_append_bytes: least(|drive| drive.max_append_bytes).unwrap_or(0),
            random_writes: drives.iter().all(|drive| drive.random_writes),
            native_append: drives.iter().all(|drive| drive.native_append),
            placement_handles: drives
                .iter()
                .map(|drive| drive.placement_handles)
                .min()
                .unwrap_or(0),
            ..**first
        };
        geometry
            .validate()
            .map_err(|_| "its drives together make no valid device")?;
        Ok(Shape {
            geometry,
            drives: drives_count,
            drive_zones,
        })
    }

    /// The place of `zone`, which exists.
    pub(super) fn place(&self, zone: ZoneId) -> Place {
        match zone.0.checked_sub(MIRRORED_ZONES) {
            None => Place::Mirrored(ZoneId(LABEL_ZONES.len() as u32 + zone.0)),
            Some(value) => {
                let (slot, row) = (value % self.drives, value / self.drives);
                Place::On(slot as usize, ZoneId(FIRST_OF_VALUES + row))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn drive(zones: u32) -> Geometry {
        Geometry {
            block_size: 4096,
            zone_size: 1 << 20,
            zone_capacity: 1 << 20,
            zone_count: zones,
            max_open_zones: Some(10),
            max_active_zones: Some(14),
            max_append_bytes: 1 << 17,
            random_writes: false,
            native_append: true,
            placement_handles: 8,
        }
    }

    #[test]
    fn every_zone_for_values_has_a_place_of_its_own() {
        for slots in 1..=5 {
            let drives = vec![drive(12); slots];
            let shape = Shape::new(slots, &drives.iter().collect::<Vec<_>>(), None).unwrap();
            let places: HashSet<_> = shape
                .geometry
                .zones()
                .map(|zone| match shape.place(zone) {
                    Place::Mirrored(zone) => (usize::MAX, zone),
                    Place::On(slot, zone) => (slot, zone),
                })
                .collect();
            assert_eq!(places.len(), 2 + 8 * slots);
            for (slot, zone) in places {
                assert!(
                    slot == usize::MAX && (2..4).contains(&zone.0) || (4..12).contains(&zone.0)
                );
            }
            assert_eq!(shape.geometry.max_active_zones, Some(12));
        }
    }

    #[test]
    fn drives_that_differ_are_refused() {
        let other = Geometry {
            zone_capacity: 1 << 19,
            ..drive(12)
        };
        assert!(Shape::new(2, &[&drive(12), &other], None).is_err());
        assert!(Shape::new(2, &[&drive(4), &drive(4)], None).is_err());
        let shape = Shape::new(2, &[&drive(12), &drive(9)], None).unwrap();
        assert_eq!(shape.drive_zones, 9);
    }
}
