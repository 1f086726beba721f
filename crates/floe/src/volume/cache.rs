//! A cache device and its volumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use floe_core::ByteSize;
use floe_core::hash::HashSeed;
use floe_core::layout::volume::{VOLUMES_MAX, VolumeEntry, VolumeSuperblock};
use floe_core::layout::{CacheId, LayoutError};
use floe_core::volume::{
    ByteRange, Cache, Extent, Memory, Occupancy, Piece, Plan, Restored, Statistics, VolumeId,
};
use floe_device::{Clock, SharedBlockDevice};
use parking_lot::{Mutex, RwLock};
use rand::RngExt as _;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use super::config::{VolumeCacheConfig, VolumeConfig};
use super::error::{OpenVolumesError, VolumeError};
use super::handle::Volume;
use super::layout;
use super::shard::Shard;
use super::state::{Shared, VolumeState};
use super::table::{self, Boot, FoundBlock, Opened};

/// Fills that run behind the answers of their requests.
const FILLS_MAX: usize = 64;

/// Time between two commits of records that no request waits for.
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// A cache device, and the volumes behind it. Clones share it.
#[derive(Clone, Debug)]
pub struct VolumeCache {
    shared: Arc<Shared>,
    superblock: Arc<Mutex<VolumeSuperblock>>,
    tasks: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

/// The state of a cache of volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct VolumeCacheStats {
    /// Counts since the cache was opened.
    pub counts: Statistics,
    /// The blocks.
    pub occupancy: Occupancy,
    /// Bytes of RAM of the index and the policies.
    pub memory: Memory,
}

impl VolumeCache {
    /// Opens the cache on `device`, or lays one out if the device is blank.
    ///
    /// # Errors
    /// The device is too small, has something else, was laid out with other settings,
    /// or is damaged.
    pub async fn open(
        device: SharedBlockDevice,
        clock: Clock,
        config: &VolumeCacheConfig,
    ) -> Result<Self, OpenVolumesError> {
        let identity = (rand::rng().random(), rand::rng().random());
        VolumeCache::open_as(device, clock, config, boot(), identity).await
    }

    /// As [`VolumeCache::open`], on a machine with this boot. A cache that is laid out
    /// gets this id and this seed.
    pub(super) async fn open_as(
        device: SharedBlockDevice,
        clock: Clock,
        config: &VolumeCacheConfig,
        boot: Boot,
        (id, seed): ([u8; 16], u64),
    ) -> Result<Self, OpenVolumesError> {
        let opened = match table::read_superblock(&device).await? {
            Ok(superblock) => {
                check(config, &superblock)?;
                table::open(Arc::clone(&device), superblock, boot).await?
            }
            Err(LayoutError::Blank) => {
                let (size, block) = (device.size_bytes(), device.block_bytes());
                let plan = layout::plan(size, block, config.sizes, config.shards)?;
                let identity = (CacheId(id), HashSeed(seed));
                let now = clock.unix_seconds();
                table::format(Arc::clone(&device), plan, identity, now, boot).await?
            }
            Err(source) => {
                let device = device.describe();
                return Err(OpenVolumesError::NotBlank { device, source });
            }
        };
        VolumeCache::start(device, clock, config, opened)
    }

    fn start(
        device: SharedBlockDevice,
        clock: Clock,
        config: &VolumeCacheConfig,
        opened: Opened,
    ) -> Result<Self, OpenVolumesError> {
        let Opened {
            table,
            superblock,
            blocks,
        } = opened;
        let on_device = superblock.plan;
        let core = config.core(on_device.places_bytes, on_device.shards, superblock.seed.0);
        let plan = Plan::new(&core)?;
        let mut caches: Vec<_> = (0..on_device.shards)
            .map(|number| Cache::of_shard(&plan, number))
            .collect();
        for volume in &superblock.volumes {
            for cache in &mut caches {
                cache.set_size_of(volume.volume, ByteSize(volume.size_bytes))?;
            }
        }
        restore(&plan, &mut caches, &blocks)?;
        let shared = Arc::new(Shared {
            device,
            clock,
            table,
            plan,
            shards: caches.into_iter().map(Shard::new).collect(),
            volumes: RwLock::new(Vec::new()),
            short: Notify::new(),
            fills: Arc::new(Semaphore::new(FILLS_MAX)),
            dirty_writes: AtomicU64::new(0),
            flushed_writes: AtomicU64::new(0),
            is_closing: AtomicBool::new(false),
            last_request: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
        });
        let tasks = vec![
            tokio::spawn(Arc::clone(&shared).reclaim_ahead()),
            tokio::spawn(Arc::clone(&shared).clean_ahead()),
            tokio::spawn(Arc::clone(&shared).commit_ahead()),
        ];
        Ok(VolumeCache {
            shared,
            superblock: Arc::new(Mutex::new(superblock)),
            tasks: Arc::new(Mutex::new(tasks)),
        })
    }

    /// Puts the cache in front of `backing`, under `name`. A volume that had this name
    /// before gets its blocks back.
    ///
    /// # Errors
    /// The name is in use, too long, or belongs to a backing device of another size; the
    /// cache device cannot be written.
    pub async fn attach(
        &self,
        name: &str,
        backing: SharedBlockDevice,
        config: &VolumeConfig,
    ) -> Result<Volume, OpenVolumesError> {
        let size_bytes = backing.size_bytes();
        let (id, volumes) = self.number(name, size_bytes)?;
        if let Some(volumes) = volumes {
            self.shared.table.set_volumes(volumes).await?;
        }
        for shard in &self.shared.shards {
            let mut state = shard.lock();
            state.cache.set_size_of(id, ByteSize(size_bytes))?;
            state.cache.set_mode_of(id, config.mode);
        }
        let block_bytes = self.shared.device.block_bytes().max(backing.block_bytes());
        let state = VolumeState::new(id, name.to_owned(), backing, block_bytes, config.read_only);
        let state = Arc::new(state);
        self.shared.volumes.write().push(Arc::clone(&state));
        let volume = Volume {
            shared: Arc::clone(&self.shared),
            state,
        };
        if !config.mode.makes_dirty() {
            // Dirty blocks of an earlier mode.
            volume.clean().await?;
        }
        Ok(volume)
    }

    /// The number of the volume `name`, and the new list if it is a new one.
    fn number(
        &self,
        name: &str,
        size_bytes: u64,
    ) -> Result<(VolumeId, Option<Vec<VolumeEntry>>), OpenVolumesError> {
        let mut superblock = self.superblock.lock();
        let known = superblock.volumes.iter().find(|volume| volume.name == name);
        if let Some(known) = known {
            if known.size_bytes != size_bytes {
                return Err(OpenVolumesError::OtherBacking {
                    name: name.to_owned(),
                    difference: format!(
                        "it had {} bytes, and this one has {size_bytes}",
                        known.size_bytes
                    ),
                });
            }
            return Ok((known.volume, None));
        }
        if superblock.volumes.len() >= VOLUMES_MAX {
            return Err(OpenVolumesError::TooManyVolumes(VOLUMES_MAX));
        }
        let is_free = |id: &u16| {
            let mut volumes = superblock.volumes.iter();
            volumes.all(|volume| volume.volume.0 != *id)
        };
        let id = VolumeId((0..u16::MAX).find(is_free).unwrap_or(u16::MAX));
        superblock.volumes.push(VolumeEntry {
            volume: id,
            name: name.to_owned(),
            size_bytes,
            stamp: [0; 32],
        });
        Ok((id, Some(superblock.volumes.clone())))
    }

    /// The volumes that are attached.
    pub fn volumes(&self) -> Vec<Volume> {
        let volumes = self.shared.volumes.read();
        let volumes = volumes.iter().map(|state| Volume {
            shared: Arc::clone(&self.shared),
            state: Arc::clone(state),
        });
        volumes.collect()
    }

    /// Counts and sizes.
    pub fn stats(&self) -> VolumeCacheStats {
        let mut stats = VolumeCacheStats::default();
        for shard in &self.shared.shards {
            let state = shard.lock();
            stats.counts += *state.cache.statistics();
            stats.occupancy += state.cache.occupancy();
            stats.memory += state.cache.memory();
        }
        stats
    }

    /// Ends all requests, makes everything durable, and notes a clean stop. Dirty blocks
    /// stay in the cache. Further requests fail with [`VolumeError::Closed`].
    ///
    /// # Errors
    /// A device failed.
    pub async fn close(&self) -> Result<(), VolumeError> {
        self.shared.is_closing.store(true, SeqCst);
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
        loop {
            let in_flight = self.shared.in_flight.load(SeqCst);
            let mut shards = self.shared.shards.iter();
            if in_flight == 0 && shards.all(|shard| shard.lock().locks.len() == 0) {
                break;
            }
            self.shared.clock.sleep(Duration::from_millis(1)).await;
        }
        let volumes = self.shared.volumes.read().clone();
        for volume in &volumes {
            volume.flush_backing().await?;
        }
        if let Some(reason) = volumes.iter().find_map(|volume| volume.poisoned()) {
            return Err(VolumeError::Poisoned(reason));
        }
        self.shared.table.commit().await?;
        self.shared.table.close().await
    }
}

#[cfg(test)]
impl VolumeCache {
    /// Ends the tasks, as the death of the process does.
    pub(super) fn abandon(&self) {
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
    }
}

impl Shared {
    /// Commits records that no request waits for, until the cache is closed.
    async fn commit_ahead(self: Arc<Self>) {
        while !self.is_closing.load(SeqCst) {
            self.clock.sleep(COMMIT_INTERVAL).await;
            if self.table.unstable() > 0
                && let Err(error) = self.table.commit().await
            {
                self.poison_all(&error);
            }
            if let Err(error) = self.release().await {
                tracing::warn!(%error, "places of old blocks are not used again");
            }
        }
    }
}

/// Compares the settings with the layout of the device.
fn check(
    config: &VolumeCacheConfig,
    superblock: &VolumeSuperblock,
) -> Result<(), OpenVolumesError> {
    let plan = &superblock.plan;
    let granule = config.sizes.smallest().bytes();
    let differs = |field, on_device: String, wanted: String| {
        Err(OpenVolumesError::PlanDiffers {
            field,
            on_device,
            wanted,
        })
    };
    if u64::from(plan.granule_bytes) != granule || plan.classes != config.sizes.classes() {
        let sizes: Vec<_> = (0..u32::BITS)
            .filter(|class| plan.classes >> class & 1 == 1)
            .map(|class| ByteSize(u64::from(plan.granule_bytes) << class).to_string())
            .collect();
        return differs("sizes", sizes.join(","), config.sizes.to_string());
    }
    if config.shards != 0 && config.shards != plan.shards {
        return differs("shards", plan.shards.to_string(), config.shards.to_string());
    }
    Ok(())
}

/// Puts the blocks that an earlier run left into their shards, group by group.
fn restore(
    plan: &Plan,
    caches: &mut [Cache],
    blocks: &[FoundBlock],
) -> Result<(), OpenVolumesError> {
    let bytes = plan.granule_bytes();
    let place = |found: &FoundBlock| u64::from(found.granule) * bytes;
    let groups =
        blocks.chunk_by(|a, b| place(a) / plan.group_bytes() == place(b) / plan.group_bytes());
    for group in groups {
        let restored: Vec<_> = group
            .iter()
            .map(|found| Restored {
                block: Piece {
                    extent: Extent {
                        volume: found.block.volume,
                        range: ByteRange::at(
                            found.block.address * bytes,
                            bytes << found.block.class,
                        ),
                    },
                    place: place(found),
                },
                valid: &found.valid,
            })
            .collect();
        if let Some(first) = restored.first() {
            let shard = plan.shard_of_place(first.block.place);
            let cache = caches.get_mut(shard);
            cache.map_or(Ok(()), |cache| cache.restore(&restored))?;
        }
    }
    Ok(())
}

/// The boot of this machine. If it is not known, each one is another: after an unclean
/// stop, writes that were not flushed are then left out.
fn boot() -> Boot {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut boot = [0; 16];
    if digits.len() != 32 {
        return Boot(rand::rng().random());
    }
    for (byte, pair) in boot.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16).unwrap_or_default() as u8;
        *byte = digit(0) << 4 | digit(1);
    }
    Boot(boot)
}
