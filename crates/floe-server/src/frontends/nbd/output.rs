//! Replies that were not sent yet: heads in one buffer, data beside it. A batch
//! of replies takes one vectored write, and data is not copied.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use floe_device::IoData;
use tokio::io::AsyncWrite;

/// Slices of one write; the kernel accepts up to 1024.
const SLICES_MAX: usize = 128;

/// Replies in order.
#[derive(Debug, Default)]
pub(super) struct Output {
    heads: BytesMut,
    parts: VecDeque<Part>,
    data_bytes: u64,
}

#[derive(Debug)]
enum Part {
    /// Length of the next heads.
    Heads(usize),
    /// Data, and how much of it was sent.
    Data(IoData, usize),
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Unsent bytes.
    pub(super) fn len(&self) -> u64 {
        self.heads.len() as u64 + self.data_bytes
    }

    /// Bytes of data that are held until they are sent.
    pub(super) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Appends a head.
    pub(super) fn head(&mut self, put: impl FnOnce(&mut BytesMut)) {
        let before = self.heads.len();
        put(&mut self.heads);
        let new = self.heads.len() - before;
        match self.parts.back_mut() {
            Some(Part::Heads(len)) => *len += new,
            _ => self.parts.push_back(Part::Heads(new)),
        }
    }

    /// Appends data, which is not empty.
    pub(super) fn data(&mut self, data: IoData) {
        self.data_bytes += data.len() as u64;
        self.parts.push_back(Part::Data(data, 0));
    }

    /// Drops all replies.
    pub(super) fn clear(&mut self) {
        *self = Output::default();
    }

    /// Writes once; returns the number of bytes.
    pub(super) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        task: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut heads = &self.heads[..];
        let mut count = 0;
        for (slice, part) in slices.iter_mut().zip(&self.parts) {
            *slice = IoSlice::new(match part {
                Part::Heads(len) => {
                    let (head, rest) = heads.split_at(*len);
                    heads = rest;
                    head
                }
                Part::Data(data, sent) => &data[*sent..],
            });
            count += 1;
        }
        let write = Pin::new(stream).poll_write_vectored(task, &slices[..count]);
        let written = ready!(write)?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.remove(written);
        Poll::Ready(Ok(written))
    }

    /// Removes bytes that were sent.
    fn remove(&mut self, mut sent_bytes: usize) {
        while sent_bytes > 0 {
            let Some(part) = self.parts.front_mut() else {
                return;
            };
            let (len, now) = match part {
                Part::Heads(len) => {
                    let now = sent_bytes.min(*len);
                    self.heads.advance(now);
                    *len -= now;
                    (*len, now)
                }
                Part::Data(data, sent) => {
                    let now = sent_bytes.min(data.len() - *sent);
                    *sent += now;
                    let left = data.len() - *sent;
                    if left == 0 {
                        self.data_bytes -= data.len() as u64;
                    }
                    (left, now)
                }
            };
            sent_bytes -= now;
            if len == 0 {
                self.parts.pop_front();
            }
        }
        if self.heads.is_empty() {
            self.heads.clear();
        }
    }
}
