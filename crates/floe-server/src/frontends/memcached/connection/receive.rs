//! Receiving values and their memory, and skipping bytes.

use std::sync::Arc;

use bytes::Buf;
use floe::items::ItemBuffer;
use tokio::io::{AsyncRead, AsyncWrite};

use super::end::End;
use super::pace::Pace;
use super::room::READ_BYTES;
use super::state::{Connection, Head};
use crate::frontends::memcached::execute::Sent;
use crate::frontends::memcached::memory::Share;
use crate::frontends::memcached::open::Activity;
use crate::frontends::memcached::protocol::{self, Request, Verb};
use crate::frontends::memcached::replies::Effect;
use crate::frontends::memcached::words as say;

/// Memory for an announced value before its first bytes arrive.
const FIRST_ROOM_BYTES: usize = 16 << 10;

/// A value that outgrows its memory gets this many times as much.
const GROWTH: usize = 4;

impl<S> Connection<'_, S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    /// A share of the memory of all connections, `None` if there is none in
    /// time. A connection that must wait first returns all its shares.
    pub(super) async fn share(&mut self, bytes: u64) -> Result<Option<Share>, End> {
        let frontend = Arc::clone(&self.context.frontend);
        if let Some(share) = frontend.memory.try_share(&self.account, bytes) {
            return Ok(Some(share));
        }
        self.settle().await?;
        let account = Arc::clone(&self.account);
        let share = tokio::select! {
            biased;
            share = frontend.memory.share(&account, bytes, frontend.stall_limit()) => share,
            () = self.patience.drained() => return Err(End::CutOff),
        };
        if share.is_none() {
            self.context.counters.no_memory.add(1);
        }
        Ok(share)
    }

    /// Enlarges the buffer of an arriving value; `false` if there is no memory.
    async fn make_room(
        &mut self,
        value: &mut ItemBuffer,
        share: &mut Share,
        pace: &mut Pace,
    ) -> Result<bool, End> {
        let more = (value.bytes().len() * (GROWTH - 1)).min(value.missing());
        let frontend = Arc::clone(&self.context.frontend);
        let (transfer, limit) = (pace.transfer(), frontend.stall_limit());
        let has_grown = tokio::select! {
            biased;
            has_grown = frontend.memory.grow(share, more as u64, transfer, limit) => has_grown,
            () = self.patience.drained() => return Err(End::CutOff),
        };
        pace.go_on();
        match has_grown {
            true => value.grow(more),
            false => self.context.counters.no_memory.add(1),
        }
        Ok(has_grown)
    }

    /// Receives a value that has not arrived completely, and stores it.
    pub(super) async fn receive(&mut self, head: Head<'_>, len: usize) -> Result<(), End> {
        // The client may wait for earlier responses before it sends the rest.
        self.settle().await?;
        let room = self.input.len().max(FIRST_ROOM_BYTES).min(len);
        let Some(mut share) = self.share(room as u64).await? else {
            let answer = self.reject_value(&head).await?;
            return self.skip(len as u64 + 2, answer).await;
        };
        self.listed.set(Activity::Nread);
        let mut pace = Pace::new(&self.context.frontend, &self.account);
        let mut value = ItemBuffer::growing(len, room);
        let taken = value.fill(&self.input);
        self.input.advance(taken);
        while value.missing() > 0 {
            if value.room() == 0 && !self.make_room(&mut value, &mut share, &mut pace).await? {
                let missing = value.missing() as u64;
                drop((value, share));
                let answer = self.reject_value(&head).await?;
                return self.skip(missing + 2, answer).await;
            }
            self.receive_some(&mut value.rest(), &mut pace).await?;
        }
        let mut input = std::mem::take(&mut self.input);
        while input.len() < 2 {
            input.reserve(READ_BYTES);
            self.receive_some(&mut input, &mut pace).await?;
        }
        drop(pace);
        self.listed.set(Activity::Parse);
        let is_good = input.starts_with(b"\r\n");
        input.advance(2);
        self.input = input;
        match is_good {
            true => self.store_with(head, value, share).await,
            false => {
                self.bad_data(&head);
                Ok(())
            }
        }
    }

    /// Skips the bytes of a rejected request, then answers it.
    pub(super) async fn skip(&mut self, len: u64, answer: &'static str) -> Result<(), End> {
        let mut left = len;
        let mut pace = None;
        loop {
            // At most the input's length, which is a usize.
            let now = left.min(self.input.len() as u64) as usize;
            self.input.advance(now);
            left -= now as u64;
            if left == 0 {
                self.listed.set(Activity::Parse);
                self.answer(answer, answer.is_empty());
                return Ok(());
            }
            self.settle().await?;
            self.listed.set(Activity::Swallow);
            let new = || Pace::new(&self.context.frontend, &self.account);
            let pace = pace.get_or_insert_with(new);
            let mut input = std::mem::take(&mut self.input);
            input.reserve(READ_BYTES);
            self.receive_some(&mut input, pace).await?;
            self.input = input;
        }
    }

    /// Stores a value that arrived with its line.
    pub(super) async fn store(&mut self, head: Head<'_>, value: &[u8]) -> Result<(), End> {
        let is_begun = match &head {
            Head::Classic(head) if head.verb == Verb::Set => self.set_now(head, value).await?,
            Head::Classic(_) => false,
            Head::Meta(line) => self.meta_set_now(line, value).await?,
        };
        if is_begun {
            return Ok(());
        }
        match self.share(value.len() as u64).await? {
            Some(share) => self.store_with(head, ItemBuffer::from(value), share).await,
            None => {
                let answer = self.reject_value(&head).await?;
                self.answer(answer, answer.is_empty());
                Ok(())
            }
        }
    }

    async fn store_with(
        &mut self,
        head: Head<'_>,
        value: ItemBuffer,
        share: Share,
    ) -> Result<(), End> {
        let context = self.context.clone();
        match head {
            Head::Classic(head) => {
                let sent = Sent {
                    verb: head.verb,
                    key: head.key.as_ref().into(),
                    flags: head.flags,
                    expiry: context.expiry(head.exptime),
                    version: head.version,
                    allow_stale: false,
                    value,
                };
                let store = Box::pin(async move { context.classic_store(sent).await });
                self.begin(&head.key, Effect::Changes, share, head.noreply, store)
                    .await
            }
            Head::Meta(line) => {
                let Request::MetaSet(meta, _) = protocol::parse(&line) else {
                    // The line was valid when its value was announced.
                    return Err(End::Junk);
                };
                let key: Box<[u8]> = meta.key.as_slice().into();
                let line = line.into_owned();
                let store = Box::pin(async move { context.meta_set_line(&line, value).await });
                self.begin(&key, Effect::Changes, share, false, store).await
            }
        }
    }

    /// Rejects a value for lack of memory, and deletes the item that it would
    /// have replaced, as memcached does. Returns the answer, which is empty if there is none.
    async fn reject_value(&mut self, head: &Head<'_>) -> Result<&'static str, End> {
        match head {
            Head::Classic(head) => {
                if head.verb == Verb::Set {
                    self.forget(&head.key).await?;
                }
                Ok(if head.noreply { "" } else { say::NO_MEMORY })
            }
            Head::Meta(line) => {
                if let Request::MetaSet(meta, _) = protocol::parse(line) {
                    self.forget(meta.key.as_slice()).await?;
                }
                Ok(say::NO_MEMORY)
            }
        }
    }

    pub(super) fn bad_data(&mut self, head: &Head<'_>) {
        let noreply = matches!(head, Head::Classic(head) if head.noreply);
        self.answer(say::BAD_DATA, noreply);
    }

    /// Deletes the item of a rejected value.
    pub(super) async fn forget(&mut self, key: &[u8]) -> Result<(), End> {
        self.settle().await?;
        if let Err(error) = self.context.items().delete(key).await {
            self.context.failure(&error);
        }
        Ok(())
    }
}
