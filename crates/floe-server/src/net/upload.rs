//! A request body with a least rate and a limit on stalls.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use floe_core::Tick;
use floe_device::{Clock, Sleep};
use http_body::{Body, Frame, SizeHint};

/// The text of the error for a slow client; the library forwards only texts.
pub(crate) const STALLED_UPLOAD: &str = "the client sent nothing, or too little, for too long";

/// The least rate of an upload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadPace {
    /// How far a client may fall behind.
    pub(crate) stall_timeout: Duration,
    /// 0 only requires some bytes within the timeout.
    pub(crate) min_bytes_per_second: u64,
}

impl UploadPace {
    /// The time that a client gains by sending `bytes`.
    fn earned(&self, bytes: usize) -> Duration {
        match self.min_bytes_per_second {
            0 => self.stall_timeout,
            rate => Duration::from_secs_f64(bytes as f64 / rate as f64).min(self.stall_timeout),
        }
    }
}

/// Fails when the client has fallen behind the least rate by the timeout. Only
/// time spent waiting for the client counts.
pub(crate) struct TimedBody<B> {
    inner: B,
    clock: Clock,
    pace: UploadPace,
    /// How long the server still waits for the client.
    credit: Duration,
    waiting: Option<(Tick, Sleep)>,
    /// The bytes that arrived, if they are counted.
    received_bytes: Option<Arc<AtomicU64>>,
    /// Set once all of it has arrived.
    arrived: Arc<AtomicBool>,
}

impl<B> TimedBody<B> {
    pub(crate) fn new(inner: B, clock: Clock, pace: UploadPace) -> Self {
        TimedBody {
            inner,
            clock,
            pace,
            credit: pace.stall_timeout,
            waiting: None,
            received_bytes: None,
            arrived: Arc::default(),
        }
    }

    /// True once all of the body has arrived, also after it was dropped.
    pub(crate) fn arrived(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.arrived)
    }

    /// Counts the bytes that arrive.
    pub(crate) fn counted_in(mut self, received_bytes: Option<Arc<AtomicU64>>) -> Self {
        self.received_bytes = received_bytes;
        self
    }

    fn received(&mut self, bytes: usize) {
        if let Some(received_bytes) = &self.received_bytes {
            received_bytes.fetch_add(bytes as u64, Relaxed);
        }
        if let Some((since, _)) = self.waiting.take() {
            let waited = self.clock.now().since(since);
            self.credit = self.credit.saturating_sub(waited);
        }
        let credit = self.credit + self.pace.earned(bytes);
        self.credit = credit.min(self.pace.stall_timeout);
    }
}

impl<B> Body for TimedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            let data = match &frame {
                Some(Ok(frame)) => frame.data_ref(),
                Some(Err(_)) | None => None,
            };
            this.received(data.map_or(0, Bytes::len));
            if frame.is_none() || this.inner.is_end_stream() {
                this.arrived.store(true, Relaxed);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let (clock, credit) = (&this.clock, this.credit);
        let (_, deadline) = this
            .waiting
            .get_or_insert_with(|| (clock.now(), clock.sleep(credit)));
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

#[cfg(test)]
mod tests;
