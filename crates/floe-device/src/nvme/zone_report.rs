//! The zones that a zone management receive command reports.

use super::fields::{DecodeError, Fields};
use crate::contract::ZoneState;

/// Bytes before the first zone.
const HEADER_BYTES: usize = 64;
/// Bytes of a zone.
const ZONE_BYTES: usize = 64;

/// A zone, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneDescriptor {
    /// The zone's state.
    pub state: ZoneState,
    /// The block at which it starts.
    pub start: u64,
    /// Blocks that can be written.
    pub capacity: u64,
    /// Blocks written from its start; `None` in states without a write pointer.
    pub written: Option<u64>,
}

/// Bytes of a report of `zones` zones.
pub fn report_bytes(zones: usize) -> usize {
    HEADER_BYTES + zones * ZONE_BYTES
}

/// Decodes a report.
///
/// # Errors
/// If it is shorter than its header, or a zone is not one that the specification knows.
pub fn decode(bytes: &[u8]) -> Result<Vec<ZoneDescriptor>, DecodeError> {
    let fields = Fields::new(bytes, HEADER_BYTES, "a short report of zones")?;
    let count = usize::try_from(fields.u64(0)).unwrap_or(usize::MAX);
    let zones = fields.entries(HEADER_BYTES, ZONE_BYTES, count);
    zones.map(zone).collect()
}

fn zone(fields: Fields<'_>) -> Result<ZoneDescriptor, DecodeError> {
    const SEQUENTIAL_WRITE_REQUIRED: u8 = 2;
    if fields.u8(0) & 0xf != SEQUENTIAL_WRITE_REQUIRED {
        return Err(DecodeError("a zone of an unknown type"));
    }
    let state = match fields.u8(1) >> 4 {
        0x1 => ZoneState::Empty,
        // Implicitly and explicitly open.
        0x2 | 0x3 => ZoneState::Open,
        0x4 => ZoneState::Closed,
        0xd => ZoneState::ReadOnly,
        0xe => ZoneState::Full,
        0xf => ZoneState::Offline,
        _ => return Err(DecodeError("a zone in an unknown state")),
    };
    let (capacity, start, pointer) = (fields.u64(8), fields.u64(16), fields.u64(24));
    let has_pointer = matches!(
        state,
        ZoneState::Empty | ZoneState::Open | ZoneState::Closed
    );
    let written = has_pointer.then(|| pointer.wrapping_sub(start));
    if written.is_some_and(|written| written > capacity) {
        return Err(DecodeError("a write pointer outside its zone"));
    }
    Ok(ZoneDescriptor {
        state,
        start,
        capacity,
        written,
    })
}
