//! Verdicts on a server: answers judged, lies told.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};

/// Lies that are kept to be shown.
const KEPT: usize = 20;

/// Counts of one cache's life, written by every connection.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    lies: Mutex<Vec<String>>,
    judged: AtomicU64,
    acknowledged: AtomicU64,
}

impl Verdicts {
    /// An answer was explained by what is allowed.
    pub(super) fn answer_judged(&self) {
        self.judged.fetch_add(1, Ordering::Relaxed);
    }

    /// The server said that a write is done.
    pub(super) fn write_acknowledged(&self) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }

    /// The server answered what it must not.
    pub(super) fn lie(&self, lie: String) {
        if let Ok(mut lies) = self.lies.lock()
            && lies.len() < KEPT
        {
            lies.push(lie);
        }
    }

    /// Fails if a lie was told.
    pub(super) fn truthful(&self) -> Result<()> {
        match self.lies.lock() {
            Ok(lies) if lies.is_empty() => Ok(()),
            Ok(lies) => bail!("the cache lied:\n{}", lies.join("\n")),
            Err(_) => bail!("a thread of the load panicked"),
        }
    }

    /// Answers judged and writes acknowledged.
    pub(super) fn counts(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.judged), read(&self.acknowledged))
    }
}
