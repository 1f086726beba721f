//! Errors of devices.

use std::io;

use floe_core::ZoneId;

use crate::nvme::Status;
use crate::zone_state::ZoneState;

/// A device operation, for messages and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Opening the device.
    Open,
    /// Reading blocks.
    Read,
    /// Appending to a zone.
    Append,
    /// Writing blocks in place.
    Write,
    /// Writing zeros.
    WriteZeroes,
    /// Discarding content that is not needed.
    Discard,
    /// Resetting a zone.
    Reset,
    /// Finishing a zone.
    Finish,
    /// Flushing to stable media.
    Flush,
    /// Reporting zones, or the size.
    Report,
    /// Changing the size.
    Resize,
    /// Reserving it for this machine's writes.
    Reserve,
}

floe_core::names! {
    Operation {
        Open => "open",
        Read => "read",
        Append => "append",
        Write => "write",
        WriteZeroes => "write_zeroes",
        Discard => "discard",
        Reset => "reset",
        Finish => "finish",
        Flush => "flush",
        Report => "report",
        Resize => "resize",
        Reserve => "reserve",
    }
}

/// The kinds of failure that callers act on differently.
#[derive(Debug, thiserror::Error)]
pub enum DeviceErrorKind {
    /// The caller broke the contract: alignment, range, length.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// The rest of the zone is too small for the append.
    #[error("zone is full: {wanted} bytes wanted, {left} left")]
    ZoneFull {
        /// Bytes requested.
        wanted: u64,
        /// Bytes left in the zone.
        left: u64,
    },
    /// Another open or active zone would exceed the device's limit.
    #[error("too many zones are open or active; the device allows {0}")]
    TooManyZones(u32),
    /// The drive has made the zone read-only or offline, for good.
    #[error("the drive has made the zone {}", unwritable_name(*.0))]
    ZoneUnwritable(ZoneState),
    /// The device cannot do this operation at all.
    #[error("not supported by this device: {0}")]
    Unsupported(&'static str),
    /// The device has no space left (a sparse file on a full disk).
    #[error("no space left on the device's file system")]
    NoSpace,
    /// Fewer bytes were transferred than requested, and a retry transferred
    /// none.
    #[error("short transfer: {done} of {wanted} bytes")]
    Short {
        /// Bytes transferred.
        done: u64,
        /// Bytes requested.
        wanted: u64,
    },
    /// The medium or the kernel failed the operation.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// An NVMe drive failed the operation.
    #[error(transparent)]
    Nvme(Status),
    /// The device was closed, or lost power in a simulation.
    #[error("the device is gone")]
    Gone,
}

/// A failed device operation.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}: {kind}", zone.map_or_else(|| "device".to_owned(), |z| format!("zone {z}")))]
pub struct DeviceError {
    /// The operation that failed.
    pub operation: Operation,
    /// The zone of the operation, if it concerned one.
    pub zone: Option<ZoneId>,
    /// The cause of the failure.
    #[source]
    pub kind: DeviceErrorKind,
}

impl DeviceError {
    /// An error of `operation` on `zone`.
    pub fn new(
        operation: Operation,
        zone: impl Into<Option<ZoneId>>,
        kind: DeviceErrorKind,
    ) -> Self {
        DeviceError {
            operation,
            zone: zone.into(),
            kind,
        }
    }

    /// True if the device had no space left.
    pub fn is_no_space(&self) -> bool {
        matches!(self.kind, DeviceErrorKind::NoSpace)
    }

    /// The zone's state, if the operation failed because it is read-only or offline.
    pub fn unwritable(&self) -> Option<ZoneState> {
        match &self.kind {
            DeviceErrorKind::ZoneUnwritable(state) => Some(*state),
            DeviceErrorKind::Nvme(status) => status.fault().unwritable(),
            _ => None,
        }
    }

    /// Wraps a system error, recognizing a full disk.
    pub fn io(operation: Operation, zone: impl Into<Option<ZoneId>>, error: io::Error) -> Self {
        DeviceError::new(operation, zone, DeviceErrorKind::from_io(error))
    }
}

fn unwritable_name(state: ZoneState) -> &'static str {
    match state {
        ZoneState::ReadOnly => "read-only",
        _ => "offline",
    }
}

impl DeviceErrorKind {
    /// Wraps a system error, recognizing a full disk.
    pub(crate) fn from_io(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DeviceErrorKind::NoSpace,
            _ => DeviceErrorKind::Io(error),
        }
    }
}
