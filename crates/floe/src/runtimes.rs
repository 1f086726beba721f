//! The runtimes of a thread that serves clients: its own, and one that outlives it.
//!
//! Such a thread polls its clients' reads itself. The tasks that a read begins in the store must
//! outlive the thread, so the read is polled in the [`Context`] of a runtime that does. Its
//! requests to an origin stay on the thread, in the thread's own runtime: each thread that an
//! answer crosses costs a wake-up.

mod guest;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{self, Poll};

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;

use guest::Guest;

thread_local! {
    static OWN: RefCell<Option<Context>> = const { RefCell::new(None) };
}

/// A runtime that need not be the one that polls. Tasks that a future or a stream spawns while
/// it is polled or dropped in the context belong to this runtime.
#[derive(Clone, Debug)]
pub struct Context(Handle);

/// While it lives, a thread has a runtime of its own.
#[must_use = "the thread has its own runtime until this is dropped"]
#[derive(Debug)]
pub struct OwnThread {
    former: Option<Context>,
    not_send: PhantomData<*const ()>,
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        OWN.set(self.former.take());
    }
}

impl Context {
    /// That of the caller.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn here() -> Self {
        Context(Handle::current())
    }

    /// Makes this runtime the own one of the calling thread, until the guard is dropped: the
    /// requests to origins of reads that the thread polls run on it, and the journal's writes that
    /// it begins. Reads that have not ended when the runtime ends fail, or begin again. It must be
    /// a runtime with I/O and time that this thread drives.
    pub fn own_this_thread(self) -> OwnThread {
        OwnThread {
            former: OWN.replace(Some(self)),
            not_send: PhantomData,
        }
    }

    /// The own runtime of this thread, if it has one.
    pub(crate) fn of_this_thread() -> Option<Self> {
        OWN.with_borrow(Clone::clone)
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.0
    }

    /// Polls a future on this thread, in the context.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<'_, F> {
        Guest::new(&self.0, future)
    }

    /// As [`run`](Self::run), for one future.
    pub(crate) fn run_once<F: Future>(self, future: F) -> impl Future<Output = F::Output> + use<F> {
        Guest::new(self.0, future)
    }

    /// As [`run`](Self::run), for a stream.
    pub fn stream<T: 'static>(&self, inner: BoxStream<'static, T>) -> BoxStream<'static, T> {
        let stream = GuestStream {
            host: self.0.clone(),
            inner: Some(inner),
        };
        stream.boxed()
    }
}

struct GuestStream<T> {
    host: Handle,
    /// None once it is dropped.
    inner: Option<BoxStream<'static, T>>,
}

impl<T> Stream for GuestStream<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        let _entered = this.host.enter();
        match &mut this.inner {
            Some(inner) => inner.poll_next_unpin(context),
            None => Poll::Ready(None),
        }
    }
}

impl<T> Drop for GuestStream<T> {
    fn drop(&mut self) {
        let _entered = self.host.enter();
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
        let home = runtime.block_on(async { Context::here() });
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
        let home = runtime.block_on(async { Context::here() });
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
