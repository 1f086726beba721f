//! The device of a cache of volumes.

use floe_core::layout::CacheId;
use floe_core::layout::volume::{TableShape, VolumeFormatPlan};
use floe_device::{DeviceError, IoBuf, SharedBlockDevice};

/// The device, and the places of things on it.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) device: SharedBlockDevice,
    pub(super) id: CacheId,
    pub(super) plan: VolumeFormatPlan,
    pub(super) shape: TableShape,
}

impl Disk {
    pub(super) fn allocate(&self, len: usize) -> IoBuf {
        self.device.allocate(len)
    }

    pub(super) async fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush().await
    }
}
