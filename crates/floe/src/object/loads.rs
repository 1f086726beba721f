//! Pending metadata requests.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use super::error::ObjectError;
use super::version::{Moment, ObjectVersion, name_hash};
use crate::origin::ObjectKey;

const SHARDS: usize = 64;

/// A pending request, shared by its callers.
pub(super) type Loading = Shared<BoxFuture<'static, Result<Arc<ObjectVersion>, ObjectError>>>;

/// Pending metadata requests. The moment is part of the key: a caller that comes
/// after a write or a purge must not join a request from before it.
pub(super) struct Loads {
    shards: [Mutex<HashMap<(ObjectKey, Moment), Loading>>; SHARDS],
}

impl Loads {
    pub(super) fn new() -> Self {
        Loads {
            shards: std::array::from_fn(|_| Mutex::new(HashMap::new())),
        }
    }

    pub(super) fn shard(&self, key: &ObjectKey) -> &Mutex<HashMap<(ObjectKey, Moment), Loading>> {
        // The remainder is below 64.
        &self.shards[(name_hash(key) % SHARDS as u64) as usize]
    }
}
