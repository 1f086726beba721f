//! The write-intent bits that are durable.
//!
//! A bit is set before the first write to blocks of its addresses: such a write
//! changes the cache device and the backing device one after the other, or in place
//! before it is named dirty. After an unclean stop, clean blocks of these addresses
//! may differ from the backing device, and are left out.
//!
//! A bit whose area has no writer for a while is cleared, once all blocks of an earlier
//! run are read, and both devices have the writes of before durably. A writer counts itself before it asks for its bits, so
//! that a bit is either set while it writes, or made durable again by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use floe_core::layout::volume::{BlockRecord, INTENT_BITS, IntentBitmap, intent_bits};
use floe_core::volume::Extent;
use parking_lot::Mutex;

/// Counters of writers. Bits share them: that keeps some bits for longer.
const COUNTERS: usize = 4096;

#[derive(Debug)]
pub(super) struct Intents {
    durable: Bits,
    /// Areas that had a writer since [`Intents::idle`] was called last.
    used: Bits,
    /// Writers now.
    writers: Box<[AtomicU32]>,
    /// Held while bits are changed and their records enqueued.
    order: Mutex<()>,
}

impl Intents {
    /// The bits of `durable`, which an earlier run has left, without writers.
    pub(super) fn new(durable: &IntentBitmap) -> Self {
        let (words, _) = durable.as_chunks::<8>();
        let words = words.iter().map(|word| u64::from_le_bytes(*word).into());
        Intents {
            durable: Bits(words.collect()),
            used: Bits::new(),
            writers: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            order: Mutex::new(()),
        }
    }

    /// True if all bits of `extent` are durable.
    pub(super) fn has_all(&self, extent: Extent) -> bool {
        intent_bits(extent).all(|bit| self.durable.has(bit))
    }

    /// Records of the bits of `extent` that are not.
    pub(super) fn missing(&self, extent: Extent) -> impl Iterator<Item = BlockRecord> {
        let missing = intent_bits(extent).filter(|bit| !self.durable.has(*bit));
        missing.map(|bit| BlockRecord::Intent { bit })
    }

    /// Notes that the bits of `extent` are durable.
    pub(super) fn set(&self, extent: Extent) {
        intent_bits(extent).for_each(|bit| self.durable.set(bit));
    }

    /// Enqueues records so that those of one bit keep the order of its changes.
    pub(super) fn in_order<T>(&self, enqueue: impl FnOnce(&Self) -> T) -> T {
        let _order = self.order.lock();
        enqueue(self)
    }

    /// Durable bits whose areas had no writer since the last call, and have none.
    pub(super) fn idle(&self) -> Vec<u32> {
        let mut idle = Vec::new();
        for word in 0..self.durable.0.len() {
            let used = self.used.0[word].swap(0, SeqCst);
            let mut rest = self.durable.0[word].load(SeqCst) & !used;
            while rest != 0 {
                let bit = word as u32 * u64::BITS + rest.trailing_zeros();
                rest &= rest - 1;
                if self.counter(bit).load(SeqCst) == 0 {
                    idle.push(bit);
                }
            }
        }
        idle
    }

    /// Takes back that `bit` is durable, unless its area has had a writer since
    /// [`Intents::idle`]. Returns whether it did.
    pub(super) fn clear(&self, bit: u32) -> bool {
        self.durable.clear(bit);
        let is_idle = self.counter(bit).load(SeqCst) == 0 && !self.used.has(bit);
        if !is_idle {
            self.durable.set(bit);
        }
        is_idle
    }

    fn counter(&self, bit: u32) -> &AtomicU32 {
        &self.writers[bit as usize % COUNTERS]
    }
}

/// A write to the blocks of an extent, which runs.
#[derive(Debug)]
pub(in crate::volume) struct Writer {
    intents: Arc<Intents>,
    extent: Extent,
}

impl Writer {
    pub(super) fn new(intents: &Arc<Intents>, extent: Extent) -> Self {
        for bit in intent_bits(extent) {
            intents.counter(bit).fetch_add(1, SeqCst);
            intents.used.set(bit);
        }
        Writer {
            intents: Arc::clone(intents),
            extent,
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        for bit in intent_bits(self.extent) {
            self.intents.counter(bit).fetch_sub(1, SeqCst);
        }
    }
}

#[derive(Debug)]
struct Bits(Box<[AtomicU64]>);

impl Bits {
    fn new() -> Self {
        let words = INTENT_BITS / u64::BITS;
        Bits((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    fn has(&self, bit: u32) -> bool {
        let (word, mask) = place(bit);
        self.0[word].load(SeqCst) & mask != 0
    }

    fn set(&self, bit: u32) {
        let (word, mask) = place(bit);
        self.0[word].fetch_or(mask, SeqCst);
    }

    fn clear(&self, bit: u32) {
        let (word, mask) = place(bit);
        self.0[word].fetch_and(!mask, SeqCst);
    }
}

fn place(bit: u32) -> (usize, u64) {
    ((bit / u64::BITS) as usize, 1 << (bit % u64::BITS))
}
