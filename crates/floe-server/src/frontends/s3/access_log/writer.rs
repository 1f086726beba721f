//! The thread that writes lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::entry::Entry;
use crate::metrics::Counter;

/// Bytes that are written at once, if so many lines wait.
const BATCH_BYTES: usize = 64 << 10;

/// The name of standard output.
const STANDARD_OUTPUT: &str = "-";

/// The destination of lines.
pub(super) enum Output {
    None,
    Standard,
    File(File),
}

impl Output {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == STANDARD_OUTPUT {
            return Ok(Output::Standard);
        }
        // A pipe without a reader must not hold up the server.
        let at_once = OFlags::NONBLOCK.bits().cast_signed();
        let mut options = OpenOptions::new();
        let options = options.append(true).create(true).custom_flags(at_once);
        let file = options.open(path)?;
        Ok(Output::File(file))
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Output::None => Ok(()),
            Output::Standard => {
                let mut output = io::stdout().lock();
                output.write_all(lines)?;
                output.flush()
            }
            Output::File(file) => file.write_all(lines),
        }
    }
}

pub(super) enum Message {
    Line(Box<Entry>),
    /// There is another output.
    Switched,
}

pub(super) struct Writer {
    output: Output,
    /// The output of later lines.
    next: Arc<Mutex<Option<Output>>>,
    dropped: Arc<Counter>,
    /// The last write failed.
    is_failing: bool,
}

impl Writer {
    pub(super) fn new(next: Arc<Mutex<Option<Output>>>, dropped: Arc<Counter>) -> Self {
        Writer {
            output: Output::None,
            next,
            dropped,
            is_failing: false,
        }
    }

    /// Writes until the log is dropped.
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        let mut lines = Vec::new();
        while let Ok(first) = messages.recv() {
            if let Some(next) = self.next.lock().take() {
                self.output = next;
                self.is_failing = false;
            }
            if self.is_failing {
                // Half a line may be there.
                lines.push(b'\n');
            }
            let mut count = 0;
            let mut message = Some(first);
            while let Some(one) = message {
                if let Message::Line(entry) = one {
                    entry.write_line(&mut lines);
                    count += 1;
                }
                message = match lines.len() < BATCH_BYTES {
                    true => messages.try_recv().ok(),
                    false => None,
                };
            }
            self.write(&lines, count);
            lines.clear();
        }
    }

    fn write(&mut self, lines: &[u8], count: u64) {
        match self.output.write(lines) {
            // The log was turned off while they waited.
            Ok(()) if matches!(self.output, Output::None) => self.dropped.add(count),
            Ok(()) => self.is_failing = false,
            Err(error) => {
                self.dropped.add(count);
                if !self.is_failing {
                    tracing::error!(%error, "s3.access_log cannot be written; its lines are dropped");
                }
                self.is_failing = true;
            }
        }
    }
}
