//! Access times of items: a hint in a table of fixed size, lost on restart and
//! when another item takes the entry.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Entries of the table, 8 bytes each.
const PLACES: usize = 1 << 16;

/// The last access of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// It was read since it was stored.
    pub was_read: bool,
    /// The last read, or the time of storing if there was none; seconds since 1970.
    pub last_unix_s: u64,
}

/// Last reads by item version. A version is unique, so storing a key again
/// starts without reads.
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
        // Fibonacci hashing spreads consecutive versions.
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
        // Another item may replace the entry, but a lookup never returns its time.
        for version in 8..500_000 {
            accesses.note(version, 1);
        }
        assert!(matches!(accesses.last(7), None | Some(1_700_000_000)));
    }
}
