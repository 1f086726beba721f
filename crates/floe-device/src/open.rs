//! Opening the device that a configuration describes.

use std::sync::Arc;

use crate::clock::Clock;
use crate::config::{DeviceConfig, DeviceKind, OpenDeviceError};
use crate::contract::SharedDevice;
use crate::file::FileDevice;
use crate::memory::MemoryDevice;
use crate::nvme::{self, NvmeDevice};
use crate::sim::SimDevice;
use crate::zoned::{ZonedDevice, is_host_managed};

/// Opens a device.
///
/// # Errors
/// See [`OpenDeviceError`]; nothing was changed on the medium, except that a
/// file that is empty or a Floe cache may have been created or extended.
pub fn open(config: &DeviceConfig, clock: &Clock) -> Result<SharedDevice, OpenDeviceError> {
    Ok(match config.kind {
        kind if clock.is_virtual() && kind.is_storage() => {
            return Err(OpenDeviceError::VirtualTime);
        }
        DeviceKind::File if config.path.as_deref().is_some_and(nvme::is_namespace) => {
            Arc::new(NvmeDevice::open(config)?)
        }
        DeviceKind::File if config.path.as_deref().is_some_and(is_host_managed) => {
            Arc::new(ZonedDevice::open(config)?)
        }
        DeviceKind::File => Arc::new(FileDevice::open(config)?),
        DeviceKind::Zns | DeviceKind::Fdp | DeviceKind::Nvme => Arc::new(NvmeDevice::open(config)?),
        DeviceKind::Memory => Arc::new(MemoryDevice::open(config)?),
        DeviceKind::Sim => Arc::new(SimDevice::open(config, clock)?),
    })
}
