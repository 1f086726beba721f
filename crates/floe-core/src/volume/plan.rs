//! From configuration to a plan that can run.

use serde::{Deserialize, Serialize};

use super::address::VolumeId;
use super::mode::Mode;
use super::order::{Levels, Replacement};
use super::regions::hash_of;
use super::sequential::{CutOff, SequentialConfig};
use super::shape::{REGION_NUMBER_BITS, Shape};
use super::sizes::BlockSizes;
use crate::hash::{HashSeed, KeyHash, fast_range};
use crate::policy::PolicyConfigError;
use crate::policy::cleaning::CleaningConfig;
use crate::policy::promotion::PromotionConfig;
use crate::{ByteSize, parse_by_name};

/// The part of a missing block that is brought into the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fill {
    /// The whole block: the rest is fetched from the backing device.
    #[default]
    Fetch,
    /// The sectors of the request; a map tells which of the block's are valid.
    Sector,
}

/// The choice of a request that finds no free group and every block dirty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenDirty {
    /// It waits until victims are written back.
    #[default]
    Evict,
    /// Its missing blocks do not enter: reads and writes go past the cache, as
    /// in OCF. Blocks that the cache has are read and written there.
    Bypass,
}

/// The levels of replacement, as configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Blocks where the size is the wanted one, else groups.
    #[default]
    Both,
    /// The order of blocks alone: the next block's group where sizes differ.
    Block,
    /// The order of groups alone.
    Group,
}

parse_by_name!(Fill, Level, WhenDirty);

/// The settings of a cache of volumes. [`Config::default`] is AdaCache with CLOCK for
/// blocks, and has 1 GiB; [`Config::adacache`] is AdaCache as published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Bytes of blocks.
    pub capacity: ByteSize,
    /// The sizes that blocks can have.
    pub sizes: BlockSizes,
    /// The cache mode.
    pub mode: Mode,
    /// The part of a block that a read miss brings in.
    pub read_miss: Fill,
    /// The part of a block that a write miss brings in.
    pub write_miss: Fill,
    /// The levels of replacement. A cache of one size has the order of blocks
    /// alone, because a group's choice could only differ for the worse.
    pub level: Level,
    /// The order in which blocks are replaced.
    pub block_replacement: Replacement,
    /// The order in which groups are replaced.
    pub group_replacement: Replacement,
    /// The policy that admits missing blocks.
    pub promotion: PromotionConfig,
    /// When dirty blocks are written back before they are evicted.
    pub cleaning: CleaningConfig,
    /// Long sequential streams that go past the cache.
    pub sequential: SequentialConfig,
    /// The action of a request that finds the cache full of dirty blocks.
    pub when_dirty: WhenDirty,
    /// Parts with an index, an order and room of their own, by the hash of the
    /// address. One shard keeps one exact order over all blocks.
    pub shards: u32,
    /// Room that is kept free ahead of requests. Zero: a victim's place is used at
    /// once. Otherwise requests never evict, [`Cache::reclaim`](super::Cache::reclaim)
    /// does, and a place is used again after [`Cache::release`](super::Cache::release).
    pub reserve: ByteSize,
    /// Volumes with a size or bounds. All others share the room that is left.
    pub volumes: Vec<VolumeBounds>,
    /// The seed of the index's hash.
    #[serde(skip)]
    pub seed: u64,
}

/// The size of a volume, and its share of the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeBounds {
    /// Number of the volume.
    pub volume: u16,
    /// Bytes of its backing device, if known: no block is read or written past
    /// its end.
    #[serde(default)]
    pub size: Option<ByteSize>,
    /// Bytes that other volumes cannot take from it, once it has them.
    #[serde(default)]
    pub minimum: ByteSize,
    /// Bytes that it can have; all if absent.
    #[serde(default)]
    pub maximum: Option<ByteSize>,
}

impl Default for Config {
    /// CLOCK moves as much as the paper's LRU within a few percent, needs a quarter less
    /// metadata, and changes no links at a hit (`experiments/adacache-replacement.toml`).
    fn default() -> Self {
        Config {
            block_replacement: Replacement::Clock,
            ..Config::adacache(ByteSize::gib(1))
        }
    }
}

impl Config {
    /// AdaCache as published: 32 to 256 KiB, LRU of blocks and groups,
    /// write-back, whole blocks.
    pub fn adacache(capacity: ByteSize) -> Self {
        Config {
            capacity,
            sizes: BlockSizes::ADACACHE,
            mode: Mode::WriteBack,
            read_miss: Fill::Fetch,
            write_miss: Fill::Fetch,
            level: Level::Both,
            block_replacement: Replacement::Lru,
            group_replacement: Replacement::Lru,
            promotion: PromotionConfig::Always,
            cleaning: CleaningConfig::None,
            sequential: SequentialConfig {
                cut_off: CutOff::Never,
                ..SequentialConfig::default()
            },
            when_dirty: WhenDirty::Evict,
            shards: 1,
            reserve: ByteSize(0),
            volumes: Vec::new(),
            seed: 0,
        }
    }

    /// The paper's baseline: blocks of one size.
    ///
    /// # Errors
    /// `size` is no block size.
    pub fn fixed(capacity: ByteSize, size: ByteSize) -> Result<Self, ConfigError> {
        Config::of_sizes(capacity, &[size])
    }

    /// Blocks of a small and a large size.
    ///
    /// # Errors
    /// One of them is no block size.
    pub fn two_sizes(
        capacity: ByteSize,
        small: ByteSize,
        large: ByteSize,
    ) -> Result<Self, ConfigError> {
        Config::of_sizes(capacity, &[small, large])
    }

    fn of_sizes(capacity: ByteSize, sizes: &[ByteSize]) -> Result<Self, ConfigError> {
        let list = || sizes.iter().map(ByteSize::to_string).collect::<Vec<_>>();
        let sizes = BlockSizes::new(sizes.iter().copied())
            .map_err(|error| ConfigError::new("sizes", list().join(","), error, "4KiB to 1MiB"))?;
        Ok(Config {
            sizes,
            ..Config::adacache(capacity)
        })
    }
}

/// A setting that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} = {value} cannot work: {limit}; the nearest value that works is {nearest}")]
pub struct ConfigError {
    /// The setting.
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// The limit that it breaks.
    pub limit: String,
    /// The nearest value that works.
    pub nearest: String,
}

impl ConfigError {
    fn new(
        setting: &'static str,
        value: impl ToString,
        limit: impl ToString,
        nearest: impl ToString,
    ) -> Self {
        ConfigError {
            setting,
            value: value.to_string(),
            limit: limit.to_string(),
            nearest: nearest.to_string(),
        }
    }
}

impl From<PolicyConfigError> for ConfigError {
    fn from(error: PolicyConfigError) -> Self {
        let PolicyConfigError {
            setting,
            value,
            limit,
            nearest,
        } = error;
        ConfigError {
            setting,
            value,
            limit,
            nearest,
        }
    }
}

/// A configuration that can run.
#[derive(Clone, Debug)]
pub struct Plan {
    config: Config,
    pub(super) shape: Shape,
    pub(super) mode: Mode,
    pub(super) read_miss: Fill,
    pub(super) write_miss: Fill,
    pub(super) levels: Levels,
    pub(super) shards: u32,
    pub(super) seed: HashSeed,
    /// Granules of a shard.
    pub(super) granules: u32,
    /// Granules of a shard that are kept free; zero if places are reused at once.
    pub(super) reserve_granules: u32,
    pub(super) partitions: Vec<PartitionPlan>,
    /// Volumes with bounds, by number.
    volumes: Vec<VolumePlan>,
}

/// Groups of one shard that a partition keeps, and can have. The first
/// partition belongs to all volumes without bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartitionPlan {
    pub(super) least: u32,
    pub(super) most: u32,
}

#[derive(Clone, Copy, Debug)]
struct VolumePlan {
    volume: VolumeId,
    end: u64,
    partition: usize,
}

impl Plan {
    /// Checks `config`.
    ///
    /// # Errors
    /// Names the first setting that cannot work and the nearest value that does.
    pub fn new(config: &Config) -> Result<Plan, ConfigError> {
        config.promotion.check()?;
        config.cleaning.check()?;
        let shape = Shape::new(config.sizes);
        let granules = granules_of_shard(config, shape)?;
        let reserve_granules = reserve_of_shard(config, shape, granules)?;
        let levels = levels(config);
        let mut plan = Plan {
            config: config.clone(),
            shape,
            mode: config.mode,
            read_miss: config.read_miss,
            write_miss: config.write_miss,
            levels,
            shards: config.shards,
            seed: HashSeed(config.seed),
            granules,
            reserve_granules,
            partitions: vec![PartitionPlan {
                least: 0,
                most: u32::MAX,
            }],
            volumes: Vec::new(),
        };
        for bounds in &config.volumes {
            plan.add_volume(bounds)?;
        }
        plan.check_minimums(config)?;
        plan.volumes.sort_unstable_by_key(|volume| volume.volume);
        Ok(plan)
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of blocks that fit: the configured capacity, less what fills no
    /// group.
    pub fn capacity_bytes(&self) -> u64 {
        self.shard_bytes() * u64::from(self.shards)
    }

    /// Bytes of blocks that fit into a shard.
    pub(super) fn shard_bytes(&self) -> u64 {
        u64::from(self.granules) * self.shape.granule_bytes()
    }

    /// Bytes of a group.
    pub fn group_bytes(&self) -> u64 {
        self.shape.group_bytes()
    }

    /// Bytes of an aligned range that no block crosses. Requests are cut there,
    /// and the range's hash chooses the shard.
    pub fn region_bytes(&self) -> u64 {
        self.shape.region_bytes()
    }

    /// Bytes of the smallest block.
    pub fn granule_bytes(&self) -> u64 {
        self.shape.granule_bytes()
    }

    /// Number of the shard that has the region of byte `at` of `volume`.
    pub fn shard_of(&self, volume: VolumeId, at: u64) -> usize {
        let key = self.shape.region_of(volume, at);
        shard_of_hash(self, hash_of(self.seed, key))
    }

    /// Number of the shard that has byte `place` of the cache device.
    pub fn shard_of_place(&self, place: u64) -> usize {
        (place / self.group_bytes() % u64::from(self.shards)) as usize
    }

    /// The plan of the same cache with more capacity.
    ///
    /// # Errors
    /// The capacity is less than before, or cannot work.
    pub fn grown_to(&self, capacity: ByteSize) -> Result<Plan, ConfigError> {
        let before = self.config.capacity;
        if capacity < before {
            let limit = "a cache does not shrink";
            return Err(ConfigError::new("capacity", capacity, limit, before));
        }
        let plan = Plan::new(&Config {
            capacity,
            ..self.config.clone()
        })?;
        // With the sizes that volumes have by now.
        let volumes = self.volumes.clone();
        Ok(Plan { volumes, ..plan })
    }

    /// The byte of `volume` after its last; `u64::MAX` if its size is unknown.
    pub(super) fn end_of(&self, volume: VolumeId) -> u64 {
        self.volume(volume).map_or(u64::MAX, |plan| plan.end)
    }

    pub(super) fn partition_of(&self, volume: VolumeId) -> usize {
        self.volume(volume).map_or(0, |plan| plan.partition)
    }

    /// True if blocks can have maps of their sectors.
    pub fn keeps_maps(&self) -> bool {
        self.read_miss == Fill::Sector || self.write_miss == Fill::Sector
    }

    /// The first byte that no volume can have.
    pub(super) fn address_end(&self) -> u64 {
        self.shape.region_bytes() << REGION_NUMBER_BITS
    }

    fn volume(&self, volume: VolumeId) -> Option<&VolumePlan> {
        let at = self
            .volumes
            .binary_search_by_key(&volume, |plan| plan.volume);
        self.volumes.get(at.ok()?)
    }

    /// Sets the size of `volume`, which gets no bounds if it has none.
    pub(super) fn set_size(&mut self, volume: VolumeId, size: ByteSize) -> Result<(), ConfigError> {
        self.check_size(size)?;
        let end = size.bytes();
        match self
            .volumes
            .binary_search_by_key(&volume, |plan| plan.volume)
        {
            Ok(at) => self.volumes[at].end = end,
            Err(at) => {
                let partition = 0;
                let plan = VolumePlan {
                    volume,
                    end,
                    partition,
                };
                self.volumes.insert(at, plan);
            }
        }
        Ok(())
    }

    /// Checks that a volume can have `size`.
    ///
    /// # Errors
    /// It has more bytes than blocks can address.
    pub fn check_size(&self, size: ByteSize) -> Result<(), ConfigError> {
        let nearest = ByteSize(self.address_end());
        if size <= nearest {
            return Ok(());
        }
        let limit = format!(
            "blocks of {} address {nearest}",
            self.config.sizes.smallest()
        );
        Err(ConfigError::new("volumes.size", size, limit, nearest))
    }

    fn add_volume(&mut self, bounds: &VolumeBounds) -> Result<(), ConfigError> {
        if let Some(size) = bounds.size {
            self.check_size(size)?;
        }
        let end = bounds.size.map_or(u64::MAX, ByteSize::bytes);
        let has_bounds = bounds.minimum.bytes() > 0 || bounds.maximum.is_some();
        let partition = if has_bounds {
            let plan = self.partition(bounds)?;
            self.partitions.push(plan);
            self.partitions.len() - 1
        } else {
            0
        };
        self.volumes.push(VolumePlan {
            volume: VolumeId(bounds.volume),
            end,
            partition,
        });
        Ok(())
    }

    fn partition(&self, bounds: &VolumeBounds) -> Result<PartitionPlan, ConfigError> {
        let unit = self.shape.group_bytes() * u64::from(self.shards);
        let least = bounds.minimum.bytes().div_ceil(unit);
        let most = bounds.maximum.map_or(u64::MAX, |most| most.bytes() / unit);
        if most < least.max(1) {
            let nearest = ByteSize(least.max(1) * unit);
            let value = bounds.maximum.unwrap_or_default();
            let limit = format!("it must have {nearest} of groups in every shard, and its minimum");
            return Err(ConfigError::new("volumes.maximum", value, limit, nearest));
        }
        Ok(PartitionPlan {
            least: u32::try_from(least).unwrap_or(u32::MAX),
            most: u32::try_from(most).unwrap_or(u32::MAX),
        })
    }

    /// Volumes without bounds need one group of every shard.
    fn check_minimums(&self, config: &Config) -> Result<(), ConfigError> {
        let kept: u64 = self.partitions.iter().map(|p| u64::from(p.least)).sum();
        let groups = u64::from(self.granules) >> self.shape.group_bits;
        if self.partitions.len() == 1 || kept < groups {
            return Ok(());
        }
        let minimums: u64 = config.volumes.iter().map(|v| v.minimum.bytes()).sum();
        let unit = self.shape.group_bytes() * u64::from(self.shards);
        let nearest = ByteSize(groups.saturating_sub(1) * unit);
        let limit = "all minimums must leave a group of every shard to other volumes";
        Err(ConfigError::new(
            "volumes.minimum",
            ByteSize(minimums),
            limit,
            nearest,
        ))
    }
}

pub(super) fn shard_of_hash(plan: &Plan, hash: KeyHash) -> usize {
    fast_range(hash.0, plan.shards as usize)
}

/// The orders that the configuration asks for.
fn levels(config: &Config) -> Levels {
    let is_fixed = config.sizes.count() == 1;
    let (block, group) = (config.block_replacement, config.group_replacement);
    match config.level {
        Level::Group if is_fixed => Levels {
            block: Some(group),
            group: None,
        },
        Level::Both if !is_fixed => Levels {
            block: Some(block),
            group: Some(group),
        },
        Level::Group => Levels {
            block: None,
            group: Some(group),
        },
        Level::Both | Level::Block => Levels {
            block: Some(block),
            group: None,
        },
    }
}

fn reserve_of_shard(config: &Config, shape: Shape, granules: u32) -> Result<u32, ConfigError> {
    let unit = shape.granule_bytes() * u64::from(config.shards);
    let reserve = config.reserve.bytes().div_ceil(unit);
    let most = u64::from(granules / 2);
    if reserve > most {
        let nearest = ByteSize(most * unit);
        let limit = "at least half of the capacity must hold blocks";
        return Err(ConfigError::new("reserve", config.reserve, limit, nearest));
    }
    Ok(reserve as u32)
}

fn granules_of_shard(config: &Config, shape: Shape) -> Result<u32, ConfigError> {
    if config.shards == 0 {
        return Err(ConfigError::new("shards", 0, "blocks live in a shard", 1));
    }
    // Blocks of one size need no whole group, so that a cache can have any
    // number of them.
    let is_cut = config.sizes.count() == 1 && config.shards == 1;
    let unit = if is_cut {
        shape.granule_bytes()
    } else {
        shape.group_bytes()
    };
    let shards = u64::from(config.shards);
    let units = config.capacity.bytes() / shards / unit;
    if units == 0 {
        let nearest = ByteSize(unit * shards);
        let limit = format!("each of {shards} shards needs {}", ByteSize(unit));
        return Err(ConfigError::new(
            "capacity",
            config.capacity,
            limit,
            nearest,
        ));
    }
    let granules = units * (unit >> shape.granule_bits);
    // A block's number and its place in the region share 32 bits.
    let granules_max = 1 << (u32::BITS - 1 - shape.region_bits);
    if granules > granules_max {
        let bytes_max = ByteSize(granules_max << shape.granule_bits);
        let nearest = config.capacity.bytes().div_ceil(bytes_max.bytes());
        let limit = format!(
            "a shard of blocks of {} has {bytes_max} at most",
            config.sizes
        );
        return Err(ConfigError::new("shards", shards, limit, nearest));
    }
    // Policies number the granules of all shards.
    let total_max = u64::from(u32::MAX);
    if granules * shards > total_max {
        let nearest = ByteSize(total_max << shape.granule_bits);
        let limit = format!("blocks of {} have {nearest} at most", config.sizes);
        return Err(ConfigError::new(
            "capacity",
            config.capacity,
            limit,
            nearest,
        ));
    }
    Ok(granules as u32)
}
