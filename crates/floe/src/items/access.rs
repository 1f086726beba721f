//! When items were last read: a hint in memory of fixed size. It forgets at
//! restarts and where two items share a place.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Items remembered at once; half a MiB.
const PLACES: usize = 1 << 16;

/// What is known of an item's reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Whether it was read since it was stored.
    pub was_read: bool,
    /// When it was last read, or else stored; seconds since 1970.
    pub last_unix_s: u64,
}

/// The last reads, by version, which is unique: who stores a key anew begins anew.
#[derive(Debug)]
pub(super) struct Accesses(Box<[AtomicU64]>);

impl Accesses {
    pub(super) fn new() -> Self {
        Accesses((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn note(&self, version: u64, now_unix_s: u64) {
        let (place, tag) = self.place(version);
        // Seconds fit 32 bits until 2106.
        place.store(tag << 32 | (now_unix_s & 0xffff_ffff), Relaxed);
    }

    /// The last read of `version`, in seconds since 1970.
    pub(super) fn last(&self, version: u64) -> Option<u64> {
        let (place, tag) = self.place(version);
        let found = place.load(Relaxed);
        (found >> 32 == tag && found != 0).then_some(found & 0xffff_ffff)
    }

    fn place(&self, version: u64) -> (&AtomicU64, u64) {
        // Fibonacci hashing: versions are close to each other.
        let mixed = version.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (mixed >> 48) as usize % PLACES;
        (&self.0[place], (mixed >> 8) & 0xffff_ffff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_remembered_for_its_version_only() {
        let accesses = Accesses::new();
        assert_eq!(accesses.last(7), None);
        accesses.note(7, 1_700_000_000);
        assert_eq!(accesses.last(7), Some(1_700_000_000));
        assert_eq!(accesses.last(8), None);
        // Another item may take the place; it is never taken for this one.
        for version in 8..500_000 {
            accesses.note(version, 1);
        }
        assert!(matches!(accesses.last(7), None | Some(1_700_000_000)));
    }
}
