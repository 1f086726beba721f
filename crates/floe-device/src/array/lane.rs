//! One operation after another, in the order of their submission.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A queue of operations.
#[derive(Default)]
pub(super) struct Lane(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// A task takes jobs from the queue.
    is_running: bool,
}

impl Lane {
    /// Runs `job` in a task when all jobs before it have ended.
    pub(super) fn push(
        self: &Arc<Self>,
        runtime: &Handle,
        job: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut queue = self.0.lock();
        queue.jobs.push_back(Box::pin(job));
        let is_running = std::mem::replace(&mut queue.is_running, true);
        // A runtime that is shutting down drops the task at once, which locks the queue.
        drop(queue);
        if is_running {
            return;
        }
        let mut runner = Runner {
            lane: Arc::clone(self),
            is_done: false,
        };
        runtime.spawn(async move {
            while let Some(job) = runner.lane.next() {
                job.await;
            }
            runner.end();
        });
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.0.lock();
        let job = queue.jobs.pop_front();
        queue.is_running = job.is_some();
        job
    }
}

/// The task of a lane. If it ends early, by a panic or with its runtime, the operations that
/// wait fail.
struct Runner {
    lane: Arc<Lane>,
    is_done: bool,
}

impl Runner {
    fn end(&mut self) {
        self.is_done = true;
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut queue = self.lane.0.lock();
        let waiting = std::mem::take(&mut queue.jobs);
        queue.is_running = false;
        drop(queue);
        drop(waiting);
    }
}
