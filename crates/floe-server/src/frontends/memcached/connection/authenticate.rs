//! The first command of a connection that requires authentication.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::end::End;
use super::state::{Connection, LINE_BYTES_MAX};
use crate::frontends::memcached::protocol;
use crate::frontends::memcached::words as say;

impl<S> Connection<'_, S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    /// Receives commands until one has a valid name and password.
    pub(super) async fn authenticate(&mut self) -> Result<(), End> {
        loop {
            while let Some(end) = memchr::memchr(b'\n', &self.input) {
                let line = self.input.split_to(end + 1);
                if self.try_to_authenticate(&line[..end]).await? {
                    return Ok(());
                }
            }
            if self.input.len() > LINE_BYTES_MAX {
                return Err(End::Junk);
            }
            self.settle().await?;
            self.fill().await?;
        }
    }

    async fn try_to_authenticate(&mut self, line: &[u8]) -> Result<bool, End> {
        let Some(len) = protocol::authentication_len(line) else {
            self.answer(say::UNAUTHENTICATED, false);
            return Ok(false);
        };
        if len > LINE_BYTES_MAX {
            self.answer(say::AUTH_TOO_LONG, false);
            self.settle().await?;
            return Err(End::Junk);
        }
        self.settle().await?;
        while self.input.len() < len + 2 {
            self.fill().await?;
        }
        let sent = self.input.split_to(len + 2);
        let frontend = Arc::clone(&self.context.frontend);
        let counters = &self.context.counters;
        let verdict = match sent.strip_suffix(b"\r\n") {
            None => Err(say::AUTH_BAD_END),
            Some(sent) => match protocol::name_and_password(sent) {
                None => Err(say::AUTH_BAD_FORMAT),
                Some((name, password)) => {
                    counters.auths.add(1);
                    let users = frontend.users.as_ref();
                    match users.is_some_and(|users| users.has(name, password)) {
                        true => Ok(()),
                        false => {
                            counters.auth_errors.add(1);
                            Err(say::AUTH_FAILED)
                        }
                    }
                }
            },
        };
        self.answer(verdict.err().unwrap_or(say::STORED), false);
        Ok(verdict.is_ok())
    }
}
