//! The blocks and the load of a cache as cleaning policies see them.

use std::time::Duration;

use crate::Tick;

/// The position of a block on its backing device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The volume.
    pub volume: u16,
    /// The offset of the block's first byte.
    pub offset_bytes: u64,
}

/// The blocks of a cache, by number.
pub trait Blocks {
    /// The position of `block`, which is dirty.
    fn place(&self, block: u32) -> Place;
}

/// The requests that the cache serves, as far as cleaning cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that have started and not ended.
    pub in_flight: u32,
    /// When the last request started.
    pub last_request: Tick,
}

impl Load {
    /// The moment from which on no request has started for `milliseconds`.
    pub(super) fn idle_at(&self, milliseconds: u32) -> Tick {
        self.last_request + Duration::from_millis(u64::from(milliseconds))
    }
}
