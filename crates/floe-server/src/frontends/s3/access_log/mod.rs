//! The access log: a line of JSON for each request, written by a thread of its own.
//!
//! A request never waits for it: its line is queued, or dropped and counted.

mod body;
mod entry;
mod record;
mod writer;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::{ServerConfigError, problem};
use crate::metrics::Counter;

use self::entry::Entry;
use self::writer::{Message, Output, Writer};

pub(super) use self::body::RecordedBody;
pub(super) use self::entry::Asked;
pub(super) use self::record::{Record, Verified};

/// Most lines that wait for the thread.
const LINES_MAX: usize = 4096;

/// Longest wait for the thread at the end.
const END_TIMEOUT: Duration = Duration::from_secs(5);

const SETTING: &str = "s3.access_log";

/// The log of one frontend.
pub(super) struct AccessLog {
    is_on: AtomicBool,
    /// Started when the log is first on.
    thread: OnceLock<Thread>,
    next: Arc<Mutex<Option<Output>>>,
    dropped: Arc<Counter>,
}

struct Thread {
    queue: SyncSender<Message>,
    /// Closed when the thread has ended.
    ended: Mutex<Receiver<()>>,
}

/// An opened log, to take effect; none turns the log off.
pub(super) struct Opened(Option<Output>);

impl Opened {
    /// Opens `path`.
    ///
    /// # Errors
    /// It cannot be opened for writing.
    pub(super) fn new(path: &Path) -> Result<Self, ServerConfigError> {
        if path.as_os_str().is_empty() {
            return Ok(Opened(None));
        }
        let opened = Output::open(path).map_err(|error| {
            problem(
                SETTING,
                &format!("`{}` cannot be opened for writing: {error}", path.display()),
                "name a file in a folder that exists and that this user may write, or `-` for \
                 standard output",
            )
        });
        opened.map(|output| Opened(Some(output)))
    }
}

impl AccessLog {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(AccessLog {
            is_on: AtomicBool::new(false),
            thread: OnceLock::new(),
            next: Arc::default(),
            dropped: Arc::default(),
        })
    }

    /// Writes the lines of later requests to `opened`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn switch_to(&self, opened: Opened) -> std::io::Result<()> {
        let Opened(output) = opened;
        let is_on = output.is_some();
        if is_on && self.thread.get().is_none() {
            let thread = self.start()?;
            // Only a start and a reload switch, one at a time.
            let _ = self.thread.set(thread);
        }
        *self.next.lock() = Some(output.unwrap_or(Output::None));
        if let Some(thread) = self.thread.get() {
            // A full queue wakes the thread as well.
            let _ = thread.queue.try_send(Message::Switched);
        }
        self.is_on.store(is_on, Relaxed);
        Ok(())
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Lines that were not written.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.get()
    }

    fn write(&self, entry: Box<Entry>) {
        let queued = self
            .thread
            .get()
            .map(|thread| thread.queue.try_send(Message::Line(entry)));
        if !matches!(queued, Some(Ok(()))) {
            self.dropped.add(1);
        }
    }

    fn start(&self) -> std::io::Result<Thread> {
        let (queue, lines) = sync_channel(LINES_MAX);
        let (end, ended) = sync_channel::<()>(0);
        let writer = Writer::new(Arc::clone(&self.next), Arc::clone(&self.dropped));
        let thread = std::thread::Builder::new().name("s3-access-log".into());
        thread.spawn(move || {
            writer.run(&lines);
            drop(end);
        })?;
        Ok(Thread {
            queue,
            ended: Mutex::new(ended),
        })
    }
}

impl Drop for AccessLog {
    /// Waits until the queued lines are written.
    fn drop(&mut self) {
        if let Some(Thread { queue, ended }) = self.thread.take() {
            drop(queue);
            let _ = ended.into_inner().recv_timeout(END_TIMEOUT);
        }
    }
}

#[cfg(test)]
mod tests;
