//! Sparse storage for devices that keep their data in memory.

use floe_core::{Geometry, ZoneId};
use parking_lot::RwLock;

/// Most bytes that are taken at once when something is written.
const EXTENT_BYTES_MAX: u64 = 1 << 20;

/// Zones of bytes, zeros where nothing was written.
pub(crate) struct Medium {
    zones: Vec<RwLock<Extents>>,
    extent_bytes: usize,
}

/// A zone's extents; none while nothing of the zone is written.
#[derive(Default)]
pub(crate) struct Extents(Vec<Option<Box<[u8]>>>);

impl Medium {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Medium {
            zones: geometry.zones().map(|_| RwLock::default()).collect(),
            extent_bytes: geometry.zone_capacity.min(EXTENT_BYTES_MAX) as usize,
        }
    }

    /// Fills `buf` from the zone.
    pub(crate) fn read(&self, zone: ZoneId, offset: u64, mut buf: &mut [u8]) {
        let extents = self.zones[zone.index()].read();
        let mut offset = offset as usize;
        while !buf.is_empty() {
            let (index, start) = (offset / self.extent_bytes, offset % self.extent_bytes);
            let len = buf.len().min(self.extent_bytes - start);
            let (part, rest) = buf.split_at_mut(len);
            match extents.0.get(index) {
                Some(Some(extent)) => part.copy_from_slice(&extent[start..start + len]),
                _ => part.fill(0),
            }
            buf = rest;
            offset += len;
        }
    }

    /// Writes `data` to the zone.
    pub(crate) fn write(&self, zone: ZoneId, offset: u64, mut data: &[u8]) {
        let mut extents = self.zones[zone.index()].write();
        let extents = &mut extents.0;
        let mut offset = offset as usize;
        while !data.is_empty() {
            let (index, start) = (offset / self.extent_bytes, offset % self.extent_bytes);
            let len = data.len().min(self.extent_bytes - start);
            let (part, rest) = data.split_at(len);
            if extents.len() <= index {
                extents.resize_with(index + 1, || None);
            }
            // Zeroed memory comes lazily from the system.
            let extent =
                extents[index].get_or_insert_with(|| vec![0; self.extent_bytes].into_boxed_slice());
            extent[start..start + len].copy_from_slice(part);
            data = rest;
            offset += len;
        }
    }

    /// Replaces all that the zone holds; returns what it held. With the
    /// default [`Extents`] the zone is all zeros again and takes no space.
    pub(crate) fn swap(&self, zone: ZoneId, extents: Extents) -> Extents {
        std::mem::replace(&mut *self.zones[zone.index()].write(), extents)
    }
}
