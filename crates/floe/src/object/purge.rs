//! Purges: sets of objects of which nothing cached is used again.
//!
//! The cost does not depend on what is cached: a purge raises a durable number
//! (`store/marks.rs`), which metadata records and the versions of chunks carry. What is
//! left on flash is never read, and is evicted in its turn.

use std::sync::atomic::Ordering::Relaxed;

use serde::{Deserialize, Serialize};

use super::{ObjectCache, ObjectError};
use crate::store::marks::NameSet;

/// A set of objects to purge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "set", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Purge {
    /// All objects.
    All,
    /// The objects of a bucket.
    Bucket {
        /// The bucket.
        bucket: String,
    },
    /// The objects of a bucket whose keys begin with a prefix.
    Prefix {
        /// The bucket.
        bucket: String,
        /// The prefix; an empty one is that of all keys.
        prefix: String,
    },
    /// One object.
    Object {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
    },
}

impl Purge {
    fn names(&self) -> NameSet<'_> {
        match self {
            Purge::All => NameSet::All,
            Purge::Bucket { bucket } => NameSet::Group(bucket),
            Purge::Prefix { bucket, prefix } => NameSet::Prefix(bucket, prefix),
            Purge::Object { bucket, key } => NameSet::Name(bucket, key),
        }
    }
}

impl ObjectCache {
    /// Purges sets of objects. A read that begins after it has returned takes nothing that was
    /// cached, or requested from the origin, before: not after a crash either. The origin
    /// does not change.
    ///
    /// Only hashes of names are kept, and a bounded number of them. A purge too many purges
    /// the buckets with the most purges as a whole.
    ///
    /// # Errors
    /// [`ObjectError::Cache`] if the purge could not be made durable; after a restart it may
    /// have happened.
    pub async fn purge(&self, purges: &[Purge]) -> Result<(), ObjectError> {
        let sets: Vec<NameSet<'_>> = purges.iter().map(Purge::names).collect();
        self.inner.marks.raise(&sets).await?;
        let counter = &self.inner.stats.purges;
        counter.fetch_add(purges.len() as u64, Relaxed);
        Ok(())
    }

    /// Begins an era: no later read takes metadata in mode `ttl`, a remembered absence, or an
    /// object of a cache-only bucket from before. Metadata is validated and chunks stay, but
    /// for cache-only buckets, which lose their objects.
    ///
    /// # Errors
    /// As [`purge`](ObjectCache::purge).
    pub async fn begin_era(&self) -> Result<(), ObjectError> {
        Ok(self.inner.marks.begin_era().await?)
    }

    /// Sets of objects whose purges are remembered.
    pub fn purges_remembered(&self) -> usize {
        self.inner.marks.len()
    }
}
