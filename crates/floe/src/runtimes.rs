//! The runtime on which a server was started, for the threads of its frontends.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;

/// A runtime that outlives the threads of frontends. Tasks that a future or a stream spawns
/// while it is polled or dropped here belong to it, and go on when the thread has ended.
#[derive(Clone, Debug)]
pub(crate) struct Home(Handle);

impl Home {
    /// The runtime of the caller.
    pub(crate) fn here() -> Self {
        Home(Handle::current())
    }

    /// Polls a future on this thread, and its tasks at home.
    pub(crate) async fn run<F: Future>(&self, future: F) -> F::Output {
        let mut guest = Guest {
            home: &self.0,
            future: pin!(Some(future)),
        };
        poll_fn(|context| {
            let _home = guest.home.enter();
            match guest.future.as_mut().as_pin_mut() {
                Some(future) => future.poll(context),
                // Unreachable: it is there until the guest is dropped.
                None => Poll::Pending,
            }
        })
        .await
    }

    /// As [`run`](Self::run), for a stream.
    pub(crate) fn stream<T: 'static>(&self, inner: BoxStream<'static, T>) -> BoxStream<'static, T> {
        let stream = HomeStream {
            home: self.0.clone(),
            inner: Some(inner),
        };
        stream.boxed()
    }
}

/// A future that is dropped at home, too.
struct Guest<'a, F> {
    home: &'a Handle,
    future: Pin<&'a mut Option<F>>,
}

impl<F> Drop for Guest<'_, F> {
    fn drop(&mut self) {
        let _home = self.home.enter();
        self.future.set(None);
    }
}

struct HomeStream<T> {
    home: Handle,
    /// None once it is dropped.
    inner: Option<BoxStream<'static, T>>,
}

impl<T> Stream for HomeStream<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        let _home = this.home.enter();
        match &mut this.inner {
            Some(inner) => inner.poll_next_unpin(context),
            None => Poll::Ready(None),
        }
    }
}

impl<T> Drop for HomeStream<T> {
    fn drop(&mut self) {
        let _home = self.home.enter();
        self.inner = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::stream;

    use super::*;

    /// Spawns a task when it is dropped.
    struct SpawnOnDrop(mpsc::Sender<()>);

    impl Drop for SpawnOnDrop {
        fn drop(&mut self) {
            let sender = self.0.clone();
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                sender.send(()).unwrap();
            });
        }
    }

    #[test]
    fn tasks_of_a_dropped_future_or_stream_go_on() {
        let (sender, receiver) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        let home = runtime.block_on(async { Home::here() });
        {
            let own = tokio::runtime::Builder::new_current_thread().build();
            own.unwrap().block_on(async {
                let held = SpawnOnDrop(sender.clone());
                let never = home.run(async move {
                    let _held = held;
                    std::future::pending::<()>().await;
                });
                assert!(futures::FutureExt::now_or_never(never).is_none());
                let held = SpawnOnDrop(sender);
                let bytes = stream::once(async move { drop(held) });
                drop(home.stream(bytes.boxed()));
            });
        }
        for _ in 0..2 {
            receiver.recv().unwrap();
        }
    }

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
