//! One volume: the operations of a disk.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use floe_core::volume::mode::Mode;
use floe_core::volume::{ByteRange, Usage};
use floe_device::{IoBuf, IoData};

use super::error::VolumeError;
use super::finish::Finish;
use super::state::{Shared, VolumeState};
use super::write::Change;
use crate::gauge::Gauge;

/// A volume of a [`VolumeCache`](super::VolumeCache). Clones share it.
///
/// It behaves as a disk does. A read returns the newest acknowledged write. An
/// acknowledged [`flush`](Volume::flush) survives anything. Requests at one time on the
/// same bytes take effect in some order. Of a request whose future is dropped, parts that have
/// begun go on, and later requests on the same bytes wait for them; others have no effect.
#[derive(Clone, Debug)]
pub struct Volume {
    pub(super) shared: Arc<Shared>,
    pub(super) state: Arc<VolumeState>,
}

/// The state of a volume.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Bytes of the volume.
    pub size_bytes: u64,
    /// The cache mode.
    pub mode: Mode,
    /// Writes are refused by configuration.
    pub is_read_only: bool,
    /// Why writes are refused, if acknowledged data could not be kept.
    pub poisoned: Option<String>,
    /// Why the volume goes on without the cache device, if that has failed.
    pub cache_lost: Option<String>,
    /// This machine has lost its lock of the backing device, so every request fails.
    #[serde(default)]
    pub is_taken_away: bool,
    /// The backing device.
    pub backing: String,
    /// Bytes of the cache whose blocks of an earlier run are not read yet: [`Volume::usage`]
    /// lacks them.
    pub unread_bytes: u64,
}

impl Volume {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Bytes of the volume.
    pub fn size_bytes(&self) -> u64 {
        self.state.size_bytes.load(SeqCst)
    }

    /// Bytes of a block: requests begin and end at multiples.
    pub fn block_bytes(&self) -> u32 {
        self.state.block_bytes
    }

    /// A buffer of `len` zeroed or stale bytes for the data of a write.
    pub fn allocate(&self, len: usize) -> IoBuf {
        self.shared.device.allocate(len)
    }

    /// True if the volume refuses writes by configuration.
    pub fn is_read_only(&self) -> bool {
        self.state.is_read_only
    }

    /// True if both are clones of one attached volume.
    pub fn is_same(&self, other: &Volume) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    /// Waits until the volume is detached. From then on every request fails with
    /// [`VolumeError::Closed`]. Its backing device is closed with the last clone.
    pub async fn detached(&self) {
        self.state.detached.cancelled().await;
    }

    /// The cache mode.
    pub fn mode(&self) -> Mode {
        let first = self.shared.shards.first();
        let mode = first.map(|shard| shard.lock().cache.mode_of(self.state.id));
        mode.unwrap_or_default()
    }

    /// Its requests since it was attached, and its blocks now. Looks at every block of the
    /// cache, shard by shard.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for shard in &self.shared.shards {
            usage += shard.lock().cache.usage_of(self.state.id);
        }
        usage
    }

    /// Its state.
    pub fn status(&self) -> VolumeStatus {
        VolumeStatus {
            name: self.state.name.clone(),
            size_bytes: self.size_bytes(),
            mode: self.mode(),
            is_read_only: self.state.is_read_only,
            poisoned: self.state.poisoned().map(|reason| reason.to_string()),
            cache_lost: self.state.loss().map(str::to_owned),
            is_taken_away: self.state.backing.is_taken_away(),
            backing: self.state.backing.describe(),
            unread_bytes: self.shared.loading.unread_bytes(),
        }
    }

    /// Reads `len` bytes from `at`.
    ///
    /// # Errors
    /// The range is not whole blocks of the volume, or a device failed and the other
    /// does not have the newest data.
    pub async fn read_at(&self, at: u64, len: usize) -> Result<IoBuf, VolumeError> {
        let _request = self.begin().await?;
        let range = self.check(at, len as u64)?;
        if range.is_empty() {
            return Ok(self.shared.device.allocate(0));
        }
        let read = self.shared.read(&self.state, range).await?;
        self.state.check_reserved()?;
        Ok(read)
    }

    /// Writes `data` at `at`. If `is_durable`, it survives anything once the call
    /// returns, otherwise after the next [`flush`](Volume::flush).
    ///
    /// # Errors
    /// As for [`read_at`](Volume::read_at); the volume refuses writes. After an error the
    /// bytes have their old or their new content, block by block.
    pub async fn write_at(
        &self,
        at: u64,
        data: IoData,
        is_durable: bool,
    ) -> Result<(), VolumeError> {
        let len = data.len() as u64;
        self.change(at, len, Change::Write(data), is_durable).await
    }

    /// Makes `len` bytes from `at` read as zeros.
    ///
    /// # Errors
    /// As for [`write_at`](Volume::write_at).
    pub async fn write_zeroes(
        &self,
        at: u64,
        len: u64,
        is_durable: bool,
    ) -> Result<(), VolumeError> {
        self.change(at, len, Change::Zeroes, is_durable).await
    }

    /// Declares the content of `len` bytes from `at` of no use: until they are written,
    /// they read as zeros, as before, or as anything that they were earlier.
    ///
    /// # Errors
    /// As for [`write_at`](Volume::write_at).
    pub async fn discard(&self, at: u64, len: u64) -> Result<(), VolumeError> {
        self.change(at, len, Change::Discard, false).await
    }

    /// Brings `len` bytes from `at` into the cache, as a read does.
    ///
    /// # Errors
    /// As for [`read_at`](Volume::read_at).
    pub async fn prefetch(&self, at: u64, len: u64) -> Result<(), VolumeError> {
        let range = self.check(at, len)?;
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + PREFETCH_BYTES);
            self.read_at(start, (end - start) as usize).await?;
            start = end;
        }
        Ok(())
    }

    /// Makes every write that was acknowledged before the call survive anything.
    ///
    /// # Errors
    /// A device failed: the volume is poisoned, because acknowledged data may be lost.
    pub async fn flush(&self) -> Result<(), VolumeError> {
        let _request = self.begin().await?;
        self.flush_now().await?;
        self.state.check_reserved()
    }

    async fn flush_now(&self) -> Result<(), VolumeError> {
        let (shared, state) = (Arc::clone(&self.shared), Arc::clone(&self.state));
        Finish::new(async move { shared.flush(&state).await }).await
    }

    /// Changes the cache mode. With a mode that makes nothing dirty, returns once all
    /// dirty blocks are written back.
    ///
    /// # Errors
    /// A dirty block cannot be written back: the mode has changed, and the block stays and
    /// is served. Or the mode makes data dirty that a power loss would erase.
    pub async fn set_mode(&self, mode: Mode) -> Result<(), VolumeError> {
        let _request = self.begin().await?;
        self.shared.check_mode(mode, self.state.allow_data_loss)?;
        {
            let _no_loss = self.shared.cleaning.batches.read().await;
            if self.state.is_lost() {
                return self.shared.table.check();
            }
            let _all_shards = self.state.mode.lock();
            for shard in &self.shared.shards {
                shard.lock().cache.set_mode_of(self.state.id, mode);
            }
        }
        if mode.makes_dirty() {
            return Ok(());
        }
        self.clean().await
    }

    /// Writes all dirty blocks back, durably.
    ///
    /// # Errors
    /// A device failed. Blocks that could not be written back stay dirty.
    pub async fn clean(&self) -> Result<(), VolumeError> {
        let _request = self.begin().await?;
        self.shared.clean_all(self.state.id).await
    }

    async fn change(
        &self,
        at: u64,
        len: u64,
        change: Change,
        is_durable: bool,
    ) -> Result<(), VolumeError> {
        let _request = self.begin().await?;
        let range = self.check(at, len)?;
        self.state.check_writable()?;
        if !range.is_empty() {
            self.shared.change(&self.state, range, change).await?;
        }
        if is_durable {
            self.flush_now().await?;
        }
        self.state.check_reserved()
    }

    fn check(&self, at: u64, len: u64) -> Result<ByteRange, VolumeError> {
        let range = ByteRange::at(at, len);
        let (size, block) = (self.size_bytes(), self.block_bytes());
        if range.end > size || range.len() != len {
            let end = range.end;
            return Err(VolumeError::OutOfRange { at, end, size });
        }
        let unit = u64::from(block);
        if !at.is_multiple_of(unit) || !len.is_multiple_of(unit) {
            let end = range.end;
            return Err(VolumeError::Unaligned { at, end, block });
        }
        Ok(range)
    }

    /// Counts a request while it runs. Waits while the volume is resized.
    async fn begin(&self) -> Result<[Gauge<'_>; 2], VolumeError> {
        let state = &self.state;
        loop {
            // Counted before the checks: a detach or resize that was not seen waits for it.
            let request = [self.shared.begin_request()?, state.begin_request()];
            if state.is_closed.load(SeqCst) {
                return Err(VolumeError::Closed);
            }
            state.check_reserved()?;
            if !state.is_paused.load(SeqCst) {
                return Ok(request);
            }
            drop(request);
            let resumed = state.resumed.notified();
            if state.is_paused.load(SeqCst) {
                resumed.await;
            }
        }
    }
}

/// Bytes that a prefetch reads at once.
const PREFETCH_BYTES: u64 = 1 << 20;
