//! The possible values of a key. A miss is always allowed.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use floe_device::power::PowerSwitch;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A version that a read may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) number: u64,
    /// The second at which it must have expired.
    pub(crate) gone_at_s: u64,
}

/// The result of reading a part of a value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) bytes: Vec<u8>,
    /// Reading failed before the part's end.
    pub(crate) is_cut: bool,
}

/// The versions that a read may return.
pub(crate) struct Oracle {
    keys: Mutex<HashMap<u64, Vec<Version>>>,
    /// Draws the size of a value.
    sizes: fn(&mut StdRng) -> usize,
    powers: Vec<PowerSwitch>,
    counts: Mutex<Counts>,
}

/// Counts of results.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Gets while the device had power: without it every get is a miss.
    pub(crate) gets: u64,
    /// Writes and deletes that were acknowledged.
    pub(crate) writes: u64,
    pub(crate) hits: u64,
    /// Hits of values above 2 KiB.
    pub(crate) large_hits: u64,
    /// Hits of parts of values.
    pub(crate) parts: u64,
    /// Hits at the start of a life, of values from earlier lives; not included
    /// in the other counts.
    pub(crate) warm_hits: u64,
    /// Clients that found the cache closed before they were done.
    pub(crate) turned_away: u64,
}

impl Oracle {
    pub(crate) fn new(sizes: fn(&mut StdRng) -> usize, powers: &[PowerSwitch]) -> Self {
        Oracle {
            keys: Mutex::default(),
            sizes,
            powers: powers.to_vec(),
            counts: Mutex::default(),
        }
    }

    /// The bytes of a version, which identify it.
    pub(crate) fn value(&self, key: u64, number: u64) -> Bytes {
        let mut random = StdRng::seed_from_u64(key << 32 | number);
        let mut bytes = vec![0u8; (self.sizes)(&mut random).max(16)];
        random.fill(&mut bytes[..]);
        bytes[..8].copy_from_slice(&key.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        Bytes::from(bytes)
    }

    /// Until the write is acknowledged, the old and the new version are allowed.
    pub(crate) fn begin(&self, key: u64, version: Version) {
        self.keys.lock().entry(key).or_default().push(version);
    }

    /// The write is acknowledged: only this version is allowed.
    pub(crate) fn acknowledge(&self, key: u64, version: Option<Version>) {
        self.counts.lock().writes += 1;
        self.keys.lock().insert(key, version.into_iter().collect());
    }

    fn allowed(&self, key: u64) -> Vec<Version> {
        self.keys.lock().get(&key).cloned().unwrap_or_default()
    }

    /// Looks a key up with `get` and checks the result: every version that was
    /// allowed at any time during the read is allowed.
    pub(crate) async fn check<Failure>(
        &self,
        key: u64,
        now_s: u64,
        warm: bool,
        get: impl Future<Output = Result<Option<Bytes>, Failure>>,
    ) {
        let before = self.allowed(key);
        let Ok(found) = get.await else {
            return;
        };
        let is_counted = !warm && !self.powers.iter().any(PowerSwitch::is_off);
        self.counts.lock().gets += u64::from(is_counted);
        let Some(found) = found else {
            return;
        };
        let after = self.allowed(key);
        let is_right = |version: &&Version| self.value(key, version.number) == found;
        let right = before.iter().chain(&after).find(is_right);
        let number = found.get(8..16).map(|bytes| {
            let bytes = bytes.try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        });
        let Some(right) = right else {
            panic!("key {key}: a lie, version {number:?}; allowed {before:?} {after:?}");
        };
        assert!(
            now_s < right.gone_at_s,
            "key {key}: version {number:?} was gone at {} and is found at {now_s}",
            right.gone_at_s,
        );
        let mut counts = self.counts.lock();
        counts.warm_hits += u64::from(warm);
        counts.hits += u64::from(is_counted);
        counts.large_hits += u64::from(!warm && found.len() > 2048);
    }

    /// As [`check`](Oracle::check), for a part of the value, clipped to its end.
    pub(crate) async fn check_part(
        &self,
        key: u64,
        part: Range<u64>,
        get: impl Future<Output = Option<Part>>,
    ) {
        let before = self.allowed(key);
        let Some(found) = get.await else {
            return;
        };
        let after = self.allowed(key);
        let is_right = |version: &Version| {
            let whole = self.value(key, version.number);
            let end = (part.end as usize).min(whole.len());
            let expected = &whole[(part.start as usize).min(end)..end];
            match found.is_cut {
                true => expected.starts_with(&found.bytes),
                false => expected == found.bytes,
            }
        };
        assert!(
            before.iter().chain(&after).any(is_right),
            "key {key}: a lie in {part:?}; allowed {before:?} {after:?}"
        );
        self.counts.lock().parts += 1;
    }

    /// A client found the cache closed.
    pub(crate) fn turned_away(&self) {
        self.counts.lock().turned_away += 1;
    }

    /// Sets the count to `but`, which ignores interrupted clients.
    pub(crate) fn forget_turned_away(&self, but: u64) {
        self.counts.lock().turned_away = but;
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock()
    }
}
