//! Commands of a host, and the device's completions.

use crate::Tick;

/// A command's identifier, chosen by the submitter; its completion carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub u64);

/// A command. Offsets and lengths are bytes, multiples of the device's block.
/// On a zoned device zone z begins at z times the zone size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reads a range. Bytes never written, or trimmed or reset since, read as
    /// zeros.
    Read {
        /// The start of the range.
        offset: u64,
        /// The length of the range; not zero.
        bytes: u64,
    },
    /// Writes a range; on a zoned device, at the zone's write pointer.
    Write {
        /// The start of the range.
        offset: u64,
        /// The length of the range; not zero.
        bytes: u64,
        /// The reclaim-unit handle (FDP); taken modulo their number.
        handle: u16,
    },
    /// Writes at the zone's write pointer, as it is when the command arrives.
    Append {
        /// The zone.
        zone: u32,
        /// The length of the data; not zero.
        bytes: u64,
    },
    /// Deallocates a range (NVMe). Only whole mapping units are freed.
    Trim {
        /// The start of the range.
        offset: u64,
        /// The length of the range.
        bytes: u64,
    },
    /// Empties a zone.
    Reset {
        /// The zone.
        zone: u32,
    },
    /// Makes a zone full; the rest of it is programmed with padding.
    Finish {
        /// The zone.
        zone: u32,
    },
    /// Opens a zone explicitly.
    Open {
        /// The zone.
        zone: u32,
    },
    /// Closes an open zone.
    Close {
        /// The zone.
        zone: u32,
    },
    /// Makes written data durable. The write buffer already is, so that a flush
    /// only takes the time of a command.
    Flush,
    /// Points a reclaim-unit handle at an empty reclaim unit (FDP I/O
    /// Management Send).
    UpdateHandle {
        /// The handle.
        handle: u16,
    },
}

/// A finished command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The command.
    pub id: CommandId,
    /// The time of completion.
    pub at: Tick,
    /// The position of an append, as a byte offset on the device; `None` for
    /// other commands.
    pub appended_at: Option<u64>,
}

/// Why a drive rejects a command. Status code type and code are those of the
/// NVMe base and the Zoned Namespace command set specifications. A rejected
/// command has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The device has no such command.
    #[error("invalid command opcode")]
    InvalidOpcode,
    /// The length is zero, not whole blocks, or above the maximum of an append.
    #[error("invalid field in command")]
    InvalidField,
    /// The range, zone or handle is not on the device.
    #[error("LBA out of range")]
    OutOfRange,
    /// The range crosses a zone's end or capacity.
    #[error("zone boundary error")]
    ZoneBoundary,
    /// The zone is full.
    #[error("zone is full")]
    ZoneFull,
    /// The write is not at the write pointer.
    #[error("zone invalid write")]
    ZoneInvalidWrite,
    /// The zone cannot become active: the limit is reached.
    #[error("too many active zones")]
    TooManyActiveZones,
    /// The zone cannot be opened: the limit is reached by explicitly open
    /// zones.
    #[error("too many open zones")]
    TooManyOpenZones,
    /// The zone's state does not allow the requested transition.
    #[error("invalid zone state transition")]
    InvalidTransition,
}

impl Rejection {
    /// Status code type and status code.
    pub fn status(self) -> (u8, u8) {
        match self {
            Rejection::InvalidOpcode => (0, 0x01),
            Rejection::InvalidField => (0, 0x02),
            Rejection::OutOfRange => (0, 0x80),
            Rejection::ZoneBoundary => (1, 0xb8),
            Rejection::ZoneFull => (1, 0xb9),
            Rejection::ZoneInvalidWrite => (1, 0xbc),
            Rejection::TooManyActiveZones => (1, 0xbd),
            Rejection::TooManyOpenZones => (1, 0xbe),
            Rejection::InvalidTransition => (1, 0xbf),
        }
    }
}

/// A zone's state (NVMe ZNS, "Zone State Machine"). The model has no media
/// errors, hence no read-only and no offline zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZoneCondition {
    /// Nothing written since the last reset.
    #[default]
    Empty,
    /// Opened by a write.
    ImplicitlyOpen,
    /// Opened by a command.
    ExplicitlyOpen,
    /// Active but not open.
    Closed,
    /// Accepts nothing until reset.
    Full,
}

impl ZoneCondition {
    /// True if the zone counts towards the limit of open zones.
    pub fn is_open(self) -> bool {
        matches!(
            self,
            ZoneCondition::ImplicitlyOpen | ZoneCondition::ExplicitlyOpen
        )
    }

    /// The state's number in saved states.
    pub(super) fn code(self) -> u64 {
        match self {
            ZoneCondition::Empty => 0,
            ZoneCondition::ImplicitlyOpen => 1,
            ZoneCondition::ExplicitlyOpen => 2,
            ZoneCondition::Closed => 3,
            ZoneCondition::Full => 4,
        }
    }

    /// The state with that number in saved states.
    pub(super) fn of(code: u64) -> Option<Self> {
        Some(match code {
            0 => ZoneCondition::Empty,
            1 => ZoneCondition::ImplicitlyOpen,
            2 => ZoneCondition::ExplicitlyOpen,
            3 => ZoneCondition::Closed,
            4 => ZoneCondition::Full,
            _ => return None,
        })
    }

    /// True if the zone counts towards the limit of active zones.
    pub fn is_active(self) -> bool {
        self.is_open() || self == ZoneCondition::Closed
    }
}

/// One zone of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneDescriptor {
    /// Its state.
    pub condition: ZoneCondition,
    /// Bytes from its start that commands have claimed.
    pub write_pointer: u64,
    /// Number of resets: the generation of the data in the zone.
    pub resets: u32,
}

/// Identifies the write whose data an address holds. It exposes stale data
/// although the simulation keeps no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The start of the mapping unit or zone that holds the address.
    pub offset: u64,
    /// The length of that mapping unit or zone.
    pub bytes: u64,
    /// For a mapping unit: the number of the write, from 1. For a zone: the
    /// number of resets before the write, from 0. `None` reads as zeros.
    pub generation: Option<u32>,
}
