//! Messages from the input: requests, and the data of writes.

use bytes::Buf as _;
use floe_device::IoData;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Blocked, Connection, DIRECT_BYTES, Stage};
use crate::frontends::nbd::end::End;
use crate::frontends::nbd::protocol::request::{self, Head, Operation};
use crate::frontends::nbd::protocol::{Errno, Rejection};

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    /// The next request, with the data of a write that is carried out.
    pub(super) fn next_message(&mut self) -> Result<(Head, Option<IoData>), Blocked> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Head) {
                Stage::Head => {
                    let Some(head) = self.input.first_chunk() else {
                        return Err(Blocked::Input);
                    };
                    let Some(head) = Head::parse(head) else {
                        self.end = Some(End::Junk);
                        return Err(Blocked::Limit);
                    };
                    if let Some(message) = self.begin_message(head)? {
                        return Ok(message);
                    }
                }
                Stage::Skip(bytes) => {
                    // At most the input's length, which is a usize.
                    let now = self.input.len().min(bytes as usize);
                    self.input.advance(now);
                    let left = bytes - now as u32;
                    if left > 0 {
                        self.stage = Stage::Skip(left);
                        return Err(Blocked::Input);
                    }
                }
                Stage::Data(head, mut buffer, filled) => {
                    let now = self.input.len().min(buffer.len() - filled);
                    buffer[filled..filled + now].copy_from_slice(&self.input[..now]);
                    self.input.advance(now);
                    let filled = filled + now;
                    if filled < buffer.len() {
                        self.stage = Stage::Data(head, buffer, filled);
                        return Err(Blocked::Input);
                    }
                    return Ok((head, Some(buffer.freeze())));
                }
            }
        }
    }

    /// Takes a head from the input once its request has memory, and its data if
    /// all of it has arrived. `None` if the next stage must run first.
    pub(super) fn begin_message(
        &mut self,
        head: Head,
    ) -> Result<Option<(Head, Option<IoData>)>, Blocked> {
        let data_bytes = head.payload_bytes();
        let checked = self.check(&head);
        let (Ok(operation), true) = (checked, data_bytes > 0) else {
            if let Ok(Operation::Read { len, .. }) = checked {
                self.reserve(u64::from(len))?;
            }
            self.input.advance(request::HEAD_BYTES);
            if data_bytes > 0 {
                self.stage = Stage::Skip(data_bytes);
            }
            return Ok(Some((head, None)));
        };
        debug_assert!(operation.changes());
        let len = data_bytes as usize;
        let has_all = self.input.len() - request::HEAD_BYTES >= len;
        if !has_all && len < DIRECT_BYTES {
            return Err(Blocked::Input);
        }
        self.reserve(u64::from(data_bytes))?;
        self.input.advance(request::HEAD_BYTES);
        let mut buffer = self.served.export.allocate(len);
        if has_all {
            buffer.copy_from_slice(&self.input[..len]);
            self.input.advance(len);
            return Ok(Some((head, Some(buffer.freeze()))));
        }
        self.stage = Stage::Data(head, buffer, 0);
        Ok(None)
    }

    /// Checks a request. During a shutdown there is only one answer.
    pub(super) fn check(&self, head: &Head) -> Result<Operation, Rejection> {
        match self.is_draining {
            true => Err(Rejection::new(
                Errno::Shutdown,
                "the server is shutting down",
            )),
            false => request::check(head, &self.terms),
        }
    }

    /// Makes room in the share for `bytes` more.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<(), Blocked> {
        let used_bytes = self.used_bytes();
        if self.share.reserve(used_bytes + bytes) {
            return Ok(());
        }
        if used_bytes == 0 {
            self.awaited = Some((bytes, self.share.wait(bytes)));
        }
        Err(Blocked::Limit)
    }
}
