//! The transmission on one connection: requests come in, run concurrently, and
//! are answered as they end.
//!
//! One task serves a connection. It starts all requests that one read brought.
//! A request that needs no I/O ends at once; the task keeps the others and polls
//! them. The replies of a batch take one write.
//!
//! When the connection ends, for any reason but the deadline of a shutdown, the
//! task starts no further request, and waits for those that it has started. Only
//! then do its session and its place end.

mod messages;
mod stream;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use floe::limit::Held;
use floe_core::Tick;
use floe_device::{IoBuf, IoData};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::frontends::nbd::counters::Counters;
use crate::frontends::nbd::end::End;
use crate::frontends::nbd::export::ExportError;
use crate::frontends::nbd::exports::Served;
use crate::frontends::nbd::frontend::NbdFrontend;
use crate::frontends::nbd::memory::Share;
use crate::frontends::nbd::negotiation::Agreed;
use crate::frontends::nbd::output::Output;
use crate::frontends::nbd::pace::Pace;
use crate::frontends::nbd::protocol::request::{Command, Head, Operation, Terms};
use crate::frontends::nbd::protocol::{Errno, Rejection, reply};
use crate::frontends::nbd::sessions::Session;

/// Bytes of the first read; a read that fills its buffer doubles the next one.
const READ_BYTES_MIN: usize = 16 << 10;
const READ_BYTES_MAX: usize = 256 << 10;

/// The data of a write of this length is received into its own buffer.
const DIRECT_BYTES: usize = 64 << 10;

/// With more unsent bytes of replies, no request is started.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// A started request.
type Running = BoxFuture<'static, Finished>;

/// A request that has ended.
struct Finished {
    started: Started,
    result: Result<Outcome, Rejection>,
}

/// The facts of a request that its reply and its accounts need.
struct Started {
    command: Command,
    cookie: u64,
    at: u64,
    len: u32,
    /// Bytes of the share that it uses.
    held_bytes: u64,
    began: Tick,
}

/// The result of a successful request.
enum Outcome {
    Done,
    Data(IoData),
    Allocated,
}

/// The message that is arriving.
enum Stage {
    Head,
    /// The data of a write, and how much of it has arrived.
    Data(Head, IoBuf, usize),
    /// The data of a rejected write: the bytes to skip.
    Skip(u32),
}

/// The reason why no further request can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocked {
    /// More bytes must arrive.
    Input,
    /// Requests, replies or memory must be released.
    Limit,
}

/// One connection and its requests.
pub(super) struct Connection<'a, S> {
    stream: &'a mut S,
    frontend: Arc<NbdFrontend>,
    counters: Arc<Counters>,
    served: Arc<Served>,
    terms: Terms,
    session: Session,
    input: BytesMut,
    read_bytes: usize,
    stage: Stage,
    running: FuturesUnordered<Running>,
    /// Bytes of the share that running requests use.
    running_bytes: u64,
    max_requests: usize,
    stall_limit: Duration,
    output: Output,
    /// The stream may buffer output.
    is_unflushed: bool,
    share: Share,
    /// The share that the next request waits for.
    awaited: Option<(u64, BoxFuture<'static, Held>)>,
    sending: Option<Pace>,
    receiving: Option<Pace>,
    /// The last bytes arrived at this time.
    arrived: Tick,
    /// Requests that ended in this round without waiting, by command.
    ended_at_once: [u32; Command::ALL.len()],
    /// Ready when the server is shut down, or the export's volume is detached.
    draining: BoxFuture<'static, ()>,
    is_draining: bool,
    end: Option<End>,
    /// The client takes no replies.
    is_deaf: bool,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Connection<'a, S> {
    /// A connection after its handshake; `input` are bytes that followed it.
    pub(super) fn new(
        stream: &'a mut S,
        input: BytesMut,
        frontend: &Arc<NbdFrontend>,
        counters: &Arc<Counters>,
        agreed: Agreed,
        session: Session,
    ) -> Self {
        let config = frontend.config.get();
        let (shutdown, served) = (frontend.draining.clone(), Arc::clone(&agreed.served));
        Connection {
            stream,
            counters: Arc::clone(counters),
            served: agreed.served,
            terms: agreed.terms,
            session,
            input,
            read_bytes: READ_BYTES_MIN,
            stage: Stage::Head,
            running: FuturesUnordered::new(),
            running_bytes: 0,
            max_requests: config.max_requests as usize,
            stall_limit: config.stall_limit(),
            output: Output::default(),
            is_unflushed: false,
            share: Share::new(&frontend.memory),
            awaited: None,
            sending: None,
            receiving: None,
            arrived: frontend.clock.now(),
            ended_at_once: [0; Command::ALL.len()],
            draining: Box::pin(async move {
                tokio::select! {
                    () = shutdown.cancelled() => {}
                    () = served.export.detached() => {}
                }
            }),
            is_draining: false,
            end: None,
            is_deaf: false,
            frontend: Arc::clone(frontend),
        }
    }

    /// Serves until the connection ends and all started requests have ended.
    pub(super) async fn serve(mut self) -> End {
        std::future::poll_fn(|task| self.poll(task)).await
    }

    fn poll(&mut self, task: &mut Context<'_>) -> Poll<End> {
        self.poll_draining(task);
        loop {
            let mut has_moved = self.poll_running(task);
            let started = self.running.len();
            let blocked = match self.end {
                None => self.start_requests(task),
                Some(_) => Blocked::Limit,
            };
            self.count_ended_at_once();
            has_moved |= self.running.len() > started;
            has_moved |= self.poll_send(task);
            self.share.trim(self.used_bytes());
            if let Some(end) = self.poll_end() {
                return Poll::Ready(end);
            }
            has_moved |= self.end.is_none() && blocked == Blocked::Input && self.poll_receive(task);
            if !has_moved && self.poll_waits(task, blocked).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Takes the requests that have ended; true if there were some.
    fn poll_running(&mut self, task: &mut Context<'_>) -> bool {
        let mut has_some = false;
        while let Poll::Ready(Some(finished)) = self.running.poll_next_unpin(task) {
            let took = self.frontend.clock.now().since(finished.started.began);
            let latency = self.counters.latency(finished.started.command);
            latency.add(took, 1);
            self.running_bytes -= finished.started.held_bytes;
            self.counters.ended.add(1);
            self.answer(finished);
            has_some = true;
        }
        has_some
    }

    /// Bytes of the share in use.
    fn used_bytes(&self) -> u64 {
        let arriving = match &self.stage {
            Stage::Data(_, buffer, _) => buffer.len() as u64,
            Stage::Head | Stage::Skip(_) => 0,
        };
        self.running_bytes + self.output.data_bytes() + arriving
    }

    /// Starts all requests that have arrived, within the limits.
    fn start_requests(&mut self, task: &mut Context<'_>) -> Blocked {
        let mut is_alive = false;
        loop {
            if let Some((bytes, awaited)) = &mut self.awaited {
                let Poll::Ready(held) = awaited.poll_unpin(task) else {
                    return Blocked::Limit;
                };
                self.share.keep(held, *bytes);
                self.awaited = None;
            }
            let is_full = self.running.len() >= self.max_requests;
            if is_full || self.output.len() > OUTPUT_BYTES_MAX {
                return Blocked::Limit;
            }
            let (head, data) = match self.next_message() {
                Ok(message) => message,
                // The share that it waits for must be polled.
                Err(_) if self.awaited.is_some() => continue,
                Err(blocked) => return blocked,
            };
            if head.command == Command::Disconnect {
                self.counters.request(head.command, None);
                self.end = Some(End::Closed);
                return Blocked::Limit;
            }
            let operation = match self.check(&head) {
                Ok(operation) => operation,
                Err(rejection) => {
                    self.reject(&head, rejection);
                    continue;
                }
            };
            if operation.changes() && !is_alive {
                if self.session.has_hung_up() {
                    self.end = Some(End::Closed);
                    return Blocked::Limit;
                }
                is_alive = true;
            }
            self.start(&head, operation, data);
        }
    }

    fn start(&mut self, head: &Head, operation: Operation, data: Option<IoData>) {
        let held_bytes = match head.command {
            Command::Read | Command::Write => u64::from(head.len),
            _ => 0,
        };
        let started = Started {
            command: head.command,
            cookie: head.cookie,
            at: head.at,
            len: head.len,
            held_bytes,
            began: self.arrived,
        };
        let served = Arc::clone(&self.served);
        let mut running: Running = Box::pin(async move {
            let result = carry_out(&served, operation, data).await;
            Finished { started, result }
        });
        self.counters.begun.add(1);
        match (&mut running).now_or_never() {
            Some(finished) => {
                self.counters.ended.add(1);
                self.ended_at_once[head.command as usize] += 1;
                self.answer(finished);
            }
            None => {
                self.running_bytes += held_bytes;
                self.running.push(running);
            }
        }
    }

    fn count_ended_at_once(&mut self) {
        if self.ended_at_once == [0; Command::ALL.len()] {
            return;
        }
        let took = self.frontend.clock.now().since(self.arrived);
        for (command, ended) in Command::ALL.into_iter().zip(&mut self.ended_at_once) {
            let ended = std::mem::take(ended);
            if ended > 0 {
                self.counters.latency(command).add(took, u64::from(ended));
            }
        }
    }

    fn answer(&mut self, finished: Finished) {
        let Finished { started, result } = finished;
        let Started {
            command, cookie, ..
        } = started;
        let error = result.as_ref().err().map(|rejection| rejection.errno);
        self.counters.request(command, error);
        if error == Some(Errno::Shutdown) {
            self.end.get_or_insert(End::Draining);
        }
        if self.is_deaf {
            return;
        }
        let structured = self.terms.structured;
        let output = &mut self.output;
        match result {
            Ok(Outcome::Done) => output.head(|out| reply::put_done(out, cookie)),
            Ok(Outcome::Data(data)) => {
                let Started { at, len, .. } = started;
                output.head(|out| reply::put_data_head(out, cookie, at, len, structured));
                output.data(data);
            }
            Ok(Outcome::Allocated) => {
                output.head(|out| reply::put_allocated(out, cookie, started.len));
            }
            Err(rejection) => {
                output.head(|out| reply::put_error(out, cookie, rejection, structured));
            }
        }
    }

    fn reject(&mut self, head: &Head, rejection: Rejection) {
        self.counters.request(head.command, Some(rejection.errno));
        let structured = self.terms.structured;
        self.output
            .head(|out| reply::put_error(out, head.cookie, rejection, structured));
    }

    /// The end, once all started requests have ended and all replies are sent.
    fn poll_end(&mut self) -> Option<End> {
        let is_settled = self.running.is_empty() && self.output.is_empty() && !self.is_unflushed;
        match is_settled {
            true => self.end.take(),
            false => None,
        }
    }
}

/// Carries a request out on its export.
async fn carry_out(
    served: &Served,
    operation: Operation,
    data: Option<IoData>,
) -> Result<Outcome, Rejection> {
    let export = &served.export;
    let done = match operation {
        Operation::Read { at, len } => {
            let read = export.read(at, len as usize).await;
            return read
                .map(Outcome::Data)
                .map_err(|error| reject(served, &error));
        }
        Operation::BlockStatus { .. } => return Ok(Outcome::Allocated),
        Operation::Write { at, durable } => match data {
            Some(data) => export.write(at, data, durable).await,
            // A write is started with its data.
            None => Ok(()),
        },
        Operation::Flush => export.flush().await,
        Operation::Trim { at, len, durable } => match export.discard(at, u64::from(len)).await {
            Ok(()) => export.settle(durable).await,
            failed => failed,
        },
        Operation::Cache { at, len } => export.prefetch(at, u64::from(len)).await,
        Operation::WriteZeroes { at, len, durable } => {
            export.write_zeroes(at, u64::from(len), durable).await
        }
    };
    done.map_err(|error| reject(served, &error))?;
    Ok(Outcome::Done)
}

fn reject(served: &Served, error: &ExportError) -> Rejection {
    tracing::warn!(export = served.name, %error, "an NBD request failed");
    error.rejection()
}
