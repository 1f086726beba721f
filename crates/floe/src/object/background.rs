//! Tasks that outlive the reader who started them: fetches and metadata
//! requests. [`stop`](Background::stop) waits for them, so the store keeps
//! every chunk that a reader has received.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::ObjectError;
use crate::origin::for_caller;
use crate::runtimes::Context;

#[derive(Debug, Default)]
pub(super) struct Background {
    tasks: TaskTracker,
    stopping: CancellationToken,
}

impl Background {
    /// Spawns a task for the caller's client and request.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = for_caller(task);
        match Context::of_this_thread() {
            None => self.tasks.spawn(task),
            Some(own) => {
                let here = Context::here();
                let task = async move { here.run(task).await };
                self.tasks.spawn_on(task, own.handle())
            }
        };
    }

    /// Waits for `step`, or fails with [`ObjectError::Stopped`] at shutdown.
    pub(super) async fn unless_stopping<T>(
        &self,
        step: impl Future<Output = T>,
    ) -> Result<T, ObjectError> {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => Err(ObjectError::Stopped),
            result = step => Ok(result),
        }
    }

    /// Ends at shutdown.
    pub(super) fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Cancels all waits for the origin, then waits for the tasks to end.
    pub(super) async fn stop(&self) {
        self.stopping.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
