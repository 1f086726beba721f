//! Pending metadata requests.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use floe_core::Tick;
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
    /// A time before it was sent.
    pub(super) asked_unix_s: u64,
    /// The chunks that it and those before it may bring, each until there is an answer.
    pub(super) covers: Vec<(Loading, Range<u64>)>,
}

/// Most ranges of chunks that pending requests of an object remember.
const COVERS_MAX: usize = 64;

/// When a request was sent, in nanoseconds; 0 before. A caller that finds 0 arrived before the
/// origin answers.
#[derive(Default)]
pub(super) struct Begun(AtomicU64);

impl Begun {
    pub(super) fn set(&self, now: Tick) {
        // As an exchange, it is over before the request is sent. A retry is a later one.
        let _ = self.0.compare_exchange(0, now.0.max(1), SeqCst, SeqCst);
    }
}

impl Pending {
    /// True if chunks may be on their way: they would come twice. Also where too many are to be
    /// remembered.
    pub(super) fn may_bring(&mut self, chunks: &Range<u64>) -> bool {
        self.covers.retain(|(loading, _)| loading.peek().is_none());
        let overlaps = |(_, covered): &(Loading, Range<u64>)| {
            covered.start < chunks.end && chunks.start < covered.end
        };
        self.covers.len() >= COVERS_MAX || self.covers.iter().any(overlaps)
    }

    /// Another reader wants chunks once there is an answer.
    pub(super) fn join(&mut self, chunks: Range<u64>) -> Loading {
        if !chunks.is_empty() && self.covers.len() < COVERS_MAX {
            self.covers.push((self.loading.clone(), chunks));
        }
        self.loading.clone()
    }

    /// True for a caller to whom an answer of the origin is new enough that is younger than
    /// `age`.
    pub(super) fn admits(&self, now: Tick, age: Duration) -> bool {
        match self.begun.0.load(SeqCst) {
            0 => true,
            sent => now.since(Tick(sent)) < age,
        }
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
