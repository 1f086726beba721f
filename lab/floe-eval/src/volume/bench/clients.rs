//! Clients that send requests to volumes, and what they measure.

use std::sync::Arc;
use std::time::Duration;

use floe::volume::{Volume, VolumeError};
use floe_device::{Clock, IoBuf, IoData};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use rand::{RngExt as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};

use super::load::{Load, Planned};
use crate::error::EvalError;
use crate::metrics::histogram;
use crate::run::{Arrivals, Pacing};
use crate::trace::BlockOp;

/// Latencies of completed requests, in nanoseconds.
pub(super) struct Tally {
    pub(super) reads: Histogram<u64>,
    pub(super) writes: Histogram<u64>,
    pub(super) bytes: u64,
}

/// The clients of a bench.
pub(super) struct Clients {
    pacing: Pacing,
    shared: Arc<Shared>,
    seed: u64,
}

struct Shared {
    rest: Mutex<Rest>,
    volumes: Vec<Volume>,
    clock: Clock,
    zeros: Mutex<IoData>,
}

/// A load, and how many of its requests are to be sent.
struct Rest {
    load: Load,
    requests: u64,
}

impl Clients {
    pub(super) fn new(
        pacing: Pacing,
        load: Load,
        volumes: Vec<Volume>,
        clock: Clock,
        seed: u64,
    ) -> Self {
        Clients {
            pacing,
            shared: Arc::new(Shared {
                rest: Mutex::new(Rest { load, requests: 0 }),
                volumes,
                clock,
                zeros: Mutex::new(IoBuf::zeroed(4096).freeze()),
            }),
            seed,
        }
    }

    /// Sends the next `requests` requests, and waits for all answers.
    pub(super) async fn send(&self, requests: u64) -> Result<Tally, EvalError> {
        self.shared.rest.lock().requests = requests;
        match self.pacing {
            Pacing::Closed { clients } => self.closed(clients).await,
            Pacing::Open {
                rate,
                arrivals,
                in_flight_max,
            } => {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ requests);
                let mut next = Duration::ZERO;
                let starts = move |_: &Planned| {
                    let gap = match arrivals {
                        Arrivals::Fixed => 1.0,
                        Arrivals::Poisson => -(1.0 - random.random::<f64>()).ln(),
                    };
                    next += Duration::from_secs_f64(gap / rate);
                    next
                };
                self.open(in_flight_max, starts).await
            }
            Pacing::Recorded {
                speed,
                in_flight_max,
            } => {
                let mut first = None;
                let starts = move |planned: &Planned| {
                    let time = planned.time.unwrap_or_default();
                    let first = *first.get_or_insert(time);
                    time.saturating_sub(first).div_f64(speed)
                };
                self.open(in_flight_max, starts).await
            }
        }
    }

    /// Each client sends its next request after the answer to the last.
    async fn closed(&self, clients: usize) -> Result<Tally, EvalError> {
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            let shared = Arc::clone(&self.shared);
            tasks.spawn(async move {
                let mut tally = Tally::default();
                while let Some(planned) = shared.next() {
                    let start = shared.clock.now();
                    shared.answer(planned).await?;
                    tally.record(planned, shared.clock.now().since(start));
                    // Devices in memory never suspend a client, and the task that makes
                    // room for new blocks may have no other thread.
                    if !shared.clock.is_virtual() {
                        tokio::task::yield_now().await;
                    }
                }
                Ok::<_, VolumeError>(tally)
            });
        }
        let mut whole = Tally::default();
        while let Some(ended) = tasks.join_next().await {
            let tally = ended.map_err(|error| EvalError::Client(error.to_string()))?;
            whole.merge(&tally.map_err(|error| EvalError::cache(&error))?);
        }
        Ok(whole)
    }

    /// Requests start at times of their own; latency counts from there.
    async fn open(
        &self,
        in_flight_max: usize,
        mut start_of: impl FnMut(&Planned) -> Duration,
    ) -> Result<Tally, EvalError> {
        let began = self.shared.clock.now();
        let permits = Arc::new(Semaphore::new(in_flight_max));
        let mut tasks = JoinSet::new();
        let mut whole = Tally::default();
        while let Some(planned) = self.shared.next() {
            let start = began + start_of(&planned);
            self.shared.clock.sleep_until(start).await;
            // The semaphore is never closed.
            let permit = Arc::clone(&permits).acquire_owned().await;
            let shared = Arc::clone(&self.shared);
            tasks.spawn(async move {
                let answered = shared.answer(planned).await;
                drop(permit);
                answered.map(|()| (planned, shared.clock.now().since(start)))
            });
            while let Some(ended) = tasks.try_join_next() {
                whole.record_ended(ended)?;
            }
        }
        while let Some(ended) = tasks.join_next().await {
            whole.record_ended(ended)?;
        }
        Ok(whole)
    }
}

impl Shared {
    fn next(&self) -> Option<Planned> {
        let mut rest = self.rest.lock();
        rest.requests = rest.requests.checked_sub(1)?;
        rest.load.next()
    }

    async fn answer(&self, planned: Planned) -> Result<(), VolumeError> {
        let Planned { at, bytes, .. } = planned;
        let volume = &self.volumes[planned.volume];
        match planned.op {
            BlockOp::Read => volume.read_at(at, bytes as usize).await.map(drop),
            BlockOp::Write => volume.write_at(at, self.zeros(bytes as usize), false).await,
            BlockOp::WriteZeroes => volume.write_zeroes(at, bytes, false).await,
            BlockOp::Trim => volume.discard(at, bytes).await,
            BlockOp::Flush => volume.flush().await,
        }
    }

    /// The data of a write.
    fn zeros(&self, len: usize) -> IoData {
        let mut zeros = self.zeros.lock();
        if zeros.len() < len {
            *zeros = IoBuf::zeroed(len).freeze();
        }
        zeros.slice(0..len)
    }
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            reads: histogram(),
            writes: histogram(),
            bytes: 0,
        }
    }
}

impl Tally {
    fn record(&mut self, planned: Planned, latency: Duration) {
        let latencies = match planned.op {
            BlockOp::Read => &mut self.reads,
            BlockOp::Write | BlockOp::WriteZeroes => &mut self.writes,
            BlockOp::Trim | BlockOp::Flush => return,
        };
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        // The histogram resizes to hold any value.
        let _ = latencies.record(ns);
        self.bytes += planned.bytes;
    }

    fn record_ended(&mut self, ended: Ended) -> Result<(), EvalError> {
        let ended = ended.map_err(|error| EvalError::Client(error.to_string()))?;
        let (planned, latency) = ended.map_err(|error| EvalError::cache(&error))?;
        self.record(planned, latency);
        Ok(())
    }

    fn merge(&mut self, other: &Tally) {
        // Both have the same digits and resize by themselves.
        let _ = self.reads.add(&other.reads);
        let _ = self.writes.add(&other.writes);
        self.bytes += other.bytes;
    }
}

/// The end of a request's task.
type Ended = Result<Result<(Planned, Duration), VolumeError>, JoinError>;
