//! Errors of writes to flash.

use floe_core::layout::LayoutError;
use floe_device::{DeviceError, ZoneState};

use crate::slots::TableError;

/// Attempts to write a batch, each in another place, before its values are dropped.
pub(crate) const ATTEMPTS: usize = 4;

#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("encoding: {0}")]
    Layout(#[from] LayoutError),
    #[error("no room was reserved")]
    Unplaced,
}

impl WriteError {
    /// The zone's state, if it is read-only or offline.
    pub(crate) fn unwritable(&self) -> Option<ZoneState> {
        match self {
            WriteError::Device(error) => error.unwritable(),
            _ => None,
        }
    }

    /// True if the storage below the device is full.
    pub(crate) fn is_no_space(&self) -> bool {
        matches!(self, WriteError::Device(error) if error.is_no_space())
    }
}

impl From<TableError> for WriteError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Device(error) => WriteError::Device(error),
            TableError::Layout(error) => WriteError::Layout(error),
        }
    }
}
