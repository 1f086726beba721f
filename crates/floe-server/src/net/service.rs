//! The threads of a frontend: the shared runtime, or its own threads.

use std::future::Future;
use std::io;
use std::time::Duration;

use floe::runtimes::Context;
use futures::future::{BoxFuture, FutureExt as _, LocalBoxFuture};
use tokio::runtime::{self, Runtime};

use super::accept::Shutdown;

/// The future of a frontend until its shutdown.
pub(crate) enum Service {
    /// A task of the shared runtime.
    Shared(BoxFuture<'static, ()>),
    /// One future per thread, on that thread's current-thread runtime.
    Threads(Vec<Start>),
}

/// Shorter than the time limits of requests.
const TICK: Duration = Duration::from_secs(1);

/// Creates the future of one thread, on that thread.
type Start = Box<dyn FnOnce() -> LocalBoxFuture<'static, ()> + Send>;

impl Service {
    /// Runs on the runtime that the frontends share.
    pub(crate) fn shared(serve: impl Future<Output = ()> + Send + 'static) -> Self {
        Service::Shared(serve.boxed())
    }

    /// Runs one thread per item of `starts`. The futures need not be `Send`.
    pub(crate) fn threads<F, S>(starts: impl Iterator<Item = F>) -> Self
    where
        F: FnOnce() -> S + Send + 'static,
        S: Future<Output = ()> + 'static,
    {
        let start = |start: F| -> Start { Box::new(move || start().boxed_local()) };
        Service::Threads(starts.map(start).collect())
    }

    /// Starts the task or threads; the tasks of `shutdown` are those that serve.
    pub(crate) fn start(self, name: &str, shutdown: &Shutdown) -> io::Result<()> {
        match self {
            Service::Shared(serve) => {
                shutdown.tasks.spawn(serve);
            }
            Service::Threads(starts) => {
                for (number, start) in starts.into_iter().enumerate() {
                    let runtime = runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()?;
                    thread(format!("{name}-{number}"), runtime, start, shutdown)?;
                }
            }
        }
        Ok(())
    }
}

fn thread(name: String, runtime: Runtime, start: Start, shutdown: &Shutdown) -> io::Result<()> {
    let (serving, end) = (shutdown.tasks.token(), shutdown.end.clone());
    let thread = std::thread::Builder::new().name(name);
    thread.spawn(move || {
        runtime.block_on(async {
            let _own = Context::here().own_this_thread();
            tokio::select! {
                biased;
                () = start() => {}
                () = tick() => {}
            }
            drop(serving);
            end.cancelled().await;
        });
    })?;
    Ok(())
}

/// Keeps a timer that is due before those of requests. One that becomes the first of its runtime
/// wakes the runtime, which costs its own thread a write and another look at its sockets.
async fn tick() {
    loop {
        tokio::time::sleep(TICK).await;
    }
}

#[cfg(test)]
mod tests;
