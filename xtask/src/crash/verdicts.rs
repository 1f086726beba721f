//! Verdicts on a server: judged responses and violations of the law.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};

/// Violations to keep for the report.
const KEPT: usize = 20;

/// Counts over one cache's rounds, shared by all connections.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    lies: Mutex<Vec<String>>,
    judged: AtomicU64,
    acknowledged: AtomicU64,
}

impl Verdicts {
    /// Counts a correct response.
    pub(super) fn answer_judged(&self) {
        self.judged.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an acknowledged write.
    pub(super) fn write_acknowledged(&self) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a violation.
    pub(super) fn lie(&self, lie: String) {
        if let Ok(mut lies) = self.lies.lock()
            && lies.len() < KEPT
        {
            lies.push(lie);
        }
    }

    /// Fails if there was a violation.
    pub(super) fn truthful(&self) -> Result<()> {
        match self.lies.lock() {
            Ok(lies) if lies.is_empty() => Ok(()),
            Ok(lies) => bail!("the cache lied:\n{}", lies.join("\n")),
            Err(_) => bail!("a thread of the load panicked"),
        }
    }

    /// Judged responses and acknowledged writes.
    pub(super) fn counts(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.judged), read(&self.acknowledged))
    }
}
