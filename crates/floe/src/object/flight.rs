//! Single-flight: one fetch for a missing chunk, however many wait for it.
//!
//! A [`Flight`] is a chunk on its way: a bounded window of its latest bytes, the
//! readers with their positions, and how it ended. Everything is behind one
//! short lock per flight, and whoever waits registers under that lock in the
//! same step in which it finds nothing, so no wake-up is lost. Readers and the
//! fetch itself may leave at any time.
//!
//! `tests/flight_model.rs` runs this very file under a model checker.
//!
//! What it refuses to know: stores, origins, tasks.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::error::ObjectError;
use super::lock::Mutex;
use super::version::ChunkId;

const SHARDS: usize = 64;

/// The chunks on their way.
pub(super) struct Flights {
    shards: [Mutex<HashMap<ChunkId, Arc<Flight>>>; SHARDS],
}

impl Flights {
    pub(super) fn new() -> Self {
        Flights {
            shards: std::array::from_fn(|_| Mutex::new(HashMap::new())),
        }
    }

    /// The flight of `id`: the one under way, or a new one (`true`) that the
    /// caller must bring in and [`retire`](Flights::retire).
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

    /// From now on newcomers do not find this flight.
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
        if state.landed.is_some() && !state.is_watched() {
            state.let_go();
        }
    }

    /// Chunks on their way.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

/// A chunk on its way.
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
    /// Bytes received.
    end: u64,
    landed: Option<Landing>,
    /// Newcomers no longer find the flight.
    retired: bool,
    readers: Vec<Option<Seat>>,
    /// The furthest position a reader reached.
    furthest: u64,
    pump: Option<Waker>,
    /// What the window counts against, given back when the bytes are let go.
    memory: Option<Arc<dyn Send + Sync>>,
}

#[derive(Default)]
struct Seat {
    waker: Option<Waker>,
}

/// How a flight ended.
#[derive(Clone, Debug)]
pub(super) enum Landing {
    /// All bytes came.
    Complete,
    /// The store had the chunk after all.
    Stored,
    /// The fetch failed.
    Failed(ObjectError),
}

/// What a reader finds next.
#[derive(Debug)]
pub(super) enum Next {
    /// The next bytes.
    Bytes(Bytes),
    /// The range was read to its end.
    End,
    /// The window went on without this reader: look in the store, then at the origin.
    Behind,
    /// The store had the chunk after all.
    Stored,
    /// The fetch failed.
    Failed(ObjectError),
}

impl Flight {
    /// Takes a seat for the bytes `from..to` of the chunk.
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

    /// Holds on to `memory` until the bytes are let go.
    pub(super) fn charge(&self, memory: Arc<dyn Send + Sync>) {
        self.state.lock().memory = Some(memory);
    }

    /// Adds bytes and wakes the readers. What no longer fits the window is
    /// dropped from its beginning.
    pub(super) fn push(&self, bytes: Bytes) {
        let mut state = self.state.lock();
        state.end += bytes.len() as u64;
        state.pieces.push_back(bytes);
        while state.end - state.begin > self.window {
            // The last piece stays even if it alone is longer than the window.
            if state.pieces.len() == 1 {
                break;
            }
            let dropped = state.pieces.pop_front().map_or(0, |piece| piece.len());
            state.begin += dropped as u64;
        }
        state.wake_readers();
    }

    /// Waits until the next bytes would not push anything out of the window
    /// that the furthest reader still needs, or nobody reads.
    pub(super) async fn room(&self, len: u64) {
        poll_fn(|context| {
            let mut state = self.state.lock();
            // A piece longer than the window fits once everything before it was read.
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

    /// Ready when nobody reads.
    pub(super) fn poll_unwatched(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if !state.is_watched() {
            return Poll::Ready(());
        }
        state.pump = Some(context.waker().clone());
        Poll::Pending
    }

    /// Ends the flight. What readers have not read yet stays for them, unless
    /// it failed.
    pub(super) fn land(&self, landing: Landing) {
        let mut state = self.state.lock();
        if state.landed.is_none() {
            if !matches!(landing, Landing::Complete) {
                state.let_go();
            }
            state.landed = Some(landing);
        }
        state.wake_readers();
    }

    pub(super) fn is_landed(&self) -> bool {
        self.state.lock().landed.is_some()
    }

    /// Lets go of the bytes of a flight that has landed and was retired; its
    /// readers look in the store.
    pub(super) fn shed(&self) {
        let mut state = self.state.lock();
        if state.landed.is_some() && state.retired {
            state.let_go();
            state.wake_readers();
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
            // A reader that is left behind no longer holds the window up.
            state.stand_up(reader);
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
    /// The rest of the piece that holds `position`.
    fn bytes_from(&self, position: u64, to: u64) -> Option<Bytes> {
        let mut start = self.begin;
        for piece in &self.pieces {
            let end = start + piece.len() as u64;
            if position < end {
                // Both are within the piece, whose length is a usize.
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

    fn stand_up(&mut self, reader: &mut FlightReader) {
        if let Some(index) = reader.seat.take() {
            self.readers[index] = None;
        }
        if self.retired && self.landed.is_some() && !self.is_watched() {
            // Nobody reads it any more; whoever comes finds it in the store.
            self.let_go();
        }
        self.wake_pump();
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

    fn let_go(&mut self) {
        self.pieces.clear();
        self.begin = self.end;
        self.memory = None;
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

/// A reader's seat in a flight. Dropping it leaves nothing behind.
pub(super) struct FlightReader {
    flight: Arc<Flight>,
    seat: Option<usize>,
    position: u64,
    to: u64,
}

impl FlightReader {
    /// The next bytes, as they arrive.
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
}

impl Drop for FlightReader {
    fn drop(&mut self) {
        let flight = Arc::clone(&self.flight);
        flight.state.lock().stand_up(self);
    }
}
