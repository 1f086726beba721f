//! Which metadata zone holds, and whether the device may be formatted.

use floe_core::layout::{Identified, LayoutError, Structure, Superblock, identify};
use floe_device::Address;

use super::super::journal::scan_journal;
use super::super::opening::{OpenError, OpenOptions};
use super::{Found1, Recovery};
use crate::metadata::{FOREIGN_CHECK_BYTES, METADATA, holds_only, other};

impl Recovery {
    /// The newest complete metadata zone, or `None` if the device may be formatted.
    pub(super) async fn find_superblock(
        &mut self,
        options: OpenOptions,
    ) -> Result<Option<Found1>, OpenError> {
        if options.format {
            return Ok(None);
        }
        let mut found = Vec::new();
        let (mut blank, mut is_tiny) = (true, false);
        for zone in METADATA {
            let len = FOREIGN_CHECK_BYTES.min(self.plan.geometry.zone_capacity);
            // Not skipped when it cannot be read: it may be the newer of the two.
            let buf = self.device.allocate(len as usize);
            let buf = self.device.read(Address::new(zone, 0), buf).await?;
            match Superblock::decode(&buf) {
                Ok(superblock) => found.push((zone, superblock)),
                Err(source @ LayoutError::UnsupportedVersion { .. }) => {
                    return Err(OpenError::OtherFormat {
                        device: self.device.describe(),
                        source,
                    });
                }
                Err(LayoutError::Unexpected(Structure::TinySuperblock)) => is_tiny = true,
                // Half-written by a format or a journal move that a crash cut off.
                Err(_) if matches!(identify(&buf), Identified::Claims(_)) => {}
                Err(_) => blank &= holds_only(&self.device, &buf, Structure::Journal),
            }
        }
        if is_tiny && found.is_empty() {
            return Err(OpenError::OtherKind {
                device: self.device.describe(),
            });
        }
        found.sort_by_key(|(_, superblock)| std::cmp::Reverse(superblock.epoch));
        self.epoch_max = found.first().map_or(0, |(_, superblock)| superblock.epoch);
        if let Some((_, superblock)) = found.first()
            && let Some(mismatch) = superblock.mismatch(&self.plan.format())
        {
            return Err(OpenError::OtherPlan {
                device: self.device.describe(),
                mismatch,
            });
        }
        let is_ours = !found.is_empty();
        if let [(zone, superblock)] = found[..] {
            // Where the other one is damaged, this may be the copy of it.
            found.push((other(zone), superblock));
        }
        for (zone, superblock) in found {
            let scan = scan_journal(&self.device, &self.plan, &superblock, zone, None).await?;
            if scan.damaged {
                tracing::error!(
                    "the journal is damaged; everything cached is forgotten, so that nothing dead returns"
                );
                self.report.journal_damaged = true;
                return Ok(Some((zone, superblock, Vec::new())));
            }
            if scan.complete {
                return Ok(Some((zone, superblock, scan.notes)));
            }
        }
        if blank || is_ours {
            Ok(None)
        } else {
            Err(OpenError::ForeignData {
                device: self.device.describe(),
            })
        }
    }
}
