//! The structures on flash, their versions, and the magics that distinguish
//! them.

/// The format of chunk caches that this build writes and reads.
pub const FORMAT_VERSION: u16 = 3;

/// The format of tiny objects that this build writes and reads.
pub const TINY_FORMAT_VERSION: u16 = 3;

/// The format of caches of volumes that this build writes and reads.
pub const VOLUME_FORMAT_VERSION: u16 = 1;

/// The format of labels of drives of an array that this build writes and reads.
pub const ARRAY_FORMAT_VERSION: u16 = 1;

/// The structures that start at a block boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Structure {
    /// The identity and the format of the cache; the first block of a metadata zone.
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
    /// The identity and the format of a cache of tiny objects; the first block
    /// of a metadata zone.
    TinySuperblock,
    /// A block of fences in a metadata zone of such a cache.
    Fences,
    /// The identity, the plan and the volumes of a cache of volumes.
    VolumeSuperblock,
    /// Records of blocks of such a cache.
    BlockLog,
    /// A page of its table of blocks.
    BlockTable,
    /// The volumes that went on without such a cache.
    VolumeWitness,
    /// The place of a drive in an array; the first block of its first two zones.
    ArrayLabel,
}

crate::names! {
    Structure {
        Superblock => "superblock",
        ZoneHeader => "zone header",
        Batch => "batch",
        Summary => "zone summary",
        Journal => "journal block",
        SlotTable => "slot table block",
        TinySuperblock => "tiny superblock",
        Fences => "fence block",
        VolumeSuperblock => "volume superblock",
        BlockLog => "block log",
        BlockTable => "block table",
        VolumeWitness => "volume witness",
        ArrayLabel => "label of an array",
    }
}

impl Structure {
    /// The structure's first eight bytes.
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
            Structure::VolumeSuperblock => *b"FloeVol\x99",
            Structure::BlockLog => *b"FloeBlg\x9a",
            Structure::BlockTable => *b"FloeBtb\x9b",
            Structure::VolumeWitness => *b"FloeWit\x9c",
            Structure::ArrayLabel => *b"FloeArr\x9d",
        }
    }

    /// True for the first block of a metadata zone, which tells kinds of caches apart.
    pub const fn is_superblock(self) -> bool {
        matches!(
            self,
            Structure::Superblock
                | Structure::TinySuperblock
                | Structure::VolumeSuperblock
                | Structure::ArrayLabel
        )
    }

    /// The version of its format that this build writes and reads.
    pub const fn version(self) -> u16 {
        match self {
            Structure::TinySuperblock | Structure::Fences => TINY_FORMAT_VERSION,
            Structure::VolumeSuperblock
            | Structure::BlockLog
            | Structure::BlockTable
            | Structure::VolumeWitness => VOLUME_FORMAT_VERSION,
            Structure::ArrayLabel => ARRAY_FORMAT_VERSION,
            _ => FORMAT_VERSION,
        }
    }
}

/// The structure that bytes appear to be, by their magic alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identified {
    /// All zeros, or no bytes at all.
    Blank,
    /// The bytes start with this structure's magic; nothing else was checked.
    Claims(Structure),
    /// Anything else.
    Foreign,
}

/// Identifies `bytes` by their magic, without further checks.
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
