//! Operations on all drives: those on the metadata zones, and flushes.
//!
//! A drive on which such an operation fails is dropped, and the operation succeeds without
//! it. While the failure may pass, as that of a controller that is reset, the operation fails
//! as a whole instead, and that copy is out of step until the zone is reset.

use std::io;
use std::sync::Arc;

use floe_core::{Address, ZoneId};

use super::device::Inner;
use crate::buffer::IoBuf;
use crate::contract::{DriveStanding, OpFuture, SharedDevice};
use crate::error::{DeviceError, DeviceErrorKind, Operation};

impl Inner {
    /// Carries an operation out on every copy of the metadata zone `copy`.
    pub(super) async fn on_copies<T: Copy + PartialEq>(
        self: &Arc<Self>,
        copy: usize,
        operation: Operation,
        start: impl Fn(&SharedDevice) -> OpFuture<T>,
    ) -> Result<T, DeviceError> {
        let started = self.start_in_sync(copy, operation, start)?;
        self.agreed(Some(copy), operation, started).await
    }

    /// Resets every copy, which brings them into step.
    pub(super) async fn reset_all(
        self: &Arc<Self>,
        copy: usize,
        zone: ZoneId,
    ) -> Result<(), DeviceError> {
        let usable = self.drives.all_usable();
        let started = usable
            .map(|(slot, device)| (slot, device.reset(zone)))
            .collect();
        self.agreed(Some(copy), Operation::Reset, started).await
    }

    /// Ends a flush of all drives, and lets joining drives join.
    pub(super) async fn end_flush(
        self: &Arc<Self>,
        started: Vec<(usize, OpFuture<()>)>,
    ) -> Result<(), DeviceError> {
        self.agreed(None, Operation::Flush, started).await?;
        if self.drives.join() {
            self.drives.record().await;
            self.release_dropped();
            self.settled(Operation::Flush).await?;
        }
        Ok(())
    }

    /// Reads from the copies in turn until one can be read. `first` was started on the
    /// drive in slot `first_slot`.
    pub(super) async fn read_any(
        self: &Arc<Self>,
        copy: usize,
        at: Address,
        len: usize,
        (first_slot, first): (usize, OpFuture<IoBuf>),
    ) -> Result<IoBuf, DeviceError> {
        let mut error = match self.noted(first_slot, first.await) {
            Ok(read) => return Ok(read),
            Err(error) => error,
        };
        for slot in first_slot + 1..self.drives.slots().len() {
            if let Some(device) = self.copy_in_sync(slot, copy) {
                let read = device.read(at, device.allocate(len)).await;
                match self.noted(slot, read) {
                    Ok(read) => return Ok(read),
                    Err(next) => error = next,
                }
            }
        }
        Err(error)
    }

    /// The drive in `slot`, if its copy can be read.
    pub(super) fn copy_in_sync(&self, slot: usize, copy: usize) -> Option<&SharedDevice> {
        let device = self.drives.usable(slot)?;
        self.drives.is_in_sync(slot, copy).then_some(device)
    }

    /// Starts an operation on every copy that is in step.
    fn start_in_sync<T>(
        &self,
        copy: usize,
        operation: Operation,
        start: impl Fn(&SharedDevice) -> OpFuture<T>,
    ) -> Result<Vec<(usize, OpFuture<T>)>, DeviceError> {
        if self.drives.lacks_step(copy) {
            let why = "a copy of the metadata zone is out of step; reset the zone first";
            let kind = DeviceErrorKind::Invalid(why.to_owned());
            return Err(DeviceError::new(operation, ZoneId(copy as u32), kind));
        }
        let usable = self.drives.all_usable();
        Ok(usable
            .filter(|(slot, _)| self.drives.is_in_sync(*slot, copy))
            .map(|(slot, device)| (slot, start(device)))
            .collect())
    }

    /// The result that all drives agree on.
    async fn agreed<T: Copy + PartialEq>(
        self: &Arc<Self>,
        copy: Option<usize>,
        operation: Operation,
        started: Vec<(usize, OpFuture<T>)>,
    ) -> Result<T, DeviceError> {
        let mut results = Vec::with_capacity(started.len());
        for (slot, operation) in started {
            results.push((slot, operation.await));
        }
        let mut failure = None;
        match self.most_agree(&results) {
            Some(value) => {
                for (slot, result) in results {
                    let error = match result {
                        Ok(other) if other == value => None,
                        Ok(_) => Some(elsewhere(operation)),
                        Err(error) => Some(error),
                    };
                    let must_drop = self.drives.note_mirrored(slot, error.as_ref());
                    if let Some(copy) = copy
                        && (error.is_some() || operation == Operation::Reset)
                    {
                        self.drives.set_in_sync(slot, copy, error.is_none());
                    }
                    let Some(error) = error else { continue };
                    match must_drop {
                        true => self.drop_drive(slot, &error),
                        false => failure = Some(error),
                    }
                }
                self.settled(operation).await?;
                failure.map_or(Ok(value), Err)
            }
            None => {
                let gone = || DeviceError::new(operation, None, DeviceErrorKind::Gone);
                let first = results.into_iter().find_map(|(_, result)| result.err());
                Err(first.unwrap_or_else(gone))
            }
        }
    }

    /// The answer of most live drives.
    fn most_agree<T: Copy + PartialEq>(
        &self,
        results: &[(usize, Result<T, DeviceError>)],
    ) -> Option<T> {
        let live = results
            .iter()
            .filter(|(slot, _)| self.drives.slots()[*slot].standing() == DriveStanding::Live);
        let answers: Vec<T> = live
            .filter_map(|(_, result)| result.as_ref().ok().copied())
            .collect();
        let votes = |answer: &&T| answers.iter().filter(|other| other == answer).count();
        answers.iter().rev().max_by_key(votes).copied()
    }

    async fn settled(&self, operation: Operation) -> Result<(), DeviceError> {
        let settled = self.drives.settled().await;
        settled.map_err(|kind| DeviceError::new(operation, None, kind))
    }
}

fn elsewhere(operation: Operation) -> DeviceError {
    let error = io::Error::other("a copy of the metadata landed at another place");
    DeviceError::new(operation, None, DeviceErrorKind::Io(error))
}
