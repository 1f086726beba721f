//! Targets of a load: a store with an origin behind it, a read-through cache, or a
//! running server.

use std::collections::HashMap;
use std::sync::Arc;

use floe::object::ObjectCache;
use floe::origin::emulated::Content;
use floe::origin::{ByteRange, GetRequest, Origin};
use floe::{PutOptions, PutOutcome, Store, ValueWriter};
use floe_device::Clock;
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::charge::{Charging, HostCharge};
use super::probe::OriginProbe;
use super::remote::RemoteTarget;
use super::response::{Check, Failure, Response, failed, object_key, other, pieces, written};
use super::{ExtraFigure, Planned};
use crate::metrics::Served;
use crate::trace::Op;

/// The target of a load. Cheap to clone.
#[derive(Clone)]
pub enum Target {
    /// A store used directly: get, and on a miss fetch from the origin and put.
    Store(Arc<StoreTarget>),
    /// A read-through cache. Writes and deletes of a trace are invalidations,
    /// because for such a cache they happen at the origin.
    Object(Arc<ObjectTarget>),
    /// A running server.
    Remote(Arc<RemoteTarget>),
    /// An origin, without a cache.
    Origin(Arc<OriginProbe>),
}

/// A read-through cache, and its store for counts.
pub struct ObjectTarget {
    cache: ObjectCache,
    store: Store,
}

impl ObjectTarget {
    /// Drives `cache`, which has its chunks in `store`.
    pub fn new(cache: ObjectCache, store: Store) -> Self {
        ObjectTarget { cache, store }
    }
}

/// A store, and the origin for its misses.
pub struct StoreTarget {
    store: Store,
    origin: Origin,
    /// Keys being fetched, if other clients wait for a fetch.
    fetching: Option<Mutex<HashMap<Box<str>, watch::Receiver<()>>>>,
    /// The host's work that is added to requests, if any.
    charging: Option<Charging>,
}

/// A key being fetched. Its drop wakes the clients that wait for it.
struct Fetching<'a> {
    target: &'a StoreTarget,
    key: &'a str,
    _done: watch::Sender<()>,
}

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        if let Some(fetching) = &self.target.fetching {
            fetching.lock().remove(self.key);
        }
    }
}

/// The client that fetches an absent key.
enum Turn<'a> {
    /// This client; alone, if the fetch is registered.
    Fetch(Option<Fetching<'a>>),
    /// Another client, whose fetch ends when this closes.
    Wait(watch::Receiver<()>),
}

impl StoreTarget {
    /// Drives `store`; misses are fetched from `origin`.
    pub fn new(store: Store, origin: Origin) -> Self {
        StoreTarget {
            store,
            origin,
            fetching: None,
            charging: None,
        }
    }

    /// Fetches each key once at a time. Other clients that request the key wait
    /// and then find it, as in ZNCache and OxCache.
    #[must_use]
    pub fn coalescing(mut self) -> Self {
        self.fetching = Some(Mutex::default());
        self
    }

    /// Adds the time of the host's work to each get, by `clock`.
    #[must_use]
    pub fn charging(mut self, charge: HostCharge, clock: Clock) -> Self {
        self.charging = Some(Charging::new(charge, clock));
        self
    }

    fn turn<'a>(&'a self, key: &'a str) -> Turn<'a> {
        let Some(fetching) = &self.fetching else {
            return Turn::Fetch(None);
        };
        let mut fetching = fetching.lock();
        if let Some(done) = fetching.get(key) {
            return Turn::Wait(done.clone());
        }
        let (sender, done) = watch::channel(());
        fetching.insert(key.into(), done);
        Turn::Fetch(Some(Fetching {
            target: self,
            key,
            _done: sender,
        }))
    }
}

impl Target {
    /// The underlying store; `None` for a running server.
    pub fn store(&self) -> Option<&Store> {
        match self {
            Target::Store(target) => Some(&target.store),
            Target::Object(target) => Some(&target.store),
            Target::Remote(_) | Target::Origin(_) => None,
        }
    }

    /// Requests in flight per client of a closed loop.
    pub(super) fn pipeline(&self) -> usize {
        match self {
            Target::Remote(target) => target.pipeline(),
            _ => 1,
        }
    }

    /// Drops the target's own measurements, after a warm-up.
    pub(super) fn restart(&self) {
        if let Target::Origin(probe) = self {
            probe.restart();
        }
    }

    /// Figures that the target measured itself.
    pub(super) fn figures(&self) -> Vec<ExtraFigure> {
        match self {
            Target::Origin(probe) => probe.figures(),
            _ => Vec::new(),
        }
    }

    /// The write after a miss, if clients fill the cache.
    pub(super) fn fill(&self, missed: &Planned) -> Option<Planned> {
        match self {
            Target::Remote(target) if target.sets_on_miss() => Some(missed.whole_put()),
            _ => None,
        }
    }

    pub(super) async fn serve(
        &self,
        client: usize,
        request: &Planned,
        verify_seed: Option<u64>,
    ) -> Result<Response, Failure> {
        match self {
            Target::Store(target) => target.serve(request, verify_seed).await,
            Target::Object(target) => target.serve(request, verify_seed).await,
            Target::Remote(target) => target.serve(client, request, verify_seed).await,
            Target::Origin(probe) => probe.serve(request).await,
        }
    }
}

impl ObjectTarget {
    async fn serve(&self, request: &Planned, seed: Option<u64>) -> Result<Response, Failure> {
        match request.op {
            Op::Get => read_through(&self.cache, request, &mut Check::new(request, seed)).await,
            Op::Put | Op::Delete => {
                let invalidated = self.cache.invalidate(&object_key(request)).await;
                invalidated.map(|()| other(0)).map_err(failed)
            }
        }
    }
}

impl StoreTarget {
    async fn serve(&self, request: &Planned, seed: Option<u64>) -> Result<Response, Failure> {
        match request.op {
            Op::Get => self.get(request, &mut Check::new(request, seed)).await,
            Op::Put => self.put(request, seed).await,
            Op::Delete => {
                let deleted = self.store.delete(request.key.as_bytes()).await;
                deleted.map(|_| other(0)).map_err(failed)
            }
        }
    }

    async fn get(&self, request: &Planned, check: &mut Check) -> Result<Response, Failure> {
        loop {
            if self.get_stored(request, check).await? {
                if let Some(charging) = &self.charging {
                    charging.hit(request.length).await;
                }
                return check.finish(Served::Hit);
            }
            match self.turn(&request.key) {
                Turn::Fetch(fetching) => {
                    self.fetch(request, check).await?;
                    drop(fetching);
                    return check.finish(Served::Miss);
                }
                // The channel closes at the end of the fetch and never sends.
                Turn::Wait(mut done) => _ = done.changed().await,
            }
        }
    }

    /// Reads from the store; returns whether it had the object.
    async fn get_stored(&self, request: &Planned, check: &mut Check) -> Result<bool, Failure> {
        let key = request.key.as_bytes();
        let range = request.offset..request.offset + request.length;
        let found = self.store.read(key, range).await.map_err(failed)?;
        // In some traces objects change their size. A stored object of another
        // size is an older version, which this request replaces.
        let current = found.filter(|reader| reader.value_len() == request.object_bytes);
        let Some(mut reader) = current else {
            return Ok(false);
        };
        while let Some(piece) = reader.next().await {
            match piece {
                Ok(piece) => check.piece(&piece)?,
                Err(_quarantined) => {
                    *check = check.anew(request);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Streams an object from the origin to the client and into the store, so
    /// that memory does not grow with its size.
    async fn fetch(&self, request: &Planned, check: &mut Check) -> Result<(), Failure> {
        let key = object_key(request);
        let response = self.origin.get(&key, GetRequest::default()).await;
        let mut body = response.map_err(failed)?.body;
        if let Some(charging) = &self.charging {
            charging.miss(request.object_bytes).await;
        }
        let mut writer = self.writer(request).await?;
        let wanted = request.offset..request.offset + request.length;
        let mut position = 0;
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(failed)?;
            let end = position + piece.len() as u64;
            let from = wanted.start.clamp(position, end) - position;
            let to = wanted.end.clamp(position, end) - position;
            check.piece(&piece[from as usize..to as usize])?;
            writer.write(piece).await.map_err(failed)?;
            position = end;
        }
        // A rejection is not a failure; the store counts it.
        writer
            .finish()
            .await
            .map(|_: PutOutcome| ())
            .map_err(failed)
    }

    async fn put(&self, request: &Planned, seed: Option<u64>) -> Result<Response, Failure> {
        let content = Content::new(seed.unwrap_or(0), &object_key(request), 0);
        let mut writer = self.writer(request).await?;
        for piece in pieces(content, request.object_bytes) {
            writer.write(piece.into()).await.map_err(failed)?;
        }
        let put = writer.finish().await;
        put.map(|_: PutOutcome| written(request.object_bytes))
            .map_err(failed)
    }

    async fn writer(&self, request: &Planned) -> Result<ValueWriter, Failure> {
        let key = request.key.as_bytes();
        let options = PutOptions::default();
        let writer = self.store.writer(key, request.object_bytes, options).await;
        writer.map_err(failed)
    }
}

async fn read_through(
    cache: &ObjectCache,
    request: &Planned,
    check: &mut Check,
) -> Result<Response, Failure> {
    let range = (request.length > 0).then(|| ByteRange::Inclusive {
        first: request.offset,
        last: request.offset + request.length - 1,
    });
    let read = cache.get(&object_key(request), range).await;
    let mut read = read.map_err(failed)?;
    while let Some(piece) = read.body.next().await {
        check.piece(&piece.map_err(failed)?)?;
    }
    check.finish(if read.outcome.is_hit() {
        Served::Hit
    } else {
        Served::Miss
    })
}
