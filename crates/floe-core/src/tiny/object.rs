//! Objects of tiny engines, and the pages that hold them.

use crate::hash::KeyHash;

/// Bytes of a page: the unit of reading, and of writing in place.
pub const PAGE_BYTES: usize = 4096;

/// Bytes of a page that its header takes.
pub const PAGE_HEADER_BYTES: usize = 24;

/// Bytes of a page that objects may take.
pub const PAGE_ROOM_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;

/// Bytes in front of each object in a page: lengths of key and value, flags.
pub const OBJECT_HEADER_BYTES: usize = 4;

/// Bytes of an expiry time, where an object has one.
pub const EXPIRY_BYTES: usize = 4;

/// The largest prediction: three bits of an object's header.
pub const PREDICTION_MAX: u8 = 7;

/// Bytes that a tombstone takes besides its header: the hash of its key.
pub const TOMBSTONE_BYTES: usize = 8;

/// Most bytes of key and value together: one object must fit an empty page.
pub const OBJECT_BYTES_MAX: usize = PAGE_ROOM_BYTES - OBJECT_HEADER_BYTES - EXPIRY_BYTES;

/// Seconds since the cache's epoch; zero for never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expiry(pub u32);

impl Expiry {
    /// Never expires.
    pub const NEVER: Expiry = Expiry(0);

    /// Whether an object with this expiry is gone at `now_seconds`.
    pub fn is_over(self, now_seconds: u32) -> bool {
        self != Expiry::NEVER && self.0 <= now_seconds
    }
}

/// An object as engines see it, or the news that there is none any more.
///
/// Engines decide by hash and length. The bytes travel along in `record`;
/// whoever only wants the decisions leaves them empty (an empty box allocates
/// nothing). Two keys with one hash are one object to an engine: the newer
/// replaces the older, which is a cache forgetting; whoever reads compares the
/// whole key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The hash of the key.
    pub hash: KeyHash,
    /// Bytes of key and value; zero for a tombstone.
    pub bytes: u32,
    /// When it is gone.
    pub expires: Expiry,
    /// Whether it says that older objects of this hash are dead.
    pub tombstone: bool,
    /// How long a set expects to wait for its next use, 0 (soon) to
    /// [`PREDICTION_MAX`] (late). It is kept with the object, in its header;
    /// engines that predict nothing leave it alone.
    pub prediction: u8,
    /// Whether it was said of it that it outdates what is on flash; only of
    /// objects in memory.
    pub noted: bool,
    /// Whether nothing older of it was on flash, or could be there after a
    /// crash, when it came; only of objects in memory.
    pub alone: bool,
    /// Key and value, encoded.
    pub record: Box<[u8]>,
}

impl Object {
    /// An object of `bytes` bytes that never expires, without its bytes.
    pub fn sized(hash: KeyHash, bytes: u32) -> Self {
        Object {
            hash,
            bytes,
            expires: Expiry::NEVER,
            tombstone: false,
            noted: false,
            alone: false,
            prediction: 0,
            record: Box::default(),
        }
    }

    /// The news that `hash` is dead.
    pub fn tombstone(hash: KeyHash) -> Self {
        Object {
            tombstone: true,
            ..Object::sized(hash, 0)
        }
    }

    /// Bytes it takes in a page.
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

    /// The object, or its tombstone if it fits no page: an older copy of it must
    /// not stay alive.
    pub(super) fn or_tombstone(self) -> Self {
        if self.stored_bytes() > PAGE_ROOM_BYTES {
            return Object::tombstone(self.hash);
        }
        self
    }
}

/// A page's number on its device: zone after zone, page after page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageAddress(pub u32);

impl PageAddress {
    /// The number as a slice index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The shape of the flash that an engine lives on, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flash {
    /// Zones that the engine may use; it numbers them from zero.
    pub zones: u32,
    /// Pages of a zone.
    pub zone_pages: u32,
    /// Whether a page may be written again without resetting its zone.
    pub in_place: bool,
}

impl Flash {
    /// All pages.
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
