//! Latency of gets served from memory. It is counted per batch, to read the
//! clock twice per batch instead of once per get.

use crate::frontends::memcached::counters::Counters;
use crate::frontends::memcached::execute::Context;
use crate::frontends::memcached::latency::GetResult;

/// Gets of the current batch.
#[derive(Default)]
pub(super) struct BatchGets {
    hits: u64,
    misses: u64,
}

impl BatchGets {
    /// Records the arrival of a batch.
    pub(super) fn begin(&mut self, context: &mut Context) {
        context.arrived = context.frontend.clock.now();
        *self = BatchGets::default();
    }

    pub(super) fn hit(&mut self, counters: &Counters) {
        counters.get_hits_memory.add(1);
        self.hits += 1;
    }

    pub(super) fn miss(&mut self, counters: &Counters) {
        counters.get_misses.add(1);
        self.misses += 1;
    }

    /// Records the latency of the batch's gets so far.
    pub(super) fn end(&self, context: &Context) {
        for (result, gets) in [
            (GetResult::HitMemory, self.hits),
            (GetResult::Miss, self.misses),
        ] {
            if gets > 0 {
                context.note_gets(result, gets);
            }
        }
    }
}
