//! The tables of the file of names, and their keys.

use std::fmt;
use std::sync::Arc;

use redb::TableDefinition;

use super::row::Row;
use crate::origin::{ObjectKey, OriginError};

/// Bucket, NUL and key to [`Row`].
pub(super) const NAMES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("names");
/// Bucket and number of the row to the key: objects in the order of their writes.
pub(super) const ORDER: TableDefinition<'_, (&str, u64), &str> = TableDefinition::new("order");
/// Bucket to its objects and their bytes.
pub(super) const SIZES: TableDefinition<'_, &str, (u64, u64)> = TableDefinition::new("sizes");
/// Id to [`PendingUpload`](crate::origin::uploads::PendingUpload) as JSON. Ids begin with the time of creation.
pub(super) const UPLOADS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("uploads");
/// Id and number of the part to [`Row`].
pub(super) const PARTS: TableDefinition<'_, (&str, u32), &[u8]> = TableDefinition::new("parts");
/// Id to [`CompletedUpload`](crate::origin::uploads::CompletedUpload) as JSON.
pub(super) const COMPLETED: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("completed");
/// The last number of a row, and the version of the tables.
pub(super) const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");

/// Decides whether a row still stands for an object.
pub(super) type IsGone = dyn Fn(&ObjectKey, &Row) -> bool + Send + Sync;

/// A damaged row is none.
pub(super) fn decoded(key: &[u8], row: &[u8]) -> Option<Row> {
    Row::decode(key, row)
        .inspect_err(|_| tracing::warn!("a damaged row of the names of objects is passed over"))
        .ok()
}

pub(super) fn failed(error: impl fmt::Display) -> OriginError {
    let error = format!("the names of the objects in cache-only buckets: {error}");
    OriginError::Io(Arc::new(std::io::Error::other(error)))
}

/// A bucket name has no NUL, so the first NUL ends it.
pub(super) fn table_key(name: &ObjectKey) -> Vec<u8> {
    beginning(name.bucket(), name.key().as_bytes())
}

pub(super) fn part_key(upload: &str, number: u32) -> Vec<u8> {
    [upload.as_bytes(), &number.to_be_bytes()].concat()
}

pub(super) fn beginning(bucket: &str, prefix: &[u8]) -> Vec<u8> {
    [bucket.as_bytes(), &[0], prefix].concat()
}
