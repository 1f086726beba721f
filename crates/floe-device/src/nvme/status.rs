//! Status codes of completed commands.
//!
//! The table follows the NVMe base, NVM and zoned-namespace command set specifications.

use std::fmt;

use crate::zone_state::ZoneState;

/// The status of a failed command: the type in bits 8 to 10, the code in bits 0 to 7.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

/// The failures that a device acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The command or one of its fields is invalid, or not supported.
    InvalidCommand,
    /// The blocks lie outside the namespace.
    OutOfRange,
    /// The drive has no room for the data.
    NoSpace,
    /// Writing is not allowed.
    WriteProtected,
    /// The drive cannot execute the command now.
    NotReady,
    /// The command was aborted.
    Aborted,
    /// The drive or the way to it failed.
    Internal,
    /// The command crosses the end of a zone's capacity or a zone boundary.
    ZoneBoundary,
    /// The zone is full.
    ZoneFull,
    /// The zone can be read only.
    ZoneReadOnly,
    /// The zone cannot be used.
    ZoneOffline,
    /// The write does not start at the write pointer.
    ZoneInvalidWrite,
    /// The limit of active zones is reached.
    TooManyActiveZones,
    /// The limit of open zones is reached.
    TooManyOpenZones,
    /// The zone's state does not allow the transition.
    ZoneTransition,
    /// The medium could not be written.
    WriteFault,
    /// The medium could not be read.
    UnrecoveredRead,
    /// The data does not agree with its protection information.
    Protection,
    /// Any other status.
    Other,
}

impl Fault {
    /// True if the state of a zone, or a limit of zones, forbids the command.
    pub fn is_of_zone(self) -> bool {
        matches!(
            self,
            Fault::ZoneBoundary
                | Fault::ZoneFull
                | Fault::ZoneReadOnly
                | Fault::ZoneOffline
                | Fault::ZoneInvalidWrite
                | Fault::TooManyActiveZones
                | Fault::TooManyOpenZones
                | Fault::ZoneTransition
        )
    }
}

/// Each status and its name, in ascending order.
const NAMES: &str = "\
001 invalid command opcode
002 invalid field in command
003 command identifier conflict
004 data transfer error
005 aborted due to power loss
006 internal error
007 command abort requested
008 aborted due to queue deletion
00b invalid namespace or format
00c command sequence error
00d invalid segment descriptor
00e invalid number of descriptors
00f invalid length of data
015 operation denied
01c sanitize failed
01d sanitize in progress
020 namespace is write protected
021 command interrupted
022 transient transport error
029 data placement disabled
02a invalid placement handle list
080 block out of range
081 capacity exceeded
082 namespace not ready
083 reservation conflict
084 format in progress
109 invalid log page
10a invalid format
10d feature not saveable
180 conflicting attributes
181 invalid protection information
182 write to read-only range
183 command size limit exceeded
1b8 zone boundary error
1b9 zone is full
1ba zone is read only
1bb zone is offline
1bc zone invalid write
1bd too many active zones
1be too many open zones
1bf invalid zone state transition
280 write fault
281 unrecovered read error
282 guard check error
283 application tag check error
284 reference tag check error
286 access denied
287 deallocated or unwritten block
288 storage tag check error
300 internal path error
301 access persistently lost
302 access inaccessible
303 access transition
360 controller pathing error
370 host pathing error
371 command aborted by host";

impl Fault {
    /// True if the same command may succeed later, on the same zone.
    pub fn is_transient(self) -> bool {
        matches!(self, Fault::NotReady | Fault::Aborted | Fault::Internal)
    }

    /// The state of a zone that takes no data any more.
    pub fn unwritable(self) -> Option<ZoneState> {
        match self {
            Fault::ZoneReadOnly => Some(ZoneState::ReadOnly),
            Fault::ZoneOffline => Some(ZoneState::Offline),
            _ => None,
        }
    }
}

impl Status {
    /// Every status that has a name.
    pub fn named() -> impl Iterator<Item = Self> {
        NAMES.lines().filter_map(row).map(|(code, _)| Status(code))
    }

    /// The status in the kernel's result of a command; `None` if that is success. Bits for
    /// retries and more information are dropped.
    pub fn from_result(result: u32) -> Option<Self> {
        const TYPE_AND_CODE: u32 = 0x7ff;
        let status = (result & TYPE_AND_CODE) as u16;
        (status != 0).then_some(Status(status))
    }

    /// The type in bits 8 to 10 and the code in bits 0 to 7.
    pub fn code(self) -> u16 {
        self.0
    }

    /// The status's kind.
    pub fn fault(self) -> Fault {
        match self.0 {
            0x001 | 0x002 | 0x003 | 0x00b | 0x00c | 0x015 | 0x029 | 0x02a | 0x109 | 0x10a
            | 0x10d | 0x180 | 0x183 => Fault::InvalidCommand,
            0x004 | 0x006 | 0x00d | 0x00e | 0x00f | 0x022 | 0x300 | 0x301 | 0x302 | 0x360
            | 0x370 => Fault::Internal,
            0x005 | 0x007 | 0x008 | 0x371 => Fault::Aborted,
            0x01c | 0x01d | 0x021 | 0x082 | 0x084 | 0x303 => Fault::NotReady,
            0x020 | 0x083 | 0x182 | 0x286 => Fault::WriteProtected,
            0x080 => Fault::OutOfRange,
            0x081 => Fault::NoSpace,
            0x181 | 0x282 | 0x283 | 0x284 | 0x288 => Fault::Protection,
            0x1b8 => Fault::ZoneBoundary,
            0x1b9 => Fault::ZoneFull,
            0x1ba => Fault::ZoneReadOnly,
            0x1bb => Fault::ZoneOffline,
            0x1bc => Fault::ZoneInvalidWrite,
            0x1bd => Fault::TooManyActiveZones,
            0x1be => Fault::TooManyOpenZones,
            0x1bf => Fault::ZoneTransition,
            0x280 => Fault::WriteFault,
            0x281 | 0x287 => Fault::UnrecoveredRead,
            _ => Fault::Other,
        }
    }

    fn name(self) -> Option<&'static str> {
        let mut rows = NAMES.lines().filter_map(row);
        let (_, name) = rows.find(|(code, _)| *code == self.0)?;
        Some(name)
    }
}

/// The code and the name of a line.
fn row(line: &str) -> Option<(u16, &str)> {
    let (code, name) = line.split_once(' ')?;
    Some((u16::from_str_radix(code, 16).ok()?, name))
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name().unwrap_or("unknown status");
        write!(f, "the drive answered: {name} (status {:#05x})", self.0)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({:#05x})", self.0)
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_each_status_has_its_kind() {
        let rows: Vec<_> = NAMES.lines().map(|line| row(line).unwrap()).collect();
        assert!(rows.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (code, name) in rows {
            // Do Not Retry, More, and a retry delay do not change the status.
            for bits in [0, 0x4000, 0x2000, 0x1800] {
                let status = Status::from_result(u32::from(code) | bits).unwrap();
                assert_eq!(status.code(), code);
                assert_ne!(status.fault(), Fault::Other);
                assert!(status.to_string().contains(name));
            }
        }
        let kinds = [
            (0x081, Fault::NoSpace),
            (0x1b8, Fault::ZoneBoundary),
            (0x1b9, Fault::ZoneFull),
            (0x1ba, Fault::ZoneReadOnly),
            (0x1bb, Fault::ZoneOffline),
            (0x1bc, Fault::ZoneInvalidWrite),
            (0x1bd, Fault::TooManyActiveZones),
            (0x1be, Fault::TooManyOpenZones),
            (0x1bf, Fault::ZoneTransition),
            (0x280, Fault::WriteFault),
            (0x281, Fault::UnrecoveredRead),
        ];
        for (code, fault) in kinds {
            assert_eq!(Status::from_result(code).unwrap().fault(), fault);
        }
        assert_eq!(Status::from_result(0), None);
        assert_eq!(Status::from_result(0x4000), None);
        let unknown = Status::from_result(0x7ff).unwrap();
        assert_eq!(unknown.fault(), Fault::Other);
        assert!(unknown.to_string().contains("0x7ff"));
    }
}
