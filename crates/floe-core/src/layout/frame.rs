//! The frame every structure starts with: magic, checksum, version, kind,
//! covered length, count. The byte table stands in the module above.

use std::fmt;

use super::checksum::crc32c;
use super::error::LayoutError;
use super::ids::CacheId;
use super::wire::{first, first_mut, narrow, put_u16, put_u32, u16_at, u32_at};

/// The format of chunk caches that this build writes and reads.
pub const FORMAT_VERSION: u16 = 2;

/// The format of tiny objects that this build writes and reads.
pub const TINY_FORMAT_VERSION: u16 = 1;

/// Length of the frame.
pub const FRAME_BYTES: usize = 24;

/// Where the checksummed part starts: after the magic and the checksum.
const CHECKED_FROM: usize = 12;

/// The structures that start at a block boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Structure {
    /// What the cache is; the first block of a metadata zone.
    Superblock,
    /// The first block of every other zone.
    ZoneHeader,
    /// One append: small records, a piece, or a large descriptor.
    Batch,
    /// A page of the list of a full zone's records.
    Summary,
    /// A block of notes in a metadata zone.
    Journal,
    /// A block of a zone's slot table.
    SlotTable,
    /// What a cache of tiny objects is; the first block of a metadata zone.
    TinySuperblock,
    /// A block of fences in a metadata zone of such a cache.
    Fences,
}

impl Structure {
    /// All of them.
    pub const ALL: [Structure; 8] = [
        Structure::Superblock,
        Structure::ZoneHeader,
        Structure::Batch,
        Structure::Summary,
        Structure::Journal,
        Structure::SlotTable,
        Structure::TinySuperblock,
        Structure::Fences,
    ];

    /// The eight bytes it starts with.
    pub const fn magic(self) -> [u8; 8] {
        match self {
            Structure::Superblock => *b"FloeSup\x91",
            Structure::ZoneHeader => *b"FloeZon\x92",
            Structure::Batch => *b"FloeBat\x93",
            Structure::Summary => *b"FloeSum\x94",
            Structure::Journal => *b"FloeJou\x95",
            Structure::SlotTable => *b"FloeSlo\x96",
            Structure::TinySuperblock => *b"FloeTin\x97",
            Structure::Fences => *b"FloeFen\x98",
        }
    }

    /// The version of its format that this build writes and reads.
    pub const fn version(self) -> u16 {
        match self {
            Structure::TinySuperblock | Structure::Fences => TINY_FORMAT_VERSION,
            _ => FORMAT_VERSION,
        }
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Structure::Superblock => "superblock",
            Structure::ZoneHeader => "zone header",
            Structure::Batch => "batch",
            Structure::Summary => "zone summary",
            Structure::Journal => "journal block",
            Structure::SlotTable => "slot table block",
            Structure::TinySuperblock => "tiny superblock",
            Structure::Fences => "fence block",
        })
    }
}

/// What some bytes claim to be, by their magic alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identified {
    /// All zeros, or no bytes at all.
    Blank,
    /// They start with this structure's magic; nothing else was checked.
    Claims(Structure),
    /// Anything else.
    Foreign,
}

/// Says what `bytes` claim to be, without checking the claim.
pub fn identify(bytes: &[u8]) -> Identified {
    if let Some(magic) = bytes.first_chunk::<8>()
        && let Some(structure) = Structure::ALL.into_iter().find(|s| s.magic() == *magic)
    {
        return Identified::Claims(structure);
    }
    if bytes.iter().all(|&byte| byte == 0) {
        Identified::Blank
    } else {
        Identified::Foreign
    }
}

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
    /// From offset 0 to the covered length, the frame included.
    pub(super) covered: &'a [u8],
}

/// Writes the frame over the start of `covered`, whose other bytes must be
/// final, and returns the checksum.
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

/// Checks magic, checksum and version of what `bytes` start with.
pub(super) fn open(
    id: CacheId,
    structure: Structure,
    bytes: &[u8],
) -> Result<Opened<'_>, LayoutError> {
    match identify(bytes) {
        Identified::Claims(found) if found == structure => {}
        Identified::Claims(found) => return Err(LayoutError::Unexpected(found)),
        // A few zero bytes say nothing about what a whole structure would hold.
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
    // Only now: a flipped bit in the version is damage, not a newer format.
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
