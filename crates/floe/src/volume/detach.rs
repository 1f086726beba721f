//! Taking a volume off a cache that serves others.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use floe_core::layout::volume::VolumeEntry;
use floe_core::volume::VolumeId;
use floe_device::DeviceError;

use super::cache::VolumeCache;
use super::error::{DetachError, VolumeError};
use super::finish::Finish;
use super::reservation;
use super::stamp::{NO_STAMP, Stamp, stamp_of};
use super::state::{Shared, VolumeState};

/// The fate of a volume's dirty data when it is detached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirtyData {
    /// It is written to the backing device.
    #[default]
    WriteBack,
    /// It stays in the cache, for the next time that the volume is attached. Until then
    /// the backing device is older than what was acknowledged.
    Keep,
    /// It is lost, and so are the volume's other blocks.
    Discard,
}

impl VolumeCache {
    /// Detaches the volume `name`: refuses new requests, waits for those that run, does
    /// with its dirty data as `dirty` says, and makes all of it durable. Its clean blocks
    /// stay for the next time that it is attached, unless [`DirtyData::Discard`] is asked
    /// for.
    ///
    /// # Errors
    /// No volume of this name is attached; a device failed, or the volume is poisoned and
    /// its dirty data is not to be discarded: then it stays attached.
    pub async fn detach(&self, name: &str, dirty: DirtyData) -> Result<(), DetachError> {
        let (cache, name) = (self.clone(), name.to_owned());
        Finish::new(async move { cache.detach_now(&name, dirty).await }).await
    }

    async fn detach_now(&self, name: &str, dirty: DirtyData) -> Result<(), DetachError> {
        let mut entries = self.entries.lock().await;
        let shared = &self.shared;
        let volume = shared.volume_named(name);
        let volume = volume.ok_or_else(|| DetachError::NotAttached(name.to_owned()))?;
        shared.loaded().await?;
        volume.is_closed.store(true, SeqCst);
        let reopen = Reopen(&volume);
        shared.idle(&volume).await;
        let mut changed = entries.clone();
        if !volume.is_lost() {
            shared.settle_volume(&volume, dirty).await?;
        }
        match volume.flush_backing().await {
            // Another machine has reserved the device, perhaps: its data is given up, or waits
            // for a confirmation that none has written.
            Err(error)
                if dirty == DirtyData::Discard
                    || dirty == DirtyData::Keep && volume.backing.is_taken_away() =>
            {
                tracing::warn!(volume = name, %error, "the backing device was not flushed");
            }
            flushed => flushed?,
        }
        if !volume.is_lost() {
            shared.table.commit().await?;
            match shared.has_blocks(volume.id) {
                true if volume.backing.is_taken_away() => {}
                true => {
                    let stamp = self.stamp(&volume).await;
                    set_stamp(
                        &mut changed,
                        volume.id,
                        stamp.map_err(VolumeError::backing)?,
                    );
                }
                false => changed.retain(|entry| entry.volume != volume.id),
            }
        }
        let mut shards = shared.shards.iter();
        let is_kept = shards.any(|shard| shard.lock().cache.has_dirty(volume.id));
        if let Some(entry) = entry_of(&mut changed, volume.id) {
            entry.is_reserved &= is_kept;
        }
        // No cleaning of it begins any more.
        shared.forget_volume(volume.id);
        shared.idle(&volume).await;
        // The witness tells that the blocks of a volume without the cache device are stale.
        if !volume.is_lost()
            && let Err(error) = shared.table.set_volumes(changed.clone()).await
        {
            shared.volumes.write().push(Arc::clone(&volume));
            return Err(error.into());
        }
        *entries = changed;
        for shard in &shared.shards {
            shard.lock().cache.disown(volume.id);
        }
        if !is_kept {
            reservation::release(name, &volume.backing, self.key).await;
        }
        std::mem::forget(reopen);
        volume.detached.cancel();
        tracing::info!(volume = name, "the volume is detached");
        Ok(())
    }

    async fn stamp(&self, volume: &VolumeState) -> Result<Stamp, DeviceError> {
        let size = volume.size_bytes.load(SeqCst);
        stamp_of(&volume.backing, size, self.seed()).await
    }

    /// Takes the stamps of all `volumes` for a clean stop. A volume without one is compared
    /// by its size alone when it is attached again.
    pub(super) async fn stamp_all(
        &self,
        volumes: &[Arc<VolumeState>],
        entries: &mut [VolumeEntry],
    ) {
        for volume in volumes {
            let stamp = self.stamp(volume).await.unwrap_or_else(|error| {
                tracing::warn!(volume = %volume.name, %error, "the backing device gets no stamp");
                NO_STAMP
            });
            set_stamp(entries, volume.id, stamp);
        }
    }
}

fn entry_of(entries: &mut [VolumeEntry], id: VolumeId) -> Option<&mut VolumeEntry> {
    entries.iter_mut().find(|entry| entry.volume == id)
}

fn set_stamp(entries: &mut [VolumeEntry], id: VolumeId, stamp: Stamp) {
    if let Some(entry) = entry_of(entries, id) {
        entry.stamp = stamp;
    }
}

/// Lets a volume take requests again when dropped: it could not be detached.
struct Reopen<'a>(&'a VolumeState);

impl Drop for Reopen<'_> {
    fn drop(&mut self) {
        self.0.is_closed.store(false, SeqCst);
    }
}

impl Shared {
    /// Does with the dirty data of `volume`, which has no requests, as `dirty` says.
    async fn settle_volume(
        self: &Arc<Self>,
        volume: &VolumeState,
        dirty: DirtyData,
    ) -> Result<(), VolumeError> {
        if dirty == DirtyData::Discard {
            let lost: u64 = self
                .shards
                .iter()
                .map(|shard| shard.lock().cache.usage_of(volume.id).dirty_bytes)
                .sum();
            tracing::warn!(volume = %volume.name, bytes = lost, "the volume is detached, and its dirty data is discarded");
            return match self.table.check() {
                Ok(()) => self.invalidate_volume(volume.id).await,
                Err(error) => self.lose_dirty_data(volume, error).await,
            };
        }
        // Its blocks may differ from what was acknowledged.
        if let Some(reason) = volume.poisoned() {
            return Err(VolumeError::Poisoned(reason));
        }
        match dirty {
            DirtyData::WriteBack => self.clean_all(volume.id).await,
            DirtyData::Keep | DirtyData::Discard => Ok(()),
        }
    }

    /// Removes all blocks of a volume without writing them back, durably.
    pub(super) async fn invalidate_volume(&self, id: VolumeId) -> Result<(), VolumeError> {
        for shard in &self.shards {
            let mut steps = Vec::new();
            let mut state = shard.lock();
            state.cache.invalidate_volume(id, &mut steps);
            self.settle_in(&mut state, &steps);
        }
        self.table.commit().await?;
        self.release().await
    }

    /// True if a block of the volume is in the cache.
    pub(super) fn has_blocks(&self, id: VolumeId) -> bool {
        let mut shards = self.shards.iter();
        shards.any(|shard| shard.lock().cache.usage_of(id).blocks > 0)
    }

    /// Takes a volume out of the list of those that are attached.
    pub(super) fn forget_volume(&self, id: VolumeId) {
        self.volumes.write().retain(|volume| volume.id != id);
    }
}
