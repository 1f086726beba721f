//! The frame at the start of every structure: magic, checksum, version, kind,
//! covered length, count. The module above has its byte table.

use super::checksum::crc32c;
use super::error::LayoutError;
use super::ids::CacheId;
use super::structure::{Identified, Structure, identify};
use super::wire::{first, first_mut, narrow, put_u16, put_u32, u16_at, u32_at};

/// Length of the frame.
pub const FRAME_BYTES: usize = 24;

/// Start of the checksummed part: after the magic and the checksum.
const CHECKED_FROM: usize = 12;

/// The parts of a frame that its structure chooses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) structure: Structure,
    pub(super) kind: u16,
    pub(super) count: u32,
}

/// A frame whose checksum held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened<'a> {
    pub(super) kind: u16,
    pub(super) count: u32,
    pub(super) checksum: u32,
    /// The bytes from offset 0 to the covered length, the frame included.
    pub(super) covered: &'a [u8],
}

/// Writes the frame over the start of `covered`, whose other bytes must be
/// final. Returns the checksum.
pub(super) fn seal(id: CacheId, frame: Frame, covered: &mut [u8]) -> Result<u32, LayoutError> {
    let len = narrow(covered.len())?;
    let head = first_mut::<FRAME_BYTES>(covered)?;
    head[..8].copy_from_slice(&frame.structure.magic());
    put_u16(head, 12, frame.structure.version());
    put_u16(head, 14, frame.kind);
    put_u32(head, 16, len);
    put_u32(head, 20, frame.count);
    let checksum = crc32c([&id.0, &covered[CHECKED_FROM..]]);
    put_u32(first_mut::<FRAME_BYTES>(covered)?, 8, checksum);
    Ok(checksum)
}

/// Checks magic, checksum and version of the structure at the start of `bytes`.
pub(super) fn open(
    id: CacheId,
    structure: Structure,
    bytes: &[u8],
) -> Result<Opened<'_>, LayoutError> {
    match identify(bytes) {
        Identified::Claims(found) if found == structure => {}
        Identified::Claims(found) => return Err(LayoutError::Unexpected(found)),
        // A few zero bytes do not show that a whole structure is blank.
        _ if bytes.len() < FRAME_BYTES => {
            return Err(LayoutError::TooShort {
                needed: FRAME_BYTES,
                available: bytes.len(),
            });
        }
        Identified::Blank => return Err(LayoutError::Blank),
        Identified::Foreign => return Err(LayoutError::Foreign),
    }
    let head = first::<FRAME_BYTES>(bytes)?;
    let len = u32_at(head, 16) as usize;
    if len < FRAME_BYTES {
        return Err(LayoutError::BadChecksum);
    }
    let covered = bytes.get(..len).ok_or(LayoutError::TooShort {
        needed: len,
        available: bytes.len(),
    })?;
    let checksum = u32_at(head, 8);
    if checksum != crc32c([&id.0, &covered[CHECKED_FROM..]]) {
        return Err(LayoutError::BadChecksum);
    }
    // Checked after the checksum: a flipped bit in the version is damage, not a
    // newer format.
    let (found, supported) = (u16_at(head, 12), structure.version());
    if found != supported {
        return Err(LayoutError::UnsupportedVersion { found, supported });
    }
    Ok(Opened {
        kind: u16_at(head, 14),
        count: u32_at(head, 20),
        checksum,
        covered,
    })
}
