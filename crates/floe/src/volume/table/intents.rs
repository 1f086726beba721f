//! The write-intent bits that are durable.
//!
//! A bit is set before the first write to blocks of its addresses: such a write
//! changes the cache device and the backing device one after the other, or in place
//! before it is named dirty. After an unclean stop, clean blocks of these addresses
//! may differ from the backing device, and are left out.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use floe_core::layout::volume::{BlockRecord, INTENT_BITS, intent_bits};
use floe_core::volume::Extent;

#[derive(Debug)]
pub(super) struct Intents(Box<[AtomicU64]>);

impl Intents {
    pub(super) fn new() -> Self {
        let words = INTENT_BITS / u64::BITS;
        Intents((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// True if all bits of `extent` are durable.
    pub(super) fn has_all(&self, extent: Extent) -> bool {
        intent_bits(extent).all(|bit| self.has(bit))
    }

    /// Records of the bits of `extent` that are not.
    pub(super) fn missing(&self, extent: Extent) -> impl Iterator<Item = BlockRecord> {
        let missing = intent_bits(extent).filter(|bit| !self.has(*bit));
        missing.map(|bit| BlockRecord::Intent { bit })
    }

    /// Notes that the bits of `extent` are durable.
    pub(super) fn set(&self, extent: Extent) {
        for bit in intent_bits(extent) {
            let (word, mask) = place(bit);
            self.0[word].fetch_or(mask, SeqCst);
        }
    }

    fn has(&self, bit: u32) -> bool {
        let (word, mask) = place(bit);
        self.0[word].load(SeqCst) & mask != 0
    }
}

fn place(bit: u32) -> (usize, u64) {
    ((bit / u64::BITS) as usize, 1 << (bit % u64::BITS))
}
