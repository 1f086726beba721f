//! Cache-only buckets: objects that are in the cache and nowhere else.
//!
//! The bytes of an object are chunks in the store, evicted like others; its name, metadata and
//! version are a row in the table of names (`names.rs`). A write stores the chunks under a new
//! version, then makes its row durable, then is acknowledged: so a reader finds the newest
//! object or none, after a crash too. An object that has lost a chunk is none.
//!
//! To the object cache it is an origin of its own, which answers everything but reads of
//! objects. For those the row tells the version, whose chunks are read as those of any other
//! object.

mod backend;
mod body;
mod commit;
mod config;
mod error;
mod finish;
mod judge;
mod names;
mod row;
mod shared;
mod tables;
mod upload;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use floe_device::Clock;
use futures::StreamExt;

pub(super) use config::validate;
pub use config::{CacheOnlyBucket, Lifetime};
pub(super) use error::NamesError;
pub(super) use row::Row;

use crate::origin::{BucketInfo, ObjectKey, OriginError};
use crate::store::Store;
use commit::Removed;
use judge::Judge;
use names::Names;
use shared::Shared;

/// Removals of chunks that run at once.
const REMOVALS_AT_ONCE: usize = 16;

/// The size of a cache-only bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheOnlySize {
    /// Its objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// All cache-only buckets of an object cache.
#[derive(Clone)]
pub(super) struct CacheOnly {
    shared: Arc<Shared>,
}

impl CacheOnly {
    /// Opens the names of the objects in `buckets`, kept in the file at `path` or in memory.
    /// Requires a tokio runtime.
    ///
    /// # Errors
    /// The file is damaged, of another program, or in use.
    pub(super) fn open(
        store: &Store,
        clock: &Clock,
        buckets: &[CacheOnlyBucket],
        path: Option<&Path>,
        chunk_size: u64,
    ) -> Result<Self, NamesError> {
        let named = buckets.iter();
        let named = named.map(|bucket| (bucket.bucket.as_str().into(), bucket.clone()));
        let buckets: Arc<HashMap<Box<str>, CacheOnlyBucket>> = Arc::new(named.collect());
        let judge = Judge {
            store: store.clone(),
            marks: store.marks(),
            clock: clock.clone(),
        };
        let limited = Arc::clone(&buckets);
        let capacity_of = move |name: &str| {
            limited
                .get(name)
                .map_or(0, |bucket| bucket.capacity.bytes())
        };
        let is_gone = move |name: &ObjectKey, row: &Row| judge.is_gone(name, row);
        let (names, removed) = Names::open(path, Box::new(capacity_of), Arc::new(is_gone))?;
        tokio::spawn(remove_chunks(store.clone(), removed));
        Ok(CacheOnly {
            shared: Arc::new(Shared {
                store: store.clone(),
                marks: store.marks(),
                clock: clock.clone(),
                names,
                buckets,
                chunk_size,
                opened: UNIX_EPOCH + Duration::from_secs(clock.unix_seconds()),
            }),
        })
    }

    /// True if a bucket is one of them.
    pub(super) fn has(&self, bucket: &str) -> bool {
        self.shared.buckets.contains_key(bucket)
    }

    /// The buckets, by name.
    pub(super) fn buckets(&self) -> Vec<BucketInfo> {
        let mut buckets: Vec<BucketInfo> = self
            .shared
            .buckets
            .keys()
            .map(|name| BucketInfo {
                name: name.to_string(),
                created: Some(self.shared.opened),
            })
            .collect();
        buckets.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        buckets
    }

    /// The sizes of the buckets, by name, without those that cannot be read.
    pub(super) fn sizes(&self) -> Vec<(String, CacheOnlySize)> {
        let buckets = self.buckets().into_iter();
        let sizes = buckets.filter_map(|bucket| {
            let (objects, bytes) = self.shared.names.size(&bucket.name).ok()?;
            Some((bucket.name, CacheOnlySize { objects, bytes }))
        });
        sizes.collect()
    }

    /// Finds an object of which all chunks that were looked up are in the store.
    pub(super) fn find(&self, name: &ObjectKey) -> Result<Row, OriginError> {
        self.shared.find(name)
    }
}

/// Removes the chunks of rows that stand for nothing any more, until there are no more rows.
async fn remove_chunks(store: Store, mut removed: tokio::sync::mpsc::Receiver<Removed>) {
    while let Some(rows) = removed.recv().await {
        let keys = rows
            .into_iter()
            .flat_map(|(name, row)| row.chunk_keys(&name, 0));
        let removals = futures::stream::iter(keys).map(|key| {
            let store = store.clone();
            // A chunk that stays is evicted in its turn.
            async move { drop(store.delete(&key).await) }
        });
        let mut removals = removals.buffer_unordered(REMOVALS_AT_ONCE);
        while removals.next().await.is_some() {}
    }
}
