//! The states of a zone.

/// A zone's state as the device sees it (NVMe ZNS, "Zone State Machine").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// Nothing was written since the last reset.
    Empty,
    /// Written, and accepts more.
    Open,
    /// Active but not open; accepts more.
    Closed,
    /// Accepts nothing until reset.
    Full,
    /// Readable, never writable again.
    ReadOnly,
    /// Neither readable nor writable.
    Offline,
    /// The medium has no zone states (a file after reopening). Only reading the
    /// zone shows what it holds.
    Unknown,
}

impl ZoneState {
    /// True if the drive has made the zone read-only or offline: it takes no data any more.
    pub fn is_unwritable(self) -> bool {
        matches!(self, ZoneState::ReadOnly | ZoneState::Offline)
    }
}
