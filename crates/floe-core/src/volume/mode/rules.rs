//! The decisions of a mode about sectors.

/// The state of one sector in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sector {
    /// The cache does not have it.
    Missing,
    /// The cache and the backing device have the same data.
    Clean,
    /// Only the cache has the newest data.
    Dirty,
}

impl Sector {
    /// The state of a sector that the cache has.
    pub const fn valid(is_dirty: bool) -> Sector {
        if is_dirty {
            Sector::Dirty
        } else {
            Sector::Clean
        }
    }
}

/// The source of a sector that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// From the cache.
    Cache,
    /// From the backing device.
    Backing,
    /// From the backing device; then inserted into the cache, clean.
    BackingInsert,
}

/// The destination of a sector that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// To the cache only, which makes it dirty.
    Cache,
    /// To the cache and the backing device; clean when both are done.
    Both,
    /// To the backing device only. The cache does not have the sector.
    Backing,
    /// To the backing device; then the cache forgets the sector. Until the
    /// backing device has the data, a dirty copy stays the newest.
    BackingInvalidate,
}

/// The decisions of one mode. A hit is a clean or dirty sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The source of sectors that are in the cache, if they are clean.
    pub read_hit: Read,
    /// The source of sectors that are not.
    pub read_miss: Read,
    /// The destination of sectors that are in the cache.
    pub write_hit: Write,
    /// The destination of sectors that are not.
    pub write_miss: Write,
}

impl Read {
    /// The decision if the sector may not be inserted.
    pub const fn without_insertion(self) -> Read {
        match self {
            Read::BackingInsert => Read::Backing,
            Read::Cache | Read::Backing => self,
        }
    }
}

impl Write {
    /// The decision about a missing sector if it may not be inserted. Sectors that
    /// the cache has keep their decision: a write must not pass a dirty copy.
    pub const fn without_insertion(self) -> Write {
        match self {
            Write::Cache | Write::Both => Write::Backing,
            Write::Backing | Write::BackingInvalidate => self,
        }
    }
}
