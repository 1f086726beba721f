//! The input and output of a connection, with their time limits.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::{Blocked, Connection, DIRECT_BYTES, READ_BYTES_MAX, Stage};
use crate::frontends::nbd::end::End;
use crate::frontends::nbd::pace::Pace;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    /// Sends replies; true if some bytes went.
    pub(super) fn poll_send(&mut self, task: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while !self.output.is_empty() {
            match self.output.poll_write(self.stream, task) {
                Poll::Ready(Ok(len)) => {
                    has_moved = true;
                    self.is_unflushed = true;
                    self.counters.sent_bytes.add(len as u64);
                    if let Some(pace) = &mut self.sending {
                        pace.moved(len);
                    }
                }
                Poll::Ready(Err(error)) => {
                    self.fail(End::Broken(error));
                    return true;
                }
                Poll::Pending => {
                    self.pace_sending();
                    return has_moved;
                }
            }
        }
        if self.is_unflushed {
            // A TLS stream may buffer output; a socket does not.
            match Pin::new(&mut *self.stream).poll_flush(task) {
                Poll::Ready(Ok(())) => self.is_unflushed = false,
                Poll::Ready(Err(error)) => self.fail(End::Broken(error)),
                Poll::Pending => {
                    self.pace_sending();
                    return has_moved;
                }
            }
        }
        self.sending = None;
        has_moved
    }

    /// Limits the time until the client takes more.
    pub(super) fn pace_sending(&mut self) {
        let (clock, limit) = (&self.frontend.clock, self.stall_limit);
        self.sending.get_or_insert_with(|| Pace::new(clock, limit));
    }

    /// Ends the connection, whose client takes no further replies.
    pub(super) fn fail(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.is_deaf = true;
        self.is_unflushed = false;
        self.output.clear();
        self.sending = None;
    }

    /// Receives bytes; true if some came or the stream ended.
    pub(super) fn poll_receive(&mut self, task: &mut Context<'_>) -> bool {
        let mut room = None;
        let read = match &mut self.stage {
            Stage::Data(_, buffer, filled) if buffer.len() - *filled >= DIRECT_BYTES => {
                let mut rest = ReadBuf::new(&mut buffer[*filled..]);
                let read = Pin::new(&mut *self.stream).poll_read(task, &mut rest);
                let len = rest.filled().len();
                *filled += len;
                read.map_ok(|()| len)
            }
            _ => {
                self.input.reserve(self.read_bytes);
                room = Some(self.input.capacity() - self.input.len());
                poll_read_buf(Pin::new(&mut *self.stream), task, &mut self.input)
            }
        };
        match read {
            Poll::Pending => return false,
            Poll::Ready(Ok(0)) => self.end = Some(End::Closed),
            Poll::Ready(Ok(len)) => {
                self.arrived = self.frontend.clock.now();
                self.counters.received_bytes.add(len as u64);
                if room == Some(len) {
                    self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
                }
                if let Some(pace) = &mut self.receiving {
                    pace.moved(len);
                }
            }
            Poll::Ready(Err(error)) => self.fail(End::Broken(error)),
        }
        true
    }

    /// Learns of a shutdown, before requests that came after it are started.
    pub(super) fn poll_draining(&mut self, task: &mut Context<'_>) {
        if !self.is_draining && self.draining.as_mut().poll(task).is_ready() {
            self.is_draining = true;
            // The next request needs no memory any more.
            self.awaited = None;
        }
    }

    /// Ready when a limit of time or a shutdown has changed the connection.
    pub(super) fn poll_waits(&mut self, task: &mut Context<'_>, blocked: Blocked) -> Poll<()> {
        let is_arriving = !self.input.is_empty() || !matches!(self.stage, Stage::Head);
        let is_receiving = self.end.is_none() && blocked == Blocked::Input;
        match is_receiving && is_arriving {
            false => self.receiving = None,
            true => {
                let (clock, limit) = (&self.frontend.clock, self.stall_limit);
                self.receiving
                    .get_or_insert_with(|| Pace::new(clock, limit));
            }
        }
        // Nothing more has arrived, so that no answer is owed.
        let is_idle = self.running.is_empty() && self.output.is_empty();
        if self.is_draining && is_receiving && is_idle {
            self.end = Some(End::Draining);
            return Poll::Ready(());
        }
        match self.poll_paces(task) {
            Poll::Ready(end) => {
                self.fail(end);
                Poll::Ready(())
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Ready when a transfer has reached a limit.
    pub(super) fn poll_paces(&mut self, task: &mut Context<'_>) -> Poll<End> {
        let memory = &self.frontend.memory;
        for pace in [&mut self.sending, &mut self.receiving]
            .into_iter()
            .flatten()
        {
            if let Poll::Ready(end) = pace.poll(task, memory, self.is_draining) {
                return Poll::Ready(end);
            }
        }
        Poll::Pending
    }
}
