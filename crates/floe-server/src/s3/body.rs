//! The body of a request whose client may not fall silent.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use floe_device::{Clock, Sleep};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

/// How the error of a silent client reads; the library hands on only texts.
pub(crate) const STALLED_UPLOAD: &str = "the client sent nothing for too long";

/// Fails when nothing arrives for the limit.
pub(crate) struct TimedBody {
    inner: Incoming,
    clock: Clock,
    limit: Duration,
    deadline: Option<Sleep>,
}

impl TimedBody {
    pub(crate) fn new(inner: Incoming, clock: Clock, limit: Duration) -> Self {
        TimedBody {
            inner,
            clock,
            limit,
            deadline: None,
        }
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            this.deadline = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let deadline = this
            .deadline
            .get_or_insert_with(|| this.clock.sleep(this.limit));
        match Pin::new(deadline).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => Poll::Ready(Some(Err(STALLED_UPLOAD.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
