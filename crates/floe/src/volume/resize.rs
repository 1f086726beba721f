//! Devices that become larger or smaller while the cache is open.
//!
//! A volume gets another size while it has no requests. Blocks that pass the lower of both
//! sizes leave durably first: their bytes past it are not those of the backing device.
//! Then the superblock has the new size, before a block lies beyond the old one.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use floe_core::ByteSize;
use floe_core::volume::{ByteRange, Cache, ConfigError, Extent, Piece, VolumeId};
use floe_device::{DeviceError, DeviceErrorKind};

use super::cache::VolumeCache;
use super::decide::dirty_of;
use super::error::{OpenVolumesError, VolumeError};
use super::finish::Finish;
use super::layout;
use super::state::{Shared, VolumeState};

/// The time after which blocks that a request or a task has are looked at again.
const RETRY_TIME: Duration = Duration::from_millis(1);

/// A size that was taken over. Both are equal if nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Resized {
    /// Bytes before.
    pub before: ByteSize,
    /// Bytes now.
    pub now: ByteSize,
}

/// Why a size is not taken over.
#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    /// The cache device is smaller than what the cache has on it, or is to become so.
    #[error(
        "a cache does not shrink: it uses {needed} of its device, and would have {size}; give the device its bytes back, or write all dirty data back and format a smaller cache"
    )]
    CacheDoesNotShrink {
        /// Bytes of the device.
        size: ByteSize,
        /// Bytes that the cache has in use.
        needed: ByteSize,
    },
    /// No volume of this name is attached.
    #[error("volume {0} is not attached")]
    NotAttached(String),
    /// The size is zero, or not whole blocks.
    #[error("{size} is no multiple of {block}, the block of the volume")]
    NotWholeBlocks {
        /// The size.
        size: ByteSize,
        /// Bytes of a block.
        block: u32,
    },
    /// Data past the new end would be lost.
    #[error(
        "volume {name} has {before}, and data past {size} would be lost: allow that to make it smaller"
    )]
    Shrinks {
        /// The volume.
        name: String,
        /// Its bytes.
        before: ByteSize,
        /// Bytes that it would have.
        size: ByteSize,
    },
    /// The backing device has become smaller, and the cache has the only copy of data past
    /// its end.
    #[error(
        "the backing device of volume {name} ends at {size} now, and the cache has dirty data past it: give the device its bytes back, or allow that this data is lost"
    )]
    DirtyPastEnd {
        /// The volume.
        name: String,
        /// Bytes of the backing device.
        size: ByteSize,
    },
    /// A device does not have the size, and Floe cannot give it.
    #[error("{device} has {size}, and cannot be given {wanted}: {source}")]
    Fixed {
        /// The device.
        device: String,
        /// Its bytes.
        size: ByteSize,
        /// Bytes that it should have.
        wanted: ByteSize,
        /// The cause.
        source: DeviceError,
    },
    /// The cache or the volume cannot be so large.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A device does not tell its size.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The cache is closed, or a device failed.
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

impl VolumeCache {
    /// Uses what was added to the cache device, after a file is enlarged to `size`, if one is
    /// given; its space is allocated. Requests go on meanwhile. Returns the bytes of blocks
    /// that fit. They stay as they are if less was added than a table of all blocks needs.
    ///
    /// # Errors
    /// The device has become smaller, or `size` is; it cannot be enlarged; it failed; the
    /// cache is closed.
    pub async fn resize(&self, size: Option<ByteSize>) -> Result<Resized, ResizeError> {
        let cache = self.clone();
        Finish::new(async move { cache.resize_now(size).await }).await
    }

    async fn resize_now(&self, size: Option<ByteSize>) -> Result<Resized, ResizeError> {
        // No volume is attached or resized at once.
        let _entries = self.entries.lock().await;
        let shared = &self.shared;
        if shared.is_closing.load(SeqCst) {
            return Err(VolumeError::Closed.into());
        }
        shared.loaded().await?;
        let device = &shared.device;
        let plan = shared.table.plan();
        let found = device.refresh_size().await?;
        let wanted = size.map_or(found, ByteSize::bytes);
        if wanted.min(found) < plan.end() {
            let (size, needed) = (ByteSize(wanted.min(found)), ByteSize(plan.end()));
            return Err(ResizeError::CacheDoesNotShrink { size, needed });
        }
        if !wanted.is_multiple_of(u64::from(plan.block_size)) {
            let (size, block) = (ByteSize(wanted), plan.block_size);
            return Err(ResizeError::NotWholeBlocks { size, block });
        }
        if wanted > found {
            let enlarged = device.set_size(wanted, true).await;
            enlarged.map_err(|source| ResizeError::Fixed {
                device: device.describe(),
                size: ByteSize(found),
                wanted: ByteSize(wanted),
                source,
            })?;
        }
        let capacity = || ByteSize(self.stats().occupancy.capacity_bytes);
        let before = capacity();
        if let Some(grown) = layout::grown(&plan, wanted) {
            let places = ByteSize(grown.places_bytes);
            shared.plan.grown_to(places)?;
            shared.table.grow(grown).await?;
            if let Some(sums) = &shared.sums {
                sums.grow(&grown);
            }
            for shard in &shared.shards {
                shard.lock().cache.grow(places)?;
            }
            tracing::info!(%before, now = %capacity(), "the cache has grown");
        }
        let now = capacity();
        Ok(Resized { before, now })
    }

    /// Gives the volume `name` the size that its backing device has by now, or `size`: then
    /// a file is made as large as that, and other devices must have as much at least. Requests
    /// of the volume wait meanwhile. Its clients may have to connect again to hear of it.
    ///
    /// Data past a lower `size`, and dirty data past the end of a backing device that has
    /// become smaller, is lost, and only if `allow_loss`.
    ///
    /// # Errors
    /// The volume is not attached; data past the new end would be lost; the device has fewer
    /// bytes; a device failed: then the volume may have the lower of both sizes. The cache
    /// is closed.
    pub async fn resize_volume(
        &self,
        name: &str,
        size: Option<ByteSize>,
        allow_loss: bool,
    ) -> Result<Resized, ResizeError> {
        let (cache, name) = (self.clone(), name.to_owned());
        Finish::new(async move { cache.resize_volume_now(&name, size, allow_loss).await }).await
    }

    async fn resize_volume_now(
        &self,
        name: &str,
        size: Option<ByteSize>,
        allow_loss: bool,
    ) -> Result<Resized, ResizeError> {
        let mut entries = self.entries.lock().await;
        let shared = &self.shared;
        if shared.is_closing.load(SeqCst) {
            return Err(VolumeError::Closed.into());
        }
        let volume = shared.volume_named(name);
        let volume = volume.ok_or_else(|| ResizeError::NotAttached(name.to_owned()))?;
        volume.check_reserved()?;
        let (id, before) = (volume.id, ByteSize(volume.size_bytes.load(SeqCst)));
        if let Some(size) = size {
            let block = volume.block_bytes;
            if size.bytes() == 0 || !size.bytes().is_multiple_of(u64::from(block)) {
                return Err(ResizeError::NotWholeBlocks { size, block });
            }
            shared.plan.check_size(size)?;
            if size < before && !allow_loss {
                let name = name.to_owned();
                return Err(ResizeError::Shrinks { name, before, size });
            }
        }
        shared.loaded().await?;
        let _pause = Pause::of(&volume);
        shared.idle(&volume).await;
        let now = {
            // Blocks that are being cleaned are not dirty meanwhile.
            let _no_cleaning = shared.cleaning.batches.write().await;
            volume.flush_backing().await?;
            let now = volume.available(size).await?;
            shared.plan.check_size(now)?;
            if !allow_loss && shared.has_dirty_after(id, now.bytes()) {
                let (name, size) = (name.to_owned(), now);
                return Err(ResizeError::DirtyPastEnd { name, size });
            }
            now
        };
        if now != before {
            let end = now.min(before);
            shared.set_size_of(id, end)?;
            volume.size_bytes.store(end.bytes(), SeqCst);
            shared.cut(&volume, end).await?;
            let mut changed = entries.clone();
            if let Some(entry) = changed.iter_mut().find(|entry| entry.volume == id) {
                entry.size_bytes = now.bytes();
            }
            shared.table.set_volumes(changed.clone()).await?;
            *entries = changed;
            shared.set_size_of(id, now)?;
            volume.size_bytes.store(now.bytes(), SeqCst);
            tracing::info!(volume = %name, %before, %now, "the volume is resized");
        }
        if size.is_some_and(|size| size.bytes() < volume.backing.size_bytes()) {
            // Devices that are no files keep their size, until their own tool reduces it.
            let truncated = volume.backing.set_size(now.bytes(), false).await;
            truncated.or_else(|error| match error.kind {
                DeviceErrorKind::Unsupported(_) => Ok(()),
                _ => Err(error),
            })?;
        }
        Ok(Resized { before, now })
    }
}

impl VolumeState {
    /// The bytes that the volume can have: `size`, or those of its backing device by now.
    /// A file that has less than `size` is enlarged.
    async fn available(&self, size: Option<ByteSize>) -> Result<ByteSize, ResizeError> {
        let found = self.backing.refresh_size().await?;
        let block = u64::from(self.block_bytes);
        let Some(wanted) = size else {
            return Ok(ByteSize(found / block * block));
        };
        if wanted.bytes() > found {
            let enlarged = self.backing.set_size(wanted.bytes(), false).await;
            enlarged.map_err(|source| ResizeError::Fixed {
                device: self.backing.describe(),
                size: ByteSize(found),
                wanted,
                source,
            })?;
        }
        Ok(wanted)
    }
}

impl Shared {
    /// Cuts a volume at `end` that is being attached, because its backing device has become
    /// larger or smaller since it was.
    pub(super) async fn follow(
        self: &Arc<Self>,
        volume: &Arc<VolumeState>,
        end: ByteSize,
    ) -> Result<(), OpenVolumesError> {
        self.loaded().await?;
        self.set_size_of(volume.id, end)?;
        // Only blocks of volumes that are attached are written back.
        self.volumes.write().push(Arc::clone(volume));
        let cut = self.cut(volume, end).await;
        self.forget_volume(volume.id);
        Ok(cut?)
    }

    /// Drops the blocks of a volume that pass `end`, durably. It has no requests, and ends
    /// there already for those that write blocks back.
    async fn cut(self: &Arc<Self>, volume: &VolumeState, end: ByteSize) -> Result<(), VolumeError> {
        // The device must keep the size that the superblock is about to have.
        volume.backing.flush().await.map_err(VolumeError::backing)?;
        self.drop_after(volume.id, end.bytes()).await
    }

    fn set_size_of(&self, volume: VolumeId, size: ByteSize) -> Result<(), ConfigError> {
        let mut shards = self.shards.iter();
        shards.try_for_each(|shard| shard.lock().cache.set_size_of(volume, size))
    }

    /// True if `volume` has dirty bytes from `from` on.
    pub(super) fn has_dirty_after(&self, volume: VolumeId, from: u64) -> bool {
        let is_dirty = |cache: &Cache, block: &Piece| {
            let ByteRange { start, end } = block.extent.range;
            let range = ByteRange {
                start: start.max(from),
                end,
            };
            !dirty_of(cache, Extent { volume, range }).is_empty()
        };
        self.shards.iter().any(|shard| {
            let state = shard.lock();
            let blocks = state.cache.blocks_after(volume, from);
            blocks.iter().any(|block| is_dirty(&state.cache, block))
        })
    }

    /// Drops the blocks of `volume` that end after `from`, durably. What lies before is
    /// written back first if it is dirty.
    async fn drop_after(self: &Arc<Self>, volume: VolumeId, from: u64) -> Result<(), VolumeError> {
        for number in 0..self.shards.len() {
            loop {
                let (mut dirty, mut is_busy) = (Vec::new(), false);
                {
                    let mut state = self.shards[number].lock();
                    let state = &mut *state;
                    let mut steps = Vec::new();
                    for block in state.cache.blocks_after(volume, from) {
                        let range = ByteRange {
                            end: from,
                            ..block.extent.range
                        };
                        let is_across = range.start < from;
                        if !state.locks.is_free(block.extent) {
                            is_busy = true;
                        } else if is_across
                            && !dirty_of(&state.cache, Extent { volume, range }).is_empty()
                        {
                            dirty.push(block);
                        } else {
                            state.cache.invalidate(block.place, &mut steps);
                        }
                    }
                    self.settle_in(state, &steps);
                }
                if dirty.is_empty() && !is_busy {
                    break;
                }
                if is_busy || self.clean_pieces(number, &dirty).await? == 0 {
                    self.clock.sleep(RETRY_TIME).await;
                }
            }
        }
        self.table.commit().await?;
        self.release().await
    }
}

/// Requests of the volume wait while it lives.
struct Pause<'a>(&'a VolumeState);

impl<'a> Pause<'a> {
    fn of(volume: &'a VolumeState) -> Self {
        volume.is_paused.store(true, SeqCst);
        Pause(volume)
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.is_paused.store(false, SeqCst);
        self.0.resumed.notify_waiters();
    }
}
