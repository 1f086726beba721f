//! The settings of a cache of volumes.

use floe_core::ByteSize;
use floe_core::policy::cleaning::CleaningConfig;
use floe_core::policy::promotion::PromotionConfig;
use floe_core::volume::mode::Mode;
use floe_core::volume::sequential::{CutOff, SequentialConfig};
use floe_core::volume::{BlockSizes, Config, Fill, Level, Replacement, WhenDirty};
use serde::{Deserialize, Serialize};

use super::reservation_key::{ReservationKey, Reserve};

/// The part of the blocks that a thread keeps others from while it looks a request up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockGranularity {
    /// One shard, so that threads work on different shards at once.
    #[default]
    Fine,
    /// All shards.
    Coarse,
}

/// How a cache device is used by all volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VolumeCacheConfig {
    /// The sizes that blocks can have. They cannot change without formatting anew.
    pub sizes: BlockSizes,
    /// The policy that admits missing blocks.
    pub promotion: PromotionConfig,
    /// When dirty blocks are written back before their room is needed.
    pub cleaning: CleaningConfig,
    /// Bytes a second that the cleaning policy writes back at most; 0 does not limit it.
    /// Evictions, detaching and changes of mode do not wait for it.
    pub cleaning_rate: ByteSize,
    /// Blocks that are written back at once: 1 or more.
    pub cleaning_blocks_max: u32,
    /// Long sequential streams that go past the cache.
    pub sequential: SequentialConfig,
    /// The part of a block that a read miss brings in.
    pub read_miss: Fill,
    /// The part of a block that a write miss brings in.
    pub write_miss: Fill,
    /// The levels of replacement.
    pub level: Level,
    /// The order in which blocks are replaced.
    pub block_replacement: Replacement,
    /// The order in which groups are replaced.
    pub group_replacement: Replacement,
    /// The action of a request that finds only dirty blocks to replace: wait for
    /// write-backs ahead of requests, or go past the cache.
    pub when_dirty: WhenDirty,
    /// Parts of the cache with a lock each; 0 chooses by the size of the device. They
    /// cannot change without formatting anew.
    pub shards: u32,
    /// Keep a checksum of each block of the cache device that has data, and compare it at
    /// each read. Cannot change without formatting anew.
    pub checksums: bool,
    /// The part of the blocks that one lock covers.
    pub locks: LockGranularity,
}

impl Default for VolumeCacheConfig {
    fn default() -> Self {
        let core = Config::default();
        VolumeCacheConfig {
            sizes: core.sizes,
            promotion: PromotionConfig::Always,
            cleaning: "alru".parse().unwrap_or_default(),
            cleaning_rate: ByteSize(0),
            cleaning_blocks_max: 32,
            sequential: SequentialConfig {
                cut_off: CutOff::Never,
                ..SequentialConfig::default()
            },
            read_miss: Fill::Fetch,
            write_miss: Fill::Sector,
            level: core.level,
            block_replacement: core.block_replacement,
            group_replacement: core.group_replacement,
            when_dirty: core.when_dirty,
            shards: 0,
            checksums: false,
            locks: LockGranularity::Fine,
        }
    }
}

impl VolumeCacheConfig {
    /// The settings of the decisions for `capacity` in so many shards.
    pub(super) fn core(&self, capacity: u64, shards: u32, seed: u64) -> Config {
        let group = self.sizes.largest().bytes();
        // An eighth at most, and enough for the requests of a short while.
        let reserve = (capacity / 8).min((group * u64::from(shards) * 4).max(capacity / 100));
        Config {
            capacity: ByteSize(capacity),
            sizes: self.sizes,
            mode: Mode::WriteThrough,
            read_miss: self.read_miss,
            write_miss: self.write_miss,
            level: self.level,
            block_replacement: self.block_replacement,
            group_replacement: self.group_replacement,
            promotion: self.promotion.clone(),
            cleaning: self.cleaning.clone(),
            sequential: self.sequential,
            when_dirty: self.when_dirty,
            shards,
            reserve: ByteSize(reserve),
            volumes: Vec::new(),
            seed,
        }
    }
}

/// How one volume is cached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VolumeConfig {
    /// The cache mode.
    pub mode: Mode,
    /// Refuse writes.
    pub read_only: bool,
    /// Allow modes that make data dirty on a cache device that a power loss erases.
    pub allow_data_loss: bool,
    /// The reservation of the backing device for this machine's writes.
    pub reserve: Reserve,
    /// The key of the machine that loses its reservation of the backing device.
    pub take_from: Option<ReservationKey>,
}

impl Default for VolumeConfig {
    fn default() -> Self {
        VolumeConfig {
            mode: Mode::WriteThrough,
            read_only: false,
            allow_data_loss: false,
            reserve: Reserve::Off,
            take_from: None,
        }
    }
}
