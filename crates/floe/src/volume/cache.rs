//! A cache device and its volumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use floe_core::ByteSize;
use floe_core::hash::HashSeed;
use floe_core::layout::volume::{
    VOLUME_NAME_BYTES_MAX, VOLUMES_MAX, VolumeEntry, VolumeSuperblock, intent_bits,
};
use floe_core::layout::{CacheId, LayoutError};
use floe_core::volume::{Cache, Extent, Memory, Occupancy, Plan, Statistics, VolumeId};
use floe_device::{Clock, SharedBlockDevice};
use parking_lot::{Mutex, RwLock};
use rand::RngExt as _;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use super::config::{VolumeCacheConfig, VolumeConfig};
use super::error::{OpenVolumesError, VolumeError};
use super::handle::Volume;
use super::layout;
use super::limits::Cleaning;
use super::loading::Loading;
use super::reservation::{self, Standing};
use super::reservation_key::ReservationKey;
use super::shard::Shard;
use super::stamp::{NO_STAMP, stamp_of};
use super::state::{Shared, VolumeState};
use super::sums::SummedBlocks;
use super::table::{self, Boot, Opened, Trust};
use super::witness::Witness;

/// Fills that run behind the answers of their requests.
const FILLS_MAX: usize = 64;

/// Time between two commits of records that no request waits for.
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// An area without a write for one or two of these is idle.
const INTENT_INTERVAL: Duration = Duration::from_secs(30);

/// The time after which blocks of an earlier mode are written back again.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// A cache device, and the volumes behind it. Clones share it.
#[derive(Clone, Debug)]
pub struct VolumeCache {
    pub(super) shared: Arc<Shared>,
    /// As in the superblock. Held while a volume is attached, detached or resized.
    pub(super) entries: Arc<tokio::sync::Mutex<Vec<VolumeEntry>>>,
    tasks: Arc<Mutex<Vec<JoinHandle<()>>>>,
    /// Of its reservations of backing devices.
    pub(super) key: ReservationKey,
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
    /// Bytes of RAM of the checksums of cached data.
    pub checksum_bytes: u64,
    /// Reads of the cache device that found other data than was written.
    pub checksum_errors: u64,
    /// Bytes of the cache whose blocks of an earlier run are not read yet: requests of
    /// these wait.
    pub unread_bytes: u64,
}

impl VolumeCache {
    /// Opens the cache on `device`, or lays one out if the device is blank.
    ///
    /// The blocks that an earlier run left are read behind the call. Requests wait until
    /// those of their shard are, and fail if they cannot be; [`loaded`](Self::loaded) waits
    /// for all.
    ///
    /// # Errors
    /// The device is too small, has something else, was laid out with other settings,
    /// or is damaged.
    pub async fn open(
        device: SharedBlockDevice,
        clock: Clock,
        config: &VolumeCacheConfig,
    ) -> Result<Self, OpenVolumesError> {
        VolumeCache::open_here(device, None, clock, config).await
    }

    /// As [`VolumeCache::open`], with a *witness*: a blank device of 8 KiB at least, on
    /// other hardware than the cache device, to which the cache then belongs. If the cache
    /// device cannot be written any more, volumes without dirty data go on without it; the
    /// witness tells the next opening that their blocks are stale.
    ///
    /// # Errors
    /// As for [`VolumeCache::open`]; the cache has dirty data and was opened with another
    /// witness; the witness has something else.
    pub async fn open_with_witness(
        device: SharedBlockDevice,
        witness: SharedBlockDevice,
        clock: Clock,
        config: &VolumeCacheConfig,
    ) -> Result<Self, OpenVolumesError> {
        VolumeCache::open_here(device, Some(witness), clock, config).await
    }

    async fn open_here(
        device: SharedBlockDevice,
        witness: Option<SharedBlockDevice>,
        clock: Clock,
        config: &VolumeCacheConfig,
    ) -> Result<Self, OpenVolumesError> {
        let identity = (rand::rng().random(), rand::rng().random());
        let boot = Boot::of_this_machine();
        VolumeCache::open_as(device, witness, clock, config, boot, identity).await
    }

    /// As [`VolumeCache::open`]. A cache that is laid out gets its identity and the hash
    /// of its addresses from `seed`, so that runs in virtual time can be repeated.
    ///
    /// # Errors
    /// As for [`VolumeCache::open`].
    pub async fn open_seeded(
        device: SharedBlockDevice,
        clock: Clock,
        config: &VolumeCacheConfig,
        seed: u64,
    ) -> Result<Self, OpenVolumesError> {
        let id = u128::from(seed).to_le_bytes();
        let boot = Boot::of_this_machine();
        VolumeCache::open_as(device, None, clock, config, boot, (id, seed)).await
    }

    /// Opens a cache on a machine with this boot. A cache that is laid out gets this id
    /// and this seed.
    pub(super) async fn open_as(
        device: SharedBlockDevice,
        witness: Option<SharedBlockDevice>,
        clock: Clock,
        config: &VolumeCacheConfig,
        boot: Boot,
        (new_id, seed): ([u8; 16], u64),
    ) -> Result<Self, OpenVolumesError> {
        let found = table::read_superblock(&device).await?;
        let id = found
            .as_ref()
            .map_or(CacheId(new_id), |found| found.cache_id);
        let witness = match witness {
            Some(witness) => Some(Witness::open(witness, id).await?),
            None => None,
        };
        let (number, stale) = match &witness {
            Some(witness) => witness.content().await,
            None => (0, Vec::new()),
        };
        let trust = Trust {
            witness: number,
            stale,
        };
        let opened = match found {
            Ok(superblock) => {
                check(config, &superblock)?;
                table::open(Arc::clone(&device), superblock, boot, trust).await?
            }
            Err(LayoutError::Blank) => {
                let (size, block) = (device.size_bytes(), device.block_bytes());
                let plan = layout::plan(size, block, config)?;
                // Settings that cannot work leave the device as it is.
                Plan::new(&config.core(plan.places_bytes, plan.shards, seed))?;
                let identity = (id, HashSeed(seed));
                let now = clock.unix_seconds();
                table::format(Arc::clone(&device), plan, identity, now, boot, number).await?
            }
            Err(source) => {
                let device = device.describe();
                return Err(OpenVolumesError::NotBlank { device, source });
            }
        };
        VolumeCache::start(device, witness, number, clock, config, opened).await
    }

    async fn start(
        device: SharedBlockDevice,
        witness: Option<Witness>,
        number: u32,
        clock: Clock,
        config: &VolumeCacheConfig,
        opened: Opened,
    ) -> Result<Self, OpenVolumesError> {
        let Opened {
            table,
            superblock,
            mut unread,
            sums,
            had_witness,
        } = opened;
        let device: SharedBlockDevice = match &sums {
            Some(sums) => Arc::new(SummedBlocks::new(device, Arc::clone(sums))),
            None => device,
        };
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
        let unread_bytes = match unread {
            Some(_) => on_device.places_bytes,
            None => 0,
        };
        let mut shared = Shared {
            device,
            clock,
            table,
            sums,
            plan,
            loading: Loading::new(caches.len(), unread_bytes),
            shards: Shard::of_all(caches, config.locks, unread.is_none()),
            volumes: RwLock::new(Vec::new()),
            short: Notify::new(),
            cleaning: Cleaning::new(config),
            fills: Arc::new(Semaphore::new(FILLS_MAX)),
            dirty_writes: AtomicU64::new(0),
            flushed_writes: AtomicU64::new(0),
            is_closing: AtomicBool::new(false),
            last_request: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            witness: None,
        };
        if let Some(unread) = unread.take_if(|unread| unread.comes_first()) {
            shared.load(&unread).await?;
            // Nothing is written to a cache device that has failed.
            if shared.table.commit().await.is_ok() {
                let _ = shared.table.set_witness(number).await;
            }
        }
        let is_durable = shared.table.check().is_ok();
        if let Some(witness) = &witness
            && is_durable
        {
            witness.clear().await?;
        }
        shared.witness = witness.filter(|_| had_witness || is_durable);
        let shared = Arc::new(shared);
        let mut tasks = vec![
            tokio::spawn(Arc::clone(&shared).reclaim_ahead()),
            tokio::spawn(Arc::clone(&shared).clean_ahead()),
            tokio::spawn(Arc::clone(&shared).commit_ahead()),
            tokio::spawn(Arc::clone(&shared).settle_intents()),
        ];
        if let Some(unread) = unread {
            tasks.push(tokio::spawn(Arc::clone(&shared).load_behind(unread)));
        }
        Ok(VolumeCache {
            shared,
            entries: Arc::new(tokio::sync::Mutex::new(superblock.volumes)),
            tasks: Arc::new(Mutex::new(tasks)),
            key: ReservationKey::of(superblock.cache_id),
        })
    }

    /// Waits until the blocks that an earlier run left are read.
    ///
    /// # Errors
    /// They cannot be read: all volumes are poisoned. The cache is closed.
    pub async fn loaded(&self) -> Result<(), VolumeError> {
        self.shared.loaded().await
    }

    /// Puts the cache in front of `backing`, under `name`. A volume that had this name
    /// before gets its blocks back, unless its backing device was another one.
    ///
    /// With a mode that makes nothing dirty, returns once all dirty blocks are written back.
    /// If blocks of an earlier run are still being read, that goes on behind the call; only
    /// a new volume, and one whose backing device differs from before, wait for all of them.
    ///
    /// # Errors
    /// The name is in use or too long; the volume has dirty data of another backing device;
    /// the mode makes data dirty that a power loss would erase; another machine has reserved
    /// the backing device, or may have written to it; a device failed; the blocks of an
    /// earlier run cannot be read.
    pub async fn attach(
        &self,
        name: &str,
        backing: SharedBlockDevice,
        config: &VolumeConfig,
    ) -> Result<Volume, OpenVolumesError> {
        let mut entries = self.entries.lock().await;
        if self.shared.is_closing.load(SeqCst) {
            return Err(VolumeError::Closed.into());
        }
        self.shared.loading.check()?;
        self.shared
            .check_mode(config.mode, config.allow_data_loss)?;
        let known = entries.iter().find(|entry| entry.name == name).cloned();
        let is_attached = |known: &VolumeEntry| self.shared.volume(known.volume).is_some();
        if known.as_ref().is_some_and(is_attached) {
            return Err(OpenVolumesError::InUse(name.to_owned()));
        }
        // Before the content is looked at, which nothing else changes from then on.
        let was_reserved = known.as_ref().is_some_and(|known| known.is_reserved);
        let reserved = reservation::reserve(name, &backing, config, self.key, was_reserved);
        let standing = reserved.await?;
        let attached = self.attach_as(name, &backing, config, (known, standing), &mut entries);
        let attached = attached.await;
        if attached.is_err() && standing == Standing::Taken {
            reservation::release(name, &backing, self.key).await;
        }
        attached
    }

    /// Attaches a volume that was `known` before, or not, with its backing device reserved.
    async fn attach_as(
        &self,
        name: &str,
        backing: &SharedBlockDevice,
        config: &VolumeConfig,
        (known, standing): (Option<VolumeEntry>, Standing),
        entries: &mut Vec<VolumeEntry>,
    ) -> Result<Volume, OpenVolumesError> {
        let (size_bytes, block_bytes) = self.size_before(backing);
        let mut changed = entries.clone();
        let id = match &known {
            Some(known) => {
                let is_lost = reservation::is_lost(known, standing, config, self.key);
                self.check_backing(known, backing, is_lost).await?;
                known.volume
            }
            None => {
                self.drop_empty(&mut changed).await?;
                free_number(&changed, name)?
            }
        };
        let was_reserved = known.as_ref().is_some_and(|known| known.is_reserved);
        let had = known.map(|known| known.size_bytes);
        let is_known = had.is_some();
        let name = name.to_owned();
        let sizes = (size_bytes, block_bytes);
        let state = VolumeState::new(id, name.clone(), Arc::clone(backing), sizes, config);
        // Blocks are filled from it that count as durable, and a flush covers what an earlier
        // process has written. A device that another machine has reserved takes no flush.
        let flushed = state.backing.flush().await;
        match flushed {
            Err(error) if config.read_only => {
                tracing::warn!(volume = %name, %error, "the backing device was not flushed");
            }
            flushed => flushed.map_err(VolumeError::backing)?,
        }
        let state = Arc::new(state);
        if let Some(had) = had.filter(|had| *had != size_bytes) {
            self.shared
                .follow(&state, ByteSize(had.min(size_bytes)))
                .await?;
        }
        // From now on the cache itself changes what a stamp would be of.
        changed.retain(|entry| entry.volume != id);
        changed.push(VolumeEntry {
            volume: id,
            name,
            size_bytes,
            stamp: NO_STAMP,
            is_reserved: was_reserved || standing != Standing::NotReserved,
        });
        let noted = self.shared.table.set_volumes(changed.clone()).await;
        match &noted {
            Ok(()) => {
                *entries = changed;
                reservation::confirm(backing, standing, self.key).await?;
            }
            // Reads of what it has in the cache go on.
            Err(_) if is_known => {}
            Err(_) => noted.clone()?,
        }
        for shard in &self.shared.shards {
            let mut state = shard.lock();
            state.cache.set_size_of(id, ByteSize(size_bytes))?;
            state.cache.set_mode_of(id, config.mode);
        }
        self.shared.volumes.write().push(Arc::clone(&state));
        if let Err(error) = self.shared.loading.check() {
            state.poison(&error);
        }
        let volume = Volume {
            shared: Arc::clone(&self.shared),
            state,
        };
        match noted {
            Err(error) => self.shared.lose_cache(&error).await,
            // Dirty blocks of an earlier mode.
            Ok(()) if config.mode.makes_dirty() => {}
            Ok(()) if self.shared.is_loaded() => {
                let cleaned = volume.clean().await;
                cleaned.inspect_err(|_| self.shared.forget_volume(id))?;
            }
            Ok(()) => self.clean_behind(volume.clone()),
        }
        Ok(volume)
    }

    /// Writes the dirty blocks of `volume` back once all blocks are read, and until it can.
    fn clean_behind(&self, volume: Volume) {
        let clock = self.shared.clock.clone();
        let cleaning = tokio::spawn(async move {
            while !volume.mode().makes_dirty() {
                match volume.clean().await {
                    Ok(()) | Err(VolumeError::Closed) => return,
                    Err(error) => {
                        let name = volume.name();
                        tracing::error!(volume = name, %error, "blocks of an earlier mode stay dirty");
                        clock.sleep(RETRY_INTERVAL).await;
                    }
                }
            }
        });
        self.tasks.lock().push(cleaning);
    }

    /// Drops volumes that are not attached and have no block from `entries`, so that their
    /// numbers are free. That they have none is durable afterwards.
    async fn drop_empty(&self, entries: &mut Vec<VolumeEntry>) -> Result<(), VolumeError> {
        let shared = &self.shared;
        shared.loaded().await?;
        shared.table.commit().await?;
        entries.retain(|entry| {
            shared.volume(entry.volume).is_some() || shared.has_blocks(entry.volume)
        });
        Ok(())
    }

    /// Makes sure that no block of the volume `known` is of a backing device other than
    /// `backing`: clean blocks of another one are forgotten.
    async fn check_backing(
        &self,
        known: &VolumeEntry,
        backing: &SharedBlockDevice,
        is_lost: bool,
    ) -> Result<(), OpenVolumesError> {
        let (shared, id) = (&self.shared, known.volume);
        let mut difference = self.difference(known, backing).await?;
        if difference.is_none() && !is_lost {
            return Ok(());
        }
        shared.loaded().await?;
        let mut shards = shared.shards.iter();
        let has_dirty = shards.any(|shard| shard.lock().cache.has_dirty(id));
        if is_lost && has_dirty && known.is_reserved {
            return Err(OpenVolumesError::ReservationLost {
                name: known.name.clone(),
                own: self.key,
            });
        }
        if is_lost && !has_dirty {
            difference = Some("another machine may have written to it".to_owned());
        }
        let Some(difference) = difference else {
            return Ok(());
        };
        if has_dirty {
            return Err(OpenVolumesError::OtherBacking {
                name: known.name.clone(),
                difference,
            });
        }
        tracing::warn!(volume = %known.name, %difference, "another backing device: the volume's blocks are forgotten");
        Ok(shared.invalidate_volume(id).await?)
    }

    /// What tells `backing` from the device that the volume `known` had, by its content.
    async fn difference(
        &self,
        known: &VolumeEntry,
        backing: &SharedBlockDevice,
    ) -> Result<Option<String>, VolumeError> {
        let (had, has) = (known.size_bytes, self.size_before(backing).0);
        if has < had {
            self.loaded().await?;
            if known.stamp != NO_STAMP || self.shared.has_dirty_after(known.volume, has) {
                return Ok(Some(format!("it had {had} bytes, and this one has {has}")));
            }
        }
        if known.stamp == NO_STAMP {
            return Ok(None);
        }
        Ok(match stamp_of(backing, had, self.seed()).await {
            Ok(stamp) if stamp == known.stamp => None,
            Ok(_) => Some("samples of its content differ".to_owned()),
            Err(error) => Some(format!("samples of its content cannot be read: {error}")),
        })
    }

    /// Bytes of a volume before `backing`, and of a block of it. The volume has whole
    /// blocks, and `backing` may have some bytes more.
    fn size_before(&self, backing: &SharedBlockDevice) -> (u64, u32) {
        let block = self.shared.device.block_bytes().max(backing.block_bytes());
        let blocks = backing.size_bytes() / u64::from(block);
        (blocks * u64::from(block), block)
    }

    pub(super) fn seed(&self) -> HashSeed {
        HashSeed(self.shared.plan.config().seed)
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
        let sums = self.shared.sums.as_ref();
        stats.checksum_errors = sums.map_or(0, |sums| sums.failures());
        stats.unread_bytes = self.shared.loading.unread_bytes();
        stats.checksum_bytes = sums.map_or(0, |sums| sums.memory_bytes());
        stats
    }

    /// Ends all requests, makes everything durable, and notes a clean stop and a stamp of
    /// each backing device. Dirty blocks stay in the cache. Further requests fail with
    /// [`VolumeError::Closed`]. While blocks of an earlier run are being read, no clean stop is
    /// noted: the next opening begins as this one did.
    ///
    /// # Errors
    /// A device failed.
    pub async fn close(&self) -> Result<(), VolumeError> {
        self.shared.is_closing.store(true, SeqCst);
        // Everything that waits for blocks to be read ends.
        self.shared.loading.fail(VolumeError::Closed);
        let mut entries = self.entries.lock().await;
        let tasks: Vec<_> = self.tasks.lock().drain(..).collect();
        for task in &tasks {
            task.abort();
        }
        for task in tasks {
            // A task that runs now goes on until it waits. Until then it may write to the backing
            // device, whose stamp would be out of date.
            let _ = task.await;
        }
        let volumes = self.shared.volumes.read().clone();
        for volume in &volumes {
            self.shared.idle(volume).await;
        }
        for volume in &volumes {
            match volume.flush_backing().await {
                // Another machine may have the device, which is not flushed from here.
                Ok(()) | Err(VolumeError::TakenAway) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(reason) = volumes.iter().find_map(|volume| volume.poisoned()) {
            return Err(VolumeError::Poisoned(reason));
        }
        if self.shared.table.check().is_err() && volumes.iter().all(|volume| volume.is_lost()) {
            // Nothing relies on the cache device.
            return Ok(());
        }
        if !self.shared.is_loaded() {
            self.shared.table.commit().await?;
            self.shared.table.stop().await;
            return Ok(());
        }
        self.shared.enqueue_sums(|_| true);
        self.shared.table.commit().await?;
        self.stamp_all(&volumes, &mut entries).await;
        self.shared.table.close(entries.clone()).await
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
                self.lose_cache(&error).await;
            }
            if let Err(error) = self.release().await {
                tracing::warn!(%error, "places of old blocks are not used again");
            }
        }
    }
}

impl Shared {
    /// Clears write-intent bits of areas that are idle, so that an unclean stop keeps their
    /// clean blocks, until the cache is closed.
    async fn settle_intents(self: Arc<Self>) {
        while !self.is_closing.load(SeqCst) {
            self.clock.sleep(INTENT_INTERVAL).await;
            if self.loaded().await.is_err() {
                return;
            }
            let idle = self.table.idle_intents();
            // Nothing is written to a cache device that has failed.
            let is_lost = self.table.check().is_err();
            if !is_lost && !idle.is_empty() && self.flush_all().await {
                let is_idle = |bit| idle.binary_search(&bit).is_ok();
                self.enqueue_sums(|extent| intent_bits(extent).any(is_idle));
                self.table.settle_intents(&idle);
            }
        }
    }

    /// Enqueues the checksums that the table lacks, of blocks that are `wanted`.
    fn enqueue_sums(&self, mut wanted: impl FnMut(Extent) -> bool) {
        let Some(sums) = &self.sums else {
            return;
        };
        for place in self.groups() {
            if !sums.has_changed(place..place + self.plan.group_bytes()) {
                continue;
            }
            let mut records = Vec::new();
            let state = self.shards[self.plan.shard_of_place(place)].lock();
            state.cache.blocks_around(place, |piece| {
                if wanted(piece.extent) {
                    sums.records(piece.places(), true, &mut records);
                }
            });
            self.table.enqueue(records);
        }
    }

    /// Makes both devices durable; false if that failed, or a volume is poisoned.
    async fn flush_all(&self) -> bool {
        let volumes = self.volumes.read().clone();
        for volume in &volumes {
            if volume.poisoned().is_some() || self.flush(volume).await.is_err() {
                return false;
            }
        }
        self.table.commit().await.is_ok()
    }
}

/// The number of a new volume.
fn free_number(entries: &[VolumeEntry], name: &str) -> Result<VolumeId, OpenVolumesError> {
    if name.len() > VOLUME_NAME_BYTES_MAX {
        return Err(OpenVolumesError::NameTooLong(
            name.to_owned(),
            VOLUME_NAME_BYTES_MAX,
        ));
    }
    if entries.len() >= VOLUMES_MAX {
        return Err(OpenVolumesError::TooManyVolumes(VOLUMES_MAX));
    }
    let is_free = |id: &u16| entries.iter().all(|entry| entry.volume.0 != *id);
    Ok(VolumeId((0..u16::MAX).find(is_free).unwrap_or(u16::MAX)))
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
    if config.checksums != plan.checksums {
        let text = |is_on: bool| is_on.to_string();
        return differs("checksums", text(plan.checksums), text(config.checksums));
    }
    if config.shards != 0 && config.shards != plan.shards {
        return differs("shards", plan.shards.to_string(), config.shards.to_string());
    }
    Ok(())
}
