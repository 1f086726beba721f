//! Devices in memory, and drives that the environment names.

use std::sync::Arc;

use floe_core::{ByteSize, Geometry};
use floe_device::power::PowerSwitch;
use floe_device::sim_media::WriteCache;
use floe_device::{DeviceConfig, MemoryDevice, SharedDevice};

/// The geometry of a device with `count` zones of `bytes` bytes and writes in place.
pub(crate) fn in_place(count: u32, bytes: u64) -> Geometry {
    Geometry {
        max_append_bytes: 512 << 10,
        ..Geometry::in_place(count, bytes)
    }
}

/// The geometry of a zoned drive: sequential writes, a quarter of each zone
/// unusable, and few open zones.
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

/// A blank device in memory whose largest append is a whole zone.
pub(crate) fn memory(geometry: Geometry) -> SharedDevice {
    Arc::new(MemoryDevice::new(Geometry {
        max_append_bytes: geometry.zone_size as u32,
        ..geometry
    }))
}

/// A blank device that loses unflushed writes at a power cut. If it takes writes in place, a reset
/// leaves what a zone had, but for its first block.
pub(crate) fn power_switch(geometry: Geometry) -> PowerSwitch {
    let volatile = WriteCache::Volatile { bytes_max: 8 << 20 };
    let power = MemoryDevice::with_power(geometry, volatile).1;
    power.keep_content_at_resets();
    power
}

/// The first `size` of the scratch drive that `FLOE_TEST_DRIVE` names.
pub(crate) fn drive(size: ByteSize) -> DeviceConfig {
    let path = std::env::var_os("FLOE_TEST_DRIVE").expect("names a scratch drive");
    DeviceConfig {
        path: Some(path.into()),
        size: Some(size),
        accept_foreign: true,
        ..DeviceConfig::default()
    }
}
