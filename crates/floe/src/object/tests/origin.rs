//! An origin in memory whose requests and bodies wait at gates.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, ThreadId};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::origin::emulated::{check_conditions, clip};
use crate::origin::{
    Backend, GetRequest, ObjectKey, ObjectMeta, OriginError, OriginRead, PutRequest, PutResponse,
};

/// A gate that is open until closed.
pub(super) struct Gate {
    closed: AtomicBool,
    passes: Semaphore,
}

impl Gate {
    fn open() -> Self {
        Gate {
            closed: AtomicBool::new(false),
            passes: Semaphore::new(0),
        }
    }
    pub(super) fn close(&self) {
        self.closed.store(true, SeqCst);
    }
    /// Lets `n` present or future waiters pass.
    pub(super) fn admit(&self, n: usize) {
        self.passes.add_permits(n);
    }
    /// Opens the gate.
    pub(super) fn reopen(&self) {
        self.closed.store(false, SeqCst);
        self.passes.add_permits(1_000_000);
    }
    async fn pass(&self) {
        if self.closed.load(SeqCst) {
            self.passes.acquire().await.unwrap().forget();
        }
    }
}

#[derive(Clone)]
struct Stored {
    bytes: Bytes,
    written: u64,
}

pub(super) struct GatedOrigin {
    objects: Mutex<HashMap<ObjectKey, Stored>>,
    writes: AtomicU64,
    /// All values ever written, by the number in their entity tag.
    log: Mutex<Vec<Bytes>>,
    pub(super) validators: bool,
    pub(super) piece: usize,
    /// Passed after a GET has read its version and before it responds.
    pub(super) responses: Gate,
    /// Passed before each piece of a body.
    pub(super) pieces: Gate,
    /// Passed by writes before they take effect.
    pub(super) puts: Gate,
    pub(super) gets: AtomicUsize,
    pub(super) heads: AtomicUsize,
    pub(super) ranges: Mutex<Vec<Range<u64>>>,
    /// Requests that will fail next.
    pub(super) failures: AtomicUsize,
    /// While set, every request fails with a server error.
    pub(super) outage: AtomicBool,
    /// Bodies that will break off halfway next.
    pub(super) cuts: AtomicUsize,
    /// The origin confirms versions on the thread that asks.
    pub(super) at_once: AtomicBool,
    /// The threads of the requests, in order.
    pub(super) threads: Mutex<Vec<ThreadId>>,
}

impl GatedOrigin {
    pub(super) fn new() -> Self {
        GatedOrigin {
            objects: Mutex::new(HashMap::new()),
            writes: AtomicU64::new(0),
            log: Mutex::default(),
            validators: true,
            piece: 300,
            responses: Gate::open(),
            pieces: Gate::open(),
            puts: Gate::open(),
            gets: AtomicUsize::new(0),
            heads: AtomicUsize::new(0),
            ranges: Mutex::new(Vec::new()),
            failures: AtomicUsize::new(0),
            outage: AtomicBool::new(false),
            cuts: AtomicUsize::new(0),
            at_once: AtomicBool::new(false),
            threads: Mutex::default(),
        }
    }

    pub(super) fn with(key: &ObjectKey, bytes: Bytes) -> Arc<Self> {
        let origin = Arc::new(GatedOrigin::new());
        origin.set(key, bytes);
        origin
    }

    /// Writes an object past the cache.
    pub(super) fn set(&self, key: &ObjectKey, bytes: Bytes) {
        let mut objects = self.objects.lock();
        let written = self.writes.fetch_add(1, SeqCst);
        self.log.lock().push(bytes.clone());
        objects.insert(key.clone(), Stored { bytes, written });
    }

    /// The number of an object's newest value.
    pub(super) fn newest(&self, key: &ObjectKey) -> Option<u64> {
        Some(self.objects.lock().get(key)?.written)
    }

    /// The value with an entity tag, and its number.
    pub(super) fn tagged(&self, etag: &str) -> (u64, Bytes) {
        let number: u64 = etag.trim_matches('"').parse().unwrap();
        (number, self.log.lock()[number as usize].clone())
    }

    pub(super) fn remove(&self, key: &ObjectKey) {
        self.objects.lock().remove(key);
    }

    pub(super) fn bytes(&self, key: &ObjectKey) -> Option<Bytes> {
        self.objects
            .lock()
            .get(key)
            .map(|stored| stored.bytes.clone())
    }

    pub(super) fn gets(&self) -> usize {
        self.gets.load(SeqCst)
    }

    fn look(
        &self,
        key: &ObjectKey,
        request: &GetRequest,
    ) -> Result<(Stored, ObjectMeta), OriginError> {
        if self.outage.load(SeqCst) {
            return Err(OriginError::Unreachable("outage".into()));
        }
        if take_one(&self.failures) {
            return Err(OriginError::Rejected {
                status: 418,
                message: "told to fail".into(),
            });
        }
        let stored = self.objects.lock().get(key).cloned();
        let stored = stored.ok_or_else(|| OriginError::NotFound(key.to_string()))?;
        let meta = ObjectMeta {
            size: stored.bytes.len() as u64,
            etag: self.validators.then(|| format!("\"{}\"", stored.written)),
            last_modified: self
                .validators
                .then(|| UNIX_EPOCH + Duration::from_secs(stored.written)),
            ..ObjectMeta::default()
        };
        check_conditions(&meta, request)?;
        Ok((stored, meta))
    }
}

fn take_one(counter: &AtomicUsize) -> bool {
    counter
        .fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1))
        .is_ok()
}

/// The body shares the origin's gate.
#[async_trait]
impl Backend for Arc<GatedOrigin> {
    async fn get(&self, key: &ObjectKey, request: GetRequest) -> Result<OriginRead, OriginError> {
        self.gets.fetch_add(1, SeqCst);
        self.threads.lock().push(thread::current().id());
        let found = self.look(key, &request);
        self.responses.pass().await;
        let (stored, meta) = found?;
        let range = clip(request.range, meta.size)?;
        self.ranges.lock().push(range.clone());
        let mut end = range.end;
        if take_one(&self.cuts) {
            end = range.start + (range.end - range.start) / 2;
        }
        let origin = Arc::clone(self);
        let rest = stored.bytes.slice(range.start as usize..end as usize);
        let body = futures::stream::unfold((origin, rest), |(origin, mut rest)| async move {
            if rest.is_empty() {
                return None;
            }
            origin.pieces.pass().await;
            let piece = rest.split_to(origin.piece.min(rest.len()));
            Some((Ok(piece), (origin, rest)))
        });
        Ok(OriginRead {
            meta,
            range,
            from_cache: None,
            body: Box::pin(body),
        })
    }

    async fn head(&self, key: &ObjectKey, request: GetRequest) -> Result<ObjectMeta, OriginError> {
        self.heads.fetch_add(1, SeqCst);
        self.threads.lock().push(thread::current().id());
        let found = self.look(key, &request);
        self.responses.pass().await;
        found.map(|(_, meta)| meta)
    }

    fn outlives_runtimes(&self) -> bool {
        true
    }

    fn confirms(&self, key: &ObjectKey, meta: &ObjectMeta) -> bool {
        self.at_once.load(SeqCst)
            && self
                .look(key, &GetRequest::default())
                .is_ok_and(|(_, found)| found == *meta)
    }

    async fn put(
        &self,
        key: &ObjectKey,
        mut request: PutRequest,
    ) -> Result<PutResponse, OriginError> {
        let mut bytes = BytesMut::new();
        while let Some(piece) = request.body.next().await {
            bytes.extend_from_slice(&piece.map_err(|e| OriginError::BadUpload(e.to_string()))?);
        }
        self.puts.pass().await;
        self.set(key, bytes.freeze());
        Ok(PutResponse::default())
    }

    async fn delete(&self, key: &ObjectKey) -> Result<(), OriginError> {
        self.puts.pass().await;
        self.remove(key);
        Ok(())
    }
}
