//! Values on flash, as parts pass them to each other.

use std::sync::Arc;

use floe_core::chunk::Entry;
use floe_core::hash::KeyHash;
use floe_core::layout::{Generation, LargeDescriptor};

use super::zone_state::{Pin, ZoneStates};

/// A value on flash, with its zone pinned.
pub(crate) struct FlashValue<'e> {
    pub(crate) hash: KeyHash,
    pub(crate) entry: Entry,
    pub(crate) generation: Generation,
    pub(crate) pin: Pin<&'e ZoneStates>,
}

/// A large value whose descriptor is on flash.
pub(crate) struct Published {
    pub(crate) descriptor: Arc<LargeDescriptor>,
    pub(crate) checksum: u32,
}
