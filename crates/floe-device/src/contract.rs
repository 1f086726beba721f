//! The device contract.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub use floe_core::Placement;
use floe_core::ssd::Statistics;
use floe_core::{Address, Geometry, ZoneId};
use parking_lot::Mutex;

use crate::buffer::{IoBuf, IoData};
use crate::counters::Counters;
use crate::error::{DeviceError, DeviceErrorKind, Operation};
pub use crate::zone_state::ZoneState;

/// A shared device.
pub type SharedDevice = Arc<dyn Device>;

/// The standing of a drive in an [`Array`](crate::Array).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveStanding {
    /// It belongs to the array.
    Live,
    /// It was blank, and has no complete copy of the metadata yet.
    Joining,
    /// It failed, or is missing, or an earlier opening dropped it.
    Dropped,
}

floe_core::names! {
    DriveStanding {
        Live => "live",
        Joining => "joining",
        Dropped => "dropped",
    }
}

/// A drive of an array, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveStatus {
    /// Its path.
    pub name: String,
    /// Its standing.
    pub standing: DriveStanding,
}

/// The most of each at once since a device was opened, by its own count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZonePeaks {
    /// Appends and writes in one zone that were started and had not ended.
    pub writes_in_flight: u32,
    /// Open zones.
    pub open: u32,
    /// Active zones.
    pub active: u32,
}

/// One zone of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneReport {
    /// The zone's number.
    pub zone: ZoneId,
    /// Its state.
    pub state: ZoneState,
    /// Bytes written from the zone's start. Meaningless if the state is `Full`
    /// after a finish, `Unknown` or `Offline`.
    pub write_pointer: u64,
}

/// The future of one device operation.
///
/// It may be dropped at any time. The operation then completes unobserved, its
/// buffer is freed only after the device has finished with it, and the device
/// stays usable.
#[must_use = "a device operation reports its failure through its future"]
pub struct OpFuture<T>(State<T>);

/// The sources of the result: known at once, filled in by the device, or
/// another future.
enum State<T> {
    Ready(Option<Result<T, DeviceError>>),
    Slot(Arc<Slot<T>>),
    Boxed(Pin<Box<dyn Future<Output = Result<T, DeviceError>> + Send>>),
}

// SAFETY: a shared reference to an operation gives access to nothing: its only
// methods take it by unique reference. So readers and writers that hold
// operations in flight can be shared between threads.
unsafe impl<T: Send> Sync for OpFuture<T> {}

// No variant pins its content in place.
impl<T> Unpin for OpFuture<T> {}

impl<T: Send + 'static> OpFuture<T> {
    /// Wraps a future.
    pub fn new(future: impl Future<Output = Result<T, DeviceError>> + Send + 'static) -> Self {
        OpFuture(State::Boxed(Box::pin(future)))
    }

    /// An operation that has already ended.
    pub fn ready(result: Result<T, DeviceError>) -> Self {
        OpFuture(State::Ready(Some(result)))
    }

    /// An operation that ends when its [`Completer`] completes it.
    pub fn pending() -> (Completer<T>, Self) {
        let slot = Arc::new(Slot(Mutex::new(SlotState::Waiting(None))));
        let completer = Completer(Some(Arc::clone(&slot)));
        (completer, OpFuture(State::Slot(slot)))
    }
}

impl OpFuture<()> {
    /// Ends when all of `operations` have ended, with the first failure among them.
    pub fn all(mut operations: Vec<OpFuture<()>>) -> Self {
        if operations.len() == 1 {
            return operations.remove(0);
        }
        OpFuture::new(async {
            let mut result = Ok(());
            for operation in operations {
                result = result.and(operation.await);
            }
            result
        })
    }
}

impl<T> Future for OpFuture<T> {
    type Output = Result<T, DeviceError>;

    /// # Panics
    /// If polled again after it returned `Ready`.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Ready(result) => Poll::Ready(result.take().expect(POLLED_AFTER_READY)),
            State::Slot(slot) => slot.poll(cx),
            State::Boxed(future) => future.as_mut().poll(cx),
        }
    }
}

const POLLED_AFTER_READY: &str = "an operation's future is polled once after it is over";

impl<T> fmt::Debug for OpFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpFuture")
    }
}

/// The result of an operation, shared by its completer and its waiter.
struct Slot<T>(Mutex<SlotState<T>>);

enum SlotState<T> {
    Waiting(Option<Waker>),
    Done(Result<T, DeviceError>),
    Taken,
}

impl<T> Slot<T> {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<T, DeviceError>> {
        let mut state = self.0.lock();
        if let SlotState::Waiting(waker) = &mut *state {
            match waker {
                Some(old) if old.will_wake(cx.waker()) => {}
                _ => *waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, SlotState::Taken) {
            SlotState::Done(result) => Poll::Ready(result),
            SlotState::Waiting(_) | SlotState::Taken => panic!("{POLLED_AFTER_READY}"),
        }
    }
}

/// The device's end of an [`OpFuture::pending`] operation. Dropping it fails
/// the operation with [`DeviceErrorKind::Gone`].
pub struct Completer<T>(Option<Arc<Slot<T>>>);

impl<T> Completer<T> {
    /// Ends the operation and wakes its waiter. If the future was dropped, the
    /// result is dropped here.
    pub fn complete(self, result: Result<T, DeviceError>) {
        if let Some(waker) = self.complete_quietly(result) {
            waker.wake();
        }
    }

    /// As [`complete`](Self::complete), but returns the waker, so that a caller
    /// which ends many operations can wake all waiters together.
    pub(crate) fn complete_quietly(mut self, result: Result<T, DeviceError>) -> Option<Waker> {
        self.finish(result)
    }

    fn finish(&mut self, result: Result<T, DeviceError>) -> Option<Waker> {
        let slot = self.0.take()?;
        let before = std::mem::replace(&mut *slot.0.lock(), SlotState::Done(result));
        match before {
            SlotState::Waiting(waker) => waker,
            SlotState::Done(_) | SlotState::Taken => None,
        }
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        if self.0.is_some() {
            let gone = DeviceError::new(Operation::Open, None, DeviceErrorKind::Gone);
            if let Some(waker) = self.finish(Err(gone)) {
                waker.wake();
            }
        }
    }
}

impl<T> fmt::Debug for Completer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completer")
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
///   zone's capacity. Anything else is rejected with
///   [`DeviceErrorKind::Invalid`] before any I/O.
/// * A short transfer is continued or reported as an error.
/// * Zone states are accurate: an append that does not fit the rest of its
///   zone, or would exceed the open or active limit, is rejected without side
///   effects.
/// * Several appends may run on one zone at once. Each returns its address, and
///   none overlap.
/// * A reset takes effect after all appends and writes to its zone that were
///   started before it, awaited or not. Those started before it has ended are
///   rejected.
/// * After `reset` succeeds, the zone's first block reads as zeros (until it
///   is written again), and after a following `flush` it does so even after a
///   power loss. Reads that race a reset may fail or return anything: callers
///   pin zones; devices never hand out memory that is not theirs.
/// * Bytes and operations are counted by kind in [`Counters`].
pub trait Device: Send + Sync + fmt::Debug + 'static {
    /// The geometry of the device, which never changes.
    fn geometry(&self) -> &Geometry;

    /// A short human description: kind and path.
    fn describe(&self) -> String;

    /// A buffer of `len` zeroed or stale bytes for this device's I/O: aligned,
    /// and from registered memory if the device has some left. `len` must be a
    /// multiple of the block size. Never blocks.
    fn allocate(&self, len: usize) -> IoBuf {
        IoBuf::zeroed(len)
    }

    /// Fills all of `buf` from `at`, and returns it.
    fn read(&self, at: Address, buf: IoBuf) -> OpFuture<IoBuf>;

    /// Appends `data` (at most `max_append_bytes`) to `zone`; returns its
    /// address.
    fn append(&self, zone: ZoneId, data: IoData, placement: Placement) -> OpFuture<Address>;

    /// True if [`append_durably`](Self::append_durably) is less than an append and a flush.
    fn appends_durably(&self) -> bool {
        false
    }

    /// As [`append`](Self::append); when it succeeds, `data` is on stable media, as is all that
    /// a restart needs to read it. What was appended before need not be.
    ///
    /// # Errors
    /// Also [`DeviceErrorKind::Unsupported`] if the device can do so only by
    /// [flushing](Self::flush) all that it was given.
    fn append_durably(
        &self,
        zone: ZoneId,
        data: IoData,
        placement: Placement,
    ) -> OpFuture<Address> {
        let _ = (data, placement);
        let kind = DeviceErrorKind::Unsupported("durable appends without a flush");
        OpFuture::ready(Err(DeviceError::new(Operation::Append, zone, kind)))
    }

    /// Writes `data` at `at`, on devices with [`Geometry::random_writes`].
    /// Never moves the zone's write pointer, and needs no open zone.
    fn write(&self, at: Address, data: IoData, placement: Placement) -> OpFuture<()>;

    /// Resets `zone`.
    fn reset(&self, zone: ZoneId) -> OpFuture<()>;

    /// Allocates the space for the first `bytes` of `zone` now, and keeps it
    /// when the zone is reset, so that writes there never lack space. Does
    /// nothing if the space is the device's own, or cannot be allocated before
    /// it is written. Call it when a device is opened, because it may block for
    /// a moment.
    ///
    /// # Errors
    /// [`DeviceErrorKind::NoSpace`] if there is too little space; then none is
    /// kept. [`DeviceErrorKind::Invalid`] if the zone does not exist.
    fn reserve(&self, zone: ZoneId, bytes: u64) -> Result<(), DeviceError> {
        let _ = (zone, bytes);
        Ok(())
    }

    /// Marks `zone` full, which releases the rest of its capacity and its open
    /// and active resources. Finishing a full zone succeeds.
    fn finish(&self, zone: ZoneId) -> OpFuture<()>;

    /// When it succeeds, every operation that had completed before the call is
    /// on stable media.
    fn flush(&self) -> OpFuture<()>;

    /// Ends operations that the medium has carried out, also those of other threads, which may be
    /// busy. False if the device has no rings: then its operations may rely on the runtime in which
    /// they begin.
    fn reap(&self) -> bool {
        false
    }

    /// The state of every zone, in order.
    fn report(&self) -> OpFuture<Vec<ZoneReport>>;

    /// The most zones, and writes in one zone, that were in use at once; `None` if the device
    /// does not count them.
    fn zone_peaks(&self) -> Option<ZonePeaks> {
        None
    }

    /// Counts of bytes and operations.
    fn counters(&self) -> &Counters;

    /// The drives below an [`Array`](crate::Array), otherwise none.
    fn drives(&self) -> Vec<DriveStatus> {
        Vec::new()
    }

    /// The medium's own writes and erases since the device exists, if it
    /// reports them: the source of [`Statistics::write_amplification`].
    fn media_statistics(&self) -> Option<Statistics> {
        None
    }
}

/// The methods that the device `below` a wrapper answers, of a [`Device`] and of a
/// [`BlockDevice`](crate::BlockDevice) alike. `$name` comes before that device's
/// description.
macro_rules! described_below {
    ($name:literal) => {
        fn describe(&self) -> String {
            format!(concat!($name, " {}"), self.below.describe())
        }

        fn allocate(&self, len: usize) -> $crate::IoBuf {
            self.below.allocate(len)
        }

        fn counters(&self) -> &$crate::Counters {
            self.below.counters()
        }
    };
}

/// The methods of a wrapper's [`Device`] that the device `below` it answers.
macro_rules! answered_below {
    ($name:literal) => {
        $crate::contract::described_below!($name);

        fn geometry(&self) -> &floe_core::Geometry {
            self.below.geometry()
        }

        fn zone_peaks(&self) -> Option<$crate::contract::ZonePeaks> {
            self.below.zone_peaks()
        }

        fn drives(&self) -> Vec<$crate::contract::DriveStatus> {
            self.below.drives()
        }

        fn reap(&self) -> bool {
            self.below.reap()
        }

        fn media_statistics(&self) -> Option<floe_core::ssd::Statistics> {
            self.below.media_statistics()
        }
    };
}

pub(crate) use {answered_below, described_below};
