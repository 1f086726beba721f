//! Verdicts on a server: judged responses and violations of the law.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Result, bail};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Violations to keep for the report.
const KEPT: usize = 20;

/// Counts over one cache's rounds, shared by all connections.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    lies: Mutex<Vec<String>>,
    judged: AtomicU64,
    acknowledged: AtomicU64,
}

/// The reason why a connection stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// The connection broke, as expected when the server is killed.
    Broken,
    /// The server violated the law.
    Lie(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::InvalidData {
            Stop::Lie(error.to_string())
        } else {
            Stop::Broken
        }
    }
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
    pub(crate) fn lie(&self, lie: String) {
        if let Ok(mut lies) = self.lies.lock()
            && lies.len() < KEPT
        {
            lies.push(lie);
        }
    }

    /// Takes steps on a connection until `stop` or until it breaks.
    pub(super) fn drive<C>(
        &self,
        connection: io::Result<C>,
        seed: u64,
        stop: &AtomicBool,
        mut step: impl FnMut(&mut C, &mut Xoshiro256PlusPlus) -> Result<(), Stop>,
    ) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let Ok(mut connection) = connection else {
            return;
        };
        while !stop.load(Ordering::Relaxed) {
            match step(&mut connection, &mut random) {
                Ok(()) => {}
                Err(Stop::Broken) => return,
                Err(Stop::Lie(lie)) => return self.lie(lie),
            }
        }
    }

    /// Fails if there was a violation.
    pub(crate) fn truthful(&self) -> Result<()> {
        match self.lies.lock() {
            Ok(lies) if lies.is_empty() => Ok(()),
            Ok(lies) => bail!("the cache lied:\n{}", lies.join("\n")),
            Err(_) => bail!("a thread of the load panicked"),
        }
    }

    /// Judged responses and acknowledged writes.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.judged), read(&self.acknowledged))
    }
}
