//! A line on the terminal that shows the progress of long work.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::output::size;

/// Time between two changes of the line.
const STEP: Duration = Duration::from_millis(500);

/// Progress on standard error; none if that is no terminal.
pub(super) struct Progress {
    what: &'static str,
    began: Instant,
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    pub(super) fn new(what: &'static str) -> Self {
        Progress {
            what,
            began: Instant::now(),
            shown: None,
            is_terminal: io::stderr().is_terminal(),
        }
    }

    /// Shows bytes done and in all.
    pub(super) fn show(&mut self, done: u64, all: u64) {
        let is_due = self.shown.is_none_or(|shown| shown.elapsed() >= STEP);
        if !self.is_terminal || !is_due {
            return;
        }
        self.shown = Some(Instant::now());
        let seconds = self.began.elapsed().as_secs_f64();
        let rate = (done as f64 / seconds.max(1e-9)) as u64;
        let share = 100.0 * done as f64 / all.max(1) as f64;
        eprint!(
            "\r\x1b[K{}: {share:.0} %, {} of {}, {}/s",
            self.what,
            size(done),
            size(all),
            size(rate)
        );
        // Without a terminal nothing is shown.
        let _ = io::stderr().flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}
