//! What a host asks of a device and what it is told.

use crate::Tick;

/// A command's name, chosen by whoever submits it; completions carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub u64);

/// A command. Offsets and lengths are bytes, multiples of the device's block.
/// On a zoned device zone z begins at z times the zone size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reads a range. What was never written, trimmed or reset reads as zeros.
    Read {
        /// Where it begins.
        offset: u64,
        /// How long it is; not zero.
        bytes: u64,
    },
    /// Writes a range; on a zoned device, at the zone's write pointer.
    Write {
        /// Where it begins.
        offset: u64,
        /// How long it is; not zero.
        bytes: u64,
        /// The reclaim-unit handle (FDP); taken modulo their number.
        handle: u16,
    },
    /// Writes where the zone's write pointer is when the command arrives.
    Append {
        /// The zone.
        zone: u32,
        /// How long it is; not zero.
        bytes: u64,
    },
    /// Gives up a range (NVMe deallocate). Only whole mapping units are freed.
    Trim {
        /// Where it begins.
        offset: u64,
        /// How long it is.
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
    /// Makes what was written durable; the buffer is, so it only takes the
    /// time of a command.
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
    /// Which command.
    pub id: CommandId,
    /// When it was finished.
    pub at: Tick,
    /// Where an append landed, as a byte offset on the device; `None` for
    /// other commands.
    pub appended_at: Option<u64>,
}

/// Why a command was refused, as an NVMe drive says it: the status code type
/// and code are those of the NVMe base and the Zoned Namespace command set
/// specifications. A refused command has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The device has no such command.
    #[error("invalid command opcode")]
    InvalidOpcode,
    /// A length of zero, or not whole blocks, or more than an append may have.
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
    /// The zone cannot become active: too many are.
    #[error("too many active zones")]
    TooManyActiveZones,
    /// The zone cannot be opened: too many are explicitly open.
    #[error("too many open zones")]
    TooManyOpenZones,
    /// The zone cannot go from its state to the one asked for.
    #[error("invalid zone state transition")]
    InvalidTransition,
}

impl Refusal {
    /// Status code type and status code.
    pub fn status(self) -> (u8, u8) {
        match self {
            Refusal::InvalidOpcode => (0, 0x01),
            Refusal::InvalidField => (0, 0x02),
            Refusal::OutOfRange => (0, 0x80),
            Refusal::ZoneBoundary => (1, 0xb8),
            Refusal::ZoneFull => (1, 0xb9),
            Refusal::ZoneInvalidWrite => (1, 0xbc),
            Refusal::TooManyActiveZones => (1, 0xbd),
            Refusal::TooManyOpenZones => (1, 0xbe),
            Refusal::InvalidTransition => (1, 0xbf),
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
    /// Whether the zone counts towards the limit of open zones.
    pub fn is_open(self) -> bool {
        matches!(
            self,
            ZoneCondition::ImplicitlyOpen | ZoneCondition::ExplicitlyOpen
        )
    }

    /// Its number in saved states.
    pub(super) fn code(self) -> u64 {
        match self {
            ZoneCondition::Empty => 0,
            ZoneCondition::ImplicitlyOpen => 1,
            ZoneCondition::ExplicitlyOpen => 2,
            ZoneCondition::Closed => 3,
            ZoneCondition::Full => 4,
        }
    }

    /// The state with a number.
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

    /// Whether the zone counts towards the limit of active zones.
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
    /// How often it was reset: the generation of what is written in it.
    pub resets: u32,
}

/// What the medium holds at an address: which write's data, so that a lie is
/// caught although no data is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where the piece that was written as one begins: a mapping unit or zone.
    pub offset: u64,
    /// How long that piece is.
    pub bytes: u64,
    /// Which write of the mapping unit (counted from 1) it is from, or how
    /// often the zone had been reset when it was written (counted from 0);
    /// `None` reads as zeros.
    pub generation: Option<u32>,
}
