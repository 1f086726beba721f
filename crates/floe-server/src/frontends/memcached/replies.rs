//! The answers of one connection: what is ready goes straight to the output,
//! what has to wait is carried out at the same time and answered in its turn.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use futures::StreamExt as _;
use futures::stream::FuturesOrdered;
use tokio::runtime::Handle;
use tokio_util::context::TokioContext;

use super::output::Output;

type Operation = Pin<Box<dyn Future<Output = Output> + Send>>;

/// Whether an operation changes its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    Changes,
}

/// Answers in the order of the requests.
#[derive(Default)]
pub(super) struct Replies {
    /// In front of everything that is under way.
    ready: Output,
    under_way: FuturesOrdered<Operation>,
    /// The keys, hashed, of what is under way.
    keys: Vec<(u64, Effect)>,
    /// Behind everything that is under way.
    behind: Output,
}

impl Replies {
    /// The output for the response to the present request.
    pub(super) fn sink(&mut self) -> &mut Output {
        match self.keys.is_empty() {
            true => &mut self.ready,
            false => &mut self.behind,
        }
    }

    /// Operations under way.
    pub(super) fn under_way(&self) -> usize {
        self.keys.len()
    }

    /// Bytes that wait to be sent.
    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.behind.len()
    }

    /// Whether an operation on `key` must wait for one that is under way, so
    /// that a connection's own requests are carried out in order.
    pub(super) fn conflicts(&self, key: &[u8], effect: Effect) -> bool {
        if self.keys.is_empty() {
            return false;
        }
        let hash = hash(key);
        self.keys.iter().any(|&(other, other_effect)| {
            other == hash && (effect == Effect::Changes || other_effect == Effect::Changes)
        })
    }

    /// Begins an operation. Whatever it starts in the background belongs to
    /// `runtime`, not to the thread of this connection. One that starts
    /// nothing needs none, and then uses the thread's own ring of the device.
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

    /// The next answer that had to wait, put to those that are ready; `false`
    /// when there is none left.
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

    /// Whether answers stand behind those that can be sent now.
    pub(super) fn has_more(&self) -> bool {
        !self.keys.is_empty() || !self.behind.is_empty()
    }

    /// The responses that can be sent now.
    pub(super) fn ready(&mut self) -> &mut Output {
        &mut self.ready
    }
}

fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}
