//! Devices in memory.

use std::sync::Arc;

use floe_core::Geometry;
use floe_device::power::PowerSwitch;
use floe_device::sim_media::WriteCache;
use floe_device::{MemoryDevice, SharedDevice};

/// The shape of a device of `count` zones of `bytes` bytes, any block of which
/// may be written again.
pub(crate) fn in_place(count: u32, bytes: u64) -> Geometry {
    Geometry {
        max_append_bytes: 512 << 10,
        ..Geometry::in_place(count, bytes)
    }
}

/// The shape of a drive with zones that are written from front to back, a
/// quarter of which cannot be used, and of which few may be open.
pub(crate) fn zoned(count: u32, bytes: u64) -> Geometry {
    Geometry {
        zone_capacity: bytes / 4 * 3,
        max_open_zones: Some(5),
        max_active_zones: Some(6),
        random_writes: false,
        native_append: true,
        ..in_place(count, bytes)
    }
}

/// A blank device in memory, which takes a whole zone in one append.
pub(crate) fn memory(geometry: Geometry) -> SharedDevice {
    Arc::new(MemoryDevice::new(Geometry {
        max_append_bytes: geometry.zone_size as u32,
        ..geometry
    }))
}

/// A blank device that loses what was not flushed when its power is cut.
pub(crate) fn power_switch(geometry: Geometry) -> PowerSwitch {
    let volatile = WriteCache::Volatile { bytes_max: 8 << 20 };
    MemoryDevice::with_power(geometry, volatile).1
}
