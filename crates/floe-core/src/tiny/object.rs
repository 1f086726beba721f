//! Objects of tiny engines, and the pages that hold them.

use crate::hash::KeyHash;

/// Bytes of a page: the unit of reading, and of writing in place.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of a page's header.
pub const PAGE_HEADER_BYTES: usize = 24;

/// Bytes of a page for objects.
pub const PAGE_ROOM_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;

/// Bytes of an object's header: lengths of key and value, flags.
pub const OBJECT_HEADER_BYTES: usize = 4;

/// Bytes of an expiry time, if an object has one.
pub const EXPIRY_BYTES: usize = 4;

/// The largest prediction: it has three bits of an object's header.
pub const PREDICTION_MAX: u8 = 7;

/// Bytes of a tombstone besides its header: the hash of its key.
pub const TOMBSTONE_BYTES: usize = 8;

/// Most bytes of key and value together: an object must fit an empty page.
pub const OBJECT_BYTES_MAX: usize = PAGE_ROOM_BYTES - OBJECT_HEADER_BYTES - EXPIRY_BYTES;

/// Seconds since the cache's epoch; zero for never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expiry(pub u32);

impl Expiry {
    /// Never expires.
    pub const NEVER: Expiry = Expiry(0);

    /// True if an object with this expiry has expired at `now_seconds`.
    pub fn is_over(self, now_seconds: u32) -> bool {
        self != Expiry::NEVER && self.0 <= now_seconds
    }
}

/// An object or a tombstone, as engines see it.
///
/// Engines decide by hash and length. `record` carries the bytes and is empty
/// where only decisions matter (an empty box allocates nothing). An engine
/// takes two keys with the same hash for one object: the newer replaces the
/// older. Readers therefore compare the whole key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The hash of the key.
    pub hash: KeyHash,
    /// Bytes of key and value; zero for a tombstone.
    pub bytes: u32,
    /// The expiry time.
    pub expires: Expiry,
    /// This is a tombstone: all older copies of the hash are stale.
    pub tombstone: bool,
    /// RRIP prediction of the next use, from 0 (soon) to [`PREDICTION_MAX`]
    /// (late), stored in the object's header. Engines that do not predict
    /// ignore it.
    pub prediction: u8,
    /// The driver was told to fence it, because it supersedes copies on
    /// flash. Only used in memory.
    pub fenced: bool,
    /// Its insert found no older copy on flash or recoverable after a
    /// crash. Only used in memory.
    pub first_copy: bool,
    /// Key and value, encoded.
    pub record: Box<[u8]>,
}

impl Object {
    /// An object of `bytes` bytes that never expires, with an empty record.
    pub fn sized(hash: KeyHash, bytes: u32) -> Self {
        Object {
            hash,
            bytes,
            expires: Expiry::NEVER,
            tombstone: false,
            fenced: false,
            first_copy: false,
            prediction: 0,
            record: Box::default(),
        }
    }

    /// A tombstone for `hash`.
    pub fn tombstone(hash: KeyHash) -> Self {
        Object {
            tombstone: true,
            ..Object::sized(hash, 0)
        }
    }

    /// Bytes that it takes in a page.
    pub fn stored_bytes(&self) -> usize {
        if self.tombstone {
            return OBJECT_HEADER_BYTES + TOMBSTONE_BYTES;
        }
        let expiry = if self.expires == Expiry::NEVER {
            0
        } else {
            EXPIRY_BYTES
        };
        OBJECT_HEADER_BYTES + expiry + self.bytes as usize
    }

    /// The object, or its tombstone if it does not fit a page: older copies
    /// must not stay alive.
    pub(super) fn or_tombstone(self) -> Self {
        if self.stored_bytes() > PAGE_ROOM_BYTES {
            return Object::tombstone(self.hash);
        }
        self
    }
}

/// A page's number: pages are numbered zone by zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageAddress(pub u32);

impl PageAddress {
    /// The number as a slice index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The flash that an engine manages, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flash {
    /// Zones that the engine may use, numbered from zero.
    pub zones: u32,
    /// Pages of a zone.
    pub zone_pages: u32,
    /// A page may be rewritten without a reset of its zone.
    pub in_place: bool,
}

impl Flash {
    /// Number of pages.
    pub fn pages(&self) -> u64 {
        u64::from(self.zones) * u64::from(self.zone_pages)
    }

    /// The first page of a zone.
    pub fn first_page(&self, zone: u32) -> PageAddress {
        PageAddress(zone * self.zone_pages)
    }

    /// The zone of a page.
    pub fn zone_of(&self, page: PageAddress) -> u32 {
        page.0 / self.zone_pages
    }
}
