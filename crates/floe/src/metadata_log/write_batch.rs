//! Batches of writes to a cache, which may have two logs: the store's and the tiny engine's.

use super::batch::Batch;

/// Writes that are made one after the other without waiting for any of them. A write of a key
/// that may be on flash waits until a fence or a tombstone is durable. Until the batch
/// [ends](Self::end) or is dropped, no write that waits on the thread that began it begins a
/// group of these, so that as a rule those of the batch share a block and a durable write.
///
/// End it on the thread that began it, and before waiting: a batch that lasts longer than some
/// milliseconds is written in parts, and delays the writes of other tasks.
#[derive(Debug)]
#[must_use = "a batch that is dropped at once has no writes"]
pub struct WriteBatch {
    of_store: Option<Batch>,
    of_tiny: Option<Batch>,
}

impl WriteBatch {
    /// Of writes to a store and a tiny engine, as far as they have logs to share.
    pub(crate) fn new(of_store: Option<Batch>, of_tiny: Option<Batch>) -> Self {
        WriteBatch { of_store, of_tiny }
    }

    /// Ends the batch, and starts writing its fences and tombstones. A batch that is dropped
    /// instead leaves that to a background task.
    pub fn end(self) {
        let batches = [self.of_store, self.of_tiny];
        batches.into_iter().flatten().for_each(Batch::end);
    }
}
