//! Going on without a cache device that cannot be written.
//!
//! Volumes without dirty data need it no more: they pass it by from then on. Others are
//! poisoned, because it has the only copy.

use std::sync::Arc;

use floe_core::volume::VolumeId;
use floe_core::volume::mode::Mode;

use super::error::VolumeError;
use super::state::{Shared, VolumeState};

impl Shared {
    /// Takes note that the cache device cannot be written, for the reason `error`.
    pub(super) async fn lose_cache(&self, error: &VolumeError) {
        // Volumes with dirty blocks cannot go on without it.
        let is_loaded = self.loaded().await.is_ok();
        // Blocks that are being cleaned are neither dirty nor on the backing device.
        let _no_cleaning = self.cleaning.batches.write().await;
        let volumes = self.volumes.read().clone();
        let goes_on = |volume: &Arc<VolumeState>| !volume.is_lost() && volume.poisoned().is_none();
        let mut spared = Vec::new();
        for volume in volumes.into_iter().filter(goes_on) {
            match is_loaded && self.spare(&volume) {
                true => spared.push(volume),
                false => volume.poison(error),
            }
        }
        if spared.is_empty() {
            return;
        }
        let ids: Vec<_> = spared.iter().map(|volume| volume.id).collect();
        let noted = self.note_stale(&ids).await;
        for volume in spared {
            match &noted {
                Ok(()) => volume.lose(error),
                Err(why) => volume.poison(&format!(
                    "{error}; the volume cannot go on without the cache device: {why}"
                )),
            }
        }
    }

    /// Forgets the blocks of `volume`, dirty ones too, though the cache device cannot be
    /// written, for the reason `error`: the witness remembers that they are stale.
    pub(super) async fn lose_dirty_data(
        &self,
        volume: &VolumeState,
        error: VolumeError,
    ) -> Result<(), VolumeError> {
        self.note_stale(&[volume.id]).await.map_err(|why| {
            let what = format!("{error}; its dirty data would come back with the device: {why}");
            VolumeError::Table(what.into())
        })?;
        volume.lose(&error);
        for shard in &self.shards {
            shard
                .lock()
                .cache
                .invalidate_volume(volume.id, &mut Vec::new());
        }
        Ok(())
    }

    /// Lets the witness remember that the blocks of `volumes` are stale.
    async fn note_stale(&self, volumes: &[VolumeId]) -> Result<(), String> {
        let witness = self.witness.as_ref().ok_or("there is no witness")?;
        let noted = witness.add_stale(volumes).await;
        noted.map_err(|error| error.to_string())
    }

    /// Lets the requests of `volume` go past the cache, unless it has dirty blocks.
    fn spare(&self, volume: &VolumeState) -> bool {
        let mut before = Mode::default();
        for shard in &self.shards {
            let cache = &mut shard.lock().cache;
            before = cache.mode_of(volume.id);
            cache.set_mode_of(volume.id, Mode::PassThrough);
        }
        // From now on no request makes dirty blocks.
        let mut shards = self.shards.iter();
        let has_dirty = shards.any(|shard| shard.lock().cache.has_dirty(volume.id));
        if has_dirty {
            for shard in &self.shards {
                shard.lock().cache.set_mode_of(volume.id, before);
            }
        }
        !has_dirty
    }
}
