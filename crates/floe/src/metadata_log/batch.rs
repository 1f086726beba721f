//! Batches: requests that should share a group.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

thread_local! {
    /// The batches of this thread, by log; some have none at present.
    static OPEN: RefCell<Vec<Arc<Open>>> = const { RefCell::new(Vec::new()) };
}

/// The batches of one thread and log that have not ended.
#[derive(Debug)]
struct Open {
    log: LogId,
    count: AtomicUsize,
}

/// The identity of a log in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogId(usize);

impl LogId {
    /// One that no other log has.
    pub(super) fn new() -> Self {
        static LOGS: AtomicUsize = AtomicUsize::new(0);
        LogId(LOGS.fetch_add(1, SeqCst))
    }
}

/// Requests that should share a group.
pub(crate) struct Batch {
    open: Arc<Open>,
    log: Arc<dyn Driven>,
    is_ended: bool,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}

impl Batch {
    /// Begins a batch of requests to `log`.
    pub(super) fn begin(id: LogId, log: Arc<dyn Driven>) -> Self {
        let open = OPEN.with_borrow_mut(|all| {
            if let Some(open) = all.iter().find(|open| open.log == id) {
                return Arc::clone(open);
            }
            // A log may be gone for ever. A cache has two.
            all.retain(|open| open.count.load(SeqCst) > 0);
            let open = Arc::new(Open {
                log: id,
                count: AtomicUsize::new(0),
            });
            all.push(Arc::clone(&open));
            open
        });
        open.count.fetch_add(1, SeqCst);
        Batch {
            open,
            log,
            is_ended: false,
        }
    }

    /// True if a batch of this log was begun on this thread and has not ended.
    pub(super) fn is_open_here(id: LogId) -> bool {
        let is_open = |open: &Arc<Open>| open.log == id && open.count.load(SeqCst) > 0;
        OPEN.with_borrow(|all| all.iter().any(is_open))
    }

    /// Begins a group with the requests of the batch, if the log is idle.
    pub(crate) fn end(mut self) {
        self.is_ended = true;
        let log = Arc::clone(&self.log);
        drop(self);
        log.drive();
    }
}

/// A dropped batch leaves its requests to the keeper: the thread's runtime may be ending.
impl Drop for Batch {
    fn drop(&mut self) {
        self.open.count.fetch_sub(1, SeqCst);
        if !self.is_ended {
            self.log.leave_to_keeper();
        }
    }
}

/// A log without its contents.
pub(super) trait Driven: Send + Sync {
    /// Does the log's work as far as it goes now.
    fn drive(&self);

    /// Has the keeper do that.
    fn leave_to_keeper(&self);
}
