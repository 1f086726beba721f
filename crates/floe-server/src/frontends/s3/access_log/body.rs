//! The body of an answer whose request has a line.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::record::Record;

/// Bytes of an error's document in which its code is looked for.
const CODE_WITHIN_BYTES: usize = 1024;

/// Counts the bytes of a body, and finds the code of an error.
pub(in crate::frontends::s3) struct RecordedBody<B> {
    inner: B,
    record: Option<Record>,
    /// The answer is an error, whose code was not found yet.
    is_error: bool,
}

impl<B> RecordedBody<B> {
    pub(in crate::frontends::s3) fn new(inner: B, record: Option<Record>, is_error: bool) -> Self {
        RecordedBody {
            inner,
            record,
            is_error,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for RecordedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        if let (Some(record), Some(Ok(frame))) = (&mut this.record, &frame)
            && let Some(data) = frame.data_ref()
        {
            record.sent(data.len() as u64);
            if std::mem::take(&mut this.is_error)
                && let Some(code) = code(data)
            {
                record.failed(code);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The code in the document of an error.
fn code(document: &[u8]) -> Option<&str> {
    let document = &document[..document.len().min(CODE_WITHIN_BYTES)];
    let text = match std::str::from_utf8(document) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&document[..error.valid_up_to()]).ok()?,
    };
    let (_, rest) = text.split_once("<Code>")?;
    Some(rest.split_once("</Code>")?.0)
}
