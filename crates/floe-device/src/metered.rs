//! A wrapper that measures latency, bytes and operations in flight, by kind of operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use floe_core::{Address, Tick, ZoneId};

use crate::buffer::{IoBuf, IoData};
use crate::clock::Clock;
use crate::contract::{Device, OpFuture, Placement, SharedDevice, ZoneReport, answered_below};
use crate::error::{DeviceError, Operation};

/// The operations that are measured.
pub const MEASURED: [Operation; 7] = [
    Operation::Read,
    Operation::Append,
    Operation::Write,
    Operation::Reset,
    Operation::Finish,
    Operation::Flush,
    Operation::Report,
];

/// A device that measures the one below it. An operation lasts from the call
/// until its future completes. An operation whose future is dropped early
/// counts as abandoned.
#[derive(Debug)]
pub struct Metered {
    below: SharedDevice,
    clock: Clock,
    meters: Arc<Meters>,
}

/// Measurements of a [`Metered`] device, by operation.
#[derive(Debug, Default)]
pub struct Meters([Meter; MEASURED.len()]);

/// One kind of operation.
#[derive(Debug, Default)]
pub struct Meter {
    /// Latencies of completed operations, successful or not.
    pub latency: Histogram,
    /// Bytes transferred by successful operations.
    pub bytes: AtomicU64,
    /// Operations that failed.
    pub errors: AtomicU64,
    /// Operations whose future was dropped early.
    pub abandoned: AtomicU64,
    /// Operations in flight.
    pub in_flight: AtomicU64,
}

impl Meters {
    /// The meter of `operation`.
    ///
    /// # Panics
    /// For an operation that is not [`MEASURED`].
    pub fn of(&self, operation: Operation) -> &Meter {
        let index = MEASURED.iter().position(|&kind| kind == operation);
        &self.0[index.expect("the operation is measured")]
    }
}

impl Metered {
    /// Measures `below` by `clock`.
    pub fn new(below: SharedDevice, clock: Clock) -> Self {
        Metered {
            below,
            clock,
            meters: Arc::default(),
        }
    }

    /// The live measurements.
    pub fn meters(&self) -> &Arc<Meters> {
        &self.meters
    }

    fn measure<T: Send + 'static>(
        &self,
        operation: Operation,
        bytes: usize,
        start: impl FnOnce() -> OpFuture<T>,
    ) -> OpFuture<T> {
        let span = Span {
            meters: Arc::clone(&self.meters),
            operation,
            is_over: false,
        };
        span.meter().in_flight.fetch_add(1, Relaxed);
        let started = self.clock.now();
        let clock = self.clock.clone();
        let future = start();
        OpFuture::new(async move {
            let result = future.await;
            span.end(clock.now().since(started), result.is_ok().then_some(bytes));
            result
        })
    }
}

impl Device for Metered {
    answered_below!("metered");

    fn read(&self, at: Address, buf: IoBuf) -> OpFuture<IoBuf> {
        self.measure(Operation::Read, buf.len(), || self.below.read(at, buf))
    }

    fn append(&self, zone: ZoneId, data: IoData, placement: Placement) -> OpFuture<Address> {
        self.measure(Operation::Append, data.len(), || {
            self.below.append(zone, data, placement)
        })
    }

    fn appends_durably(&self) -> bool {
        self.below.appends_durably()
    }

    fn append_durably(&self, zone: ZoneId, data: IoData, to: Placement) -> OpFuture<Address> {
        self.measure(Operation::Append, data.len(), || {
            self.below.append_durably(zone, data, to)
        })
    }

    fn write(&self, at: Address, data: IoData, placement: Placement) -> OpFuture<()> {
        self.measure(Operation::Write, data.len(), || {
            self.below.write(at, data, placement)
        })
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        self.measure(Operation::Reset, 0, || self.below.reset(zone))
    }

    fn reserve(&self, zone: ZoneId, bytes: u64) -> Result<(), DeviceError> {
        self.below.reserve(zone, bytes)
    }

    fn finish(&self, zone: ZoneId) -> OpFuture<()> {
        self.measure(Operation::Finish, 0, || self.below.finish(zone))
    }

    fn flush(&self) -> OpFuture<()> {
        self.measure(Operation::Flush, 0, || self.below.flush())
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        self.measure(Operation::Report, 0, || self.below.report())
    }
}

/// An operation in flight.
struct Span {
    meters: Arc<Meters>,
    operation: Operation,
    is_over: bool,
}

impl Span {
    fn meter(&self) -> &Meter {
        self.meters.of(self.operation)
    }

    fn end(mut self, latency: Duration, moved: Option<usize>) {
        self.is_over = true;
        let meter = self.meter();
        meter.latency.record(latency);
        match moved {
            Some(bytes) => meter.bytes.fetch_add(bytes as u64, Relaxed),
            None => meter.errors.fetch_add(1, Relaxed),
        };
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let meter = self.meter();
        meter.in_flight.fetch_sub(1, Relaxed);
        if !self.is_over {
            meter.abandoned.fetch_add(1, Relaxed);
        }
    }
}

/// Buckets per doubling of latency, as a power of two.
const BITS_PER_OCTAVE: u32 = 3;
const PER_OCTAVE: u64 = 1 << BITS_PER_OCTAVE;
/// Latencies from 2^40 ns (18 minutes) on share the last bucket.
const OCTAVES: usize = 40 - BITS_PER_OCTAVE as usize + 1;
const BUCKETS: usize = OCTAVES * PER_OCTAVE as usize;

/// Counts in fixed logarithmic buckets, each at most an eighth wide: atomics
/// only, so that recording never waits.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum_ns: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// Counts one latency.
    pub fn record(&self, latency: Duration) {
        let ns = Tick::ZERO + latency;
        self.buckets[bucket_of(ns.0)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns.0, Relaxed);
    }

    /// Number of latencies.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// Sum of the latencies.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.load(Relaxed))
    }

    /// Mean latency, zero if there are none.
    pub fn mean(&self) -> Duration {
        match self.count() {
            0 => Duration::ZERO,
            count => Duration::from_nanos(self.sum_ns.load(Relaxed) / count),
        }
    }

    /// An upper bound, at most an eighth too high, of the latency that a share
    /// `quantile` (0 to 1) of operations did not exceed; zero if there are none.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let counts = self.buckets.each_ref().map(|bucket| bucket.load(Relaxed));
        let total: u64 = counts.iter().sum();
        let rank = (quantile.clamp(0.0, 1.0) * total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in counts.into_iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(bucket_end(index));
            }
        }
        Duration::ZERO
    }

    /// The non-empty buckets: inclusive upper end and count of each.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let counted = self.buckets.iter().enumerate();
        counted.filter_map(|(index, bucket)| {
            let count = bucket.load(Relaxed);
            (count > 0).then(|| (Duration::from_nanos(bucket_end(index)), count))
        })
    }
}

/// Values below [`PER_OCTAVE`] have a bucket each; above, the leading bits
/// after the first choose it.
fn bucket_of(ns: u64) -> usize {
    if ns < PER_OCTAVE {
        return ns as usize;
    }
    let shift = ns.ilog2() - BITS_PER_OCTAVE;
    let index = u64::from(shift + 1) * PER_OCTAVE + ((ns >> shift) - PER_OCTAVE);
    (index as usize).min(BUCKETS - 1)
}

/// The largest value of a bucket.
fn bucket_end(index: usize) -> u64 {
    let (octave, part) = (index as u64 / PER_OCTAVE, index as u64 % PER_OCTAVE);
    match octave {
        0 => part,
        _ => ((PER_OCTAVE + part + 1) << (octave - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_value_in_order_and_are_narrow() {
        let mut next = 0;
        for index in 0..BUCKETS - 1 {
            let end = bucket_end(index);
            assert_eq!(bucket_of(next), index, "first value of bucket {index}");
            assert_eq!(bucket_of(end), index, "last value of bucket {index}");
            assert!(end - next <= next / 8, "bucket {index} is narrow");
            next = end + 1;
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_bound_the_recorded_values() {
        let histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), Duration::ZERO);
        for us in 1..=1000 {
            histogram.record(Duration::from_micros(us));
        }
        assert_eq!(histogram.count(), 1000);
        for (quantile, exact) in [(0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000)] {
            let exact = Duration::from_micros(exact);
            let bound = histogram.quantile(quantile);
            assert!(
                bound >= exact && bound <= exact + exact / 8,
                "{quantile}: {bound:?}"
            );
        }
        assert_eq!(histogram.mean(), Duration::from_nanos(500_500));
    }
}
