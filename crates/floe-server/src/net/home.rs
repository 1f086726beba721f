//! The runtime on which a server was started, for the threads of its frontends.

use std::future::poll_fn;
use std::pin::pin;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::runtime::Handle;

/// A runtime that outlives the threads of frontends. Tasks that a future or a stream spawns
/// while it is polled here belong to it, and go on when the thread that polls has ended.
#[derive(Clone, Debug)]
pub(crate) struct Home(Handle);

impl Home {
    /// The runtime of the caller.
    pub(crate) fn here() -> Self {
        Home(Handle::current())
    }

    /// Polls a future on this thread, and its tasks at home.
    pub(crate) async fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|context| {
            let _home = self.0.enter();
            future.as_mut().poll(context)
        })
        .await
    }

    /// As [`run`](Self::run), for a stream.
    pub(crate) fn stream<T: Send + 'static>(
        &self,
        mut inner: BoxStream<'static, T>,
    ) -> BoxStream<'static, T> {
        let home = self.0.clone();
        stream::poll_fn(move |context| {
            let _home = home.enter();
            inner.poll_next_unpin(context)
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn tasks_outlive_the_thread_that_polls() {
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        let home = runtime.block_on(async { Home::here() });
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let own = tokio::runtime::Builder::new_current_thread().build();
            let (open, opened) = tokio::sync::oneshot::channel::<()>();
            let bytes = home.stream(stream::iter([1]).boxed());
            own.unwrap().block_on(home.run(async move {
                tokio::spawn(async move {
                    let _ = opened.await;
                    sender.send(bytes.collect::<Vec<i32>>().await).unwrap();
                });
            }));
            open
        });
        let open = thread.join().unwrap();
        open.send(()).unwrap();
        assert_eq!(receiver.recv().unwrap(), [1]);
    }
}
