//! One connection: reads requests, and sends responses in their order.
//!
//! The bytes of one read are a batch of requests. Requests that memory can
//! serve are executed at once. For the others a flash operation is started, and
//! the batch's responses are sent together.

mod authenticate;
mod batch_gets;
mod end;
mod get;
mod long_get;
mod pace;
mod patience;
mod receive;
mod room;
mod set;
mod state;
mod stream;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use floe::items::Found;
use tokio::io::{AsyncRead, AsyncWrite};

use super::counters::Counters;
use super::execute::Context;
use super::frontend::MemcachedFrontend;
use super::memory::Share;
use super::open::Listed;
use super::protocol::{self, Meta, Request, Verb};
use super::replies::{Effect, Operation, Pending, Replies};
use super::words as say;
use batch_gets::BatchGets;
use end::End;
use patience::Patience;
use room::Room;
use state::{
    BATCH_MAX, ClassicHead, Connection, Follows, Head, OUTPUT_BYTES_MAX, REQUESTS_MAX, TURN_MAX,
    UNCOUNTED_BYTES_MAX,
};

/// Serves a connection until it ends.
pub(super) async fn serve<S>(
    stream: S,
    frontend: Arc<MemcachedFrontend>,
    counters: Arc<Counters>,
    listed: &Listed,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let context = Context {
        arrived: frontend.clock.now(),
        frontend,
        counters,
    };
    let mut connection = Connection {
        stream,
        patience: Patience::new(&context.frontend),
        context: context.clone(),
        input: BytesMut::new(),
        room: Room::default(),
        replies: Replies::default(),
        account: Arc::default(),
        response_room: UNCOUNTED_BYTES_MAX,
        max_pipeline: context.frontend.config().max_pipeline as usize,
        listed,
        long_get: None,
        batch_gets: BatchGets::default(),
        batch: None,
        more_follows: false,
        begun: 0,
    };
    let counters = &context.counters;
    let end = connection.run().await;
    // An incomplete TLS stream must not end with a close notification: the
    // client would take it for complete. An evicted connection must release its
    // memory at once.
    if !matches!(end, End::Broken(_) | End::Evicted | End::CutOff) {
        connection.end_stream().await;
    }
    drop(connection);
    match end {
        End::Closed | End::Draining => {}
        End::CutOff => counters.cut_off.add(1),
        End::Slow => counters.slow.add(1),
        End::Evicted => counters.evicted.add(1),
        End::Idle => counters.idle_kicks.add(1),
        End::Stalled => counters.stalled.add(1),
        End::Junk => counters.broken.add(1),
        End::Broken(error) => {
            counters.broken.add(1);
            tracing::debug!(%error, "a memcached connection broke off");
        }
    }
}

impl<S> Connection<'_, S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    async fn run(&mut self) -> End {
        match self.serve().await {
            Ok(never) => match never {},
            Err(end) => {
                self.end_batch();
                // Earlier requests still get responses if the client may read them.
                let settles = matches!(end, End::Closed | End::Draining);
                if settles && let Err(end) = self.settle().await {
                    return end;
                }
                end
            }
        }
    }

    async fn serve(&mut self) -> Result<std::convert::Infallible, End> {
        if self.context.frontend.users.is_some() {
            self.authenticate().await?;
        }
        loop {
            self.process().await?;
            self.settle().await?;
            self.fill().await?;
        }
    }

    /// Executes every request that has arrived completely.
    async fn process(&mut self) -> Result<(), End> {
        self.batch_gets.begin(&mut self.context);
        let mut input = std::mem::take(&mut self.input);
        let mut at = 0;
        let mut is_draining = false;
        // A value that arrives in pieces may bring further requests; during a
        // shutdown these are not executed.
        while !is_draining {
            let rest = &input[at..];
            let Some(end) = memchr::memchr(b'\n', rest) else {
                at += self.unfinished(rest).await?;
                break;
            };
            at += end + 1;
            self.room.requests += 1;
            self.more_follows = at < input.len();
            if let Some(long) = self.long_get {
                self.finish_long_get(long, &rest[..end]).await?;
                continue;
            }
            // A line of only `\r` keeps it, as in memcached.
            let line = match &rest[..end] {
                [line @ .., b'\r'] if !line.is_empty() => line,
                line => line,
            };
            match self.carry_out(line).await? {
                Follows::Nothing => {}
                Follows::Skip(len, answer) => {
                    input.advance(at);
                    at = 0;
                    self.input = input;
                    self.skip(len, answer).await?;
                    input = std::mem::take(&mut self.input);
                    is_draining = self.context.frontend.is_draining();
                }
                Follows::Value(head, len) if input.len() - at >= len + 2 => {
                    let (value, end) = input[at..at + len + 2].split_at(len);
                    at += len + 2;
                    self.more_follows = at < input.len();
                    match end {
                        b"\r\n" => self.store(head, value).await?,
                        _ => self.bad_data(&head),
                    }
                }
                Follows::Value(head, len) => {
                    let head = head.into_owned();
                    input.advance(at);
                    at = 0;
                    self.input = input;
                    self.receive(head, len).await?;
                    input = std::mem::take(&mut self.input);
                    is_draining = self.context.frontend.is_draining();
                }
            }
            if self.replies.len() > OUTPUT_BYTES_MAX {
                self.settle().await?;
            }
            if self.room.requests.is_multiple_of(REQUESTS_MAX) {
                tokio::task::yield_now().await;
            }
        }
        input.advance(at);
        self.input = input;
        self.batch_gets.end(&self.context);
        Ok(())
    }

    /// Executes the request of one line.
    async fn carry_out<'l>(&mut self, line: &'l [u8]) -> Result<Follows<'l>, End> {
        match protocol::parse(line) {
            Request::Get(get) => self.get(&get).await?,
            Request::MetaGet(meta) => self.meta_get(&meta, line).await?,
            Request::Store(store) => {
                let len = store.len as usize;
                self.context.frontend.prefixes.note_set(store.key);
                if self.context.is_too_large(store.key, store.flags, len) {
                    self.context.counters.too_large.add(1);
                    if store.verb == Verb::Set {
                        self.forget(store.key).await?;
                    }
                    let answer = if store.noreply { "" } else { say::TOO_LARGE };
                    return Ok(Follows::Skip(len as u64 + 2, answer));
                }
                let head = Head::Classic(ClassicHead {
                    verb: store.verb,
                    key: Cow::Borrowed(store.key),
                    flags: store.flags,
                    exptime: store.exptime,
                    version: store.version,
                    noreply: store.noreply,
                });
                return Ok(Follows::Value(head, len));
            }
            Request::MetaSet(meta, len) => {
                self.context.counters.metas.add(1);
                let key = meta.key.as_slice();
                let flags = meta.client_flags;
                if self.context.is_too_large(key, flags, len as usize) {
                    self.context.counters.too_large.add(1);
                    self.forget(key).await?;
                    return Ok(Follows::Skip(u64::from(len) + 2, say::TOO_LARGE));
                }
                return Ok(Follows::Value(
                    Head::Meta(Cow::Borrowed(line)),
                    len as usize,
                ));
            }
            Request::Reject { line, len } => {
                return Ok(Follows::Skip(len, line));
            }
            request => self.carry_out_simple(request, line).await?,
        }
        Ok(Follows::Nothing)
    }

    async fn carry_out_simple(&mut self, request: Request<'_>, line: &[u8]) -> Result<(), End> {
        match request {
            Request::Delete { key, noreply } => {
                self.context.frontend.prefixes.note_delete(key);
                let (context, owned) = self.owned(key);
                let delete = async move { context.delete(&owned).await };
                self.change(key, noreply, Box::pin(delete)).await
            }
            Request::Count {
                key,
                delta,
                up,
                noreply,
            } => {
                let (context, owned) = self.owned(key);
                let count = async move { context.count(&owned, delta, up).await };
                self.change(key, noreply, Box::pin(count)).await
            }
            Request::Touch {
                key,
                exptime,
                noreply,
            } => {
                let (context, owned) = self.owned(key);
                let touch = async move { context.touch(&owned, exptime).await };
                self.change(key, noreply, Box::pin(touch)).await
            }
            Request::MetaDelete(meta) | Request::MetaCount(meta) => {
                self.context.counters.metas.add(1);
                self.meta_change(&meta, line).await
            }
            Request::MetaDebug(key) => {
                self.settle().await?;
                self.context.counters.metas.add(1);
                let found = self.context.items().get(key.as_slice()).await;
                let item = found.ok().flatten();
                let sink = self.replies.sink();
                self.context.meta_debug(&key, item.as_ref(), sink);
                Ok(())
            }
            Request::MetaNoop => {
                self.answer("MN", false);
                // `mn` also asks for all responses so far.
                self.settle().await
            }
            Request::FlushAll { exptime, noreply } => {
                self.settle().await?;
                let line = self.context.flush_all(exptime).await;
                self.answer(line, noreply);
                Ok(())
            }
            Request::Stats(words) => {
                self.settle().await?;
                self.context.stats(words.as_slice(), self.replies.sink());
                Ok(())
            }
            Request::Version => {
                self.answer(say::VERSION, false);
                Ok(())
            }
            Request::Quit => Err(End::Closed),
            Request::Hangup => Err(End::Junk),
            Request::Respond { line, noreply } => {
                self.answer(line, noreply);
                Ok(())
            }
            // The caller handles these.
            Request::Get(_)
            | Request::MetaGet(_)
            | Request::Store(_)
            | Request::MetaSet(..)
            | Request::Reject { .. } => Ok(()),
        }
    }

    fn owned(&self, key: &[u8]) -> (Context, Box<[u8]>) {
        (self.context.clone(), key.into())
    }

    fn answer(&mut self, line: &str, noreply: bool) {
        if !noreply {
            self.replies.sink().line(line);
        }
    }

    /// `mg`, `md`, `ma` where they change the item.
    async fn meta_change(&mut self, meta: &Meta<'_>, line: &[u8]) -> Result<(), End> {
        let (context, line) = self.owned(line);
        let change = async move { context.meta_line(&line).await };
        self.change(meta.key.as_slice(), false, Box::pin(change))
            .await
    }

    /// Starts a change of an item, after pending operations on its key.
    async fn change(&mut self, key: &[u8], noreply: bool, operation: Operation) -> Result<(), End> {
        match self.share_to_change(key).await? {
            Some(share) => {
                self.begin(key, Effect::Changes, share, noreply, operation)
                    .await
            }
            None => {
                self.answer(say::NO_MEMORY, noreply);
                Ok(())
            }
        }
    }

    /// A share for an update, which reads the present value and may write a
    /// slightly longer one.
    async fn share_to_change(&mut self, key: &[u8]) -> Result<Option<Share>, End> {
        let len = match self.context.items().get_ram(key) {
            Ok(Found::OnFlash { len }) => len,
            Ok(Found::Hit(item)) => item.value.len() as u64,
            Ok(Found::Miss) | Err(_) => 0,
        };
        self.share(len).await
    }

    /// Starts an operation that may wait, with its share of memory.
    async fn begin(
        &mut self,
        key: &[u8],
        effect: Effect,
        share: Share,
        noreply: bool,
        operation: Operation,
    ) -> Result<(), End> {
        let pending = Pending {
            operation,
            runtime: Some(self.context.frontend.runtime.clone()),
            share: Some(share),
            noreply,
        };
        self.launch(key, effect, pending).await
    }

    /// Starts a read that spawns no tasks, with its share of memory: it runs on this thread, with
    /// the thread's own ring.
    async fn begin_here(
        &mut self,
        key: &[u8],
        effect: Effect,
        share: Share,
        operation: Operation,
    ) -> Result<(), End> {
        let pending = Pending {
            operation,
            runtime: None,
            share: Some(share),
            noreply: false,
        };
        self.launch(key, effect, pending).await
    }

    async fn launch(&mut self, key: &[u8], effect: Effect, pending: Pending) -> Result<(), End> {
        self.make_way(key, effect).await?;
        if effect == Effect::Changes && pending.runtime.is_some() {
            self.begin_batch();
        }
        self.replies.begin(key, effect, pending).await;
        Ok(())
    }

    /// Waits until an operation may begin.
    async fn make_way(&mut self, key: &[u8], effect: Effect) -> Result<(), End> {
        let is_full = self.replies.under_way() >= self.max_pipeline;
        if is_full || self.replies.conflicts(key, effect) {
            self.gather().await?;
        }
        self.begun += 1;
        if self.begun >= BATCH_MAX {
            self.end_batch();
            self.begun = 0;
        }
        if self.begun.is_multiple_of(TURN_MAX) {
            // Their first polls are not charged to the task's budget.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Has this operation and those that follow share the groups of what they must make durable.
    fn begin_batch(&mut self) {
        if self.more_follows && self.batch.is_none() {
            self.batch = Some(self.context.items().cache().batch());
        }
    }

    fn end_batch(&mut self) {
        if let Some(batch) = self.batch.take() {
            batch.end();
        }
    }

    /// Waits for all pending operations.
    async fn gather(&mut self) -> Result<(), End> {
        self.end_batch();
        if self.replies.under_way() == 0 {
            return Ok(());
        }
        self.begun = 0;
        self.patience.was_elsewhere();
        while self.replies.next().await {
            if self.replies.ready().len() > OUTPUT_BYTES_MAX {
                self.send().await?;
            }
        }
        Ok(())
    }

    /// Waits for all pending operations, and sends all responses.
    async fn settle(&mut self) -> Result<(), End> {
        self.gather().await?;
        self.send().await
    }
}
