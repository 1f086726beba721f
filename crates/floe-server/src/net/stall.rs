//! A stream whose writes fail when the peer receives nothing for too long, and
//! whose reads fail when the peer sends no first bytes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use floe_device::{Clock, Sleep};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Activity, Part, SendKept};

/// The first bytes of an HTTP/2 client. While the received bytes are a prefix
/// of these, the HTTP library waits for more without a limit.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Wraps a stream.
pub(crate) struct StallGuard<S> {
    inner: S,
    clock: Clock,
    limit: Duration,
    /// Set while a write waits for the peer.
    deadline: Option<Sleep>,
    opening: Option<Opening>,
    /// Records whether a write waits.
    activity: Option<Arc<Activity>>,
}

/// The beginning of a connection, which no protocol limits yet.
struct Opening {
    /// Bytes of [`PREFACE`] received.
    matched: usize,
    deadline: Sleep,
}

impl<S> StallGuard<S> {
    pub(crate) fn new(inner: S, clock: Clock, limit: Duration) -> Self {
        StallGuard {
            inner,
            clock,
            limit,
            deadline: None,
            opening: None,
            activity: None,
        }
    }

    pub(crate) fn into_inner(self) -> S {
        self.inner
    }

    pub(crate) fn with_activity(mut self, activity: Arc<Activity>) -> Self {
        self.activity = Some(activity);
        self
    }

    /// Reads fail unless the first bytes arrive within `limit`.
    pub(crate) fn with_opening_limit(mut self, limit: Duration) -> Self {
        self.opening = Some(Opening {
            matched: 0,
            deadline: self.clock.sleep(limit),
        });
        self
    }

    /// Processes received bytes.
    fn opened(&mut self, bytes: &[u8]) {
        let Some(opening) = &mut self.opening else {
            return;
        };
        let expected = &PREFACE[opening.matched..];
        let compared = expected.len().min(bytes.len());
        opening.matched += compared;
        if expected[..compared] != bytes[..compared] || opening.matched == PREFACE.len() {
            self.opening = None;
        }
    }

    fn settle<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Some(activity) = &self.activity {
            activity.writing(poll.is_pending());
        }
        if poll.is_ready() {
            self.deadline = None;
            return poll;
        }
        let deadline = self
            .deadline
            .get_or_insert_with(|| self.clock.sleep(self.limit));
        ready!(Pin::new(deadline).poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client received nothing of the response for too long",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.inner).poll_read(cx, buf);
        if poll.is_ready() {
            self.opened(&buf.filled()[before..]);
            return poll;
        }
        if let Some(opening) = &mut self.opening {
            ready!(Pin::new(&mut opening.deadline).poll(cx));
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client did not begin in time",
            )));
        }
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.settle(cx, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.settle(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_flush(cx);
        self.settle(cx, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.settle(cx, poll)
    }
}

impl<S: SendKept + Unpin> SendKept for StallGuard<S> {
    fn sends_kept(&self) -> bool {
        self.inner.sends_kept()
    }

    fn poll_send(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        part: Part<'_>,
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_send(cx, part);
        self.settle(cx, poll)
    }
}

#[cfg(test)]
mod tests;
