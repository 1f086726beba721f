//! Requests as promotion policies see them, and their answers.

use std::ops::Range;

use crate::Tick;

/// One aligned range of the smallest block size of one volume: the volume in the
/// upper 16 bits, the range's number in the lower 48.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Granule(pub(super) u64);

impl Granule {
    const NUMBER_BITS: u32 = 48;

    /// Range `number` of `volume`. With granules of 4 KiB, 48 bits address 1 EiB;
    /// the bits above are ignored.
    pub const fn new(volume: u16, number: u64) -> Self {
        let number = number & ((1 << Self::NUMBER_BITS) - 1);
        Granule((volume as u64) << Self::NUMBER_BITS | number)
    }

    /// The volume and the number.
    pub(super) const fn parts(self) -> (u16, u64) {
        let number = self.0 & ((1 << Self::NUMBER_BITS) - 1);
        ((self.0 >> Self::NUMBER_BITS) as u16, number)
    }

    /// The granule that is `count` after this one.
    const fn plus(self, count: u64) -> Self {
        Granule(self.0 + count)
    }
}

/// A request as promotion policies see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The volume.
    pub volume: u16,
    /// The numbers of the granules that the request touches.
    pub granules: Range<u64>,
    /// It writes.
    pub write: bool,
    /// The cache has at least one of its granules.
    pub partly_cached: bool,
    /// Bytes of the cache that hold blocks.
    pub used_bytes: u64,
    /// Bytes of the cache.
    pub capacity_bytes: u64,
    /// The time.
    pub now: Tick,
}

impl Sighting {
    pub(super) fn granules(&self) -> impl Iterator<Item = Granule> + use<> {
        let first = Granule::new(self.volume, self.granules.start);
        let count = self.granules.end.saturating_sub(self.granules.start);
        (0..count).map(move |number| first.plus(number))
    }
}

/// The answer about the missing granules of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Insert all of them.
    All,
    /// Insert none of them.
    None,
    /// Insert those that [`Promotion::admits`](super::Promotion::admits).
    Some,
}

impl Verdict {
    /// The verdict that follows from decisions about single granules.
    pub(super) fn of(decisions: impl Iterator<Item = bool>) -> Verdict {
        let (mut admitted, mut rejected) = (false, false);
        for admits in decisions {
            admitted |= admits;
            rejected |= !admits;
        }
        match (admitted, rejected) {
            (_, false) => Verdict::All,
            (false, true) => Verdict::None,
            (true, true) => Verdict::Some,
        }
    }
}
