//! The ring engine: executes the requests of one device on its file, by io_uring or by
//! threads.
//!
//! Must not depend on: the device above it, which is an [`Owner`].

use std::sync::Arc;

use rustix::fs::FlockOperation;
use tokio::runtime;

use super::owner::{OpenFile, Owner};
use super::request::Request;
use super::rings::Rings;
use super::threads::Threads;
use crate::buffer::IoBuf;

/// How operations reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMethod {
    /// io_uring.
    Uring,
    /// `pread` and `pwrite` on tokio's blocking pool.
    Threads,
}

/// The engine of one device. Dropping it waits for requests in flight, and unlocks the
/// file.
pub(crate) struct Engine {
    /// `None` without io_uring. Dropped before the arena and the file, which are
    /// registered with it.
    rings: Option<Rings>,
    threads: Arc<Threads>,
}

impl Engine {
    /// An engine for the requests of `owner`.
    pub(crate) fn new(owner: Arc<dyn Owner>, rings: Option<Rings>) -> Self {
        let threads = Arc::new(Threads::new(owner));
        Engine { rings, threads }
    }

    pub(crate) fn io_method(&self) -> IoMethod {
        match self.rings {
            Some(_) => IoMethod::Uring,
            None => IoMethod::Threads,
        }
    }

    pub(crate) fn submit(&self, request: Request) {
        match &self.rings {
            Some(rings) if request.is_for_ring() => rings.submit(&self.threads, request),
            _ => self.threads.submit(request),
        }
    }

    /// The runtime of the caller, whose ring has a driver from now on.
    pub(crate) fn home(&self) -> Option<runtime::Id> {
        self.rings.as_ref()?.home(&self.threads)
    }

    /// Ends requests that the kernel has carried out, on the rings of all threads; false if there
    /// are no rings.
    pub(crate) fn reap(&self) -> bool {
        if let Some(rings) = &self.rings {
            rings.turn(&self.threads);
        }
        self.rings.is_some()
    }

    /// A buffer with stale content from the arena, if it has any left, or else zeros.
    pub(crate) fn allocate(&self, len: usize) -> IoBuf {
        let arena = self.open_file().arena.as_ref();
        let reused = arena.and_then(|arena| IoBuf::from_arena(arena, len));
        reused.unwrap_or_else(|| IoBuf::zeroed(len))
    }

    /// The kind of file, its path, and how it is used.
    pub(crate) fn describe(&self) -> String {
        let open = self.open_file();
        let kind = match open.is_block_device {
            true => "block device",
            false => "file",
        };
        let cache = match open.is_direct {
            true => "direct",
            false => "buffered",
        };
        let method = match self.io_method() {
            IoMethod::Uring => "io_uring",
            IoMethod::Threads => "threads",
        };
        format!("{kind} {} ({cache}, {method})", open.path.display())
    }

    fn open_file(&self) -> &OpenFile {
        self.threads.owner.open_file()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(rings) = &self.rings {
            rings.drain(&self.threads);
            rings.close();
        }
        self.threads.drain();
        // A driver may keep the file open for a moment. Unlocking lets the next
        // owner open it at once.
        let unlocked = rustix::fs::flock(&self.open_file().file, FlockOperation::Unlock);
        debug_assert!(unlocked.is_ok(), "the lock was taken when opening");
    }
}
