//! Decides whether a row stands for an object.

use std::sync::Arc;

use floe_device::Clock;

use super::row::Row;
use crate::origin::ObjectKey;
use crate::store::Store;
use crate::store::marks::Marks;

/// Decides whether a row stands for an object.
pub(super) struct Judge {
    pub(super) store: Store,
    pub(super) marks: Arc<Marks>,
    pub(super) clock: Clock,
}

impl Judge {
    /// True for an object that has expired, was purged, or has lost a chunk.
    pub(super) fn is_gone(&self, name: &ObjectKey, row: &Row) -> bool {
        let is_expired = row.expires_unix_s > 0 && row.expires_unix_s <= self.clock.unix_seconds();
        is_expired
            || row.purge != self.marks.number_of_only(name.bucket(), name.key())
            // A store that is closed knows of no chunk, which does not mean that it has none.
            || row
                .sampled_keys(name)
                .any(|key| matches!(self.store.contains(&key), Ok(false)))
    }
}
