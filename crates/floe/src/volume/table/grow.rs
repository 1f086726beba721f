//! Moving the table to where a larger one has room.
//!
//! The new table is durable before the superblock names it, and lies where nothing else
//! is. So a crash leaves one or the other, and both say the same.

use std::sync::Arc;

use floe_core::layout::volume::VolumeFormatPlan;
use floe_device::DeviceError;

use super::disk::Disk;
use super::recover::{READ_BYTES, zero};
use super::{BlockTable, COPIES_BYTES};
use crate::volume::error::VolumeError;

impl BlockTable {
    /// Takes over `plan`, which has more places than the one before, and a table that
    /// overlaps nothing of it. Until it ends, the log moves no records to the table.
    pub(in crate::volume) async fn grow(
        self: &Arc<Self>,
        plan: VolumeFormatPlan,
    ) -> Result<(), VolumeError> {
        let _no_checkpoint = self.checkpoint.lock().await;
        self.check()?;
        let old = self.disk();
        let new = Disk {
            plan,
            ..old.clone()
        };
        copy(&old, &new).await.map_err(VolumeError::cache)?;
        self.change_superblock(|superblock| superblock.plan = plan)
            .await?;
        *self.disk.lock() = new;
        Ok(())
    }
}

/// Copies the table of `old`, and adds pages without blocks, durably.
async fn copy(old: &Disk, new: &Disk) -> Result<(), DeviceError> {
    let pages = old.shape.pages(old.plan.granules());
    let bytes = u64::from(pages) * COPIES_BYTES as u64;
    let mut done = 0;
    while done < bytes {
        let len = READ_BYTES.min(bytes - done) as usize;
        let from = old.plan.table_offset + done;
        let table = old.device.read(from, old.allocate(len)).await?;
        let to = new.plan.table_offset + done;
        new.write(to, table.freeze()).await?;
        done += len as u64;
    }
    zero(new, new.plan.table_offset + bytes..new.plan.table_end()).await?;
    new.flush().await
}
