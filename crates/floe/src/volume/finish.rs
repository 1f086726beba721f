//! Futures that must end, even if their callers go.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A future that runs in a task of its own from when it is dropped unfinished: a request
/// that has been decided keeps its locks until its last device operation has ended.
pub(super) struct Finish<F: Future<Output: Send> + Send + 'static>(Option<Pin<Box<F>>>);

impl<F: Future<Output: Send> + Send + 'static> Finish<F> {
    pub(super) fn new(future: F) -> Self {
        Finish(Some(Box::pin(future)))
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for Finish<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(future) = &mut self.0 else {
            return Poll::Pending;
        };
        let result = future.as_mut().poll(cx);
        if result.is_ready() {
            self.0 = None;
        }
        result
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Finish<F> {
    fn drop(&mut self) {
        if let (Some(future), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                future.await;
            });
        }
    }
}
