//! What is driven: a store with an origin behind it, or a read-through cache.

use std::sync::Arc;

use bytes::Bytes;
use floe::object::ObjectCache;
use floe::origin::emulated::{Content, verify};
use floe::origin::{ByteRange, GetRequest, ObjectKey, Origin};
use floe::{Admission, PutOptions, Store};
use futures::StreamExt as _;

use super::Planned;
use crate::error::EvalError;
use crate::metrics::Served;
use crate::trace::Op;

/// The bucket of all objects of a run.
pub const BENCH_BUCKET: &str = "bench";

/// What is driven. Cheap to clone.
#[derive(Clone)]
pub enum Target {
    /// A store used directly: get, and on a miss fetch from the origin and put.
    Store(Arc<StoreTarget>),
    /// A read-through cache. Writes and deletes of a trace are invalidations:
    /// to such a cache they happen at the origin.
    Object(Arc<ObjectTarget>),
}

/// A read-through cache and the store it is made of, for its counts.
pub struct ObjectTarget {
    cache: ObjectCache,
    store: Store,
}

impl ObjectTarget {
    /// Drives `cache`, which keeps its chunks in `store`.
    pub fn new(cache: ObjectCache, store: Store) -> Self {
        ObjectTarget { cache, store }
    }
}

/// A store and where its misses go.
pub struct StoreTarget {
    store: Store,
    origin: Origin,
}

impl StoreTarget {
    /// Drives `store`; misses are fetched from `origin`.
    pub fn new(store: Store, origin: Origin) -> Self {
        StoreTarget { store, origin }
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) served: Served,
    pub(super) bytes: u64,
}

/// Why a request was not served.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The cache lied. The run stops.
    #[error(transparent)]
    Lie(EvalError),
    /// It failed. The run goes on and counts.
    #[error("{0}")]
    Failed(String),
}

/// The name of an object in the origin: the size is part of it, so that an
/// emulated origin whose size rule is `from_key` makes it so large.
pub fn object_key(request: &Planned) -> ObjectKey {
    ObjectKey::new(
        BENCH_BUCKET,
        format!("{}-{}", request.key, request.object_bytes),
    )
}

impl Target {
    /// The store at the bottom.
    pub fn store(&self) -> &Store {
        match self {
            Target::Store(target) => &target.store,
            Target::Object(target) => &target.store,
        }
    }

    pub(super) async fn serve(
        &self,
        request: &Planned,
        verify_seed: Option<u64>,
    ) -> Result<Answer, Failure> {
        let mut check = Check::new(request, verify_seed);
        match (self, request.op) {
            (Target::Store(target), Op::Get) => target.get(request, &mut check).await,
            (Target::Store(target), Op::Put) => target.put(request, verify_seed).await,
            (Target::Store(target), Op::Delete) => {
                let deleted = target.store.delete(request.key.as_bytes()).await;
                deleted.map(|_| other(0)).map_err(failed)
            }
            (Target::Object(target), Op::Get) => {
                read_through(&target.cache, request, &mut check).await
            }
            (Target::Object(target), Op::Put | Op::Delete) => target
                .cache
                .invalidate(&object_key(request))
                .await
                .map(|()| other(0))
                .map_err(failed),
        }
    }
}

impl StoreTarget {
    async fn get<'a>(
        &self,
        request: &'a Planned,
        check: &mut Check<'a>,
    ) -> Result<Answer, Failure> {
        let key = request.key.as_bytes();
        let range = request.offset..request.offset + request.length;
        let mut served = Served::Miss;
        if let Some(mut reader) = self.store.read(key, range).await.map_err(failed)? {
            served = Served::Hit;
            while let Some(piece) = reader.next().await {
                match piece {
                    Ok(piece) => check.piece(&piece)?,
                    Err(_quarantined) => {
                        served = Served::Miss;
                        *check = Check::new(request, check.seed);
                        break;
                    }
                }
            }
        }
        if served == Served::Miss {
            let value = self.fetch(request).await?;
            let wanted = request.offset as usize..(request.offset + request.length) as usize;
            match value.get(wanted) {
                Some(wanted) => check.piece(wanted)?,
                None => return Err(Failure::Failed("the origin's object is too short".into())),
            }
            self.keep(key, value).await?;
        }
        check.finish(served)
    }

    async fn fetch(&self, request: &Planned) -> Result<Bytes, Failure> {
        let answer = self
            .origin
            .get(&object_key(request), GetRequest::default())
            .await;
        let mut body = answer.map_err(failed)?.body;
        let mut whole = bytes::BytesMut::new();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(failed)?;
            if whole.is_empty() && piece.len() as u64 == request.object_bytes {
                return Ok(piece);
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    async fn put(&self, request: &Planned, seed: Option<u64>) -> Result<Answer, Failure> {
        let mut value = vec![0; request.object_bytes as usize];
        Content::new(seed.unwrap_or(0), &object_key(request), 0).fill(0, &mut value);
        self.keep(request.key.as_bytes(), value.into()).await?;
        Ok(other(request.object_bytes))
    }

    async fn keep(&self, key: &[u8], value: Bytes) -> Result<(), Failure> {
        let put = self.store.put(key, value, PutOptions::default()).await;
        // A refusal is no failure: the store counts it.
        put.map(|_: Admission| ()).map_err(failed)
    }
}

async fn read_through(
    cache: &ObjectCache,
    request: &Planned,
    check: &mut Check<'_>,
) -> Result<Answer, Failure> {
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

/// Counts an answer's bytes and compares them with what they must be.
struct Check<'a> {
    request: &'a Planned,
    seed: Option<u64>,
    seen: u64,
}

impl<'a> Check<'a> {
    fn new(request: &'a Planned, seed: Option<u64>) -> Self {
        Check {
            request,
            seed,
            seen: 0,
        }
    }

    fn piece(&mut self, piece: &[u8]) -> Result<(), Failure> {
        let at = self.request.offset + self.seen;
        self.seen += piece.len() as u64;
        let Some(seed) = self.seed else { return Ok(()) };
        let key = object_key(self.request);
        verify(seed, &key, at, piece).map_err(|wrong| {
            Failure::Lie(EvalError::WrongBytes {
                key: key.to_string(),
                offset: wrong.offset,
            })
        })
    }

    fn finish(&self, served: Served) -> Result<Answer, Failure> {
        if self.seen != self.request.length {
            return Err(Failure::Lie(EvalError::WrongLength {
                key: object_key(self.request).to_string(),
                wanted: self.request.length,
                given: self.seen,
            }));
        }
        Ok(Answer {
            served,
            bytes: self.seen,
        })
    }
}

fn other(bytes: u64) -> Answer {
    Answer {
        served: Served::Other,
        bytes,
    }
}

fn failed(error: impl std::error::Error + 'static) -> Failure {
    Failure::Failed(crate::error::chain(&error))
}
