//! Latency of gets answered from memory. They are counted by the batch, so that
//! the clock is read twice for each batch and not for each get.

use crate::frontends::memcached::counters::Counters;
use crate::frontends::memcached::execute::Context;
use crate::frontends::memcached::latency::GetResult;

/// Gets of the present batch.
#[derive(Default)]
pub(super) struct Answered {
    hits: u64,
    misses: u64,
}

impl Answered {
    /// A batch has arrived.
    pub(super) fn begin(&mut self, context: &mut Context) {
        context.arrived = context.frontend.clock.now();
        *self = Answered::default();
    }

    pub(super) fn hit(&mut self, counters: &Counters) {
        counters.get_hits_memory.add(1);
        self.hits += 1;
    }

    pub(super) fn miss(&mut self, counters: &Counters) {
        counters.get_misses.add(1);
        self.misses += 1;
    }

    /// The batch has been carried out as far as possible.
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
