//! Other caches of the same origin, which are asked for what is missing before the origin is.
//!
//! **The law.** A peer decides nothing. If it holds a missing object, the origin is asked for
//! the object's metadata alone, and its answer counts, in every mode. The peer's bytes are those
//! of a version that the origin has confirmed to this cache, under that version's entity tag,
//! size and modification time. So a peer that is old, or was away, gives the right bytes or none.
//! Versions that cannot be told apart for sure are not asked for: those without a strong entity
//! tag, and those that an operator has purged from this cache.
//!
//! A cache answers peers with what it holds, and asks no other for it. So there are no loops.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;

use super::conditional::is_weak;
use super::inner::Inner;
use super::peer::{HeldBytes, Peers, WantedBytes};
use super::record::RecordedObject;
use super::stats::{add, count};
use super::version::{Moment, ObjectVersion};
use super::{CachedVersion, ObjectCache};
use crate::origin::{ObjectKey, ObjectMeta, OriginBody, OriginError};
use crate::store::ValueReader;

/// Most chunks of one answer to a peer.
const CHUNKS_AT_ONCE: u64 = 1024;

impl ObjectCache {
    /// Asks `peers` for missing objects before the origin, from now on. Only the first call
    /// counts.
    pub fn ask_peers(&self, peers: Arc<dyn Peers>) {
        // An error says that there are peers already.
        let _ = self.inner.peers.set(peers);
    }

    /// The answer to a peer: see [`Peers::hold`].
    pub async fn holds(&self, key: &ObjectKey, offset: u64) -> bool {
        let Some(CachedVersion(object)) = self.cached_version(key).await else {
            return false;
        };
        is_certain(&object.meta)
            && offset < object.meta.size
            && self.inner.has_stored(&object, object.chunk_of(offset))
    }

    /// Bytes for a peer: see [`Peers::read`]. What the cache lacks is fetched from nowhere.
    pub async fn held_bytes(&self, wanted: WantedBytes<'_>) -> Option<HeldBytes> {
        let WantedBytes { key, meta, range } = wanted;
        let inner = &self.inner;
        // It must be read first.
        let moment = inner.moment(key);
        let range = range.start..range.end.min(meta.size);
        let is_known = inner.cache_only(key.bucket()).is_none() && is_certain(meta);
        if !is_known || !moment.policy.cache || range.is_empty() {
            return None;
        }
        let object = RecordedObject {
            meta: meta.clone(),
            instance: 0,
        };
        let object = inner.version(key, moment, object);
        let first = object.chunk_of(range.start);
        let last = object
            .chunk_of(range.end - 1)
            .min(first + CHUNKS_AT_ONCE - 1);
        let held = (first..=last).take_while(|&chunk| inner.has_stored(&object, chunk));
        let end = first + held.count() as u64;
        if end == first {
            return None;
        }
        let range = range.start..range.end.min(object.end_of(end - 1));
        let held = Held {
            cache: Arc::clone(inner),
            object,
            position: range.start,
            end: range.end,
            chunk: None,
        };
        Some(HeldBytes {
            range,
            body: held.into_body(),
        })
    }
}

impl Inner {
    /// The peers to ask for an object, if it may be asked for.
    pub(super) fn peers_for(&self, moment: &Moment) -> Option<&Arc<dyn Peers>> {
        let may_ask = moment.policy.cache && moment.purge == 0;
        self.peers.get().filter(|_| may_ask)
    }

    /// True if a peer probably holds an object's byte at `offset`.
    pub(super) async fn peers_hold(&self, key: &ObjectKey, moment: &Moment, offset: u64) -> bool {
        let Some(peers) = self.peers_for(moment) else {
            return false;
        };
        count(&self.stats.peer_lookups);
        peers.hold(key, offset).await
    }

    /// Bytes of a version that a peer holds.
    pub(super) async fn held_by_peers(
        &self,
        object: &ObjectVersion,
        range: Range<u64>,
    ) -> Option<HeldBytes> {
        let peers = self.peers_for(&object.moment)?;
        let is_asked = is_certain(&object.meta) && !object.lacked.is_set();
        if !is_asked || self.cache_only(object.key.bucket()).is_some() {
            return None;
        }
        count(&self.stats.peer_lookups);
        let wanted = WantedBytes {
            key: &object.key,
            meta: &object.meta,
            range: range.clone(),
        };
        let held = peers.read(wanted).await;
        let fits = |held: &HeldBytes| {
            held.range.start == range.start && !held.range.is_empty() && held.range.end <= range.end
        };
        let held = held.filter(fits);
        match held {
            Some(_) => count(&self.stats.peer_fetches),
            // The other fetches of this read need not ask again.
            None => object.lacked.set(),
        }
        held
    }
}

/// A read of stored chunks. It ends with an error where one is missing.
struct Held {
    cache: Arc<Inner>,
    object: ObjectVersion,
    /// Offset in the object of the next byte.
    position: u64,
    end: u64,
    /// The reader of the current chunk.
    chunk: Option<ValueReader>,
}

impl Held {
    fn into_body(self) -> OriginBody {
        let pieces = futures::stream::try_unfold(self, |mut held| async {
            let piece = held.next().await?;
            Ok(piece.map(|piece| (piece, held)))
        });
        pieces.boxed()
    }

    async fn next(&mut self) -> Result<Option<Bytes>, OriginError> {
        if self.position == self.end {
            return Ok(None);
        }
        let chunk = self.object.chunk_of(self.position);
        let start = self.object.chunk_start(chunk);
        let end = self.end.min(self.object.end_of(chunk));
        if self.chunk.is_none() {
            let part = self.position - start..end - start;
            self.chunk = self.cache.stored(&self.object, chunk, part).await;
        }
        let piece = match &mut self.chunk {
            Some(chunk) => chunk.next().await,
            None => None,
        };
        match piece {
            Some(Ok(piece)) if self.position + piece.len() as u64 <= end => {
                self.position += piece.len() as u64;
                if self.position == end {
                    self.chunk = None;
                }
                add(&self.cache.stats.peer_bytes_sent, piece.len() as u64);
                Ok(Some(piece))
            }
            _ => Err(OriginError::ShortBody {
                expected: self.end,
                received: self.position,
            }),
        }
    }
}

/// True if a version's validators tell it from all others. A modification time does not: a second
/// has room for two versions, of which this cache has seen at most one.
fn is_certain(meta: &ObjectMeta) -> bool {
    meta.etag.as_deref().is_some_and(|tag| !is_weak(tag))
}
