//! A `get` whose line exceeds the read buffer: its keys are looked up as they arrive.

use tokio::io::{AsyncRead, AsyncWrite};

use super::end::End;
use super::state::{Connection, LINE_BYTES_MAX, LongGet, OUTPUT_BYTES_MAX};
use crate::frontends::memcached::protocol::{Get, KEY_BYTES_MAX};
use crate::frontends::memcached::words as say;

impl<S> Connection<'_, S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    /// Processes the beginning of an incomplete line; returns the bytes used.
    pub(super) async fn unfinished(&mut self, rest: &[u8]) -> Result<usize, End> {
        if rest.len() <= LINE_BYTES_MAX {
            return Ok(0);
        }
        let long = match self.long_get {
            Some(long) => long,
            None => {
                let start = rest.iter().position(|&byte| byte != b' ');
                let line = &rest[start.unwrap_or(rest.len())..];
                let with_version = line.starts_with(b"gets ");
                let is_get = with_version || line.starts_with(b"get ");
                if !is_get || start.is_some_and(|start| start > 100) {
                    return Err(End::Junk);
                }
                LongGet {
                    with_version,
                    fault: None,
                }
            }
        };
        let keys_at = match self.long_get {
            Some(_) => 0,
            // After the command.
            None => rest
                .windows(2)
                .position(|pair| pair == b"s " || pair == b"t ")
                .map_or(0, |at| at + 2),
        };
        self.long_get = Some(long);
        let Some(end) = memchr::memrchr(b' ', &rest[keys_at..]) else {
            // The first word exceeds every valid key.
            self.long_get = Some(LongGet {
                fault: Some(say::BAD_FORMAT),
                ..long
            });
            return Ok(rest.len());
        };
        let end = keys_at + end;
        self.get_more(long, &rest[keys_at..end]).await?;
        Ok(end)
    }

    async fn get_more(&mut self, long: LongGet, keys: &[u8]) -> Result<(), End> {
        if long.fault.is_some() {
            return Ok(());
        }
        let get = Get {
            keys,
            with_version: long.with_version,
            exptime: None,
        };
        for key in get.keys() {
            if key.len() > KEY_BYTES_MAX {
                self.long_get = Some(LongGet {
                    fault: Some(say::BAD_FORMAT),
                    ..long
                });
                return Ok(());
            }
            if !self.get_key(key, long.with_version).await? {
                self.long_get = Some(LongGet {
                    fault: Some(say::NO_MEMORY_TO_GET),
                    ..long
                });
                return Ok(());
            }
            if self.replies.len() > OUTPUT_BYTES_MAX {
                self.settle().await?;
            }
        }
        Ok(())
    }

    pub(super) async fn finish_long_get(&mut self, long: LongGet, rest: &[u8]) -> Result<(), End> {
        let rest = rest.strip_suffix(b"\r").unwrap_or(rest);
        self.get_more(long, rest).await?;
        let fault = self.long_get.take().and_then(|long| long.fault);
        self.answer(fault.unwrap_or("END"), false);
        Ok(())
    }
}
