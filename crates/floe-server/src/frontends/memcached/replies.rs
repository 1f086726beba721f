//! The responses of one connection: available ones go straight to the output;
//! operations that must wait run concurrently, and their responses keep the
//! order of the requests.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::StreamExt as _;
use futures::stream::FuturesOrdered;
use tokio::runtime::Handle;

use super::memory::Share;
use super::output::Output;

/// An operation that may wait. Its caller boxes it: an operation on an item has kilobytes of
/// state, and each function that it passed by value would copy them.
pub(super) type Operation = Pin<Box<dyn Future<Output = Output> + Send>>;

/// An operation with what it needs and holds.
pub(super) struct Pending {
    pub(super) operation: Operation,
    /// Tasks that the operation spawns belong to this runtime, not to this thread. An operation
    /// that spawns none needs none, and uses the device's ring of this thread.
    pub(super) runtime: Option<Handle>,
    /// Memory for the operation, and then for its response until that is sent.
    pub(super) share: Option<Share>,
    /// The client wants no response.
    pub(super) noreply: bool,
}

impl Pending {
    fn ready(output: Output) -> Self {
        Pending {
            operation: Box::pin(std::future::ready(output)),
            runtime: None,
            share: None,
            noreply: false,
        }
    }
}

impl Future for Pending {
    type Output = Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Output> {
        let this = &mut *self;
        let entered = this.runtime.as_ref().map(Handle::enter);
        let mut output = ready!(this.operation.as_mut().poll(context));
        drop(entered);
        if this.noreply {
            output = Output::default();
        }
        if let Some(mut share) = this.share.take()
            && !output.is_empty()
        {
            share.shrink(output.len() as u64);
            output.hold(share);
        }
        Poll::Ready(output)
    }
}

/// The effect of an operation on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    Changes,
}

/// Responses in the order of the requests.
#[derive(Default)]
pub(super) struct Replies {
    /// Responses before those of pending operations.
    ready: Output,
    under_way: FuturesOrdered<Pending>,
    /// Key hashes of the pending operations.
    keys: Vec<(u64, Effect)>,
    /// Responses after those of pending operations.
    behind: Output,
}

impl Replies {
    /// The output for the response to the current request.
    pub(super) fn sink(&mut self) -> &mut Output {
        match self.keys.is_empty() {
            true => &mut self.ready,
            false => &mut self.behind,
        }
    }

    /// The number of pending operations.
    pub(super) fn under_way(&self) -> usize {
        self.keys.len()
    }

    /// Unsent bytes.
    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.behind.len()
    }

    /// True if an operation on `key` must wait for a pending one, so that
    /// requests of one connection on one key keep their order.
    pub(super) fn conflicts(&self, key: &[u8], effect: Effect) -> bool {
        if self.keys.is_empty() {
            return false;
        }
        let hash = hash(key);
        self.keys.iter().any(|&(other, other_effect)| {
            other == hash && (effect == Effect::Changes || other_effect == Effect::Changes)
        })
    }

    /// Starts an operation.
    pub(super) async fn begin(&mut self, key: &[u8], effect: Effect, mut pending: Pending) {
        let first =
            std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut pending).poll(context)));
        // The task's budget would end within a batch, and the fences of the rest would make
        // another group. The caller lets other tasks run.
        let first = tokio::task::coop::unconstrained(first);
        match first.await {
            Poll::Ready(output) => self.sink().append(output),
            Poll::Pending => self.push(key, effect, pending),
        }
    }

    /// Adds an operation, which goes on when its response is waited for.
    pub(super) fn push(&mut self, key: &[u8], effect: Effect, pending: Pending) {
        if !self.behind.is_empty() {
            let behind = std::mem::take(&mut self.behind);
            self.under_way.push_back(Pending::ready(behind));
        }
        self.under_way.push_back(pending);
        self.keys.push((hash(key), effect));
    }

    /// Waits for the next pending response and makes it available; `false` if there is none.
    pub(super) async fn next(&mut self) -> bool {
        match self.under_way.next().await {
            Some(output) => {
                self.ready.append(output);
                true
            }
            None => {
                self.keys.clear();
                let behind = std::mem::take(&mut self.behind);
                self.ready.append(behind);
                false
            }
        }
    }

    /// True if there are responses that cannot be sent yet.
    pub(super) fn has_more(&self) -> bool {
        !self.keys.is_empty() || !self.behind.is_empty()
    }

    /// The responses that can be sent.
    pub(super) fn ready(&mut self) -> &mut Output {
        &mut self.ready
    }
}

fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}
