//! Single-flight: one fetch per missing chunk, shared by all its readers.
//!
//! A [`Flight`] is a chunk that is being fetched: a bounded window of its
//! latest bytes, its readers with their positions, and its result. One short
//! lock guards a flight. A reader that finds nothing registers its waker under
//! the same lock acquisition, so no wake-up is lost. Readers and the fetch may
//! leave at any time.
//!
//! `tests/flight_model.rs` runs this file under a model checker.
//!
//! Must not depend on stores, origins or tasks.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::error::ObjectError;
use super::lock::Mutex;
use super::version::ChunkId;

const SHARDS: usize = 64;

/// The chunks that are being fetched.
pub(super) struct Flights {
    shards: [Mutex<HashMap<ChunkId, Arc<Flight>>>; SHARDS],
}

impl Flights {
    pub(super) fn new() -> Self {
        Flights {
            shards: std::array::from_fn(|_| Mutex::new(HashMap::new())),
        }
    }

    /// The flight of `id`: the existing one, or a new one (`true`), which the
    /// caller must fetch and [`retire`](Flights::retire).
    pub(super) fn join_or_begin(&self, id: ChunkId, window: u64) -> (Arc<Flight>, bool) {
        let mut shard = self.shards[id.shard(SHARDS)].lock();
        if let Some(flight) = shard.get(&id) {
            return (Arc::clone(flight), false);
        }
        let flight = Arc::new(Flight {
            id,
            window,
            state: Mutex::new(State::default()),
        });
        shard.insert(id, Arc::clone(&flight));
        (flight, true)
    }

    /// True if a chunk is being fetched.
    pub(super) fn has(&self, id: ChunkId) -> bool {
        self.shards[id.shard(SHARDS)].lock().contains_key(&id)
    }

    /// Hides the flight from new readers.
    pub(super) fn retire(&self, flight: &Arc<Flight>) {
        let mut shard = self.shards[flight.id.shard(SHARDS)].lock();
        if shard
            .get(&flight.id)
            .is_some_and(|found| Arc::ptr_eq(found, flight))
        {
            shard.remove(&flight.id);
        }
        drop(shard);
        let mut state = flight.state.lock();
        state.retired = true;
        let waiting = std::mem::take(&mut state.retirement);
        let is_over = state.landed.is_some() && !state.is_watched();
        let released = is_over.then(|| state.release_bytes());
        drop(state);
        drop(released);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Chunks that are being fetched.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

/// A chunk that is being fetched.
pub(super) struct Flight {
    id: ChunkId,
    window: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Bytes>,
    /// Offset in the chunk of the first byte in `pieces`.
    begin: u64,
    /// Bytes of the chunk received so far.
    end: u64,
    landed: Option<Landing>,
    /// The flight is hidden from new readers.
    retired: bool,
    readers: Vec<Option<Seat>>,
    /// The furthest position of any reader.
    furthest: u64,
    pump: Option<Waker>,
    /// The tasks that wait until the flight is retired.
    retirement: Vec<Waker>,
    /// The share of the budget for `pieces`, released with them.
    memory: Option<Arc<dyn Send + Sync>>,
}

/// Bytes that left a flight. They are dropped after its lock: an origin may own
/// them, and then runs code.
struct Released {
    _pieces: VecDeque<Bytes>,
    _memory: Option<Arc<dyn Send + Sync>>,
}

#[derive(Default)]
struct Seat {
    waker: Option<Waker>,
}

/// The result of a flight.
#[derive(Clone, Debug)]
pub(super) enum Landing {
    /// All bytes arrived.
    Complete,
    /// The store already had the chunk.
    Stored,
    /// The fetch failed.
    Failed(ObjectError),
}

/// The result of a reader's next step.
#[derive(Debug)]
pub(super) enum Next {
    /// The next bytes.
    Bytes(Bytes),
    /// The reader has its whole range.
    End,
    /// The window has moved past the reader: read the store, then the origin.
    Behind,
    /// The store already had the chunk.
    Stored,
    /// The fetch failed.
    Failed(ObjectError),
}

impl Flight {
    /// Adds a reader of the bytes `from..to` of the chunk.
    pub(super) fn reader(self: &Arc<Self>, from: u64, to: u64) -> FlightReader {
        let mut state = self.state.lock();
        let seat = Seat::default();
        state.furthest = state.furthest.max(from);
        let free = state.readers.iter().position(Option::is_none);
        let index = free.unwrap_or(state.readers.len());
        match free {
            Some(free) => state.readers[free] = Some(seat),
            None => state.readers.push(Some(seat)),
        }
        state.wake_pump();
        drop(state);
        FlightReader {
            flight: Arc::clone(self),
            seat: Some(index),
            position: from,
            to,
        }
    }

    /// Keeps `memory` until the bytes are released.
    pub(super) fn charge(&self, memory: Arc<dyn Send + Sync>) {
        self.state.lock().memory = Some(memory);
    }

    /// Appends bytes and wakes the readers. The oldest bytes beyond the window are dropped.
    pub(super) fn push(&self, bytes: Bytes) {
        let mut released = Vec::new();
        let mut state = self.state.lock();
        state.end += bytes.len() as u64;
        state.pieces.push_back(bytes);
        while state.end - state.begin > self.window {
            // The last piece stays even if it is longer than the window.
            if state.pieces.len() == 1 {
                break;
            }
            let Some(piece) = state.pieces.pop_front() else {
                break;
            };
            state.begin += piece.len() as u64;
            released.push(piece);
        }
        state.wake_readers();
        drop(state);
        drop(released);
    }

    /// Waits until `len` more bytes push nothing out of the window that the
    /// furthest reader still needs, or until there are no readers.
    pub(super) async fn room(&self, len: u64) {
        poll_fn(|context| {
            let mut state = self.state.lock();
            // A piece longer than the window fits once the furthest reader has
            // all bytes before it.
            let fits = state.end + len <= state.furthest.saturating_add(self.window)
                || state.end <= state.furthest;
            if fits || !state.is_watched() {
                return Poll::Ready(());
            }
            state.pump = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Ready when there are no readers, or nothing is left to do. All bytes that are only to be
    /// stored have been paid for, so such a flight is not abandoned.
    pub(super) fn poll_abandoned(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        let is_over = match state.landed {
            Some(_) => state.retired,
            None => !state.is_watched(),
        };
        if is_over {
            return Poll::Ready(());
        }
        state.pump = Some(context.waker().clone());
        Poll::Pending
    }

    /// Waits until the flight is retired: its bytes are stored, or never will be.
    pub(super) async fn retired(&self) {
        poll_fn(|context| {
            let mut state = self.state.lock();
            if state.retired {
                return Poll::Ready(());
            }
            let waker = context.waker();
            if !state.retirement.iter().any(|other| other.will_wake(waker)) {
                state.retirement.push(waker.clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Ends the flight. Unread bytes stay available if it is complete.
    pub(super) fn land(&self, landing: Landing) {
        let mut released = None;
        let mut state = self.state.lock();
        if state.landed.is_none() {
            if !matches!(landing, Landing::Complete) {
                released = Some(state.release_bytes());
            }
            state.landed = Some(landing);
        }
        state.wake_readers();
        drop(state);
        drop(released);
    }

    /// Releases the bytes of a landed and retired flight; its readers read the store instead.
    pub(super) fn shed(&self) {
        let mut state = self.state.lock();
        if state.landed.is_some() && state.retired {
            let released = state.release_bytes();
            state.wake_readers();
            drop(state);
            drop(released);
        }
    }

    fn poll_next(&self, reader: &mut FlightReader, context: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.state.lock();
        if reader.position == reader.to {
            return Poll::Ready(Next::End);
        }
        match &state.landed {
            Some(Landing::Failed(error)) => return Poll::Ready(Next::Failed(error.clone())),
            Some(Landing::Stored) => return Poll::Ready(Next::Stored),
            _ => {}
        }
        if reader.position < state.begin {
            // This reader no longer holds back the window.
            let released = state.leave_seat(reader);
            drop(state);
            drop(released);
            return Poll::Ready(Next::Behind);
        }
        if let Some(bytes) = state.bytes_from(reader.position, reader.to) {
            reader.position += bytes.len() as u64;
            state.advance(reader.position);
            return Poll::Ready(Next::Bytes(bytes));
        }
        if let Some(seat) = state.seat(reader.seat) {
            seat.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl State {
    /// The rest, up to `to`, of the piece at `position`.
    fn bytes_from(&self, position: u64, to: u64) -> Option<Bytes> {
        let mut start = self.begin;
        for piece in &self.pieces {
            let end = start + piece.len() as u64;
            if position < end {
                // Both offsets are within the piece, whose length is a usize.
                let from = (position - start) as usize;
                let until = (to.min(end) - start) as usize;
                return Some(piece.slice(from..until));
            }
            start = end;
        }
        None
    }

    fn seat(&mut self, index: Option<usize>) -> Option<&mut Seat> {
        self.readers.get_mut(index?)?.as_mut()
    }

    #[must_use = "the bytes are dropped after the lock"]
    fn leave_seat(&mut self, reader: &mut FlightReader) -> Option<Released> {
        if let Some(index) = reader.seat.take() {
            self.readers[index] = None;
        }
        self.wake_pump();
        // If no reader is left, new ones find the record in the store.
        let is_over = self.retired && self.landed.is_some() && !self.is_watched();
        is_over.then(|| self.release_bytes())
    }

    fn advance(&mut self, position: u64) {
        if position > self.furthest {
            self.furthest = position;
            self.wake_pump();
        }
    }

    fn is_watched(&self) -> bool {
        self.readers.iter().any(Option::is_some)
    }

    #[must_use = "the bytes are dropped after the lock"]
    fn release_bytes(&mut self) -> Released {
        self.begin = self.end;
        Released {
            _pieces: std::mem::take(&mut self.pieces),
            _memory: self.memory.take(),
        }
    }

    fn wake_pump(&mut self) {
        if let Some(pump) = self.pump.take() {
            pump.wake();
        }
    }

    fn wake_readers(&mut self) {
        for seat in self.readers.iter_mut().flatten() {
            if let Some(waker) = seat.waker.take() {
                waker.wake();
            }
        }
    }
}

/// A reader of a flight. Dropping it removes it from the flight.
pub(super) struct FlightReader {
    flight: Arc<Flight>,
    seat: Option<usize>,
    position: u64,
    to: u64,
}

impl FlightReader {
    /// Waits for the next bytes.
    pub(super) async fn next(&mut self) -> Next {
        poll_fn(|context| {
            let flight = Arc::clone(&self.flight);
            flight.poll_next(self, context)
        })
        .await
    }

    pub(super) fn chunk(&self) -> u64 {
        self.flight.id.chunk
    }

    pub(super) fn into_flight(self) -> Arc<Flight> {
        Arc::clone(&self.flight)
    }
}

impl Drop for FlightReader {
    fn drop(&mut self) {
        let flight = Arc::clone(&self.flight);
        let released = flight.state.lock().leave_seat(self);
        drop(released);
    }
}
