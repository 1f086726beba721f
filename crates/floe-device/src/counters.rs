//! Live counts of bytes and operations, the source of all write-amplification
//! figures.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($(#[doc = $help:literal] $name:ident),* $(,)?) => {
        /// Counts of completed operations. Relaxed atomics, which may be read
        /// at any time.
        #[derive(Debug, Default)]
        pub struct Counters { $(#[doc = $help] pub $name: AtomicU64,)* }

        /// A copy of [`Counters`] at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct CounterSnapshot { $(#[doc = $help] pub $name: u64,)* }

        impl Counters {
            /// Copies every count.
            pub fn snapshot(&self) -> CounterSnapshot {
                CounterSnapshot { $($name: self.$name.load(Relaxed),)* }
            }
        }

        impl CounterSnapshot {
            /// The counts since `earlier`.
            pub fn since(&self, earlier: &CounterSnapshot) -> CounterSnapshot {
                CounterSnapshot { $($name: self.$name.wrapping_sub(earlier.$name),)* }
            }

            /// Each count with its name and meaning, for metrics.
            pub fn named(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), $help, self.$name),)*]
            }
        }
    };
}

counters! {
    /// Completed reads.
    reads,
    /// Bytes read.
    read_bytes,
    /// Completed appends.
    appends,
    /// Bytes appended.
    append_bytes,
    /// Completed writes in place.
    writes,
    /// Bytes written in place.
    write_bytes,
    /// Completed zone resets.
    resets,
    /// Completed zone finishes.
    finishes,
    /// Completed flushes.
    flushes,
    /// Operations that failed, of any kind.
    errors,
    /// Operations that an NVMe drive failed because of a zone's state, or a limit of zones.
    zone_errors,
}

impl Counters {
    /// Adds `n` to a count.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Relaxed);
    }
}

impl CounterSnapshot {
    /// All bytes that the host wrote to the device.
    pub fn written_bytes(&self) -> u64 {
        self.append_bytes + self.write_bytes
    }
}
