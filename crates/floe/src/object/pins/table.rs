//! The pins, and the bytes that are kept of each.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use floe_core::chunk::{Eviction, Plan};
use floe_core::layout::ZoneLife;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use tokio::task::JoinError;

use super::file::{self, SavedPin};

/// The zones that are looked at ahead of eviction: this share of all beside those that it frees
/// at once, and at most a quarter, so that what is written again stays out of sight.
const AHEAD_SHARE: usize = 16;
const AHEAD_SHARE_MAX: usize = 4;

/// Most pins: each object that is looked at is compared with all of them.
pub(super) const PINS_MAX: usize = 64;

/// Most bytes of a bucket's name and of a prefix; longer ones match no object.
const NAME_BYTES_MAX: usize = 1024;

/// A prefix of the objects of a bucket that stay in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The bucket.
    pub bucket: String,
    /// The prefix of their keys; an empty one is that of all keys.
    pub prefix: String,
    /// Most bytes that are kept of them.
    pub cap_bytes: u64,
    /// Bytes that would have been evicted, and are kept.
    pub kept_bytes: u64,
}

/// Why a set of objects cannot be pinned, or no longer be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The cache keeps no pins.
    #[error(
        "this cache keeps no pins: chunk.eviction = `clru` evicts chunk by chunk, or object.pinned_percent is 0"
    )]
    Impossible,
    /// There are too many pins.
    #[error("there are {PINS_MAX} pins, which is the most; a shorter prefix covers more objects")]
    TooMany,
    /// The name cannot be that of objects.
    #[error(
        "no object has such a name: it has no bucket, a zero byte, or more than {NAME_BYTES_MAX} bytes"
    )]
    Name,
    /// The pins could not be saved, and are as before; after a restart they may be as asked.
    #[error("the pins could not be saved in {path} (object.pins): {error}")]
    Save {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

impl PinError {
    /// A task that saves pins panicked.
    pub(super) fn interrupted(panic: JoinError) -> Self {
        PinError::Save {
            path: PathBuf::new(),
            error: io::Error::other(panic),
        }
    }
}

/// A pin, and what is kept of it.
#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) saved: SavedPin,
    pub(super) account: Arc<Mutex<Account>>,
}

impl Pinned {
    fn new(saved: SavedPin) -> Arc<Self> {
        Arc::new(Pinned {
            saved,
            account: Arc::default(),
        })
    }

    fn covers(&self, bucket: &str, key: &str) -> bool {
        self.saved.bucket == bucket && key.starts_with(&self.saved.prefix)
    }

    pub(super) fn is_of(&self, bucket: &str, prefix: &str) -> bool {
        self.saved.bucket == bucket && self.saved.prefix == prefix
    }

    pub(super) fn kept_bytes(&self) -> u64 {
        self.account.lock().bytes()
    }

    pub(super) fn cap_bytes(&self, limit: u64) -> u64 {
        self.saved.cap_bytes.map_or(limit, |cap| cap.min(limit))
    }
}

/// The pins of a cache.
#[derive(Debug)]
pub(in crate::object) struct Pins {
    /// Without one they are forgotten at the end.
    path: Option<PathBuf>,
    /// Most bytes that are kept of all pins together; 0 if none are.
    pub(super) limit_bytes: u64,
    pub(super) table: RwLock<Vec<Arc<Pinned>>>,
    /// Counts the changes of the table.
    pub(super) changes: AtomicU64,
    /// The task that keeps what is pinned runs.
    pub(super) is_kept: AtomicBool,
    /// Held while pins change.
    pub(super) changing: tokio::sync::Mutex<()>,
}

impl Pins {
    /// The pins in the file of this path, if there is one.
    pub(in crate::object) fn open(path: &Path, plan: &Plan, percent: u32) -> io::Result<Self> {
        let limit_bytes = limit_bytes(plan, percent);
        let path = Some(path).filter(|path| !path.as_os_str().is_empty());
        let saved = path.map_or(Ok(Vec::new()), file::load)?;
        let mut table: Vec<Arc<Pinned>> = saved.into_iter().map(Pinned::new).collect();
        sort(&mut table);
        let has_names = table
            .iter()
            .all(|pin| is_name(&pin.saved.bucket, &pin.saved.prefix));
        let is_twice =
            |pins: &[Arc<Pinned>]| pins[0].is_of(&pins[1].saved.bucket, &pins[1].saved.prefix);
        if !has_names || table.len() > PINS_MAX || table.windows(2).any(is_twice) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it has a pin twice or without a bucket, or more than {PINS_MAX}"),
            ));
        }
        if !table.is_empty() && limit_bytes == 0 {
            tracing::warn!(pins = table.len(), "{}", PinError::Impossible);
        }
        Ok(Pins {
            path: path.map(Path::to_path_buf),
            limit_bytes,
            table: RwLock::new(table),
            changes: AtomicU64::new(0),
            is_kept: AtomicBool::new(false),
            changing: tokio::sync::Mutex::default(),
        })
    }

    /// The longest pin of an object.
    pub(super) fn of(&self, bucket: &str, key: &str) -> Option<Arc<Pinned>> {
        let table = self.table.read();
        let pins = table.iter().filter(|pin| pin.covers(bucket, key));
        pins.max_by_key(|pin| pin.saved.prefix.len()).cloned()
    }

    pub(super) fn kept_bytes(&self) -> u64 {
        self.table.read().iter().map(|pin| pin.kept_bytes()).sum()
    }

    /// True without pins, for the task that keeps them: a later pin starts another.
    pub(super) fn has_ended(&self) -> bool {
        let table = self.table.read();
        if table.is_empty() {
            self.is_kept.store(false, SeqCst);
        }
        table.is_empty()
    }

    pub(super) fn describe(&self, pin: &Pinned) -> Pin {
        Pin {
            bucket: pin.saved.bucket.clone(),
            prefix: pin.saved.prefix.clone(),
            cap_bytes: pin.cap_bytes(self.limit_bytes),
            kept_bytes: pin.kept_bytes(),
        }
    }

    /// Saves `pins`, then takes them for the table. The caller holds `changing`.
    pub(super) async fn replace(&self, pins: Vec<Arc<Pinned>>) -> Result<(), PinError> {
        if let Some(path) = self.path.clone() {
            let saved: Vec<SavedPin> = pins.iter().map(|pin| pin.saved.clone()).collect();
            let saving = tokio::task::spawn_blocking(move || {
                file::save(&path, &saved).map_err(|error| PinError::Save { path, error })
            });
            saving.await.map_err(PinError::interrupted)??;
        }
        *self.table.write() = pins;
        self.changes.fetch_add(1, SeqCst);
        Ok(())
    }
}

pub(super) fn sort(pins: &mut [Arc<Pinned>]) {
    fn name(pin: &Pinned) -> (&str, &str) {
        (&pin.saved.bucket, &pin.saved.prefix)
    }
    pins.sort_unstable_by(|one, other| name(one).cmp(&name(other)));
}

pub(super) fn is_name(bucket: &str, prefix: &str) -> bool {
    let has_zero = bucket.contains('\0') || prefix.contains('\0');
    let is_short = bucket.len().max(prefix.len()) <= NAME_BYTES_MAX;
    !bucket.is_empty() && !has_zero && is_short
}

/// The bytes that are kept of a pin, by the zone that they were written to.
#[derive(Debug, Default)]
pub(super) struct Account {
    zones: HashMap<ZoneLife, u64>,
    /// Bytes in zones and on their way.
    bytes: u64,
}

impl Account {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes are on their way to a zone.
    pub(super) fn reserve(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Reserved bytes are in a zone, or in none.
    pub(super) fn settle(&mut self, bytes: u64, at: Option<ZoneLife>) {
        match at {
            Some(life) => *self.zones.entry(life).or_default() += bytes,
            None => self.bytes -= bytes,
        }
    }

    /// Keeps the zones of which this is true.
    pub(super) fn retain(&mut self, is_there: impl Fn(ZoneLife) -> bool) {
        self.zones.retain(|life, bytes| {
            let keeps = is_there(*life);
            self.bytes -= if keeps { 0 } else { *bytes };
            keeps
        });
    }
}

/// The zones ahead of eviction that are looked at.
pub(super) fn zones_ahead(plan: &Plan) -> usize {
    let zones = plan.data_zones().count();
    let freed_at_once = plan.water.low.saturating_sub(plan.water.high) as usize;
    let ahead = zones / AHEAD_SHARE + 1 + freed_at_once;
    ahead.min(zones / AHEAD_SHARE_MAX).max(1)
}

/// The most bytes of `percent` of the zones that keep their values: zones that are free, open or
/// looked at hold none for long. 0 if there is no order of zones.
fn limit_bytes(plan: &Plan, percent: u32) -> u64 {
    if plan.eviction == Eviction::Clru {
        return 0;
    }
    let others = zones_ahead(plan) + (plan.water.low + plan.open_zones) as usize;
    let zones = plan.data_zones().count().saturating_sub(others) as u64;
    zones * plan.geometry.zone_capacity / 100 * u64::from(percent)
}

#[cfg(test)]
mod tests {
    use floe_core::ZoneId;
    use floe_core::layout::Generation;

    use super::*;

    #[test]
    fn bytes_count_in_their_zones() {
        let mut account = Account::default();
        let life = |zone| ZoneLife::new(ZoneId(zone), Generation(7));
        account.reserve(10);
        account.reserve(1);
        account.reserve(100);
        account.settle(10, Some(life(1)));
        account.settle(100, Some(life(2)));
        assert_eq!(account.bytes(), 111);
        account.settle(1, None);
        account.retain(|of| of != life(1));
        assert_eq!(account.bytes(), 100);
        account.retain(|_| false);
        assert_eq!((account.bytes(), account.zones.len()), (0, 0));
    }
}
