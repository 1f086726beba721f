//! The responses of one connection: available ones go straight to the output;
//! operations that must wait run concurrently, and their responses keep the
//! order of the requests.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use futures::StreamExt as _;
use futures::stream::FuturesOrdered;
use tokio::runtime::Handle;
use tokio_util::context::TokioContext;

use super::output::Output;

type Operation = Pin<Box<dyn Future<Output = Output> + Send>>;

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
    under_way: FuturesOrdered<Operation>,
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

    /// Starts an operation. Tasks that it spawns belong to `runtime`, not to
    /// this thread. An operation that spawns none needs no runtime, and uses
    /// the device's ring of this thread.
    pub(super) async fn begin(
        &mut self,
        runtime: Option<&Handle>,
        key: &[u8],
        effect: Effect,
        operation: impl Future<Output = Output> + Send + 'static,
    ) {
        let mut operation: Operation = match runtime {
            Some(runtime) => Box::pin(TokioContext::new(operation, runtime.clone())),
            None => Box::pin(operation),
        };
        let first = std::future::poll_fn(|context| Poll::Ready(operation.as_mut().poll(context)));
        match first.await {
            Poll::Ready(output) => self.sink().append(output),
            Poll::Pending => {
                if !self.behind.is_empty() {
                    let behind = std::mem::take(&mut self.behind);
                    self.under_way
                        .push_back(Box::pin(std::future::ready(behind)));
                }
                self.under_way.push_back(operation);
                self.keys.push((hash(key), effect));
            }
        }
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
