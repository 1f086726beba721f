//! The task that owns a log: requests that arrive together share one append
//! and one flush.

use std::fmt;
use std::time::Duration;

use floe_device::Clock;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::zones::Log;
use super::{LogError, LogSuperblock};
use crate::error::CacheError;

/// Requests that may wait for the task; further callers wait for a place.
const QUEUE: usize = 4096;

/// Time without requests after which the log completes its end. Long enough that
/// a busy log never does, so at most 20 blocks a second are written twice.
pub(super) const QUIET_TIME: Duration = Duration::from_millis(50);

/// Requests that share one append.
const GROUP: usize = 2048;

/// The records of a log as its engine sees them.
pub(crate) trait Contents: Send + 'static {
    /// The superblock of the engine's cache.
    type Superblock: LogSuperblock;

    /// A record with whatever decides how long it matters.
    type Entry: Send + Sync;

    /// The entries of one request.
    type Entries: IntoIterator<Item = Self::Entry> + Send;

    /// Whether a checkpoint is made from the records of the active zone, read
    /// back; otherwise [`live`](Self::live) knows them all.
    const READS_BACK: bool;

    /// Whether a failed group ends the log, because callers rely on records
    /// that others sent. Otherwise the next group moves to the other zone.
    const FAILS_FOR_GOOD: bool;

    /// The record of an entry.
    fn record(entry: &Self::Entry) -> RecordOf<Self>;

    /// Sees the entries that are about to be written, and may add some.
    fn gather(&mut self, entries: &mut Vec<Self::Entry>);

    /// The records that a checkpoint must hold. Where the log is read back, out
    /// of `written`: those of the active zone and those about to be written.
    fn live(
        &mut self,
        written: Vec<RecordOf<Self>>,
    ) -> impl IntoIterator<Item = RecordOf<Self>, IntoIter: Send> + Send;

    /// Whether all records of the log still matter. Asked before a log is
    /// settled that has no entries to write; otherwise it moves.
    fn is_settled(&self) -> bool {
        false
    }

    /// Hears the result of a group, before the callers do.
    fn written(&mut self, entries: &[Self::Entry], result: &Result<Written, LogError>);
}

/// The record type of some contents.
pub(crate) type RecordOf<C> = <<C as Contents>::Superblock as LogSuperblock>::Record;

/// How a group was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Behind the last one.
    Appended,
    /// In the other zone's checkpoint, where the log now ends at `bytes`.
    Moved { bytes: u64 },
}

/// What a request asks for besides its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Nothing.
    Append,
    /// That the log holds no record that does not matter any more.
    Settle,
    /// That the task ends.
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
    /// A place in the queue, to be used without waiting; waits while there is none.
    pub(crate) async fn place(&self) -> Result<Place<'_, C>, CacheError> {
        let permit = self.0.reserve().await.map_err(|_| CacheError::Closed)?;
        Ok(Place(permit))
    }
}

/// A place in the queue.
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

/// Tells whether a request is as durable as configured.
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

/// Starts the task that owns `log`.
pub(crate) fn start<C: Contents>(
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
                // A caller that is gone needs no answer.
                let _ = done.send(result.clone());
            }
            if closes {
                break;
            }
        }
        self.complete().await;
    }

    /// Receives requests; returns their number, 0 if there will be none. While
    /// none come, the log completes its end.
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
            self.append(records).await
        } else if entries.is_empty() && self.contents.is_settled() {
            Ok(Written::Appended)
        } else {
            self.move_on(records).await
        };
        self.is_broken = C::FAILS_FOR_GOOD && result.is_err();
        result
    }

    async fn append(&mut self, records: Vec<RecordOf<C>>) -> Result<Written, LogError> {
        match self.log.commit(&records).await {
            Ok(()) => Ok(Written::Appended),
            // Full, or failed.
            Err(_) => self.move_on(records).await,
        }
    }

    /// Moves to the other zone with `records` and all that still matters.
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
