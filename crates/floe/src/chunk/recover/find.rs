//! Finds the current metadata zone, and whether the device may be formatted.

use floe_core::layout::Superblock;

use super::super::opening::{OpenError, OpenOptions};
use super::{Found1, Recovery};
use crate::metadata_log::{FindError, newest, superblocks};

impl Recovery {
    /// The newest complete metadata zone, or `None` if the device may be formatted.
    pub(super) async fn find_superblock(
        &mut self,
        options: OpenOptions,
    ) -> Result<Option<Found1>, OpenError> {
        if options.format {
            return Ok(None);
        }
        let found = superblocks::<Superblock>(&self.device).await;
        let found = found.map_err(|error| self.explain(error))?;
        if let Some((_, superblock)) = found.first()
            && let Some(mismatch) = superblock.mismatch(&self.plan.format())
        {
            return Err(OpenError::OtherPlan {
                device: self.device.describe(),
                mismatch,
            });
        }
        let Some(mut found) = newest(&self.device, found).await? else {
            return Ok(None);
        };
        if found.damaged {
            tracing::error!(
                "the journal is damaged; all cached values are dropped, so that no deleted value is served"
            );
            self.report.journal_damaged = true;
            found.records.clear();
        }
        self.epoch_max = found.epoch_max;
        Ok(Some((found.zone, found.superblock, found.records)))
    }

    fn explain(&self, error: FindError) -> OpenError {
        let device = self.device.describe();
        match error {
            FindError::Device(error) => OpenError::Device(error),
            FindError::OtherVersion(source) => OpenError::OtherFormat { device, source },
            FindError::OtherKind(_) => OpenError::OtherKind { device },
            FindError::Foreign(_) => OpenError::ForeignData { device },
        }
    }
}
