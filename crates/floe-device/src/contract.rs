//! The device contract.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use floe_core::{Address, Geometry, ZoneId};

use crate::buffer::{IoBuf, IoData};
use crate::counters::Counters;
use crate::error::DeviceError;

/// A device shared by everything that uses it.
pub type SharedDevice = Arc<dyn Device>;

/// Where a write should be placed among data of other lifetimes: an FDP
/// reclaim-unit handle. Devices without handles ignore it; a handle at or
/// above [`Geometry::placement_handles`] is taken modulo that number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placement(pub u16);

/// A zone's state as the device sees it (NVMe ZNS, "Zone State Machine").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// Nothing written since the last reset.
    Empty,
    /// Written and accepting more.
    Open,
    /// Active but not open; accepts more.
    Closed,
    /// Accepts nothing until reset.
    Full,
    /// Readable, never writable again.
    ReadOnly,
    /// Gone.
    Offline,
    /// The medium keeps no zone state (a file after reopening): what the zone
    /// holds can only be learnt by reading it.
    Unknown,
}

/// One zone of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneReport {
    /// Which zone.
    pub zone: ZoneId,
    /// Its state.
    pub state: ZoneState,
    /// Bytes from the zone's start that are written; meaningless where the
    /// state is `Full` after a finish, `Unknown` or `Offline`.
    pub write_pointer: u64,
}

/// The future of one device operation.
///
/// It may be dropped at any time: the operation then completes unobserved, its
/// buffer is freed only after the device is done with it, and the device stays
/// usable.
#[must_use = "a device operation reports its failure through its future"]
pub struct OpFuture<T>(Pin<Box<dyn Future<Output = Result<T, DeviceError>> + Send>>);

impl<T: Send + 'static> OpFuture<T> {
    /// Wraps a future.
    pub fn new(future: impl Future<Output = Result<T, DeviceError>> + Send + 'static) -> Self {
        OpFuture(Box::pin(future))
    }

    /// An operation that is already over.
    pub fn ready(result: Result<T, DeviceError>) -> Self {
        OpFuture::new(std::future::ready(result))
    }
}

impl<T> Future for OpFuture<T> {
    type Output = Result<T, DeviceError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for OpFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpFuture")
    }
}

/// A flash device: zones of blocks.
///
/// Rules that every implementation keeps (the conformance suite checks them):
///
/// * An operation starts when the method is called, not when its future is
///   first polled, and finishes whether or not the future is kept.
/// * Buffers are owned and aligned. A dropped future frees nothing that the
///   device may still touch.
/// * Offsets and lengths are multiples of the block size and lie inside the
///   zone's capacity; anything else is refused with
///   [`DeviceErrorKind::Invalid`](crate::DeviceErrorKind::Invalid) before any I/O.
/// * A short transfer is finished or reported as an error, never passed on.
/// * Zone states are kept honestly: an append that does not fit the rest of
///   its zone, or would exceed the open or active limit, is refused without
///   side effects.
/// * Several appends may run on one zone at once; each learns where it landed
///   and none overlap.
/// * After `reset` succeeds, the zone's first block reads as zeros (until it
///   is written again), and after a following `flush` it does so even after a
///   power loss. Reads that race a reset may fail or return anything: callers
///   pin zones; devices never hand out memory that is not theirs.
/// * Bytes and operations are counted by kind in [`Counters`].
pub trait Device: Send + Sync + fmt::Debug + 'static {
    /// The shape of the device; never changes.
    fn geometry(&self) -> &Geometry;

    /// A short human description: kind and path.
    fn describe(&self) -> String;

    /// A buffer of `len` zeroed or stale bytes, fit for this device's I/O
    /// (aligned; from registered memory where the device has some left).
    /// `len` must be a multiple of the block size. Never blocks.
    fn allocate(&self, len: usize) -> IoBuf {
        IoBuf::zeroed(len)
    }

    /// Fills all of `buf` from `at`; returns it.
    fn read(&self, at: Address, buf: IoBuf) -> OpFuture<IoBuf>;

    /// Appends `data` (at most `max_append_bytes`) to `zone` and says where it
    /// landed.
    fn append(&self, zone: ZoneId, data: IoData, placement: Placement) -> OpFuture<Address>;

    /// Writes `data` at `at`. Only where [`Geometry::random_writes`]; never
    /// moves the zone's write pointer, and needs no open zone.
    fn write(&self, at: Address, data: IoData, placement: Placement) -> OpFuture<()>;

    /// Empties `zone`.
    fn reset(&self, zone: ZoneId) -> OpFuture<()>;

    /// Marks `zone` full, giving up the rest of its capacity and its open and
    /// active resources. Finishing a full zone succeeds.
    fn finish(&self, zone: ZoneId) -> OpFuture<()>;

    /// When it succeeds, every operation that had completed before the call is
    /// on stable media.
    fn flush(&self) -> OpFuture<()>;

    /// The state of every zone, in order.
    fn report(&self) -> OpFuture<Vec<ZoneReport>>;

    /// Bytes and operations so far.
    fn counters(&self) -> &Counters;
}
