//! The task that owns a log: requests that arrive together share one append,
//! and one flush if they need it.

use std::fmt;
use std::time::Duration;

use floe_core::ZoneId;
use floe_core::chunk::Durability;
use floe_device::{Clock, SharedDevice};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::zones::Log;
use super::{LogError, LogSuperblock};
use crate::error::CacheError;

/// Requests that may wait for the task. Further callers wait to enqueue.
const QUEUE: usize = 4096;

/// Idle time after which the last block gets its second copy. A busy log is
/// never idle for so long: at most 20 blocks a second are written twice.
pub(super) const QUIET_TIME: Duration = Duration::from_millis(50);

/// Requests that share one append.
const GROUP: usize = 2048;

/// The records of a log as its engine sees them.
pub(crate) trait Contents: Send + 'static {
    /// The superblock of the engine's cache.
    type Superblock: LogSuperblock;

    /// A record, with the state that decides how long it is live.
    type Entry: Send + Sync;

    /// The entries of one request.
    type Entries: IntoIterator<Item = Self::Entry> + Send;

    /// A checkpoint is made from the records of the active zone, read back.
    /// Otherwise [`live`](Self::live) knows all records.
    const READS_BACK: bool;

    /// A failed group ends the log, because callers rely on records that other
    /// callers sent. Otherwise the next group moves to the other zone.
    const FAILS_FOR_GOOD: bool;

    /// The record of an entry.
    fn record(entry: &Self::Entry) -> RecordOf<Self>;

    /// True if an entry is durable once its block is. Otherwise it speaks of bytes that were
    /// written before, and one flush makes both durable.
    fn stands_alone(entry: &Self::Entry) -> bool;

    /// Waits while requests are about to come that should share the group of those that are there.
    fn gathered(&self, clock: &Clock) -> impl Future<Output = ()> + Send {
        let _ = clock;
        std::future::ready(())
    }

    /// The log was begun, and its checkpoint takes so many bytes.
    fn begun(&mut self, written_bytes: u64);

    /// Receives the entries of a group before they are written, and may add more.
    fn gather(&mut self, entries: &mut Vec<Self::Entry>);

    /// The records that a checkpoint must hold. If the log is read back,
    /// `written` has the records of the active zone and of the current group.
    fn live(
        &mut self,
        written: Vec<RecordOf<Self>>,
    ) -> impl IntoIterator<Item = RecordOf<Self>, IntoIter: Send> + Send;

    /// True if all records of the log are live. Then settling a log without
    /// entries to write does nothing; otherwise the log moves.
    fn is_settled(&self) -> bool {
        false
    }

    /// Receives the result of a group, before the callers do.
    fn written(&mut self, entries: &[Self::Entry], result: &Result<Written, LogError>);
}

/// The record type of some contents.
pub(crate) type RecordOf<C> = <<C as Contents>::Superblock as LogSuperblock>::Record;

/// How a group was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Behind the previous group.
    Appended,
    /// To the other zone's checkpoint. The log now ends at `bytes` there.
    Moved { bytes: u64 },
}

/// The demand of a request besides writing its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// None.
    Append,
    /// Drop the records that are not live.
    Settle,
    /// End the task.
    Close,
}

struct Request<C: Contents> {
    entries: Option<C::Entries>,
    demand: Demand,
    done: Option<oneshot::Sender<Result<(), String>>>,
}

/// A handle to a log's task.
pub(crate) struct Queue<C: Contents>(mpsc::Sender<Request<C>>);

impl<C: Contents> fmt::Debug for Queue<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.0.capacity()).finish()
    }
}

impl<C: Contents> Queue<C> {
    /// Reserves a place in the queue. Waits while the queue is full.
    pub(crate) async fn place(&self) -> Result<Place<'_, C>, CacheError> {
        let permit = self.0.reserve().await.map_err(|_| CacheError::Closed)?;
        Ok(Place(permit))
    }
}

/// A reserved place in the queue: sending with it does not wait.
pub(crate) struct Place<'a, C: Contents>(mpsc::Permit<'a, Request<C>>);

impl<C: Contents> Place<'_, C> {
    /// Sends entries.
    pub(crate) fn send(self, entries: C::Entries) -> Receipt {
        self.request(Some(entries), Demand::Append)
    }

    /// Sends entries that no caller waits for.
    pub(crate) fn send_unwatched(self, entries: C::Entries) {
        self.0.send(Request {
            entries: Some(entries),
            demand: Demand::Append,
            done: None,
        });
    }

    /// Sends a demand.
    pub(crate) fn demand(self, demand: Demand) -> Receipt {
        self.request(None, demand)
    }

    fn request(self, entries: Option<C::Entries>, demand: Demand) -> Receipt {
        let (done, receipt) = oneshot::channel();
        self.0.send(Request {
            entries,
            demand,
            done: Some(done),
        });
        Receipt(receipt)
    }
}

/// Resolves once a request is as durable as configured, or has failed.
pub(crate) struct Receipt(oneshot::Receiver<Result<(), String>>);

impl Receipt {
    /// Waits for the request's group.
    pub(crate) async fn wait(self) -> Result<(), CacheError> {
        match self.0.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(CacheError::NotDurable(reason)),
            Err(_) => Err(CacheError::Closed),
        }
    }
}

/// Bytes of memory of the requests that share one append.
pub(crate) const fn group_bytes<C: Contents>() -> u64 {
    (GROUP * size_of::<Request<C>>()) as u64
}

/// The beginning of a log.
pub(crate) struct Start<S> {
    pub(crate) device: SharedDevice,
    pub(crate) clock: Clock,
    pub(crate) durability: Durability,
    /// Its epoch must be above every epoch that was read from either zone.
    pub(crate) superblock: S,
    pub(crate) zone: ZoneId,
}

impl<S: LogSuperblock> Start<S> {
    /// Begins a log with a checkpoint of `records`, and starts the task that
    /// owns it.
    pub(crate) async fn begin<C: Contents<Superblock = S>>(
        self,
        records: Vec<S::Record>,
        mut contents: C,
    ) -> Result<(Queue<C>, JoinHandle<()>), LogError> {
        let Start {
            device,
            clock,
            durability,
            superblock,
            zone,
        } = self;
        let log = Log::begin(device, durability, superblock, zone, records).await?;
        contents.begun(log.written_bytes());
        Ok(start(log, contents, clock))
    }
}

/// Starts the task that owns `log`.
pub(super) fn start<C: Contents>(
    log: Log<C::Superblock>,
    contents: C,
    clock: Clock,
) -> (Queue<C>, JoinHandle<()>) {
    let (requests, inbox) = mpsc::channel(QUEUE);
    let task = Task {
        log,
        contents,
        clock,
        inbox,
        is_broken: false,
    };
    (Queue(requests), tokio::spawn(task.run()))
}

/// The owner of a log.
struct Task<C: Contents> {
    log: Log<C::Superblock>,
    contents: C,
    clock: Clock,
    inbox: mpsc::Receiver<Request<C>>,
    is_broken: bool,
}

impl<C: Contents> Task<C> {
    async fn run(mut self) {
        let mut requests = Vec::with_capacity(GROUP);
        while self.receive(&mut requests).await > 0 {
            if requests.len() < GROUP {
                self.contents.gathered(&self.clock).await;
            }
            while requests.len() < GROUP
                && let Ok(request) = self.inbox.try_recv()
            {
                requests.push(request);
            }
            let (mut settles, mut closes) = (false, false);
            let (mut entries, mut waiting) = (Vec::new(), Vec::new());
            for request in requests.drain(..) {
                entries.extend(request.entries.into_iter().flatten());
                waiting.extend(request.done);
                settles |= request.demand == Demand::Settle;
                closes |= request.demand == Demand::Close;
            }
            self.contents.gather(&mut entries);
            let result = self.write(&entries, settles).await;
            self.contents.written(&entries, &result);
            let result = result.map(drop).map_err(|error| error.to_string());
            for done in waiting {
                // A dropped caller needs no response.
                let _ = done.send(result.clone());
            }
            if closes {
                break;
            }
        }
        self.complete().await;
    }

    /// Receives requests and returns their number, 0 once the queue is closed.
    /// After [`QUIET_TIME`] without requests, the last block gets its second copy.
    async fn receive(&mut self, requests: &mut Vec<Request<C>>) -> usize {
        if self.log.lacks_copy() {
            tokio::select! {
                biased;
                received = self.inbox.recv_many(requests, GROUP) => return received,
                () = self.clock.sleep(QUIET_TIME) => {}
            }
            self.complete().await;
        }
        self.inbox.recv_many(requests, GROUP).await
    }

    async fn complete(&mut self) {
        if let Err(error) = self.log.complete().await {
            tracing::warn!(%error, "the journal's last block has only one copy; the next records go to the other zone");
        }
    }

    async fn write(&mut self, entries: &[C::Entry], settles: bool) -> Result<Written, LogError> {
        if self.is_broken {
            return Err(LogError::Broken);
        }
        let records = entries.iter().map(C::record).collect();
        let result = if !settles {
            let stand_alone = entries.iter().all(C::stands_alone);
            self.append(records, stand_alone).await
        } else if entries.is_empty() && self.contents.is_settled() {
            Ok(Written::Appended)
        } else {
            self.move_on(records).await
        };
        self.is_broken = C::FAILS_FOR_GOOD && result.is_err();
        result
    }

    async fn append(
        &mut self,
        records: Vec<RecordOf<C>>,
        stand_alone: bool,
    ) -> Result<Written, LogError> {
        match self.log.commit(&records, stand_alone).await {
            Ok(()) => Ok(Written::Appended),
            // The zone is full, or the append failed.
            Err(_) => self.move_on(records).await,
        }
    }

    /// Moves to the other zone with `records` and all live records.
    async fn move_on(&mut self, records: Vec<RecordOf<C>>) -> Result<Written, LogError> {
        let mut written = Vec::new();
        if C::READS_BACK {
            written = self.log.read_back().await?;
            written.extend(records);
        }
        let live = self.contents.live(written);
        self.log.checkpoint(live).await?;
        let bytes = self.log.written_bytes();
        Ok(Written::Moved { bytes })
    }
}
