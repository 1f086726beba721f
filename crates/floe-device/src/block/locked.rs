//! A block device with a lock apart from it, which machines share: for devices without
//! reservations of their own.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::reservation::Reserved;
use super::{BlockDevice, SharedBlockDevice, blocks_below};
use crate::buffer::{IoBuf, IoData};
use crate::contract::OpFuture;
use crate::error::{DeviceError, DeviceErrorKind, Operation};

/// A lock that several machines share, with the contract of a device's reservations:
/// [`reserve`](BlockDevice::reserve), [`confirm`](BlockDevice::confirm) and
/// [`release`](BlockDevice::release). It outlives the process that holds it.
pub trait BlockLock: Send + Sync + fmt::Debug + 'static {
    /// As [`BlockDevice::reserve`].
    fn reserve(&self, key: u64, taken_from: Option<u64>) -> OpFuture<Reserved>;

    /// As [`BlockDevice::confirm`].
    fn confirm(&self, key: u64) -> OpFuture<()>;

    /// As [`BlockDevice::release`].
    fn release(&self, key: u64) -> OpFuture<()>;

    /// As [`BlockDevice::is_taken_away`].
    fn is_taken_away(&self) -> bool;
}

/// A device that is reserved by a [`BlockLock`]. Nothing is read or written once the lock is
/// lost; unlike a device with reservations, this one learns of it only a while later.
#[derive(Debug)]
pub struct Locked {
    below: SharedBlockDevice,
    lock: Arc<dyn BlockLock>,
}

impl Locked {
    /// Joins a device and the lock for it.
    pub fn new(below: SharedBlockDevice, lock: Arc<dyn BlockLock>) -> Self {
        Locked { below, lock }
    }

    /// Starts an operation if the lock is not lost.
    fn start<T: Send + 'static>(
        &self,
        operation: Operation,
        start: impl FnOnce() -> OpFuture<T>,
    ) -> OpFuture<T> {
        match self.lock.is_taken_away() {
            false => start(),
            true => {
                let why = io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "this machine has lost the lock of the device",
                );
                let error = DeviceError::new(operation, None, DeviceErrorKind::Io(why));
                OpFuture::ready(Err(error))
            }
        }
    }
}

impl BlockDevice for Locked {
    blocks_below!("locked", reserved by self.lock);

    fn set_size(&self, size: u64, allocates: bool) -> OpFuture<()> {
        self.start(Operation::Resize, || self.below.set_size(size, allocates))
    }

    fn read(&self, at: u64, buf: IoBuf) -> OpFuture<IoBuf> {
        self.start(Operation::Read, || self.below.read(at, buf))
    }

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        self.start(Operation::Write, || self.below.write(at, data))
    }

    fn write_durably(&self, at: u64, data: IoData) -> Option<OpFuture<()>> {
        match self.lock.is_taken_away() {
            false => self.below.write_durably(at, data),
            true => Some(self.write(at, data)),
        }
    }

    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        self.start(Operation::WriteZeroes, || self.below.write_zeroes(range))
    }

    fn discard(&self, range: Range<u64>) -> OpFuture<()> {
        self.start(Operation::Discard, || self.below.discard(range))
    }

    fn flush(&self) -> OpFuture<()> {
        self.start(Operation::Flush, || self.below.flush())
    }
}
