//! Batches of writes, whose fences share a group in the journal.

use crate::metadata_log::Batch;

/// Writes that are made one after the other without waiting for any of them. Until it
/// [ends](Self::end) or is dropped, no write that waits on this thread begins a group of fences,
/// so that as a rule those of the batch share a block and a durable write. End it before waiting:
/// a batch that lasts longer than some milliseconds is written in parts.
#[derive(Debug)]
pub struct TinyBatch(Option<Batch>);

impl TinyBatch {
    /// For a store without fences.
    pub(super) const NONE: TinyBatch = TinyBatch(None);

    pub(super) fn of(batch: Batch) -> Self {
        TinyBatch(Some(batch))
    }

    /// Ends the batch, and begins to make its fences durable. A batch that is dropped instead
    /// leaves that to those who wait.
    pub fn end(self) {
        if let Some(batch) = self.0 {
            batch.end();
        }
    }
}
