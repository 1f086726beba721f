//! Fetches missing chunks: one request to the origin, whose bytes go to the
//! readers and into the store as they arrive.

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures::StreamExt;

use super::budget::Share;
use super::config::ChunkAdmission;
use super::error::ObjectError;
use super::flight::{Flight, Landing};
use super::inner::Inner;
use super::stats::{add, count};
use super::version::ObjectVersion;
use crate::origin::{ObjectMeta, OriginBody, OriginError, OriginRead};
use crate::store::ValueWriter;
use crate::value::{PutOptions, PutOutcome};

/// A fetch of adjacent chunks. It runs as a task, so it outlives the reader who
/// started it. Dropping it early fails its flights.
pub(super) struct Run {
    cache: Arc<Inner>,
    object: Arc<ObjectVersion>,
    first_chunk: u64,
    /// One per chunk. `None` if another fetch brings that chunk; this one skips its bytes.
    flights: Vec<Option<Arc<Flight>>>,
    /// Offset in the object of the next byte.
    position: u64,
    /// Offset in the object of the last chunk's end.
    end: u64,
    /// Readers have had a turn to take the first bytes.
    readers_had_turn: bool,
    writer: Option<ValueWriter>,
}

impl Run {
    /// A fetch of the chunks from `first_chunk` on. At least one flight must be `Some`.
    pub(super) fn new(
        cache: &Arc<Inner>,
        object: &Arc<ObjectVersion>,
        first_chunk: u64,
        flights: Vec<Option<Arc<Flight>>>,
    ) -> Self {
        let last_chunk = first_chunk + (flights.len() as u64).saturating_sub(1);
        Run {
            cache: Arc::clone(cache),
            position: object.chunk_start(first_chunk),
            end: object.end_of(last_chunk),
            object: Arc::clone(object),
            first_chunk,
            flights,
            readers_had_turn: false,
            writer: None,
        }
    }

    /// Starts the fetch as a task.
    pub(super) fn spawn(self) {
        self.begin(None);
    }

    /// Starts the fetch as a task on a response that has begun. `memory` is its
    /// share of the budget.
    pub(super) fn spawn_with(self, body: OriginBody, mut memory: Share) {
        // The share was taken before the object's size was known.
        memory.shrink_to(self.end - self.position);
        self.charge(memory);
        self.begin(Some(body));
    }

    fn begin(self, body: Option<OriginBody>) {
        let cache = Arc::clone(&self.cache);
        cache.background.spawn(self.go(body));
    }

    async fn go(mut self, body: Option<OriginBody>) {
        let result = if self.cache.config.cancel_abandoned {
            let watched: Vec<_> = self.flights.iter().flatten().cloned().collect();
            tokio::select! {
                biased;
                result = self.fetch(body) => Some(result),
                () = all_abandoned(&watched) => None,
            }
        } else {
            Some(self.fetch(body).await)
        };
        match result {
            Some(Ok(())) => {}
            Some(Err(ObjectError::Stopped)) | None => {
                count(&self.cache.stats.fetches_cancelled);
                self.fail(&ObjectError::Stopped);
            }
            Some(Err(error)) => {
                tracing::debug!(object = %self.object.key, %error, "a fetch failed");
                count(&self.cache.stats.fetches_failed);
                self.fail(&error);
            }
        }
    }

    async fn fetch(&mut self, body: Option<OriginBody>) -> Result<(), ObjectError> {
        if body.is_none() {
            self.skip_what_is_stored();
            if self.flights.iter().all(Option::is_none) {
                return Ok(());
            }
            let bytes = (self.end - self.position).min(self.cache.config.fetch_window.bytes());
            let memory = self.cache.budget.acquire(bytes);
            let memory = self.cache.background.unless_stopping(memory).await?;
            self.charge(memory);
        }
        let chunks = self.flights.iter().flatten().count() as u64;
        let coalesced = &self.cache.stats.chunks_coalesced;
        coalesced.fetch_add(
            chunks.saturating_sub(1),
            std::sync::atomic::Ordering::Relaxed,
        );
        self.pump(body).await
    }

    /// Another flight may have landed between the reader's lookup and the start
    /// of this flight. New readers now join this flight, so a second lookup is
    /// conclusive.
    fn skip_what_is_stored(&mut self) {
        for index in 0..self.flights.len() {
            let chunk = self.first_chunk + index as u64;
            if self.flights[index].is_none() {
                continue;
            }
            if self.cache.has_stored(&self.object, chunk)
                && let Some(flight) = self.flights[index].take()
            {
                flight.land(Landing::Stored);
                self.cache.retire(&flight);
            }
        }
        while let Some(None) = self.flights.first() {
            self.flights.remove(0);
            self.first_chunk += 1;
            self.position = self.object.chunk_start(self.first_chunk);
        }
        while let Some(None) = self.flights.last() {
            self.flights.pop();
            self.end = self
                .object
                .chunk_start(self.first_chunk + self.flights.len() as u64);
        }
    }

    fn charge(&self, memory: Share) {
        let memory: Arc<dyn Send + Sync> = Arc::new(memory);
        for flight in self.flights.iter().flatten() {
            flight.charge(Arc::clone(&memory));
        }
    }

    /// Reads bodies until all bytes have arrived; each continues at the end of
    /// the one before. Without a validator a body cannot be continued: the rest
    /// might belong to another version.
    async fn pump(&mut self, mut open: Option<OriginBody>) -> Result<(), ObjectError> {
        let mut resumes = match self.object.meta.has_validator() {
            true => self.cache.config.max_resumes,
            false => 0,
        };
        if open.is_none() {
            self.take_from_peers().await?;
        }
        while self.position < self.end {
            let body = match open.take() {
                Some(body) => body,
                None => self.request().await?.body,
            };
            match self.drain(body).await {
                // The object was overwritten in place; the origin reports it.
                Err(ObjectError::Origin(OriginError::PreconditionFailed)) => {
                    self.cache.forget_metadata(&self.object.key).await;
                    return Err(ObjectError::Changed);
                }
                Err(ObjectError::Origin(error)) if error.is_retriable() && resumes > 0 => {
                    tracing::debug!(object = %self.object.key, %error, "continuing a fetch");
                    count(&self.cache.stats.fetches_resumed);
                    resumes -= 1;
                }
                result => return result,
            }
        }
        Ok(())
    }

    /// Takes what a peer has of the first bytes.
    async fn take_from_peers(&mut self) -> Result<(), ObjectError> {
        let (cache, object) = (Arc::clone(&self.cache), Arc::clone(&self.object));
        let asking = cache.held_by_peers(&object, self.position..self.end);
        let Some(mut held) = cache.background.unless_stopping(asking).await? else {
            return Ok(());
        };
        while self.position < held.range.end {
            let piece = cache.background.unless_stopping(held.body.next()).await?;
            // Without a next one, or after an error, the origin has the rest.
            let Some(Ok(mut piece)) = piece else {
                count(&cache.stats.peer_fetches_broken);
                break;
            };
            let left = held.range.end - self.position;
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            add(&cache.stats.peer_bytes, piece.len() as u64);
            self.take(piece).await?;
        }
        Ok(())
    }

    /// The future must not borrow `self`: a borrowed writer is not `Sync`.
    fn request(&self) -> impl Future<Output = Result<OriginRead, ObjectError>> + use<> {
        let cache = Arc::clone(&self.cache);
        let object = Arc::clone(&self.object);
        let range = self.position..self.end;
        async move {
            let read = cache.read_version(&object, range);
            cache.background.unless_stopping(read).await?
        }
    }

    async fn drain(&mut self, mut body: OriginBody) -> Result<(), ObjectError> {
        while self.position < self.end {
            let piece = self.cache.background.unless_stopping(body.next()).await?;
            match piece {
                Some(piece) => self.take(piece?).await?,
                None => {
                    return Err(ObjectError::Origin(OriginError::ShortBody {
                        expected: self.end,
                        received: self.position,
                    }));
                }
            }
        }
        Ok(())
    }

    /// Passes bytes on, split at chunk boundaries.
    async fn take(&mut self, mut piece: Bytes) -> Result<(), ObjectError> {
        while !piece.is_empty() && self.position < self.end {
            self.cache.check_unwritten(&self.object)?;
            let chunk = self.object.chunk_of(self.position);
            let start = self.object.chunk_start(chunk);
            let left = start + self.object.chunk_len(chunk) - self.position;
            // At most the piece's length, which is a usize.
            let part = piece.split_to(left.min(piece.len() as u64) as usize);
            let index = (chunk - self.first_chunk) as usize;
            let len = part.len() as u64;
            if let Some(flight) = self.flights[index].clone() {
                wait_for_readers(&self.cache, &flight, len).await;
                flight.push(part.clone());
                if len == left {
                    flight.land(Landing::Complete);
                }
                if !std::mem::replace(&mut self.readers_had_turn, true) {
                    // The answer leaves before the bytes are stored.
                    tokio::task::yield_now().await;
                }
                self.store(chunk, self.position == start, part).await;
            }
            self.position += len;
            if len == left {
                self.finish(index).await;
            }
        }
        Ok(())
    }

    /// Appends bytes to the chunk's record. An error here only means that the
    /// cache drops the chunk.
    async fn store(&mut self, chunk: u64, first: bool, bytes: Bytes) {
        if !self.object.cacheable {
            return;
        }
        if first {
            let options = PutOptions {
                ttl: None,
                // All records of a version's chunk have the same bytes, so an
                // older one is valid too.
                relaxed: true,
            };
            let key = self.object.chunk_key(chunk);
            let len = self.object.chunk_len(chunk);
            let store = &self.cache.store;
            self.writer = match self.object.moment.policy.admission {
                ChunkAdmission::Policy => {
                    self.cache.in_time(store.writer(&key, len, options)).await
                }
                ChunkAdmission::All => self.cache.note(store.writer_unasked(&key, len, options)),
            };
        }
        if let Some(mut writer) = self.writer.take()
            && self.cache.in_time(writer.write(bytes)).await.is_some()
        {
            self.writer = Some(writer);
        }
    }

    /// Stores the record of a landed flight, then retires the flight. So a new
    /// reader finds either the flight or the record.
    async fn finish(&mut self, index: usize) {
        // It stays in the list while it is not retired: the task may end here.
        let Some(flight) = self.flights[index].clone() else {
            return;
        };
        if let Some(writer) = self.writer.take() {
            let counter = match self.cache.in_time(writer.finish()).await {
                Some(PutOutcome::Stored) => &self.cache.stats.chunks_stored,
                Some(PutOutcome::RamOnly) => &self.cache.stats.chunks_declined,
                Some(PutOutcome::Dropped) | None => &self.cache.stats.chunks_dropped,
            };
            count(counter);
        }
        self.cache.retire(&flight);
        self.flights[index] = None;
    }

    fn fail(&mut self, error: &ObjectError) {
        self.writer = None;
        for flight in self.flights.iter_mut().filter_map(Option::take) {
            // Retired before it fails: only readers in the flight get the
            // error, and new ones start another fetch.
            self.cache.flights.retire(&flight);
            flight.land(Landing::Failed(error.clone()));
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.fail(&ObjectError::Stopped);
    }
}

async fn all_abandoned(flights: &[Arc<Flight>]) {
    std::future::poll_fn(|context| {
        for flight in flights {
            if flight.poll_abandoned(context).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    })
    .await;
}

impl Inner {
    /// Requests a range of this version from the origin.
    pub(super) async fn read_version(
        &self,
        object: &ObjectVersion,
        range: std::ops::Range<u64>,
    ) -> Result<OriginRead, ObjectError> {
        count(&self.stats.fetches);
        let origin = self.origin_of(object.key.bucket());
        let request = object.request(range.clone(), origin.honours_if_match());
        let changed = match origin.get(&object.key, request).await {
            Ok(read) if !object.is_same(&read.meta) => true,
            Ok(read) => {
                self.check_unwritten(object)?;
                return expect_range(read, &range);
            }
            Err(
                OriginError::PreconditionFailed
                | OriginError::NotFound(_)
                | OriginError::RangeNotSatisfiable { .. },
            ) => true,
            Err(error) => return Err(error.into()),
        };
        debug_assert!(changed);
        self.forget_metadata(&object.key).await;
        Err(ObjectError::Changed)
    }

    /// Without a validator, only writes through this cache reveal a change that
    /// keeps the object's size.
    pub(super) fn check_unwritten(&self, object: &ObjectVersion) -> Result<(), ObjectError> {
        if object.meta.has_validator() || self.epochs.is_current(object.moment.epoch) {
            Ok(())
        } else {
            Err(ObjectError::Changed)
        }
    }

    pub(super) fn retire(&self, flight: &Arc<Flight>) {
        self.flights.retire(flight);
        self.budget.retired(flight);
    }
}

/// Rejects a response whose range is not the requested one.
pub(super) fn expect_range(
    read: OriginRead,
    range: &std::ops::Range<u64>,
) -> Result<OriginRead, ObjectError> {
    let ObjectMeta { size, .. } = read.meta;
    let expected = range.start..range.end.min(size);
    if read.range == expected {
        return Ok(read);
    }
    Err(ObjectError::Origin(OriginError::Protocol(format!(
        "requested bytes {expected:?} of {size}, received {:?}",
        read.range
    ))))
}

/// Waits for the fastest reader, at most the reader timeout.
async fn wait_for_readers(cache: &Inner, flight: &Flight, len: u64) {
    let mut room = std::pin::pin!(flight.room(len));
    if futures::poll!(room.as_mut()).is_ready() {
        return;
    }
    let patience = cache.clock.sleep(cache.config.reader_timeout());
    tokio::select! {
        biased;
        () = room => {}
        () = patience => {}
    }
}
