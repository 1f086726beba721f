//! The state of cache-only buckets.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use floe_device::Clock;

use super::commit::Change;
use super::config::CacheOnlyBucket;
use super::names::Names;
use super::row::Row;
use super::tables;
use crate::membership::Refusal;
use crate::origin::{Attributes, ObjectKey, ObjectMeta, OriginError, PutCondition};
use crate::store::Store;
use crate::store::marks::Marks;

/// Bytes of the longest key, as in S3.
const KEY_BYTES_MAX: usize = 1024;

pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) marks: Arc<Marks>,
    pub(super) clock: Clock,
    pub(super) names: Names,
    pub(super) buckets: Arc<HashMap<Box<str>, CacheOnlyBucket>>,
    pub(super) chunk_size: u64,
    pub(super) opened: SystemTime,
}

impl Shared {
    /// Reads much of the table of names outside the async threads.
    pub(super) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Shared) -> Result<T, OriginError> + Send + 'static,
    ) -> Result<T, OriginError> {
        let shared = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&shared)).await;
        done.unwrap_or_else(|error| Err(tables::failed(error)))
    }

    pub(super) fn find(&self, name: &ObjectKey) -> Result<Row, OriginError> {
        let missing = || OriginError::NotFound(name.to_string());
        self.confirmed().map_err(|_| missing())?;
        let row = self.names.find(name)?.ok_or_else(missing)?;
        match self.names.is_gone(name, &row) {
            false => Ok(row),
            true => {
                self.names.change_later(Change::Forget {
                    name: name.clone(),
                    number: row.number,
                });
                Err(missing())
            }
        }
    }

    /// The bucket, if this node may answer for it.
    pub(super) fn bucket(&self, name: &str) -> Result<&CacheOnlyBucket, OriginError> {
        let bucket = self.buckets.get(name);
        let bucket = bucket.ok_or_else(|| OriginError::NoSuchBucket(name.to_owned()))?;
        self.confirmed().map(|()| bucket)
    }

    /// Checks that no other node can have changed objects meanwhile: before a change, and before
    /// it is acknowledged.
    pub(super) fn confirmed(&self) -> Result<(), OriginError> {
        match self.store.membership().is_confirmed() {
            true => Ok(()),
            false => Err(OriginError::Server {
                status: 503,
                message: Refusal::Unconfirmed.to_string(),
            }),
        }
    }

    pub(super) fn check_key(&self, name: &ObjectKey) -> Result<&CacheOnlyBucket, OriginError> {
        let reason = match name.key().len() {
            0 => "it is empty",
            1..=KEY_BYTES_MAX => return self.bucket(name.bucket()),
            _ => "it is longer than 1024 bytes",
        };
        Err(OriginError::InvalidKey {
            key: name.key().to_owned(),
            reason: reason.into(),
        })
    }

    /// A row for `size` bytes that are about to be written.
    pub(super) fn new_row(
        &self,
        name: &ObjectKey,
        size: u64,
        attributes: Attributes,
    ) -> Result<Row, OriginError> {
        let bucket = self.check_key(name)?;
        let of_device = self.store.data_bytes();
        let most = match bucket.capacity.bytes() {
            0 => of_device,
            capacity => capacity.min(of_device),
        };
        if size > most {
            return Err(OriginError::Rejected {
                status: 413,
                message: format!("the object has {size} bytes, and its bucket takes {most} in all"),
            });
        }
        let now_unix_s = self.clock.unix_seconds();
        let ttl_seconds = bucket.ttl_seconds(name.key());
        Ok(Row {
            meta: ObjectMeta {
                size,
                etag: Some(format!("\"{:032x}\"", rand::random::<u128>())),
                content_etag: None,
                last_modified: UNIX_EPOCH.checked_add(Duration::from_secs(now_unix_s)),
                attributes,
            },
            purge: self.marks.number_of_only(name.bucket(), name.key()),
            expires_unix_s: ttl_seconds.map_or(0, |ttl| now_unix_s + ttl),
            number: 0,
            chunk_size: self.chunk_size,
        })
    }

    /// Checks a condition before the bytes are read; the change checks it again.
    pub(super) fn check_early(
        &self,
        name: &ObjectKey,
        condition: Option<&PutCondition>,
    ) -> Result<(), OriginError> {
        let Some(condition) = condition else {
            return Ok(());
        };
        let found = match self.find(name) {
            Ok(row) => Some(row.meta),
            Err(OriginError::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        condition.check(name.key(), found.as_ref())
    }
}
