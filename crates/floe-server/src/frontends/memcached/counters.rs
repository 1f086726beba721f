//! Counters of the memcached frontend. Each thread has its own, so that counting
//! touches no shared cache line; readers add them up.

use super::latency::GetLatencies;
use crate::metrics::Count;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one thread.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: Count,)*
            /// Latencies of gets.
            pub(crate) get_latencies: GetLatencies,
        }

        /// The sum over all threads at one moment.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Totals {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl Totals {
            pub(super) fn add(&mut self, counters: &Counters) {
                $(self.$name += counters.$name.get();)*
            }

            /// The counts since `earlier`.
            pub(super) fn since(&self, earlier: &Totals) -> Totals {
                Totals { $($name: self.$name.saturating_sub(earlier.$name),)* }
            }
        }
    };
}

counters! {
    /// Connections accepted.
    opened,
    /// Connections ended.
    closed,
    /// Connections rejected because too many were open.
    rejected,
    /// Connections that could not be accepted.
    accept_errors,
    /// Connections ended because they were idle for too long.
    idle_kicks,
    /// Connections ended because a transfer made no progress for too long.
    stalled,
    /// Connections ended because the client was below the least rate.
    slow,
    /// Connections ended because the client was the slowest while memory was short.
    evicted,
    /// Connections ended in the middle of a value or a response by a shutdown.
    cut_off,
    /// Connections ended by a network error or an invalid protocol.
    broken,
    /// Bytes read.
    read_bytes,
    /// Bytes written.
    written_bytes,
    /// Keys looked up.
    gets,
    /// Keys found in memory.
    get_hits_memory,
    /// Keys found on flash.
    get_hits_flash,
    /// Keys not found.
    get_misses,
    /// Values received for storing.
    sets,
    /// Touches, including those of `gat`.
    touches,
    /// Touches that found their item.
    touch_hits,
    /// Deletes that found their item.
    delete_hits,
    /// Deletes that found no item.
    delete_misses,
    /// Increments that found their item.
    incr_hits,
    /// Increments that found no item.
    incr_misses,
    /// Decrements that found their item.
    decr_hits,
    /// Decrements that found no item.
    decr_misses,
    /// Compare-and-swaps that succeeded.
    cas_hits,
    /// Compare-and-swaps without an item.
    cas_misses,
    /// Compare-and-swaps with another version.
    cas_badval,
    /// Meta commands.
    metas,
    /// Flushes.
    flushes,
    /// Values rejected as too large.
    too_large,
    /// Values rejected for lack of memory.
    no_memory,
    /// Requests that failed in the store.
    failures,
    /// Authentication attempts.
    auths,
    /// Failed authentication attempts.
    auth_errors,
}
