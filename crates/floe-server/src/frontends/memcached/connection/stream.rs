//! The input and output of a connection, with their time limits.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_util::io::poll_read_buf;

use super::end::End;
use super::pace::Pace;
use super::state::{Connection, UNCOUNTED_BYTES_MAX};
use crate::frontends::memcached::open::Activity;
use crate::frontends::memcached::output::Output;

/// Time limit for the end of a stream.
const END_TIMEOUT: Duration = Duration::from_millis(100);

impl<S> Connection<'_, S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    /// Sends the available responses, within the limits of a transfer.
    pub(super) async fn send(&mut self) -> Result<(), End> {
        let Connection {
            stream,
            context,
            account,
            replies,
            patience,
            listed,
            response_room,
            ..
        } = self;
        let is_all = !replies.has_more();
        let output = replies.ready();
        if output.is_empty() {
            return Ok(());
        }
        context.counters.written_bytes.add(output.len() as u64);
        output.begin_sending();
        let mut pace: Option<Pace> = None;
        std::future::poll_fn(|task| {
            loop {
                match write(Pin::new(&mut *stream), task, output) {
                    Poll::Ready(Ok(None)) => return Poll::Ready(Ok(())),
                    Poll::Ready(Ok(Some(len))) => {
                        if let Some(pace) = &mut pace {
                            pace.moved(len);
                        }
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(End::Broken(error))),
                    Poll::Pending => {
                        listed.set(Activity::Mwrite);
                        let new = || Pace::new(&context.frontend, account);
                        let pace = pace.get_or_insert_with(new);
                        return pace.poll(task, patience).map(Err);
                    }
                }
            }
        })
        .await?;
        *response_room = if is_all { UNCOUNTED_BYTES_MAX } else { 0 };
        Ok(())
    }

    /// Ends the stream. Without a TLS close notification the client could not
    /// detect a truncation.
    pub(super) async fn end_stream(&mut self) {
        tokio::select! {
            biased;
            // On an error the client is gone already.
            _ = self.stream.shutdown() => {}
            () = self.context.frontend.clock.sleep(END_TIMEOUT) => {}
        }
    }

    /// Waits for a request. During a shutdown it reads none, even if bytes are available.
    pub(super) async fn fill(&mut self) -> Result<(), End> {
        if self.context.frontend.is_draining() {
            return Err(End::Draining);
        }
        self.listed.set(Activity::Read);
        let Connection {
            stream,
            input,
            room,
            patience,
            context,
            listed,
            ..
        } = self;
        patience.rounds = patience.rounds.wrapping_add(1);
        let mut is_first = true;
        let read = std::future::poll_fn(|task| {
            room.make(input, &context.frontend.memory);
            let had_room = input.capacity() - input.len();
            if let Poll::Ready(read) = poll_read_buf(Pin::new(&mut *stream), task, input) {
                let noted = read.inspect(|len| room.was_used(*len, had_room));
                return Poll::Ready(noted.map_err(End::Broken));
            }
            room.rest(input);
            let already_armed = std::mem::take(&mut is_first) && patience.is_armed;
            match already_armed {
                true => Poll::Pending,
                false => patience.poll(task).map(Err),
            }
        });
        match read.await? {
            0 => Err(End::Closed),
            len => {
                listed.note_requests(context.now_unix_s());
                context.counters.read_bytes.add(len as u64);
                Ok(())
            }
        }
    }

    /// Waits for announced bytes.
    pub(super) async fn receive_some(
        &mut self,
        into: &mut impl BufMut,
        pace: &mut Pace,
    ) -> Result<(), End> {
        let Connection {
            stream,
            patience,
            context,
            ..
        } = self;
        patience.was_elsewhere();
        let read = std::future::poll_fn(|task| {
            if let Poll::Ready(read) = poll_read_buf(Pin::new(&mut *stream), task, into) {
                return Poll::Ready(read.map_err(End::Broken));
            }
            pace.poll(task, patience).map(Err)
        });
        match read.await? {
            0 => Err(End::Closed),
            len => {
                pace.moved(len);
                context.counters.read_bytes.add(len as u64);
                Ok(())
            }
        }
    }
}

/// Writes once; returns the number of bytes, or `None` when all output is flushed.
fn write<S: AsyncWrite>(
    mut stream: Pin<&mut S>,
    task: &mut TaskContext<'_>,
    output: &mut Output,
) -> Poll<io::Result<Option<usize>>> {
    if output.is_empty() {
        // A TLS stream may buffer output; a socket does not.
        ready!(stream.poll_flush(task))?;
        return Poll::Ready(Ok(None));
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
    Poll::Ready(Ok(Some(written)))
}
