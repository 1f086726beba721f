//! Metadata requests under way.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use super::error::ObjectError;
use super::version::{ObjectVersion, name_hash};
use crate::origin::ObjectKey;
use crate::store::epoch::Epoch;

const SHARDS: usize = 64;

/// A request under way that several callers wait for.
pub(super) type Loading = Shared<BoxFuture<'static, Result<Arc<ObjectVersion>, ObjectError>>>;

/// Metadata requests under way. The epoch is part of the key: who comes after
/// a write must not be told what was true before it.
pub(super) struct Loads {
    shards: [Mutex<HashMap<(ObjectKey, Epoch), Loading>>; SHARDS],
}

impl Loads {
    pub(super) fn new() -> Self {
        Loads {
            shards: std::array::from_fn(|_| Mutex::new(HashMap::new())),
        }
    }

    pub(super) fn shard(&self, key: &ObjectKey) -> &Mutex<HashMap<(ObjectKey, Epoch), Loading>> {
        // The remainder is below 64.
        &self.shards[(name_hash(key) % SHARDS as u64) as usize]
    }
}
