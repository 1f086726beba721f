//! The device of a cache of volumes.

use floe_core::layout::CacheId;
use floe_core::layout::volume::{TableShape, VolumeFormatPlan, VolumeSuperblock};
use floe_device::{Content, DeviceError, IoBuf, IoData, OpFuture, SharedBlockDevice};

/// The device, and the places of things on it.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) device: SharedBlockDevice,
    pub(crate) id: CacheId,
    pub(crate) plan: VolumeFormatPlan,
    pub(crate) shape: TableShape,
}

impl Disk {
    pub(crate) fn new(device: SharedBlockDevice, superblock: &VolumeSuperblock) -> Self {
        let plan = superblock.plan;
        Disk {
            device,
            id: superblock.cache_id,
            // A superblock with another plan is not valid.
            shape: plan
                .shape()
                .unwrap_or_else(|| TableShape::new(plan.granule_bytes)),
            plan,
        }
    }

    pub(super) fn allocate(&self, len: usize) -> IoBuf {
        self.device.allocate(len)
    }

    pub(super) fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        self.device.write_of(Content::Metadata, at, data)
    }

    /// Writes `data` at `at`, on stable media.
    pub(super) async fn write_durably(&self, at: u64, data: IoData) -> Result<(), DeviceError> {
        match self.device.write_durably(at, data.clone()) {
            Some(written) => written.await,
            None => {
                self.write(at, data).await?;
                self.device.flush().await
            }
        }
    }

    pub(super) async fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush().await
    }
}
