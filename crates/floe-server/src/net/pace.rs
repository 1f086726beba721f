//! Detects a client that receives nothing of a response although its connection
//! is alive: an HTTP/2 stream can starve without a blocked write.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use floe_core::Tick;
use floe_device::Clock;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use crate::metrics::RequestMeter;

/// The error of a response body. It ends the connection, so that the client
/// cannot take an incomplete body for a complete one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the response broke off: {0}")]
    Source(Box<dyn std::error::Error + Send + Sync>),
    #[error("the response ended {0} bytes early")]
    Short(u64),
    #[error("the response is longer than announced")]
    Long,
}

/// Bytes of the largest piece passed to the connection, which bounds the memory
/// of a starved stream.
const PIECE_BYTES: usize = 256 << 10;

/// The responses of one connection that wait for the client.
pub(crate) struct Pace {
    clock: Clock,
    limit: Duration,
    next_id: AtomicU64,
    waiting: Mutex<BTreeMap<u64, Tick>>,
}

impl Pace {
    pub(crate) fn new(clock: Clock, limit: Duration) -> Arc<Self> {
        Arc::new(Pace {
            clock,
            limit,
            next_id: AtomicU64::new(0),
            waiting: Mutex::new(BTreeMap::new()),
        })
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Waits until the client has received nothing of a response for the limit.
    pub(crate) async fn stalled(&self) {
        loop {
            self.clock.sleep(self.limit / 4).await;
            let now = self.clock.now();
            let stalled = self
                .waiting
                .lock()
                .values()
                .any(|since| now.since(*since) >= self.limit);
            if stalled {
                return;
            }
        }
    }
}

/// The body of a response: has the announced length or ends with an error, is
/// split into bounded pieces, and is counted.
pub(crate) struct PacedBody<B> {
    inner: B,
    pace: Arc<Pace>,
    id: u64,
    rest: Bytes,
    /// Bytes not yet sent, if the length was announced.
    remaining: Option<u64>,
    meter: RequestMeter,
}

impl<B> PacedBody<B> {
    pub(crate) fn new(
        inner: B,
        pace: Arc<Pace>,
        announced: Option<u64>,
        meter: RequestMeter,
    ) -> Self {
        let id = pace.next_id.fetch_add(1, Relaxed);
        PacedBody {
            inner,
            pace,
            id,
            rest: Bytes::new(),
            remaining: announced,
            meter,
        }
    }

    fn next_piece(&mut self) -> Result<Bytes, BodyError> {
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        let len = piece.len() as u64;
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.checked_sub(len).ok_or(BodyError::Long)?;
        }
        self.meter.sent(len);
        Ok(piece)
    }
}

impl<B> Body for PacedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        // The client received the last piece: waiting for the cache does not count.
        this.pace.waiting.lock().remove(&this.id);
        while this.rest.is_empty() {
            match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                None => {
                    return Poll::Ready(match this.remaining {
                        Some(missing @ 1..) => Some(Err(BodyError::Short(missing))),
                        _ => None,
                    });
                }
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(BodyError::Source(error.into()))));
                }
                // S3 responses have no trailers.
                Some(Ok(frame)) => this.rest = frame.into_data().unwrap_or_default(),
            }
        }
        let piece = this.next_piece()?;
        let now = this.pace.clock.now();
        this.pace.waiting.lock().insert(this.id, now);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.remaining.unwrap_or(0) == 0 && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.remaining {
            Some(remaining) => SizeHint::with_exact(remaining),
            None => SizeHint::default(),
        }
    }
}

impl<B> Drop for PacedBody<B> {
    fn drop(&mut self) {
        self.pace.waiting.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
