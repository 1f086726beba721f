//! Wraps every request to an origin: a bounded queue, a timeout, retries with
//! backoff, and counters.
//!
//! Uploads have their own queue, so that slow clients do not block readers. In both queues
//! clients take turns.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::BytesMut;
use floe_core::Tick;
use floe_device::Clock;
use floe_device::thread::waits_of_this_thread;
use futures::StreamExt;
use parking_lot::{Mutex, RwLock};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::client::Client;
use super::config::RequestConfig;
use super::error::OriginError;
use super::fair::{FairLimit, QueueFull};
use super::forward::{ForwardAnswer, ForwardBody, ForwardHead, ForwardRequest};
use super::stats::{Counters, OriginOperation, OriginReason, OriginStats, Purpose, Queue};
use super::turn::{Turn, UploadTurn};
use super::types::{OriginBody, OriginRead, UploadBody};
use crate::gauge::Gauge;

/// Bytes of an upload's body that must arrive before the upload takes a turn;
/// fewer if the body is shorter.
const PRIMED_BYTES: usize = 16 << 10;

/// A confirmation that takes longer than this may have held up a thread.
const CONFIRMATION_LIMIT: Duration = Duration::from_millis(2);

/// One that takes longer than this has, for all that is known.
const CONFIRMATION_LIMIT_MAX: Duration = Duration::from_millis(20);

/// Confirmations after one that may have held up a thread of which the kernel is asked
/// whether the thread waited, or only lost its processor.
const WATCHED_CONFIRMATIONS: u64 = 4096;

/// After one that held up a thread, so many times that time passes without confirmations: they
/// hold up a thread for at most 2 % of its time, and a thread that only lost its processor is
/// not kept from them for long.
const CONFIRMATION_PAUSES: u32 = 50;

/// Least limit of the time to the answer to a forwarded change or the completion of an upload:
/// a copy of a large object takes minutes.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(600);

pub(super) struct Guard {
    config: RwLock<Arc<RequestConfig>>,
    clock: Clock,
    requests: Arc<FairLimit>,
    uploads: Arc<FairLimit>,
    counters: Arc<Counters>,
    jitter: Mutex<Xoshiro256PlusPlus>,
    /// Confirmations that are still to be watched.
    watched: AtomicU64,
    /// No confirmations before this time, in nanoseconds of the clock.
    confirms_from: AtomicU64,
}

impl Guard {
    pub(super) fn new(config: RequestConfig, clock: Clock) -> Self {
        let seed = config.seed.unwrap_or_else(rand::random);
        Guard {
            requests: FairLimit::new(config.max_concurrent),
            uploads: FairLimit::new(config.max_uploads),
            counters: Arc::new(Counters::default()),
            jitter: Mutex::new(Xoshiro256PlusPlus::seed_from_u64(seed)),
            watched: AtomicU64::new(0),
            confirms_from: AtomicU64::new(0),
            config: RwLock::new(Arc::new(config)),
            clock,
        }
    }

    /// Replaces limits, timeouts and retries for later requests.
    pub(super) fn reload(&self, config: RequestConfig) {
        self.requests.set(config.max_concurrent);
        self.uploads.set(config.max_uploads);
        *self.config.write() = Arc::new(config);
    }

    fn config(&self) -> Arc<RequestConfig> {
        Arc::clone(&self.config.read())
    }

    pub(super) fn stats(&self) -> OriginStats {
        self.counters.snapshot()
    }

    /// Runs a request whose response is complete when the future is ready.
    pub(super) async fn run<T, F>(
        &self,
        purpose: impl Into<Purpose>,
        attempt: impl Fn() -> F,
    ) -> Result<T, OriginError>
    where
        F: Future<Output = Result<T, OriginError>>,
    {
        let _turn = self.turn(Queue::Requests).await?;
        self.retry(purpose.into(), attempt, |_| None).await
    }

    /// Runs a confirmation, unless one took too long a short time ago.
    pub(super) fn confirm(&self, confirm: impl FnOnce() -> bool) -> bool {
        let begun = self.clock.now();
        if begun.0 < self.confirms_from.load(Relaxed) {
            return false;
        }
        let watched = self.watched.load(Relaxed);
        let waits = (watched > 0).then(waits_of_this_thread).flatten();
        let is_confirmed = confirm();
        let now = self.clock.now().0;
        let latency = Duration::from_nanos(now.saturating_sub(begun.0));
        if latency <= CONFIRMATION_LIMIT {
            if watched > 0 {
                // Another thread may count at the same time: the number is no promise.
                self.watched.store(watched - 1, Relaxed);
            }
        } else if self.has_waited(waits, latency) {
            let pause = (latency * CONFIRMATION_PAUSES).as_nanos() as u64;
            self.confirms_from.store(now + pause, Relaxed);
        }
        if is_confirmed {
            let purpose = Purpose(OriginOperation::Head, OriginReason::Validation);
            let unchanged = Some(&OriginError::NotModified);
            self.counters.attempt(purpose, latency, unchanged);
        }
        is_confirmed
    }

    /// True if a slow confirmation kept a thread waiting; `waits` is the count before it.
    fn has_waited(&self, waits: Option<u64>, latency: Duration) -> bool {
        self.watched.store(WATCHED_CONFIRMATIONS, Relaxed);
        match (waits, waits_of_this_thread()) {
            // A kernel that still says 0 may not count.
            (Some(before), Some(after @ 1..)) => after > before,
            // The next one will tell.
            _ => latency > CONFIRMATION_LIMIT_MAX,
        }
    }

    /// Runs a request that must not be retried.
    pub(super) async fn once<T>(
        &self,
        purpose: impl Into<Purpose>,
        attempt: impl Future<Output = Result<T, OriginError>>,
    ) -> Result<T, OriginError> {
        let limit = self.config().response_timeout();
        self.within(limit, purpose.into(), attempt).await
    }

    /// As [`once`](Self::once), for a request whose answer may take minutes.
    pub(super) async fn slow<T>(
        &self,
        purpose: impl Into<Purpose>,
        attempt: impl Future<Output = Result<T, OriginError>>,
    ) -> Result<T, OriginError> {
        let limit = self.config().response_timeout().max(CHANGE_TIMEOUT);
        self.within(limit, purpose.into(), attempt).await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        purpose: Purpose,
        attempt: impl Future<Output = Result<T, OriginError>>,
    ) -> Result<T, OriginError> {
        let _turn = self.turn(Queue::Requests).await?;
        self.attempt((purpose, limit), attempt, |_| None).await
    }

    /// Sends a client's request. It keeps its turn until the answer begins: the client may take
    /// any time to read it.
    pub(super) async fn forward<F>(
        &self,
        request: ForwardRequest,
        send: impl Fn(ForwardHead, Option<ForwardBody>) -> F,
    ) -> Result<ForwardAnswer, OriginError>
    where
        F: Future<Output = Result<ForwardAnswer, OriginError>>,
    {
        let ForwardRequest { head, body } = request;
        let purpose = Purpose(head.operation(), OriginReason::Forward);
        let limit = self.config().response_timeout().max(CHANGE_TIMEOUT);
        let Some(body) = body else {
            let _turn = self.turn(Queue::Requests).await?;
            let counts_as = ForwardAnswer::counts_as;
            let mut answer = match head.is_safe() {
                true => {
                    let attempt = || send(head.clone(), None);
                    self.retry(purpose, attempt, counts_as).await?
                }
                false => {
                    let sent = send(head, None);
                    self.attempt((purpose, limit), sent, counts_as).await?
                }
            };
            answer.body = self.guarded(answer.body, None, None);
            return Ok(answer);
        };
        let (pieces, pass) = self.admit(body.pieces, body.turn).await?;
        let body = ForwardBody {
            length: body.length,
            pieces,
            turn: None,
        };
        let sent = send(head, Some(body));
        let begun = self.clock.now();
        // The frontend limits the pauses of its client.
        let answer = self.while_moving(limit, &pass.pieces, sent).await;
        self.count(purpose, begun, &answer, ForwardAnswer::counts_as);
        let mut answer = answer?;
        answer.body = self.guarded(answer.body, None, None);
        Ok(answer)
    }

    /// Runs a read, which keeps its turn until the body ends.
    pub(super) async fn read<F>(&self, attempt: impl Fn() -> F) -> Result<OriginRead, OriginError>
    where
        F: Future<Output = Result<OriginRead, OriginError>>,
    {
        let turn = self.turn(Queue::Requests).await?;
        let mut read = self
            .retry(OriginOperation::Get.into(), attempt, |_| None)
            .await?;
        let length = read.range.end.saturating_sub(read.range.start);
        read.body = self.guarded(read.body, Some(length), Some(turn));
        Ok(read)
    }

    fn guarded(&self, body: OriginBody, length: Option<u64>, turn: Option<Turn>) -> OriginBody {
        let body = GuardedBody {
            body,
            length,
            received: 0,
            idle_timeout: self.config().idle_timeout(),
            clock: self.clock.clone(),
            counters: Arc::clone(&self.counters),
            _turn: turn,
        };
        body.into_stream()
    }

    /// Waits for a turn of an upload whose body does not come from a client.
    pub(super) async fn upload_turn(&self) -> Result<UploadTurn, OriginError> {
        Ok(UploadTurn(self.turn(Queue::Uploads).await?))
    }

    /// Admits an upload: without a turn, waits for the beginning of its body, then for a turn.
    pub(super) async fn admit(
        &self,
        body: UploadBody,
        turn: Option<UploadTurn>,
    ) -> Result<(UploadBody, Pass), OriginError> {
        let (body, turn) = match turn {
            Some(UploadTurn(turn)) => (body, turn),
            None => (primed(body).await, self.turn(Queue::Uploads).await?),
        };
        let pieces = Arc::new(AtomicU64::new(0));
        let pass = Pass {
            pieces: Arc::clone(&pieces),
            _turn: turn,
        };
        let counters = Arc::clone(&self.counters);
        let body = body.inspect(move |item| {
            if let Ok(bytes) = item {
                pieces.fetch_add(1, Relaxed);
                counters.bytes_sent.fetch_add(bytes.len() as u64, Relaxed);
            }
        });
        Ok((body.boxed(), pass))
    }

    /// Waits for the beginning of a body and for its turn, before anything else waits for it.
    pub(super) async fn begin(&self, mut body: ForwardBody) -> Result<ForwardBody, OriginError> {
        if body.turn.is_none() {
            body.pieces = primed(body.pieces).await;
            body.turn = Some(self.upload_turn().await?);
        }
        Ok(body)
    }

    /// Runs an upload, which may take any time while its body makes progress.
    pub(super) async fn upload<T>(
        &self,
        purpose: impl Into<Purpose>,
        pass: Pass,
        upload: impl Future<Output = Result<T, OriginError>>,
    ) -> Result<T, OriginError> {
        let begun = self.clock.now();
        let config = self.config();
        let limit = config.response_timeout().max(config.idle_timeout());
        let result = self.while_moving(limit, &pass.pieces, upload).await;
        self.count(purpose.into(), begun, &result, |_| None);
        result
    }

    fn count<T>(
        &self,
        purpose: Purpose,
        begun: Tick,
        result: &Result<T, OriginError>,
        counts_as: impl Fn(&T) -> Option<OriginError>,
    ) {
        let latency = Duration::from_nanos(self.clock.now().0.saturating_sub(begun.0));
        let error = match result {
            Ok(found) => counts_as(found),
            Err(error) => Some(error.clone()),
        };
        self.counters.attempt(purpose, latency, error.as_ref());
    }

    /// Fails when neither the body progresses nor a response arrives within the limit.
    async fn while_moving<T>(
        &self,
        limit: Duration,
        pieces: &AtomicU64,
        upload: impl Future<Output = Result<T, OriginError>>,
    ) -> Result<T, OriginError> {
        let mut upload = std::pin::pin!(upload);
        loop {
            let before = pieces.load(Relaxed);
            let sleep = self.clock.sleep(limit);
            tokio::select! {
                biased;
                result = &mut upload => return result,
                () = sleep => if pieces.load(Relaxed) == before {
                    return Err(OriginError::Timeout(limit));
                },
            }
        }
    }

    async fn turn(&self, queue: Queue) -> Result<Turn, OriginError> {
        let permits = match queue {
            Queue::Requests => &self.requests,
            Queue::Uploads => &self.uploads,
        };
        if let Some(held) = permits.try_hold(1) {
            return Ok(Turn::new(held, &self.counters, queue));
        }
        let config = self.config();
        let queued = Gauge::rise(&self.counters.queue(queue).queued);
        let limit = self.clock.sleep(config.queue_timeout());
        let held = tokio::select! {
            biased;
            held = permits.hold(Client::current(), 1, config.max_queued) => match held {
                Ok(held) => Ok(held),
                Err(QueueFull) => Err("the queue is full"),
            },
            () = limit => Err("the wait in the queue was too long"),
        };
        drop(queued);
        held.map(|held| Turn::new(held, &self.counters, queue))
            .map_err(|reason| {
                self.counters.overloaded.fetch_add(1, Relaxed);
                OriginError::Overloaded(reason)
            })
    }

    async fn retry<T, F>(
        &self,
        purpose: Purpose,
        attempt: impl Fn() -> F,
        counts_as: impl Fn(&T) -> Option<OriginError>,
    ) -> Result<T, OriginError>
    where
        F: Future<Output = Result<T, OriginError>>,
    {
        let mut tried = 1;
        loop {
            let limit = self.config().response_timeout();
            match self.attempt((purpose, limit), attempt(), &counts_as).await {
                Err(error) if error.is_retriable() && tried < self.config().max_attempts => {
                    let pause = self.backoff(tried);
                    tracing::debug!(%error, tried, ?pause, "retrying a request to the origin");
                    self.counters.retried(purpose);
                    self.clock.sleep(pause).await;
                    tried += 1;
                }
                result => return result,
            }
        }
    }

    /// Waits for a result for `limit`. `counts_as` tells which results the counters take for
    /// errors.
    async fn attempt<T>(
        &self,
        (purpose, limit): (Purpose, Duration),
        attempt: impl Future<Output = Result<T, OriginError>>,
        counts_as: impl Fn(&T) -> Option<OriginError>,
    ) -> Result<T, OriginError> {
        let begun = self.clock.now();
        let result = tokio::select! {
            biased;
            result = attempt => result,
            () = self.clock.sleep(limit) => Err(OriginError::Timeout(limit)),
        };
        self.count(purpose, begun, &result, counts_as);
        result
    }

    /// Half to all of the doubled pause: clients that failed together should
    /// not retry together.
    fn backoff(&self, tried: u32) -> Duration {
        let config = self.config();
        let full = config
            .backoff_ms
            .saturating_mul(1 << (tried - 1).min(32))
            .min(config.max_backoff_ms);
        let share: f64 = self.jitter.lock().random_range(0.5..=1.0);
        Duration::from_millis(full).mul_f64(share)
    }
}

/// An upload's turn, and the pieces of its body that were sent.
pub(super) struct Pass {
    pieces: Arc<AtomicU64>,
    _turn: Turn,
}

/// Waits until a body is complete or has enough bytes to send: a client that
/// sends little takes no turn. Pieces are copied, because each may keep a
/// larger buffer alive.
async fn primed(body: UploadBody) -> UploadBody {
    let mut body = body.fuse();
    let mut beginning = BytesMut::new();
    let mut last = None;
    while beginning.len() < PRIMED_BYTES {
        match body.next().await {
            Some(Ok(piece)) if piece.len() < PRIMED_BYTES => beginning.extend_from_slice(&piece),
            other => {
                last = other;
                break;
            }
        }
    }
    let beginning = (!beginning.is_empty()).then(|| Ok(beginning.freeze()));
    let arrived = beginning.into_iter().chain(last);
    futures::stream::iter(arrived).chain(body).boxed()
}

/// A body that ends with an error unless it has exactly the announced bytes, if their number
/// is known, each piece within the idle timeout.
struct GuardedBody {
    body: OriginBody,
    length: Option<u64>,
    received: u64,
    idle_timeout: Duration,
    clock: Clock,
    counters: Arc<Counters>,
    _turn: Option<Turn>,
}

impl GuardedBody {
    fn into_stream(self) -> OriginBody {
        Box::pin(futures::stream::unfold(Some(self), |state| async {
            let mut guarded = state?;
            match guarded.next().await {
                Ok(Some(bytes)) => Some((Ok(bytes), Some(guarded))),
                Ok(None) => None,
                Err(error) => {
                    guarded.counters.broken_bodies.fetch_add(1, Relaxed);
                    Some((Err(error), None))
                }
            }
        }))
    }

    async fn next(&mut self) -> Result<Option<bytes::Bytes>, OriginError> {
        if self.length == Some(self.received) {
            return Ok(None);
        }
        let limit = self.idle_timeout;
        let mut sleep = None;
        let clock = &self.clock;
        let body = &mut self.body;
        // The timer is created only when a piece is not ready.
        let timeout = std::future::poll_fn(move |context| {
            Pin::new(sleep.get_or_insert_with(|| clock.sleep(limit))).poll(context)
        });
        let item = tokio::select! {
            biased;
            item = body.next() => item,
            () = timeout => Some(Err(OriginError::Timeout(limit))),
        };
        match item {
            None => match self.length {
                None => Ok(None),
                Some(expected) => Err(OriginError::ShortBody {
                    expected,
                    received: self.received,
                }),
            },
            Some(Err(error)) => Err(error),
            Some(Ok(bytes)) => {
                let length = bytes.len() as u64;
                self.received += length;
                if let Some(expected) = self.length.filter(|length| *length < self.received) {
                    return Err(OriginError::Protocol(format!(
                        "the body is longer than the {expected} bytes announced"
                    )));
                }
                self.counters.bytes_received.fetch_add(length, Relaxed);
                Ok(Some(bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirmation_that_held_up_a_thread_is_the_last_for_a_time() {
        let guard = Guard::new(RequestConfig::default(), Clock::real());
        assert!(guard.confirm(|| true));
        assert!(!guard.confirm(|| false));
        let slow = || {
            std::thread::sleep(CONFIRMATION_LIMIT);
            true
        };
        // One that only computes is slow, as in a thread that lost its processor. The kernel may
        // find a reason to let it wait all the same, but not each time.
        let is_spared = || {
            guard.watched.store(2, Relaxed);
            guard.confirms_from.store(0, Relaxed);
            assert!(guard.confirm(|| {
                let until = std::time::Instant::now() + CONFIRMATION_LIMIT;
                while std::time::Instant::now() < until {}
                true
            }));
            guard.confirms_from.load(Relaxed) == 0
        };
        assert!((0..10).any(|_| is_spared()));
        let counted = || guard.stats().operation(OriginOperation::Head).negative;
        let before = counted();
        assert!(guard.confirm(slow));
        assert!(!guard.confirm(|| unreachable!("it holds up another thread")));
        assert_eq!(counted(), before + 1);
    }
}
