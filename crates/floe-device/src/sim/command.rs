//! Commands to a simulated SSD.

use floe_core::ZoneId;

/// A command to a model. Offsets are from the start of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Read {
        offset: u64,
        bytes: u64,
    },
    Append {
        zone: ZoneId,
        offset: u64,
        bytes: u64,
        handle: u16,
    },
    Write {
        offset: u64,
        bytes: u64,
        handle: u16,
    },
    Reset {
        zone: ZoneId,
        offset: u64,
        bytes: u64,
    },
    Finish {
        zone: ZoneId,
    },
    Flush,
}
