//! Sets whose value arrived with its line, as far as they need no wait: most need none, and so
//! neither memory for the operation nor a task.

use floe::items::{ItemError, ItemState, NewItem, PutNow};
use tokio::io::{AsyncRead, AsyncWrite};

use super::end::End;
use super::state::{ClassicHead, Connection};
use crate::frontends::memcached::execute::Outcome;
use crate::frontends::memcached::meta::set_verb;
use crate::frontends::memcached::output::Output;
use crate::frontends::memcached::protocol::{self, Request, Verb};
use crate::frontends::memcached::replies::{Effect, Operation, Pending};
use crate::frontends::memcached::words as say;

impl<S> Connection<'_, S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    /// `set`. False if it would have to wait and nothing was done.
    pub(super) async fn set_now(
        &mut self,
        head: &ClassicHead<'_>,
        value: &[u8],
    ) -> Result<bool, End> {
        let item = NewItem {
            flags: head.flags,
            expiry: self.context.expiry(head.exptime),
            state: ItemState::default(),
            value,
        };
        let line = match self.put_now(&head.key, &item).await? {
            Ok(PutNow::WouldWait) => return Ok(false),
            Ok(PutNow::Stored(_)) => say::STORED,
            Ok(PutNow::Begun(_, end)) => {
                let context = self.context.clone();
                let operation = Box::pin(async move {
                    let mut output = Output::default();
                    output.line(match end.await {
                        Ok(()) => say::STORED,
                        Err(error) => context.failure(&error),
                    });
                    output
                });
                let bytes = value.len() as u64;
                self.wait_for_put(&head.key, bytes, operation, head.noreply)
                    .await?;
                return Ok(true);
            }
            Err(error) => self.context.failure(&error),
        };
        self.answer(line, head.noreply);
        Ok(true)
    }

    /// `ms`. False if it would have to wait, and nothing was done.
    pub(super) async fn meta_set_now(&mut self, line: &[u8], value: &[u8]) -> Result<bool, End> {
        let Request::MetaSet(meta, _) = protocol::parse(line) else {
            return Ok(false);
        };
        if set_verb(&meta) != Verb::Set {
            return Ok(false);
        }
        let item = NewItem {
            flags: meta.client_flags,
            expiry: self.context.set_expiry(&meta),
            state: ItemState::default(),
            value,
        };
        let key = meta.key.as_slice();
        let stored = match self.put_now(key, &item).await? {
            Ok(PutNow::WouldWait) => return Ok(false),
            Ok(PutNow::Stored(version)) => Ok((Outcome::Stored, Some(version))),
            Ok(PutNow::Begun(version, end)) => {
                let (context, line) = self.owned(line);
                let operation = Box::pin(async move {
                    let ended = end.await;
                    match protocol::parse(&line) {
                        Request::MetaSet(meta, _) => {
                            let stored = ended.map(|()| (Outcome::Stored, Some(version)));
                            context.meta_stored(&meta, stored)
                        }
                        _ => Output::default(),
                    }
                });
                self.wait_for_put(key, value.len() as u64, operation, false)
                    .await?;
                return Ok(true);
            }
            Err(error) => Err(error),
        };
        let output = self.context.meta_stored(&meta, stored);
        self.replies.sink().append(output);
        Ok(true)
    }

    async fn put_now(
        &mut self,
        key: &[u8],
        item: &NewItem<&[u8]>,
    ) -> Result<Result<PutNow, ItemError>, End> {
        self.make_way(key, Effect::Changes).await?;
        self.begin_batch();
        let begun = self.context.items().put_now(key, item);
        match begun {
            // The operation that waits counts itself.
            Ok(PutNow::WouldWait) => self.begun = self.begun.saturating_sub(1),
            _ => self.context.counters.sets.add(1),
        }
        Ok(begun)
    }

    /// Adds the end of a put to the responses: it waits for a fence as a rule. Without memory
    /// for it, it is waited for at once.
    async fn wait_for_put(
        &mut self,
        key: &[u8],
        bytes: u64,
        operation: Operation,
        noreply: bool,
    ) -> Result<(), End> {
        let memory = &self.context.frontend.memory;
        let share = memory.try_share(&self.account, bytes);
        let has_memory = share.is_some();
        let pending = Pending {
            operation,
            runtime: Some(self.context.frontend.runtime.clone()),
            share,
            noreply,
        };
        self.replies.push(key, Effect::Changes, pending);
        match has_memory {
            true => Ok(()),
            false => self.gather().await,
        }
    }
}
