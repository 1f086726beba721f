//! The progress line. It has its own thread, so that it updates in virtual
//! time, too.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

use super::Progress;
use crate::metrics::Recorder;

const REFRESH: Duration = Duration::from_millis(250);

/// Shows the totals of a recorder until it is dropped.
pub(super) struct Display {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Display {
    pub(super) fn start(
        progress: Progress,
        name: &str,
        recorder: &Arc<Recorder>,
        requests: Option<u64>,
    ) -> Self {
        if progress == Progress::Off || !std::io::stderr().is_terminal() {
            return Display {
                stop: None,
                thread: None,
            };
        }
        let bar = bar(name, requests);
        let recorder = Arc::clone(recorder);
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let mut last = (Instant::now(), recorder.live());
            while stopped.recv_timeout(REFRESH) == Err(RecvTimeoutError::Timeout) {
                last = refresh(&bar, &recorder, last);
            }
            bar.finish_and_clear();
        });
        Display {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread only draws, so a panic leaves nothing to clean up.
            let _ = thread.join();
        }
    }
}

type Seen = (Instant, crate::metrics::LiveCounts);

fn refresh(bar: &ProgressBar, recorder: &Recorder, (then, before): Seen) -> Seen {
    let (now, counts) = (Instant::now(), recorder.live());
    let seconds = now.duration_since(then).as_secs_f64().max(1e-3);
    let rate = |new: u64, old: u64| (new.saturating_sub(old) as f64 / seconds) as u64;
    let (p50, p99) = recorder.live_latency();
    let hit_percent = 100.0 * counts.hits as f64 / counts.reads.max(1) as f64;
    bar.set_position(counts.requests);
    bar.set_message(format!(
        "{}/s  {} req/s  hit {hit_percent:.1} %  p50 {p50:.1?}  p99 {p99:.1?}",
        HumanBytes(rate(counts.bytes, before.bytes)),
        HumanCount(rate(counts.requests, before.requests)),
    ));
    (now, counts)
}

fn bar(name: &str, requests: Option<u64>) -> ProgressBar {
    let (bar, template) = match requests {
        Some(requests) => (
            ProgressBar::new(requests),
            "{prefix} {bar:24} {human_pos}/{human_len} {eta}  {msg}",
        ),
        None => (
            ProgressBar::new_spinner(),
            "{prefix} {spinner} {elapsed} {human_pos}  {msg}",
        ),
    };
    // The templates are valid constants; the fallback is a plain style.
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar.set_prefix(name.to_owned());
    bar
}
