//! Pending metadata requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use super::error::ObjectError;
use super::version::{Moment, ObjectVersion, name_hash};
use crate::origin::ObjectKey;

const SHARDS: usize = 64;

/// A pending request, shared by its callers.
pub(super) type Loading = Shared<BoxFuture<'static, Result<Arc<ObjectVersion>, ObjectError>>>;

/// A pending request, and how far it is.
pub(super) struct Pending {
    pub(super) loading: Loading,
    pub(super) begun: Arc<Begun>,
}

/// Set before a request is sent. A caller that finds it unset arrived before the origin answers.
#[derive(Default)]
pub(super) struct Begun(AtomicBool);

impl Begun {
    pub(super) fn set(&self) {
        // As an exchange, it is over before the request is sent.
        self.0.swap(true, SeqCst);
    }

    fn is_set(&self) -> bool {
        self.0.load(SeqCst)
    }
}

/// The pending requests that a caller may join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// Any: the mode allows an answer from before the caller.
    Any,
    /// One that is not yet sent: the caller needs an answer that the origin gives later.
    Unsent,
}

impl Pending {
    pub(super) fn admits(&self, join: Join) -> bool {
        join == Join::Any || !self.begun.is_set()
    }
}

type Shard = HashMap<(ObjectKey, Moment), Pending>;

/// Pending metadata requests. The moment is part of the key: a caller that comes
/// after a write or a purge must not join a request from before it.
pub(super) struct Loads {
    shards: [Mutex<Shard>; SHARDS],
}

impl Loads {
    pub(super) fn new() -> Self {
        Loads {
            shards: std::array::from_fn(|_| Mutex::new(HashMap::new())),
        }
    }

    pub(super) fn shard(&self, key: &ObjectKey) -> &Mutex<Shard> {
        // The remainder is below 64.
        &self.shards[(name_hash(key) % SHARDS as u64) as usize]
    }
}
