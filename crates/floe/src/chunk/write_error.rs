//! Why bytes did not get onto flash.

use floe_core::layout::LayoutError;
use floe_device::DeviceError;

use crate::slots::TableError;

/// Attempts to write a batch, each in another place, before its values are given up.
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
    /// Whether there was no space left below the device.
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
