//! A device as an engine core sees it: zones of blocks.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A zone's number on its device, from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneId(pub u32);

impl ZoneId {
    /// The number as a slice index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ZoneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A byte position: a zone and an offset from that zone's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The zone.
    pub zone: ZoneId,
    /// Bytes from the zone's start; below the zone capacity.
    pub offset: u64,
}

impl Address {
    /// An address from its parts.
    pub fn new(zone: ZoneId, offset: u64) -> Self {
        Address { zone, offset }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zone {} + {:#x}", self.zone, self.offset)
    }
}

/// A device's shape. All sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// The unit of reading and writing; a power of two, at least 512.
    pub block_size: u32,
    /// Distance between the starts of two zones; a multiple of `block_size`.
    pub zone_size: u64,
    /// Writable bytes of a zone, at most `zone_size`; a multiple of `block_size`.
    pub zone_capacity: u64,
    /// Number of zones.
    pub zone_count: u32,
    /// Most zones that may be open at once; `None` where the device sets no limit.
    pub max_open_zones: Option<u32>,
    /// Most zones that may be active (open, or written and neither full nor
    /// reset); `None` where the device sets no limit.
    pub max_active_zones: Option<u32>,
    /// Most bytes of one append; a multiple of `block_size`.
    pub max_append_bytes: u32,
    /// `write` may go to any block of a zone, in any order.
    pub random_writes: bool,
    /// The device itself chooses where an append lands (ZNS zone
    /// append). Otherwise the driver emulates append with a write pointer.
    pub native_append: bool,
    /// Number of placement handles (FDP reclaim-unit handles) to choose from;
    /// zero where there are none.
    pub placement_handles: u16,
}

/// Why a geometry is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device geometry: {0}")]
pub struct GeometryError(pub String);

impl Geometry {
    /// The shape of `zone_count` zones of `zone_bytes` whose blocks of 4 KiB may
    /// be written in any order, as those of a file or of memory.
    pub fn in_place(zone_count: u32, zone_bytes: u64) -> Self {
        Geometry {
            block_size: 4096,
            zone_size: zone_bytes,
            zone_capacity: zone_bytes,
            zone_count,
            max_open_zones: None,
            max_active_zones: None,
            max_append_bytes: 1 << 20,
            random_writes: true,
            native_append: false,
            placement_handles: 0,
        }
    }

    /// Bytes that can be written over all zones.
    pub fn total_capacity(&self) -> u64 {
        self.zone_capacity * u64::from(self.zone_count)
    }

    /// All zones in order.
    pub fn zones(&self) -> impl Iterator<Item = ZoneId> + use<> {
        (0..self.zone_count).map(ZoneId)
    }

    /// `bytes` rounded up to whole blocks.
    pub fn round_up(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(u64::from(self.block_size))
    }

    /// `offset` rounded down to a block boundary.
    pub fn round_down(&self, offset: u64) -> u64 {
        offset - offset % u64::from(self.block_size)
    }

    /// True if `offset` and `len` are whole blocks.
    pub fn is_aligned(&self, offset: u64, len: u64) -> bool {
        let block = u64::from(self.block_size);
        offset.is_multiple_of(block) && len.is_multiple_of(block)
    }

    /// Checks that the numbers are consistent.
    ///
    /// # Errors
    /// Names the first number that is not.
    pub fn validate(&self) -> Result<(), GeometryError> {
        let fail = |why: String| Err(GeometryError(why));
        let block = u64::from(self.block_size);
        if !self.block_size.is_power_of_two() || self.block_size < 512 {
            return fail(format!(
                "block size {} is not a power of two of at least 512",
                self.block_size
            ));
        }
        if self.zone_count == 0 {
            return fail("there are no zones".into());
        }
        if self.zone_capacity == 0 || self.zone_capacity > self.zone_size {
            return fail(format!(
                "zone capacity {} is not within 1..={}",
                self.zone_capacity, self.zone_size
            ));
        }
        for (name, bytes) in [
            ("zone size", self.zone_size),
            ("zone capacity", self.zone_capacity),
            ("maximum append", u64::from(self.max_append_bytes)),
        ] {
            if bytes == 0 || !bytes.is_multiple_of(block) {
                return fail(format!(
                    "{name} {bytes} is not a positive multiple of the block size {block}"
                ));
            }
        }
        if self
            .zone_size
            .checked_mul(u64::from(self.zone_count))
            .is_none()
        {
            return fail("the zones together exceed 2^64 bytes".into());
        }
        if self.max_open_zones == Some(0) || self.max_active_zones == Some(0) {
            return fail("a limit of zero open or active zones leaves nowhere to write".into());
        }
        Ok(())
    }
}
