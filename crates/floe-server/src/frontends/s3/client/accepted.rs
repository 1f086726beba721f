//! Requests that the origin has accepted a short time ago.

use std::collections::HashMap;
use std::time::Duration;

use floe_core::Tick;
use parking_lot::Mutex;

use super::judged::Judged;
use super::signature::Digest;

/// Most acceptances of one generation. Two are kept, in at most some 20 MiB.
const GENERATION_MAX: usize = 32_768;

/// Acceptances by the hash of the whole request.
pub(super) struct Accepted {
    ttl: Duration,
    generations: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    young: HashMap<Digest, Acceptance>,
    old: HashMap<Digest, Acceptance>,
}

struct Acceptance {
    judged: Judged,
    until: Tick,
}

impl Accepted {
    pub(super) fn new(ttl: Duration) -> Self {
        Accepted {
            ttl,
            generations: Mutex::default(),
        }
    }

    /// Remembers that the origin accepted a request at `asked`; `rest` is what remained then of
    /// the life of its signature.
    pub(super) fn insert(&self, digest: Digest, judged: Judged, asked: Tick, rest: Duration) {
        let life = self.ttl.min(rest).as_nanos() as u64;
        if life == 0 {
            return;
        }
        let until = Tick(asked.0.saturating_add(life));
        let mut generations = self.generations.lock();
        if generations.young.len() >= GENERATION_MAX {
            generations.old = std::mem::take(&mut generations.young);
        }
        let acceptance = Acceptance { judged, until };
        generations.young.insert(digest, acceptance);
    }

    /// The version that the origin judged, if the acceptance still holds.
    pub(super) fn get(&self, digest: &Digest, now: Tick) -> Option<Judged> {
        let generations = self.generations.lock();
        let found = generations.young.get(digest);
        let found = found.or_else(|| generations.old.get(digest))?;
        (now < found.until).then(|| found.judged.clone())
    }
}
