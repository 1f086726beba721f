//! Sparse storage for devices that keep their data in memory.

mod spans;

use std::ops::{Deref, DerefMut};

use floe_core::{Geometry, ZoneId};
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};

use spans::Spans;

use crate::mapping::{HUGE_PAGE_BYTES, Mapping};

/// Most bytes that are taken at once when something is written.
const EXTENT_BYTES_MAX: u64 = HUGE_PAGE_BYTES as u64;
/// Extents kept for the next writer: allocating pages costs more than all the
/// rest of a write.
const SPARES_MAX: usize = 8;

/// How a device in memory keeps bytes. It reads the same either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keeping {
    /// Those that an emulated origin made up as the numbers they follow from,
    /// all others as they are: terabytes fit.
    #[default]
    Elided,
    /// All as they are.
    Whole,
}

/// Zones of bytes, zeros where nothing was written.
pub(crate) struct Medium {
    zones: Vec<RwLock<Extents>>,
    keeping: Keeping,
    extent_bytes: usize,
    spares: Mutex<Vec<Space>>,
}

/// The content of a zone; takes no space while the zone is empty.
#[derive(Default)]
pub(crate) struct Extents {
    whole: Vec<Option<Extent>>,
    elided: Spans,
}

/// A run of a zone's bytes.
struct Extent {
    bytes: Space,
    /// Bytes from the start that mean something; the rest stands for zeros.
    written: usize,
}

/// An extent's memory: a huge page where it has that size, for copying into
/// small ones misses the translation cache at each.
enum Space {
    Heap(Box<[u8]>),
    HugePage(Mapping),
}

impl Space {
    fn new(len: usize) -> Self {
        if len == HUGE_PAGE_BYTES
            && let Ok(mapping) = Mapping::new(len)
        {
            return Space::HugePage(mapping);
        }
        Space::Heap(vec![0; len].into_boxed_slice())
    }
}

impl Deref for Space {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Space::Heap(bytes) => bytes,
            // SAFETY: the mapping has so many initialised bytes, and is borrowed.
            Space::HugePage(mapping) => unsafe {
                std::slice::from_raw_parts(mapping.start().as_ptr(), HUGE_PAGE_BYTES)
            },
        }
    }
}

impl DerefMut for Space {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Space::Heap(bytes) => bytes,
            // SAFETY: as above, and borrowed uniquely.
            Space::HugePage(mapping) => unsafe {
                std::slice::from_raw_parts_mut(mapping.start().as_ptr(), HUGE_PAGE_BYTES)
            },
        }
    }
}

impl Extent {
    fn read(&self, start: usize, part: &mut [u8]) {
        let known = self.written.saturating_sub(start).min(part.len());
        part[..known].copy_from_slice(&self.bytes[start..start + known]);
        part[known..].fill(0);
    }

    fn write(&mut self, start: usize, part: &[u8]) {
        if start > self.written {
            self.bytes[self.written..start].fill(0);
        }
        let end = start + part.len();
        self.bytes[start..end].copy_from_slice(part);
        self.written = self.written.max(end);
    }
}

impl Medium {
    pub(crate) fn new(geometry: &Geometry, keeping: Keeping) -> Self {
        Medium {
            keeping,
            zones: geometry.zones().map(|_| RwLock::default()).collect(),
            extent_bytes: geometry.zone_capacity.min(EXTENT_BYTES_MAX) as usize,
            spares: Mutex::default(),
        }
    }

    /// Fills `buf` from the zone.
    pub(crate) fn read(&self, zone: ZoneId, offset: u64, mut buf: &mut [u8]) {
        let extents = self.zones[zone.index()].read();
        if self.keeping == Keeping::Elided {
            return extents.elided.read(offset, buf);
        }
        let mut offset = offset as usize;
        while !buf.is_empty() {
            let (index, start) = (offset / self.extent_bytes, offset % self.extent_bytes);
            let len = buf.len().min(self.extent_bytes - start);
            let (part, rest) = buf.split_at_mut(len);
            match extents.whole.get(index) {
                Some(Some(extent)) => extent.read(start, part),
                _ => part.fill(0),
            }
            buf = rest;
            offset += len;
        }
    }

    /// Writes `data` to the zone.
    pub(crate) fn write(&self, zone: ZoneId, offset: u64, mut data: &[u8]) {
        let mut extents = self.zones[zone.index()].write();
        if self.keeping == Keeping::Elided {
            return extents.elided.write(offset, data);
        }
        let extents = &mut extents.whole;
        let mut offset = offset as usize;
        while !data.is_empty() {
            let (index, start) = (offset / self.extent_bytes, offset % self.extent_bytes);
            let len = data.len().min(self.extent_bytes - start);
            let (part, rest) = data.split_at(len);
            if extents.len() <= index {
                extents.resize_with(index + 1, || None);
            }
            let extent = extents[index].get_or_insert_with(|| self.new_extent());
            extent.write(start, part);
            data = rest;
            offset += len;
        }
    }

    fn new_extent(&self) -> Extent {
        let spare = self.spares.lock().pop();
        Extent {
            bytes: spare.unwrap_or_else(|| Space::new(self.extent_bytes)),
            written: 0,
        }
    }

    /// Makes the zone all zeros again and gives its space back.
    pub(crate) fn clear(&self, zone: ZoneId) {
        let extents = self.swap(zone, Extents::default());
        let mut spares = self.spares.lock();
        let room = SPARES_MAX.saturating_sub(spares.len());
        let extents = extents.whole.into_iter().flatten();
        spares.extend(extents.map(|extent| extent.bytes).take(room));
    }

    /// Replaces all that the zone holds; returns what it held. With the
    /// default [`Extents`] the zone is all zeros again and takes no space.
    pub(crate) fn swap(&self, zone: ZoneId, extents: Extents) -> Extents {
        std::mem::replace(&mut *self.zones[zone.index()].write(), extents)
    }
}
