//! Reads a range of one version of an object: each chunk from the store, a
//! flight or the origin.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use bytes::Bytes;
use futures::StreamExt;

use super::ahead::{Ahead, Early, Seat};
use super::error::ObjectError;
use super::fetch::Run;
use super::flight::{Flight, FlightReader, Next};
use super::inner::Inner;
use super::response::{ObjectBody, Outcome, gather};
use super::stats::count;
use super::version::ObjectVersion;
use crate::origin::{OriginBody, OriginError};
use crate::store::ValueReader;
use crate::value::Tier;

/// Stored chunks that a reader opens together; few, because each is in memory or pins its zone.
const STORED_AHEAD: usize = 2;

/// Most sources to try for one chunk, after failed reads and stopped fetches,
/// before the reader bypasses the cache.
const SEEKS_PER_CHUNK: u32 = 3;

/// Requests of a fetch that a reader has under way at first: the one that it reads, and the next.
const REACH_MIN: usize = 2;

pub(super) struct Reader {
    cache: Arc<Inner>,
    object: Arc<ObjectVersion>,
    /// Offset in the object of the next byte.
    position: u64,
    end: u64,
    /// The sources of the next chunks, the current one first.
    sources: VecDeque<Source>,
    /// The first chunk without a source.
    planned: u64,
    /// Seats from resolving the metadata.
    seats: VecDeque<Seat>,
    /// The first chunk, if it was read ahead.
    ahead: Option<Ahead>,
    /// Requests that it may have under way: more once it has had to wait for one.
    reach: usize,
    seeks: u32,
    resumes: u32,
    tally: Tally,
}

enum Source {
    Stored {
        reader: ValueReader,
        /// This read's fetch stored it: the reader fell behind that flight.
        fetched: bool,
    },
    Flight {
        reader: FlightReader,
        joined: bool,
    },
    Direct(OriginBody),
}

impl Reader {
    pub(super) fn new(
        cache: &Arc<Inner>,
        object: &Arc<ObjectVersion>,
        range: Range<u64>,
        early: Early,
    ) -> Self {
        let Early { seats, ahead } = early;
        Reader {
            position: range.start,
            end: range.end,
            planned: object.chunk_of(range.start),
            sources: VecDeque::new(),
            seats: seats.into(),
            ahead: ahead.filter(|ahead| ahead.version == object.version),
            reach: REACH_MIN,
            seeks: 0,
            resumes: cache.config.max_resumes,
            tally: Tally::new(cache),
            cache: Arc::clone(cache),
            object: Arc::clone(object),
        }
    }

    /// The first bytes and their source.
    pub(super) async fn first(&mut self) -> Result<(Option<Bytes>, Outcome), ObjectError> {
        let first = self.next().await?;
        let outcome = self.tally.first.unwrap_or(Outcome::Metadata);
        Ok((first, outcome))
    }

    /// The bytes after the first ones.
    pub(super) fn into_body(self, first: Option<Bytes>) -> ObjectBody {
        let rest = futures::stream::unfold(Some(self), |reader| async {
            let mut reader = reader?;
            match reader.next().await {
                Ok(Some(bytes)) => Some((Ok(bytes), Some(reader))),
                Ok(None) => None,
                Err(error) => {
                    reader.tally.failed = true;
                    if matches!(error, ObjectError::Changed) {
                        count(&reader.cache.stats.reads_aborted);
                    }
                    Some((Err(error), None))
                }
            }
        });
        match first {
            Some(bytes) => Box::pin(futures::stream::once(async { Ok(bytes) }).chain(rest)),
            None => Box::pin(rest),
        }
    }

    /// The whole range.
    pub(super) async fn whole(self) -> Result<Bytes, ObjectError> {
        let length = self.end - self.position;
        let pieces = futures::stream::try_unfold(self, |mut reader| async {
            Ok(reader.next().await?.map(|bytes| (bytes, reader)))
        });
        gather(pieces, length).await
    }

    /// Fetches whole chunks for later readers, and returns how many bytes came.
    pub(super) async fn fill(self, chunks: Range<u64>) -> Result<u64, ObjectError> {
        let (mut bytes, mut flights) = (0, Vec::new());
        for source in self.fetch(chunks) {
            let Source::Flight { mut reader, .. } = source else {
                continue;
            };
            loop {
                match reader.next().await {
                    Next::Bytes(piece) => bytes += piece.len() as u64,
                    Next::End | Next::Behind | Next::Stored => break,
                    Next::Failed(error) => return Err(error),
                }
            }
            flights.push(reader.into_flight());
        }
        for flight in flights {
            flight.retired().await;
        }
        Ok(bytes)
    }

    /// The next bytes, or `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, ObjectError> {
        let result = self.advance().await;
        match &result {
            Ok(Some(bytes)) => self.position += bytes.len() as u64,
            Ok(None) => self.tally.ended = true,
            // The caller counts an error that it cannot recover from.
            Err(_) => {}
        }
        result
    }

    async fn advance(&mut self) -> Result<Option<Bytes>, ObjectError> {
        while self.position < self.end {
            self.plan().await;
            let to = self.source_end();
            let begins = self.object.chunk_start(self.object.chunk_of(self.position));
            let found = match self.sources.front_mut() {
                Some(Source::Stored { reader, fetched }) => {
                    Self::next_stored(reader, *fetched, &mut self.tally).await
                }
                Some(Source::Flight { reader, joined }) => {
                    let (reader, joined) = (reader, *joined);
                    let mut next = pin!(Self::next_in_flight(reader, joined, &mut self.tally));
                    match futures::poll!(next.as_mut()) {
                        Poll::Ready(found) => found,
                        Poll::Pending => {
                            // It is faster than the fetches ahead of it.
                            if self.position == begins {
                                self.reach = self.reach.saturating_mul(2);
                            }
                            next.await
                        }
                    }
                }
                Some(Source::Direct(body)) => Self::next_direct(body, &mut self.tally).await,
                // Unreachable: `plan` gives every chunk of the range a source.
                None => return Err(ObjectError::Stopped),
            };
            match found {
                Found::Bytes(bytes) if self.position + bytes.len() as u64 > to => {
                    // A source longer than its range is a fault of the store.
                    self.switch_source(true).await?;
                }
                Found::Bytes(bytes) if bytes.is_empty() => {}
                Found::Bytes(bytes) => {
                    if self.position + bytes.len() as u64 == to {
                        self.sources.pop_front();
                        self.seeks = 0;
                    }
                    return Ok(Some(bytes));
                }
                Found::Fault => {
                    count(&self.cache.stats.read_repairs);
                    self.switch_source(true).await?;
                }
                Found::Behind => {
                    count(&self.cache.stats.readers_detached);
                    self.switch_source(false).await?;
                }
                Found::Retry => self.switch_source(true).await?,
                Found::Failed(error) => self.resume_or_fail(error).await?,
            }
        }
        Ok(None)
    }

    /// The end of the current source: of its chunk or of the range, whichever comes first.
    fn source_end(&self) -> u64 {
        let chunk = self.object.chunk_of(self.position);
        self.object.end_of(chunk).min(self.end)
    }

    async fn next_stored(reader: &mut ValueReader, fetched: bool, tally: &mut Tally) -> Found {
        let tier = reader.tier();
        match reader.next().await {
            Some(Ok(bytes)) => {
                match fetched {
                    true => tally.served_by_fetch(false, bytes.len()),
                    false => tally.served_by_cache(tier, bytes.len()),
                }
                Found::Bytes(bytes)
            }
            // A record shorter than its chunk counts as unreadable.
            None | Some(Err(_)) => Found::Fault,
        }
    }

    async fn next_in_flight(reader: &mut FlightReader, joined: bool, tally: &mut Tally) -> Found {
        match reader.next().await {
            Next::Bytes(bytes) => {
                tally.served_by_fetch(joined, bytes.len());
                Found::Bytes(bytes)
            }
            Next::Behind | Next::End => Found::Behind,
            Next::Stored | Next::Failed(ObjectError::Stopped) => Found::Retry,
            // The queue was full for the client that began the fetch, perhaps not for this one.
            Next::Failed(ObjectError::Origin(OriginError::Overloaded(_))) if joined => Found::Retry,
            Next::Failed(error) => Found::Failed(error),
        }
    }

    async fn next_direct(body: &mut OriginBody, tally: &mut Tally) -> Found {
        match body.next().await {
            Some(Ok(bytes)) => {
                tally.served_by_origin(bytes.len());
                Found::Bytes(bytes)
            }
            Some(Err(error)) => Found::Failed(error.into()),
            None => Found::Failed(ObjectError::Stopped),
        }
    }

    /// Switches the current chunk to another source: the store, a flight if
    /// `may_fetch` and near the chunk's start, otherwise the origin.
    async fn switch_source(&mut self, may_fetch: bool) -> Result<(), ObjectError> {
        self.sources.pop_front();
        let to = self.source_end();
        let chunk = self.object.chunk_of(self.position);
        let start = self.object.chunk_start(chunk);
        self.seeks += 1;
        let within = self.position - start..to - start;
        if self.seeks <= SEEKS_PER_CHUNK {
            if let Some(stored) = self.cache.stored(&self.object, chunk, within.clone()).await {
                let fetched = !may_fetch;
                if !fetched {
                    self.cache.stats.chunk_found(stored.tier());
                }
                self.sources.push_front(Source::Stored {
                    reader: stored,
                    fetched,
                });
                return Ok(());
            }
            // A flight begins at the chunk's start; further into a large chunk,
            // waiting for it takes too long.
            if may_fetch && within.start <= self.cache.config.fetch_window.bytes() {
                for source in self.fetch(chunk..chunk + 1) {
                    self.sources.push_front(source);
                }
                return Ok(());
            }
        }
        self.read_directly(to).await
    }

    async fn read_directly(&mut self, to: u64) -> Result<(), ObjectError> {
        let read = self
            .cache
            .read_version(&self.object, self.position..to)
            .await?;
        self.sources.push_front(Source::Direct(read.body));
        Ok(())
    }

    /// Resumes a direct read where its body broke off. A fetch has already
    /// retried for its readers.
    async fn resume_or_fail(&mut self, error: ObjectError) -> Result<(), ObjectError> {
        let retriable = matches!(&error, ObjectError::Origin(origin) if origin.is_retriable());
        let direct = matches!(self.sources.front(), Some(Source::Direct(_)));
        if !(retriable && direct && self.resumes > 0 && self.object.meta.has_validator()) {
            return Err(error);
        }
        self.resumes -= 1;
        self.sources.pop_front();
        self.read_directly(self.source_end()).await
    }

    /// Gives the current chunk a source, and those ahead as far as the
    /// configuration allows. Missing chunks are fetched before they are needed,
    /// adjacent ones together.
    async fn plan(&mut self) {
        let last = self.object.chunk_of(self.end - 1);
        let config = &self.cache.config;
        let chunk_size = self.object.chunk_size();
        let per_fetch = config.chunks_per_fetch(chunk_size);
        let parallelism = self.object.moment.policy.fetch_parallelism;
        let parallelism = parallelism.min(self.reach);
        let most = match chunk_size <= config.fetch_window.bytes() {
            true => per_fetch.saturating_mul(parallelism as u64),
            // A fetch of a chunk larger than its window waits for its reader,
            // so fetching further ahead gains nothing.
            false => 1,
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        if let Some(ahead) = self.ahead.take().filter(|a| a.chunk == self.planned) {
            self.plan_stored(ahead.reader);
            self.planned += 1;
        }
        // Planning in batches makes requests to the origin large.
        if !self.sources.is_empty() && self.sources.len() * 2 > most {
            return;
        }
        while self.planned <= last && self.sources.len() < most && !self.has_enough_stored() {
            if let Some(Seat { reader, joined }) = self.take_seat(self.planned) {
                count(match joined {
                    true => &self.cache.stats.chunks_joined,
                    false => &self.cache.stats.chunks_missed,
                });
                self.sources.push_back(Source::Flight { reader, joined });
                self.planned += 1;
                continue;
            }
            self.plan_stored_or_missing(last, per_fetch).await;
        }
    }

    /// Plans the next chunks: those that are stored, or the next one and the missing ones after it.
    async fn plan_stored_or_missing(&mut self, last: u64, per_fetch: u64) {
        let first = self.planned;
        let more = (first + 1..=last).take_while(|chunk| !self.has_seat(*chunk));
        let end = first + 1 + more.take(STORED_AHEAD - 1).count() as u64;
        // Values in one read are read by the lookup, so lookups wait together.
        let lookups = (first..end).map(|chunk| self.look_up(chunk));
        let mut missing = first..first;
        for stored in futures::future::join_all(lookups).await {
            self.plan_found(&mut missing, stored);
        }
        while !missing.is_empty()
            && missing.end <= last
            && missing.end - missing.start < per_fetch
            && !self.has_seat(missing.end)
        {
            let stored = self.look_up(missing.end).await;
            self.plan_found(&mut missing, stored);
        }
        self.plan_missing(&mut missing);
        self.planned = missing.end;
    }

    /// The future must not borrow `self`, which is not `Sync`.
    fn look_up(&self, chunk: u64) -> impl Future<Output = Option<ValueReader>> + use<> {
        let (cache, object) = (Arc::clone(&self.cache), Arc::clone(&self.object));
        let range = self.part_of(chunk);
        async move { cache.stored(&object, chunk, range).await }
    }

    /// Plans the chunk after the missing ones and them, if it is stored; otherwise it is missing too.
    fn plan_found(&mut self, missing: &mut Range<u64>, stored: Option<ValueReader>) {
        if let Some(reader) = stored {
            self.plan_missing(missing);
            self.plan_stored(reader);
            missing.start = missing.end + 1;
        }
        missing.end += 1;
    }

    fn plan_stored(&mut self, reader: ValueReader) {
        self.cache.stats.chunk_found(reader.tier());
        self.sources.push_back(Source::Stored {
            reader,
            fetched: false,
        });
    }

    fn plan_missing(&mut self, missing: &mut Range<u64>) {
        if !missing.is_empty() {
            let fetched = self.fetch(missing.clone());
            self.sources.extend(fetched);
            missing.start = missing.end;
        }
    }

    /// Joins the flights of `chunks` and begins the missing ones, adjacent ones
    /// as one fetch. There is no await point, so a reader that leaves cannot
    /// abandon a flight that has no fetch.
    fn fetch(&self, chunks: Range<u64>) -> VecDeque<Source> {
        let mut sources = VecDeque::new();
        let mut run: Vec<Option<Arc<Flight>>> = Vec::new();
        let window = self.cache.config.fetch_window.bytes();
        let begin = |run: &mut Vec<_>, end: u64| {
            let flights = std::mem::take(run);
            if !flights.is_empty() {
                let first = end - flights.len() as u64;
                Run::new(&self.cache, &self.object, first, flights).spawn();
            }
        };
        for chunk in chunks.clone() {
            let (flight, begun) = self
                .cache
                .flights
                .join_or_begin(self.object.chunk_id(chunk), window);
            let part = self.part_of(chunk);
            let reader = flight.reader(part.start, part.end);
            sources.push_back(Source::Flight {
                reader,
                joined: !begun,
            });
            if begun {
                count(&self.cache.stats.chunks_missed);
                run.push(Some(flight));
            } else {
                count(&self.cache.stats.chunks_joined);
                begin(&mut run, chunk);
            }
        }
        begin(&mut run, chunks.end);
        sources
    }

    /// The unread part of a chunk, as offsets in the chunk.
    fn part_of(&self, chunk: u64) -> Range<u64> {
        let start = self.object.chunk_start(chunk);
        let end = self.object.end_of(chunk);
        self.position.max(start) - start..self.end.min(end) - start
    }

    fn take_seat(&mut self, chunk: u64) -> Option<Seat> {
        let is_before = |seat: &Seat| seat.reader.chunk() < chunk;
        while self.seats.front().is_some_and(is_before) {
            self.seats.pop_front();
        }
        self.has_seat(chunk)
            .then(|| self.seats.pop_front())
            .flatten()
    }

    fn has_seat(&self, chunk: u64) -> bool {
        let seat = self.seats.front();
        seat.is_some_and(|seat| seat.reader.chunk() == chunk)
    }

    /// Stored chunks in memory are planned when all before are sent: more would wait in memory.
    fn has_enough_stored(&self) -> bool {
        let mut stored = 0;
        self.sources.iter().any(|source| match source {
            Source::Stored { reader, .. } => {
                stored += 1;
                reader.is_in_memory() || stored == STORED_AHEAD
            }
            _ => false,
        })
    }
}

enum Found {
    Bytes(Bytes),
    /// The store could not read the chunk.
    Fault,
    /// The flight's window has moved past this reader.
    Behind,
    /// Look again: the store has the chunk, or the fetch was stopped.
    Retry,
    Failed(ObjectError),
}

/// The sources of a read's bytes; counted when dropped.
struct Tally {
    cache: Arc<Inner>,
    first: Option<Outcome>,
    from_cache: u64,
    from_origin: u64,
    ended: bool,
    failed: bool,
}

impl Tally {
    fn new(cache: &Arc<Inner>) -> Self {
        Tally {
            cache: Arc::clone(cache),
            first: None,
            from_cache: 0,
            from_origin: 0,
            ended: false,
            failed: false,
        }
    }

    fn served_by_cache(&mut self, tier: Tier, bytes: usize) {
        self.first.get_or_insert(Outcome::Hit(tier));
        self.from_cache += bytes as u64;
        self.cache.stats.served(tier, bytes as u64);
    }

    fn served_by_fetch(&mut self, joined: bool, bytes: usize) {
        let outcome = if joined {
            Outcome::Joined
        } else {
            Outcome::Miss
        };
        self.first.get_or_insert(outcome);
        self.from_origin += bytes as u64;
        let counter = &self.cache.stats.bytes_fetched;
        counter.fetch_add(bytes as u64, Relaxed);
    }

    fn served_by_origin(&mut self, bytes: usize) {
        self.first.get_or_insert(Outcome::Miss);
        self.from_origin += bytes as u64;
        let counter = &self.cache.stats.bytes_bypass;
        counter.fetch_add(bytes as u64, Relaxed);
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let stats = &self.cache.stats;
        let counter = match (self.failed, self.from_cache, self.from_origin) {
            (true, ..) => &stats.reads_failed,
            (false, _, 0) if self.from_cache > 0 || self.ended => &stats.reads_hit,
            // The reader left before the first byte.
            (false, 0, 0) => return,
            (false, 0, _) => &stats.reads_miss,
            (false, ..) => &stats.reads_partial,
        };
        count(counter);
    }
}
