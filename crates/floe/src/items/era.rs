//! Eras and versions: `flush_all` takes O(1), and versions are unique.
//!
//! Every item's key in the store begins with the *era* in which it was stored.
//! A flush begins a new era: no read finds items of older ones, and eviction
//! removes them. A delayed flush begins the new era at a given second.
//!
//! Versions grow, also across restarts: microseconds since 1970, or one more
//! than the last version if that is greater.
//!
//! The store keeps the era, the delayed flush and an upper bound of the
//! versions in a record that may be evicted like any value. So there are two
//! records. Both are written before an operation that depends on them is
//! acknowledged, and rewritten before they grow old. **If both are lost, so are
//! all items**: a new era begins.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

/// The keys of the two records.
pub(super) const RECORD_KEYS: [&[u8]; 2] = [b"I0", b"I1"];

/// Versions, in microseconds, that one record allows: ten minutes of them.
pub(super) const VERSIONS_PROMISED: u64 = 600_000_000;

/// How far versions may be ahead of the clock, in microseconds: a day, which
/// 144 restarts in a row use up by each skipping its allowance.
const VERSIONS_AHEAD_MAX: u64 = 86_400_000_000;

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EraRecord {
    /// Grows with every record written; the record with the higher serial is valid.
    pub(super) serial: u64,
    pub(super) era: u32,
    /// The second of the delayed flush; 0 if there is none.
    pub(super) flush_unix_s: u32,
    /// Items with a lower version predate the first record.
    pub(super) version_first: u64,
    /// Every version issued so far is below this.
    pub(super) version_limit: u64,
    /// The identity of the tiny engine in use, and of the ring; 0 without either. Another
    /// engine may hold stale values, and so may this one of keys that were others' then.
    pub(super) tiny: u64,
}

const RECORD_FORM: u8 = 2;
const RECORD_BYTES: usize = 1 + 8 + 4 + 4 + 8 + 8 + 8;

impl EraRecord {
    /// The first record of a cache without records: a new one, or one that has
    /// lost them. Versions issued before a loss may be ahead of the clock, so
    /// new ones skip a day.
    pub(super) fn first(now_unix_s: u64, entropy: u64, is_new: bool, tiny: u64) -> Self {
        let mut seed = [0; 16];
        seed[..8].copy_from_slice(&now_unix_s.to_le_bytes());
        seed[8..].copy_from_slice(&entropy.to_le_bytes());
        let margin = if is_new { 0 } else { VERSIONS_AHEAD_MAX };
        let version_first = now_unix_s.saturating_mul(1_000_000).max(1) + margin;
        EraRecord {
            serial: 0,
            // The low half of a hash.
            era: xxh3_64(&seed) as u32,
            flush_unix_s: 0,
            version_first,
            version_limit: version_first,
            tiny,
        }
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        bytes.push(RECORD_FORM);
        bytes.extend(self.serial.to_le_bytes());
        bytes.extend(self.era.to_le_bytes());
        bytes.extend(self.flush_unix_s.to_le_bytes());
        bytes.extend(self.version_first.to_le_bytes());
        bytes.extend(self.version_limit.to_le_bytes());
        bytes.extend(self.tiny.to_le_bytes());
        bytes.into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; RECORD_BYTES] = bytes.try_into().ok()?;
        let (&form, rest) = bytes.split_first()?;
        let (serial, rest) = rest.split_first_chunk()?;
        let (era, rest) = rest.split_first_chunk()?;
        let (flush, rest) = rest.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (limit, rest) = rest.split_first_chunk()?;
        let (tiny, _) = rest.split_first_chunk()?;
        (form == RECORD_FORM).then_some(EraRecord {
            serial: u64::from_le_bytes(*serial),
            era: u32::from_le_bytes(*era),
            flush_unix_s: u32::from_le_bytes(*flush),
            version_first: u64::from_le_bytes(*first),
            version_limit: u64::from_le_bytes(*limit),
            tiny: u64::from_le_bytes(*tiny),
        })
    }
}

/// The current era and the delayed flush, read by every operation.
#[derive(Debug)]
pub(super) struct Era(AtomicU64);

impl Era {
    pub(super) fn new(era: u32, flush_unix_s: u32) -> Self {
        Era(AtomicU64::new(Self::pack(era, flush_unix_s)))
    }

    fn pack(era: u32, flush_unix_s: u32) -> u64 {
        u64::from(era) << 32 | u64::from(flush_unix_s)
    }

    /// The era and the second of the delayed flush, 0 if there is none.
    pub(super) fn get(&self) -> (u32, u32) {
        let packed = self.0.load(SeqCst);
        ((packed >> 32) as u32, packed as u32)
    }

    pub(super) fn set(&self, era: u32, flush_unix_s: u32) {
        self.0.store(Self::pack(era, flush_unix_s), SeqCst);
    }

    /// The era at `now_unix_s`. A due flush takes effect once and for all: a
    /// clock that steps back does not undo it.
    pub(super) fn current(&self, now_unix_s: impl Fn() -> u64) -> u32 {
        loop {
            let packed = self.0.load(SeqCst);
            let (era, flush) = ((packed >> 32) as u32, packed as u32);
            if flush == 0 || now_unix_s() < u64::from(flush) {
                return era;
            }
            let next = era.wrapping_add(1);
            let swapped = Self::pack(next, 0);
            if self
                .0
                .compare_exchange(packed, swapped, SeqCst, SeqCst)
                .is_ok()
            {
                return next;
            }
        }
    }
}

/// Issues versions up to a durable limit.
#[derive(Debug)]
pub(super) struct Versions {
    next: AtomicU64,
    limit: AtomicU64,
    /// Microseconds of a second at which its versions begin.
    offset: u64,
}

impl Versions {
    /// `entropy` tells the versions of several nodes apart in most cases, so that a client does
    /// not take an item of one for that of another.
    pub(super) fn new(next: u64, limit: u64, entropy: u64) -> Self {
        Versions {
            next: AtomicU64::new(next),
            limit: AtomicU64::new(limit),
            offset: entropy % 500_000,
        }
    }

    fn at(&self, now_unix_s: u64) -> u64 {
        now_unix_s.saturating_mul(1_000_000) + self.offset
    }

    /// A version above all earlier ones; `None` at the limit.
    pub(super) fn issue(&self, now_unix_s: u64) -> Option<u64> {
        let now = self.at(now_unix_s);
        let issued = self
            .next
            .fetch_update(SeqCst, SeqCst, |next| {
                let version = next.max(now);
                (version < self.limit.load(SeqCst)).then(|| version + 1)
            })
            .ok()?;
        Some(issued.max(now))
    }

    /// The next limit to make durable.
    pub(super) fn wanted_limit(&self, now_unix_s: u64) -> u64 {
        let now = self.at(now_unix_s);
        let from = self.next.load(SeqCst).max(now);
        from.saturating_add(VERSIONS_PROMISED)
    }

    /// True if half of the allowance is used up. An idle cache uses none, so it
    /// writes no records.
    pub(super) fn is_low(&self) -> bool {
        let half = self
            .limit
            .load(SeqCst)
            .saturating_sub(VERSIONS_PROMISED / 2);
        self.next.load(SeqCst) > half
    }

    pub(super) fn promise(&self, limit: u64) {
        self.limit.fetch_max(limit, SeqCst);
    }
}

/// The second in which a version was issued, by the clock of that time.
pub(super) fn issued_unix_s(version: u64) -> u64 {
    version / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back_and_nothing_else_is() {
        let record = EraRecord {
            serial: 3,
            flush_unix_s: 9,
            version_limit: 1 << 60,
            ..EraRecord::first(1_700_000_000, 5, true, 9)
        };
        let bytes = record.encode();
        assert_eq!(EraRecord::decode(&bytes), Some(record));
        assert_eq!(EraRecord::decode(&bytes[1..]), None);
        assert_eq!(EraRecord::decode(b""), None);
        let mut other = bytes.to_vec();
        other[0] = RECORD_FORM - 1;
        assert_eq!(EraRecord::decode(&other), None);
    }

    #[test]
    fn an_ordered_flush_is_carried_out_once_and_for_good() {
        let era = Era::new(u32::MAX, 10);
        assert_eq!(era.current(|| 9), u32::MAX);
        assert_eq!(era.current(|| 10), 0);
        assert_eq!(era.current(|| 9), 0);
        assert_eq!(era.get(), (0, 0));
    }

    #[test]
    fn versions_grow_within_the_promise() {
        let versions = Versions::new(5_000_000, 5_000_003, 0);
        assert_eq!(versions.issue(1), Some(5_000_000));
        assert_eq!(versions.issue(5), Some(5_000_001));
        assert_eq!(versions.issue(6), None);
        versions.promise(7_000_000);
        assert_eq!(versions.issue(6), Some(6_000_000));
        assert_eq!(versions.issue(5), Some(6_000_001));
        assert!(versions.is_low());
    }
}
