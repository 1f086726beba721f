//! The request loops: closed, with clients that wait for responses, and open,
//! with requests that start at their own times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use floe_core::Tick;
use floe_device::{Clock, Metered};
use parking_lot::Mutex;
use rand::{RngExt as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::bins::Bins;
use super::progress::Display;
use super::response::Failure;
use super::settle::Settling;
use super::{
    Arrivals, BenchOptions, Pacing, Planned, RequestSource, RequestStream, RunResult, Target,
};
use crate::error::EvalError;
use crate::metrics::{DeviceCounts, Recorder, Served};
use crate::trace::Op;
use crate::workload::{Distribution, WorkloadSpec};

/// Drives `target` with `options` and measures it. `device` is the metered
/// device under the cache, if any. Must run inside a tokio runtime.
///
/// # Errors
/// If the source cannot be read, an option is invalid, more than half of the
/// requests fail, or the cache returns wrong data.
pub async fn bench(
    target: &Target,
    clock: &Clock,
    device: Option<&Metered>,
    options: &BenchOptions,
) -> Result<RunResult, EvalError> {
    validate(options, clock)?;
    if options.fill {
        fill(target, clock, options).await?;
    }
    let shared = Arc::new(Shared::new(target, clock, options)?);
    if options.warm_up_requests > 0 {
        let _display = display(options, &shared, "warm-up", Some(options.warm_up_requests));
        drive(&shared, options, None).await?;
        shared.check_interrupted()?;
        shared.restart();
    }
    measure(&shared, device, options).await
}

/// Writes every object of a workload once, before the measurement.
async fn fill(target: &Target, clock: &Clock, options: &BenchOptions) -> Result<(), EvalError> {
    if matches!(target, Target::Object(_) | Target::Origin(_)) {
        return Err(EvalError::Option {
            option: "fill",
            reason: "its objects come from the origin; use a warm-up to read them".into(),
        });
    }
    let RequestSource::Synthetic {
        workload,
        object_bytes,
        ..
    } = &options.source
    else {
        return Err(EvalError::Option {
            option: "fill",
            reason: "only the objects of a drawn workload are known in advance".into(),
        });
    };
    let fill = BenchOptions {
        source: RequestSource::Synthetic {
            workload: WorkloadSpec {
                distribution: Distribution::Scan,
                ..workload.clone()
            },
            object_bytes: *object_bytes,
            read_bytes: None,
        },
        pacing: match options.pacing {
            closed @ Pacing::Closed { .. } => closed,
            Pacing::Open { .. } | Pacing::Recorded { .. } => Pacing::Closed { clients: 16 },
        },
        warm_up_requests: workload.items,
        writes: 1.0,
        ..options.clone()
    };
    let shared = Arc::new(Shared::new(target, clock, &fill)?);
    let _display = display(&fill, &shared, "fill", Some(workload.items));
    drive(&shared, &fill, None).await?;
    shared.check_interrupted()?;
    let outcome = std::mem::take(&mut *shared.outcome.lock());
    shared.check_failures(&outcome)
}

impl Shared {
    fn new(target: &Target, clock: &Clock, options: &BenchOptions) -> Result<Self, EvalError> {
        Ok(Shared {
            target: target.clone(),
            clock: clock.clone(),
            verify_seed: options.verify_seed,
            writes: options.writes,
            settling: options.settle.then(Settling::default),
            draws: Mutex::new(Xoshiro256PlusPlus::seed_from_u64(!options.seed)),
            recorder: Arc::default(),
            stream: Mutex::new(RequestStream::open(&options.source)?),
            left: AtomicU64::new(options.warm_up_requests),
            deadline: Mutex::new(Tick::MAX),
            is_over: AtomicBool::new(false),
            is_interrupted: AtomicBool::new(false),
            outcome: Mutex::default(),
        })
    }
}

fn display(options: &BenchOptions, shared: &Shared, name: &str, requests: Option<u64>) -> Display {
    Display::start(options.progress, name, &shared.recorder, requests)
}

async fn measure(
    shared: &Arc<Shared>,
    device: Option<&Metered>,
    options: &BenchOptions,
) -> Result<RunResult, EvalError> {
    let start = shared.clock.now();
    shared
        .left
        .store(options.stop.requests.unwrap_or(u64::MAX), Relaxed);
    *shared.deadline.lock() = match options.stop.duration {
        Some(duration) => start + duration,
        None => Tick::MAX,
    };
    let stored_before = stored_bytes(shared);
    let counts = |device: &Metered| DeviceCounts::of(device);
    let before = device.map(counts);
    let started_unix_s = shared.clock.unix_seconds() as f64;
    let mut bins = Bins::new(start, options.bin, device, shared.clock.is_virtual());
    {
        let _display = display(options, shared, &options.name, options.stop.requests);
        drive(shared, options, Some(&mut bins)).await?;
    }
    bins.end(&shared.recorder, shared.clock.now());
    let stored = stored_bytes(shared).saturating_sub(stored_before);
    let now = device.map(counts);
    let elapsed_s = shared.clock.now().since(start).as_secs_f64();
    let outcome = std::mem::take(&mut *shared.outcome.lock());
    shared.check_failures(&outcome)?;
    let result = bins.result(options, started_unix_s, stored);
    let extra = match (device, before.zip(now)) {
        (Some(device), Some((before, now))) => {
            before.figures(device, &now, &result.whole, elapsed_s)
        }
        _ => shared.target.figures(),
    };
    Ok(RunResult {
        interrupted: shared.is_interrupted.load(Relaxed),
        skipped: shared.stream.lock().skipped(),
        failed: outcome.failed,
        first_failure: outcome.first_failure,
        verified_bytes: outcome.verified_bytes,
        extra,
        ..result
    })
}

/// Bytes of keys and values that the store accepted so far.
fn stored_bytes(shared: &Shared) -> u64 {
    let store = shared.target.store();
    store.map_or(0, |store| store.stats().engine.counts.put_bytes)
}

/// Runs the loop until it ends, closing bins on the way.
async fn drive(
    shared: &Arc<Shared>,
    options: &BenchOptions,
    mut bins: Option<&mut Bins>,
) -> Result<(), EvalError> {
    let mut clients = JoinSet::new();
    match options.pacing {
        Pacing::Closed { clients: count } => {
            for client in 0..count * shared.target.pipeline() {
                clients.spawn(closed_client(Arc::clone(shared), client));
            }
        }
        Pacing::Open { .. } | Pacing::Recorded { .. } => {
            let schedule = Schedule::new(options, shared.clock.now());
            clients.spawn(open_dispatcher(Arc::clone(shared), schedule));
        }
    }
    loop {
        let bin_over = async {
            match &bins {
                Some(bins) => shared.clock.sleep(bins.rest(shared.clock.now())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = clients.join_next() => match ended {
                None => return Ok(()),
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => {
                    shared.is_over.store(true, Relaxed);
                    return Err(error);
                }
                Some(Err(panicked)) => return Err(EvalError::Client(panicked.to_string())),
            },
            () = interrupt(options, shared) => {
                shared.is_over.store(true, Relaxed);
                shared.is_interrupted.store(true, Relaxed);
            }
            () = bin_over => {
                if let Some(bins) = &mut bins {
                    bins.end_bin(&shared.recorder, shared.clock.now());
                }
            }
        }
    }
}

/// Completes at the first Ctrl-C if that ends the run. Another one ends the
/// process, because responses may never arrive.
async fn interrupt(options: &BenchOptions, shared: &Shared) {
    if !options.interruptible || shared.clock.is_virtual() {
        std::future::pending::<()>().await;
    }
    // Without a signal handler, signals end the process.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
    if shared.is_interrupted.load(Relaxed) {
        std::process::exit(130);
    }
}

async fn closed_client(shared: Arc<Shared>, client: usize) -> Result<(), EvalError> {
    while let Some(request) = shared.next_request()? {
        let start = shared.clock.now();
        shared.serve(client, &request, start).await?;
        if let (Some(settling), Some(store)) = (&shared.settling, shared.target.store()) {
            settling.settle(store, &shared.clock).await?;
        }
        // A target that responds without waiting must not starve other tasks.
        tokio::task::consume_budget().await;
    }
    Ok(())
}

async fn open_dispatcher(shared: Arc<Shared>, mut schedule: Schedule) -> Result<(), EvalError> {
    let room = Arc::new(Semaphore::new(schedule.in_flight_max));
    let mut under_way = JoinSet::new();
    let mut number = 0usize;
    while let Some(request) = shared.next_request()? {
        let intended = schedule.next(request.time_ns);
        if intended >= *shared.deadline.lock() {
            break;
        }
        wait_until(&shared.clock, intended).await;
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            break;
        };
        let task = Arc::clone(&shared);
        number += 1;
        let client = number;
        under_way.spawn(async move {
            let served = task.serve(client, &request, intended).await;
            drop(permit);
            served
        });
        while let Some(ended) = under_way.try_join_next() {
            flatten(ended)?;
        }
    }
    while let Some(ended) = under_way.join_next().await {
        flatten(ended)?;
    }
    Ok(())
}

fn flatten(ended: Result<Result<(), EvalError>, tokio::task::JoinError>) -> Result<(), EvalError> {
    ended.unwrap_or_else(|panicked| Err(EvalError::Client(panicked.to_string())))
}

/// Waits until `intended`. Real timers are up to a millisecond late, which
/// would count as latency. So the last millisecond is spent yielding.
async fn wait_until(clock: &Clock, intended: Tick) {
    const TIMER_LATENESS: Duration = Duration::from_millis(2);
    let rest = intended.since(clock.now());
    if clock.is_virtual() {
        if !rest.is_zero() {
            clock.sleep(rest).await;
        }
        return;
    }
    if rest > TIMER_LATENESS {
        clock.sleep(rest - TIMER_LATENESS).await;
    }
    while clock.now() < intended {
        tokio::task::yield_now().await;
    }
}

/// The start times of an open loop's requests.
struct Schedule {
    start: Tick,
    at: Duration,
    kind: ScheduleKind,
    in_flight_max: usize,
    rng: Xoshiro256PlusPlus,
}

#[derive(Clone, Copy)]
enum ScheduleKind {
    Rate(f64, Arrivals),
    Recorded { speed: f64, first_ns: Option<u64> },
}

impl Schedule {
    fn new(options: &BenchOptions, start: Tick) -> Self {
        let (kind, in_flight_max) = match options.pacing {
            Pacing::Open {
                rate,
                arrivals,
                in_flight_max,
            } => (ScheduleKind::Rate(rate, arrivals), in_flight_max),
            Pacing::Recorded {
                speed,
                in_flight_max,
            } => {
                let first_ns = None;
                (ScheduleKind::Recorded { speed, first_ns }, in_flight_max)
            }
            Pacing::Closed { clients } => (ScheduleKind::Rate(1.0, Arrivals::Fixed), clients),
        };
        Schedule {
            start,
            at: Duration::ZERO,
            kind,
            in_flight_max,
            rng: Xoshiro256PlusPlus::seed_from_u64(options.seed),
        }
    }

    fn next(&mut self, time_ns: Option<u64>) -> Tick {
        match &mut self.kind {
            ScheduleKind::Rate(rate, arrivals) => {
                let mean_s = 1.0 / *rate;
                let gap_s = match arrivals {
                    Arrivals::Fixed => mean_s,
                    // 1 - u lies in (0, 1], so that its logarithm is finite.
                    Arrivals::Poisson => -mean_s * (1.0 - self.rng.random::<f64>()).ln(),
                };
                self.at += Duration::from_secs_f64(gap_s);
            }
            ScheduleKind::Recorded { speed, first_ns } => {
                if let Some(time_ns) = time_ns {
                    let first = *first_ns.get_or_insert(time_ns);
                    let after_s = time_ns.saturating_sub(first) as f64 / 1e9 / *speed;
                    // The times of some traces go back; schedules do not.
                    self.at = self.at.max(Duration::from_secs_f64(after_s));
                }
            }
        }
        self.start + self.at
    }
}

/// State that clients share.
struct Shared {
    target: Target,
    clock: Clock,
    verify_seed: Option<u64>,
    /// Share of the reads that become writes.
    writes: f64,
    settling: Option<Settling>,
    draws: Mutex<Xoshiro256PlusPlus>,
    recorder: Arc<Recorder>,
    stream: Mutex<RequestStream>,
    left: AtomicU64,
    deadline: Mutex<Tick>,
    is_over: AtomicBool,
    is_interrupted: AtomicBool,
    outcome: Mutex<Outcome>,
}

#[derive(Debug, Default)]
struct Outcome {
    failed: u64,
    first_failure: Option<String>,
    verified_bytes: u64,
}

impl Shared {
    /// The next request, or `None` when the run is over.
    fn next_request(&self) -> Result<Option<Planned>, EvalError> {
        if self.is_over.load(Relaxed) || self.clock.now() >= *self.deadline.lock() {
            return Ok(None);
        }
        let mut stream = self.stream.lock();
        // Under the stream's lock, so that the count is exact.
        match self.left.load(Relaxed) {
            0 => return Ok(None),
            left => self.left.store(left - 1, Relaxed),
        }
        let request = stream.next_request()?;
        Ok(request.map(|request| match request.op {
            Op::Get if self.writes > 0.0 && self.draws.lock().random::<f64>() < self.writes => {
                request.whole_put()
            }
            _ => request,
        }))
    }

    async fn serve(
        &self,
        client: usize,
        request: &Planned,
        intended: Tick,
    ) -> Result<(), EvalError> {
        let response = self.target.serve(client, request, self.verify_seed).await;
        let now = self.clock.now();
        let latency = now.since(intended);
        match response {
            Ok(response) => {
                self.recorder
                    .record(client, response.served, latency, response.bytes);
                let is_read = matches!(response.served, Served::Hit | Served::Miss | Served::Read);
                if self.verify_seed.is_some() && is_read {
                    self.outcome.lock().verified_bytes += response.bytes;
                }
                let fill = match response.served {
                    Served::Absent => self.target.fill(request),
                    _ => None,
                };
                match fill {
                    Some(fill) => self.fill(client, &fill, now).await,
                    None => Ok(()),
                }
            }
            Err(failure) => {
                let reason = self.reason(failure)?;
                self.recorder.record(client, Served::Other, latency, 0);
                self.failed(reason);
                Ok(())
            }
        }
    }

    /// Writes the object that a request missed.
    async fn fill(&self, client: usize, fill: &Planned, start: Tick) -> Result<(), EvalError> {
        match self.target.serve(client, fill, None).await {
            Ok(_) => {
                let latency = self.clock.now().since(start);
                self.recorder.record_fill(client, latency);
            }
            Err(failure) => self.failed(self.reason(failure)?),
        }
        Ok(())
    }

    /// The reason of a failure. Wrong data ends the run.
    fn reason(&self, failure: Failure) -> Result<String, EvalError> {
        match failure {
            Failure::Failed(reason) => Ok(reason),
            Failure::Lie(error) => {
                self.is_over.store(true, Relaxed);
                Err(error)
            }
        }
    }

    fn failed(&self, reason: String) {
        let mut outcome = self.outcome.lock();
        outcome.failed += 1;
        outcome.first_failure.get_or_insert(reason);
    }

    fn check_failures(&self, outcome: &Outcome) -> Result<(), EvalError> {
        let requests = self.recorder.live().requests;
        if outcome.failed <= requests / 2 {
            return Ok(());
        }
        Err(EvalError::TooManyFailures {
            failed: outcome.failed,
            requests,
            first: outcome.first_failure.clone().unwrap_or_default(),
        })
    }

    /// An interrupt before the measurement is an error, because there is no
    /// result.
    fn check_interrupted(&self) -> Result<(), EvalError> {
        match self.is_interrupted.load(Relaxed) {
            true => Err(EvalError::Interrupted),
            false => Ok(()),
        }
    }

    fn restart(&self) {
        self.recorder.restart();
        self.target.restart();
        *self.outcome.lock() = Outcome::default();
    }
}

fn validate(options: &BenchOptions, clock: &Clock) -> Result<(), EvalError> {
    let fail = |option, reason: &str| {
        Err(EvalError::Option {
            option,
            reason: reason.to_owned(),
        })
    };
    let endless = matches!(
        options.source,
        RequestSource::Synthetic { .. } | RequestSource::Keys { .. }
    );
    if endless && options.stop.requests.is_none() && options.stop.duration.is_none() {
        return fail(
            "stop",
            "a synthetic workload never ends by itself; set a number of requests or a duration",
        );
    }
    if endless && clock.is_virtual() && options.stop.requests.is_none() {
        return fail(
            "stop",
            "in virtual time responses from memory take no time, so a duration may never pass; set a number of requests",
        );
    }
    if !(0.0..=1.0).contains(&options.writes) {
        return fail("writes", "must be a share from 0 to 1");
    }
    if options.bin < Duration::from_millis(1) {
        return fail("bin", "a time bin must last at least 1 ms");
    }
    match options.pacing {
        Pacing::Closed { clients: 0 } => fail("clients", "at least one client is needed"),
        Pacing::Closed { clients } if clients > 1 << 16 => {
            fail("clients", "at most 65536 clients are supported")
        }
        Pacing::Open { rate, .. } if !(1e-3..=1e8).contains(&rate) => fail(
            "rate",
            "must lie between 0.001 and 100000000 requests per second",
        ),
        Pacing::Recorded { speed, .. } if !(1e-6..=1e9).contains(&speed) => {
            fail("speed", "must lie between 0.000001 and 1000000000")
        }
        Pacing::Open { in_flight_max, .. } | Pacing::Recorded { in_flight_max, .. }
            if in_flight_max == 0 || in_flight_max > 1 << 20 =>
        {
            fail("in_flight_max", "must lie between 1 and 1048576")
        }
        _ => Ok(()),
    }
}
