//! The bytes of a connection: in, out, and how long is waited for either.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut};
use floe::items::ItemBuffer;
use floe_device::clock::Sleep;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::io::poll_read_buf;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{Connection, End, Head, READ_BYTES};
use crate::memcached::Face;
use crate::memcached::output::Output;

/// How long the end of a connection may take to be sent.
const GOODBYE_PATIENCE: Duration = Duration::from_millis(100);

impl<S> Connection<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    pub(super) fn stall_limit(&self) -> Duration {
        Duration::from_secs(u64::from(self.context.face.config.stall_timeout_seconds))
    }

    /// Sends what is ready. A client that takes nothing for too long is left.
    pub(super) async fn send(&mut self) -> Result<(), End> {
        let limit = self.stall_limit();
        let Connection {
            stream,
            context,
            replies,
            patience,
            ..
        } = self;
        let output = replies.ready();
        if output.is_empty() {
            return Ok(());
        }
        context.counters.written_bytes.add(output.len() as u64);
        output.begin_sending();
        let clock = &context.face.clock;
        let mut deadline = None;
        std::future::poll_fn(|task| {
            loop {
                match write(Pin::new(&mut *stream), task, output) {
                    Poll::Ready(Ok(true)) => return Poll::Ready(Ok(())),
                    Poll::Ready(Ok(false)) => deadline = None,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(End::Broken(error))),
                    Poll::Pending => {
                        patience.was_elsewhere();
                        let deadline = deadline.get_or_insert_with(|| clock.sleep(limit));
                        ready!(Pin::new(deadline).poll(task));
                        return Poll::Ready(Err(End::Stalled));
                    }
                }
            }
        })
        .await
    }

    /// Ends the stream in order: of an encrypted one the client could not tell
    /// otherwise whether it was cut off.
    pub(super) async fn say_goodbye(&mut self) {
        tokio::select! {
            biased;
            // Whoever does not listen has left already.
            _ = self.stream.shutdown() => {}
            () = self.context.face.clock.sleep(GOODBYE_PATIENCE) => {}
        }
    }

    /// Waits for bytes of the next request.
    pub(super) async fn fill(&mut self) -> Result<(), End> {
        let Connection {
            stream,
            input,
            patience,
            context,
            ..
        } = self;
        if input.capacity() - input.len() < READ_BYTES / 4 {
            input.reserve(READ_BYTES);
        }
        patience.rounds = patience.rounds.wrapping_add(1);
        let mut is_first = true;
        let read = std::future::poll_fn(|task| {
            if let Poll::Ready(read) = poll_read_buf(Pin::new(&mut *stream), task, input) {
                return Poll::Ready(read.map_err(End::Broken));
            }
            let already_armed = std::mem::take(&mut is_first) && patience.is_armed;
            match already_armed {
                true => Poll::Pending,
                false => patience.poll(task).map(Err),
            }
        });
        match read.await? {
            0 => Err(End::Closed),
            len => {
                context.counters.read_bytes.add(len as u64);
                Ok(())
            }
        }
    }

    /// Waits for bytes that the client has announced.
    pub(super) async fn receive_some(&mut self, into: &mut impl BufMut) -> Result<(), End> {
        self.patience.was_elsewhere();
        let clock = self.context.face.clock.clone();
        let mut deadline = None;
        let limit = self.stall_limit();
        let stream = &mut self.stream;
        let read = std::future::poll_fn(|task| {
            if let Poll::Ready(read) = poll_read_buf(Pin::new(&mut *stream), task, into) {
                return Poll::Ready(read.map_err(End::Broken));
            }
            let deadline = deadline.get_or_insert_with(|| clock.sleep(limit));
            ready!(Pin::new(deadline).poll(task));
            Poll::Ready(Err(End::Stalled))
        });
        match read.await? {
            0 => Err(End::Closed),
            len => {
                self.context.counters.read_bytes.add(len as u64);
                Ok(())
            }
        }
    }

    /// A share of the memory of all connections. Who must wait for one gives
    /// back all it has first.
    pub(super) async fn share(&mut self, bytes: u64) -> Result<OwnedSemaphorePermit, End> {
        let face = Arc::clone(&self.context.face);
        let units = face.memory_units(bytes);
        if let Ok(share) = Arc::clone(&face.memory).try_acquire_many_owned(units) {
            return Ok(share);
        }
        face.memory_waits
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.settle().await?;
        let limit = self.stall_limit();
        tokio::select! {
            biased;
            share = Arc::clone(&face.memory).acquire_many_owned(units) => share.map_err(|_| End::Draining),
            () = face.clock.sleep(limit) => Err(End::Stalled),
        }
    }

    /// Receives a value that has not arrived whole, and stores it.
    pub(super) async fn receive(&mut self, head: Head, len: usize) -> Result<(), End> {
        // The client may wait for the answers before it sends the rest.
        self.settle().await?;
        let share = self.share(len as u64).await?;
        let mut value = ItemBuffer::new(len);
        let taken = value.fill(&self.input);
        self.input.advance(taken);
        while value.missing() > 0 {
            self.receive_some(&mut value.rest()).await?;
        }
        let mut input = std::mem::take(&mut self.input);
        while input.len() < 2 {
            input.reserve(READ_BYTES);
            self.receive_some(&mut input).await?;
        }
        let is_good = input.starts_with(b"\r\n");
        input.advance(2);
        self.input = input;
        match is_good {
            true => self.store(head, value, Some(share)).await,
            false => {
                self.bad_data(&head);
                Ok(())
            }
        }
    }

    /// Passes over bytes that belong to a refused request.
    pub(super) async fn waste(&mut self, len: u64) -> Result<(), End> {
        let mut left = len;
        loop {
            // At most what is there.
            let now = left.min(self.input.len() as u64) as usize;
            self.input.advance(now);
            left -= now as u64;
            if left == 0 {
                return Ok(());
            }
            self.settle().await?;
            let mut input = std::mem::take(&mut self.input);
            input.reserve(READ_BYTES);
            self.receive_some(&mut input).await?;
            self.input = input;
        }
    }
}

/// Writes once; says whether everything is out.
fn write<S: AsyncWrite>(
    mut stream: Pin<&mut S>,
    task: &mut TaskContext<'_>,
    output: &mut Output,
) -> Poll<io::Result<bool>> {
    if output.is_empty() {
        // An encrypted stream may hold something back; a socket holds nothing.
        ready!(stream.poll_flush(task))?;
        return Poll::Ready(Ok(true));
    }
    let written = match output.only_text() {
        Some(text) => ready!(stream.as_mut().poll_write(task, text))?,
        None => {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            output.slices(&mut slices);
            ready!(stream.as_mut().poll_write_vectored(task, &slices))?
        }
    };
    if written == 0 {
        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
    }
    output.sent(written);
    Poll::Ready(Ok(false))
}

/// How long a connection may be idle, and that the server goes on. Its
/// futures keep the task's waker, so they are polled only when something
/// other than the socket has woken it.
pub(super) struct Patience {
    clock: floe_device::Clock,
    idle_limit: Option<Duration>,
    idle: Option<Sleep>,
    draining: Pin<Box<WaitForCancellationFutureOwned>>,
    is_armed: bool,
    /// Reads so far.
    rounds: u64,
    /// Reads when the idle time began.
    rounds_then: u64,
}

impl Patience {
    pub(super) fn new(face: &Face) -> Self {
        let seconds = face.config.idle_timeout_seconds;
        let limit = Duration::from_secs(u64::from(seconds));
        Patience {
            clock: face.clock.clone(),
            idle_limit: (seconds > 0).then_some(limit),
            idle: None,
            draining: Box::pin(face.draining.clone().cancelled_owned()),
            is_armed: false,
            rounds: 0,
            rounds_then: 0,
        }
    }

    /// The task has waited for something else and may have missed a wake-up.
    pub(super) fn was_elsewhere(&mut self) {
        self.is_armed = false;
    }

    fn poll(&mut self, task: &mut TaskContext<'_>) -> Poll<End> {
        self.is_armed = true;
        if self.draining.as_mut().poll(task).is_ready() {
            return Poll::Ready(End::Draining);
        }
        let Some(limit) = self.idle_limit else {
            return Poll::Pending;
        };
        loop {
            let idle = self.idle.get_or_insert_with(|| {
                self.rounds_then = self.rounds;
                self.clock.sleep(limit)
            });
            ready!(Pin::new(idle).poll(task));
            self.idle = None;
            if self.rounds == self.rounds_then {
                return Poll::Ready(End::Idle);
            }
        }
    }
}
