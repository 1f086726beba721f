//! Reads: serves items in memory at once, and starts reads of items on flash.

use floe::items::Found;
use tokio::io::{AsyncRead, AsyncWrite};

use super::end::End;
use super::state::{Connection, OUTPUT_BYTES_MAX};
use crate::frontends::memcached::output::Output;
use crate::frontends::memcached::protocol::{Get, KEY_BYTES_MAX, Meta};
use crate::frontends::memcached::replies::Effect;
use crate::frontends::memcached::words as say;

/// Responses from memory beyond the uncounted bytes take a share of this many
/// bytes, or of the value's length if that is more.
const RESPONSE_SHARE_BYTES: usize = 64 << 10;

impl<S> Connection<'_, S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    pub(super) async fn get(&mut self, get: &Get<'_>) -> Result<(), End> {
        // One key that is too long is an error for the whole command.
        if get.keys().any(|key| key.len() > KEY_BYTES_MAX) {
            self.answer(say::BAD_FORMAT, false);
            return Ok(());
        }
        for key in get.keys() {
            let has_memory = match get.exptime {
                None => self.get_key(key, get.with_version).await?,
                Some(exptime) => self.touch_key(key, get.with_version, exptime).await?,
            };
            if !has_memory {
                self.answer(say::NO_MEMORY_TO_GET, false);
                return Ok(());
            }
            if self.replies.len() > OUTPUT_BYTES_MAX {
                self.settle().await?;
            }
        }
        self.answer("END", false);
        Ok(())
    }

    /// Looks one key up; `false` if there is no memory for its item.
    pub(super) async fn get_key(&mut self, key: &[u8], with_version: bool) -> Result<bool, End> {
        if self.replies.conflicts(key, Effect::Reads) {
            self.gather().await?;
        }
        let counters = &self.context.counters;
        counters.gets.add(1);
        match self.context.items().get_ram(key) {
            Ok(Found::Hit(item)) => {
                if !self.reserve_response(item.value.len()).await? {
                    return Ok(false);
                }
                self.batch_gets.hit(&self.context.counters);
                self.context.items().note_read(&item);
                self.context.frontend.prefixes.note_get(key, true);
                self.replies.sink().item(key, &item, with_version);
                Ok(true)
            }
            Ok(Found::Miss) => {
                self.batch_gets.miss(counters);
                self.context.frontend.prefixes.note_get(key, false);
                Ok(true)
            }
            Ok(Found::OnFlash { len }) => {
                let Some(share) = self.share(len).await? else {
                    return Ok(false);
                };
                let (context, owned) = self.owned(key);
                let read = Box::pin(async move {
                    let mut output = Output::default();
                    let item = context.read(&owned).await;
                    context.frontend.prefixes.note_get(&owned, item.is_some());
                    if let Some(item) = item {
                        output.item(&owned, &item, with_version);
                    }
                    output
                });
                self.begin_here(key, Effect::Reads, share, read).await?;
                Ok(true)
            }
            Err(error) => {
                self.context.failure(&error);
                Ok(true)
            }
        }
    }

    async fn touch_key(
        &mut self,
        key: &[u8],
        with_version: bool,
        exptime: i32,
    ) -> Result<bool, End> {
        let Some(share) = self.share_to_change(key).await? else {
            return Ok(false);
        };
        let (context, owned) = self.owned(key);
        let touch = async move { context.get_and_touch(&owned, exptime, with_version).await };
        self.begin(key, Effect::Changes, share, false, Box::pin(touch))
            .await?;
        Ok(true)
    }

    pub(super) async fn meta_get(&mut self, meta: &Meta<'_>, line: &[u8]) -> Result<(), End> {
        let key = meta.key.as_slice();
        if self.replies.conflicts(key, Effect::Reads) {
            self.gather().await?;
        }
        let counters = &self.context.counters;
        counters.metas.add(1);
        let (item, on_flash) = match self.context.items().get_ram(key) {
            Ok(Found::Hit(item)) => (Some(item), None),
            Ok(Found::Miss) | Err(_) => (None, None),
            Ok(Found::OnFlash { len }) => (None, Some(len)),
        };
        let must_change = on_flash.is_none() && self.context.must_change(meta, item.as_ref());
        if must_change || meta.ttl.is_some() {
            return self.meta_change(meta, line).await;
        }
        if let Some(len) = on_flash {
            let Some(share) = self.share(len).await? else {
                self.answer(say::NO_MEMORY_TO_GET, false);
                return Ok(());
            };
            let (context, line) = self.owned(line);
            let read = Box::pin(async move { context.meta_read(&line).await });
            // `mg` may change an item, for instance if it is stale and this
            // client must refill it.
            return self.begin_here(key, Effect::Changes, share, read).await;
        }
        counters.gets.add(1);
        match item {
            Some(_) => self.batch_gets.hit(counters),
            None => self.batch_gets.miss(counters),
        }
        let len = item.as_ref().map_or(0, |item| item.value.len());
        if meta.value && !self.reserve_response(len).await? {
            self.answer(say::NO_MEMORY_TO_GET, false);
            return Ok(());
        }
        let sink = self.replies.sink();
        self.context.meta_show(meta, item.as_ref(), sink);
        Ok(())
    }

    /// Reserves memory for a response that holds a value: the client keeps the
    /// value alive until it receives the response. `false` if there is no
    /// memory in time.
    async fn reserve_response(&mut self, len: usize) -> Result<bool, End> {
        if len > self.response_room {
            let bytes = len.max(RESPONSE_SHARE_BYTES);
            let Some(share) = self.share(bytes as u64).await? else {
                return Ok(false);
            };
            self.response_room += bytes;
            self.replies.sink().hold(share);
        }
        self.response_room -= len;
        Ok(true)
    }
}
