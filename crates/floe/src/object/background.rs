//! Work that outlives the reader who began it: fetches, and questions to the
//! origin. At the end it is waited for, so that nothing is forgotten of which a
//! reader has had the bytes.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::ObjectError;

#[derive(Debug, Default)]
pub(super) struct Background {
    tasks: TaskTracker,
    stopping: CancellationToken,
}

impl Background {
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Waits for the origin, but not once everything is to stop.
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

    /// Ends whatever waits for the origin, then waits for all the rest.
    pub(super) async fn stop(&self) {
        self.stopping.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
