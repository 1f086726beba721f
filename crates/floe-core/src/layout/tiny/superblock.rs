//! The superblock of a cache of tiny objects: its identity and plan.
//!
//! It is the first block of each of the two metadata zones. After the frame:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 24 | 16 | cache id |
//! | 40 | 8 | seed of the key hash |
//! | 48 | 8 | time of formatting, seconds since 1970; expiries count from it |
//! | 56 | 8 | epoch: of two metadata zones the higher is newer |
//! | 64 | 4 | block size |
//! | 68 | 4 | zone count |
//! | 72 | 8 | zone size |
//! | 80 | 8 | zone capacity |
//! | 88 | 4 | engine: 1 nemo, 2 log, 3 set, 4 kangaroo, 5 fairywren |
//! | 92 | 4 | pages of a set-group |
//! | 96 | 4 | sets |
//! | 100 | 4 | candidates: sets that may hold an object |
//! | 104 | 4 | instances |
//! | 108 | 4 | zero |
//!
//! Its checksum is taken with an id of zeros, because a reader learns the id
//! from it.

use serde::{Deserialize, Serialize};

use crate::hash::HashSeed;
use crate::layout::error::LayoutError;
use crate::layout::ids::CacheId;
use crate::layout::structure::Structure;
use crate::layout::superblock::{Head, PlanMismatch, validate_zones};
use crate::layout::wire::{put_u32, round_up_len, u32_at};
use crate::tiny::PAGE_BYTES;

/// Encoded length without padding.
pub const TINY_SUPERBLOCK_BYTES: usize = 112;

/// The engine by which a cache's flash was laid out.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum TinyEngine {
    /// A FIFO of set-groups.
    #[default]
    Nemo,
    /// A FIFO log with an exact index.
    Log,
    /// Sets rewritten in place.
    Set,
    /// A small log in front of sets rewritten in place.
    Kangaroo,
    /// A small log in front of sets in logs.
    FairyWren,
}

crate::parse_by_name!(TinyEngine);
crate::names! {
    TinyEngine {
        Nemo => "nemo",
        Log => "log",
        Set => "set",
        Kangaroo => "kangaroo",
        FairyWren => "fairywren",
    }
}

impl TinyEngine {
    /// The engine's number on flash.
    pub const fn code(self) -> u32 {
        match self {
            TinyEngine::Nemo => 1,
            TinyEngine::Log => 2,
            TinyEngine::Set => 3,
            TinyEngine::Kangaroo => 4,
            TinyEngine::FairyWren => 5,
        }
    }

    fn from_code(code: u32) -> Result<Self, LayoutError> {
        TinyEngine::ALL
            .into_iter()
            .find(|engine| engine.code() == code)
            .ok_or(LayoutError::Malformed("unknown tiny engine"))
    }
}

/// The settings by which a cache's flash was laid out. They cannot change
/// without formatting it anew. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TinyFormatPlan {
    /// The engine.
    pub engine: TinyEngine,
    /// The device's unit of reading and writing; a power of two from 512 to a
    /// page.
    pub block_size: u32,
    /// Number of zones, the two metadata zones included.
    pub zone_count: u32,
    /// Distance between the starts of two zones.
    pub zone_size: u64,
    /// Writable bytes of a zone; at least a page.
    pub zone_capacity: u64,
    /// Pages from one set-group's start to its end, its filters included; 0
    /// for an engine without set-groups.
    pub set_group_pages: u32,
    /// Sets of a set-group, or of the cache for an engine without set-groups;
    /// 0 for one without sets.
    pub sets: u32,
    /// Sets that may hold an object: 1 or 2; 0 for an engine without sets.
    pub candidates: u32,
    /// Independent engines that share the zones.
    pub instances: u32,
}

impl TinyFormatPlan {
    /// Checks that the numbers are consistent.
    ///
    /// # Errors
    /// [`LayoutError::Malformed`] names the first number that is not.
    pub fn validate(&self) -> Result<(), LayoutError> {
        let wrong = |why| Err(LayoutError::Malformed(why));
        validate_zones(
            self.block_size,
            self.zone_count,
            self.zone_size,
            self.zone_capacity,
        )?;
        if self.block_size as usize > PAGE_BYTES {
            return wrong("the block size is more than a page of 4096 bytes");
        }
        if self.zone_capacity < PAGE_BYTES as u64 {
            return wrong("a zone does not hold a page");
        }
        if self.instances == 0 || self.instances > self.zone_count - 2 {
            return wrong("the instances are not within 1 to the zones for objects");
        }
        if self.candidates > 2 {
            return wrong("an object may lie in more than two sets");
        }
        if self.sets > self.set_group_pages && self.set_group_pages > 0 {
            return wrong("a set-group has more sets than pages");
        }
        let is_nemo = self.engine == TinyEngine::Nemo;
        if is_nemo && (self.set_group_pages == 0 || self.sets == 0 || self.candidates == 0) {
            return wrong("a set-group without sets");
        }
        Ok(())
    }

    /// The settings with their names, for the report of a mismatch.
    fn settings(&self) -> [(&'static str, String); 9] {
        [
            ("engine", self.engine.to_string()),
            ("block size", format!("{} bytes", self.block_size)),
            ("zone size", format!("{} bytes", self.zone_size)),
            ("zone capacity", format!("{} bytes", self.zone_capacity)),
            ("number of zones", self.zone_count.to_string()),
            ("set-group size", format!("{} pages", self.set_group_pages)),
            ("number of sets", self.sets.to_string()),
            ("number of candidate sets", self.candidates.to_string()),
            ("number of instances", self.instances.to_string()),
        ]
    }
}

/// A cache's identity and plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TinySuperblock {
    /// The cache's identity.
    pub cache_id: CacheId,
    /// The seed of its key hash.
    pub seed: HashSeed,
    /// Time of formatting, in seconds since 1970: the epoch from which
    /// [`Expiry`](crate::tiny::Expiry) counts.
    pub formatted_at: u64,
    /// The life of the metadata that starts here. A new epoch is higher than
    /// any that was ever read from either metadata zone.
    pub epoch: u64,
    /// The layout of the flash.
    pub plan: TinyFormatPlan,
}

impl TinySuperblock {
    /// Bytes that [`encode`](Self::encode) writes.
    pub fn encoded_bytes(block_size: u32) -> usize {
        round_up_len(TINY_SUPERBLOCK_BYTES, block_size)
    }

    /// Writes the superblock with its padding and returns the length.
    ///
    /// # Errors
    /// [`LayoutError::TooShort`] if `out` is shorter than
    /// [`encoded_bytes`](Self::encoded_bytes); [`LayoutError::Malformed`] if
    /// the plan is invalid.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, LayoutError> {
        let plan = &self.plan;
        plan.validate()?;
        let head = Head::<TINY_SUPERBLOCK_BYTES> {
            id: self.cache_id,
            hash_seed: self.seed,
            formatted_unix_s: self.formatted_at,
            epoch: self.epoch,
            block_size: plan.block_size,
            zone_count: plan.zone_count,
            zone_size: plan.zone_size,
            zone_capacity: plan.zone_capacity,
        };
        head.encode(Structure::TinySuperblock, out, |bytes| {
            put_u32(bytes, 88, plan.engine.code());
            put_u32(bytes, 92, plan.set_group_pages);
            put_u32(bytes, 96, plan.sets);
            put_u32(bytes, 100, plan.candidates);
            put_u32(bytes, 104, plan.instances);
        })
    }

    /// Reads a superblock from the first block of a metadata zone.
    ///
    /// # Errors
    /// * [`LayoutError::Blank`] if nothing was written there;
    /// * [`LayoutError::Foreign`] if it was written by other software, which
    ///   must not be overwritten without consent;
    /// * [`LayoutError::Unexpected`] for another structure of Floe's, such as a
    ///   chunk cache's superblock;
    /// * [`LayoutError::UnsupportedVersion`] for another format;
    /// * [`LayoutError::BadChecksum`] or [`LayoutError::Malformed`] for a
    ///   damaged superblock.
    pub fn decode(bytes: &[u8]) -> Result<Self, LayoutError> {
        let (head, bytes) =
            Head::<TINY_SUPERBLOCK_BYTES>::decode(Structure::TinySuperblock, bytes)?;
        let plan = TinyFormatPlan {
            engine: TinyEngine::from_code(u32_at(bytes, 88))?,
            block_size: head.block_size,
            zone_count: head.zone_count,
            zone_size: head.zone_size,
            zone_capacity: head.zone_capacity,
            set_group_pages: u32_at(bytes, 92),
            sets: u32_at(bytes, 96),
            candidates: u32_at(bytes, 100),
            instances: u32_at(bytes, 104),
        };
        plan.validate()?;
        Ok(TinySuperblock {
            cache_id: head.id,
            seed: head.hash_seed,
            formatted_at: head.formatted_unix_s,
            epoch: head.epoch,
            plan,
        })
    }

    /// The first setting in which the flash differs from the plan `wanted`;
    /// `None` if that plan can open it.
    pub fn mismatch(&self, wanted: &TinyFormatPlan) -> Option<PlanMismatch> {
        if self.plan == *wanted {
            return None;
        }
        self.plan
            .settings()
            .into_iter()
            .zip(wanted.settings())
            .find(|((_, on_flash), (_, wanted))| on_flash != wanted)
            .map(|((field, on_flash), (_, wanted))| PlanMismatch {
                field,
                on_flash,
                wanted,
            })
    }
}
