//! The state of an open cache and of its volumes. Must not depend on: requests.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use floe_core::volume::mode::Mode;
use floe_core::volume::{ByteRange, Extent, Piece, Plan, VolumeId};
use floe_device::{Clock, IoBuf, OpFuture, SharedBlockDevice};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::config::VolumeConfig;
use super::error::VolumeError;
use super::limits::Cleaning;
use super::loading::Loading;
use super::shard::Shard;
use super::sums::Sums;
use super::table::BlockTable;
use super::witness::Witness;
use crate::gauge::Gauge;

/// An open cache.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) device: SharedBlockDevice,
    pub(super) clock: Clock,
    pub(super) table: Arc<BlockTable>,
    /// The checksums of cached data, if it has some.
    pub(super) sums: Option<Arc<Sums>>,
    pub(super) plan: Plan,
    pub(super) shards: Vec<Shard>,
    pub(super) volumes: RwLock<Vec<Arc<VolumeState>>>,
    /// Wakes the task that makes room.
    pub(super) short: Notify,
    /// Fills that may run behind the answers of their requests.
    pub(super) fills: Arc<Semaphore>,
    pub(super) cleaning: Cleaning,
    /// Writes of dirty data to the cache device that have ended, and those of them that
    /// a flush covers.
    pub(super) dirty_writes: AtomicU64,
    pub(super) flushed_writes: AtomicU64,
    pub(super) is_closing: AtomicBool,
    /// The time of the last request, in ticks.
    pub(super) last_request: AtomicU64,
    pub(super) in_flight: AtomicU64,
    pub(super) loading: Loading,
    /// Remembers volumes that went on without the cache device.
    pub(super) witness: Option<Witness>,
}

/// A volume of an open cache.
#[derive(Debug)]
pub(super) struct VolumeState {
    pub(super) id: VolumeId,
    pub(super) name: String,
    pub(super) backing: SharedBlockDevice,
    /// Bytes of the volume: those of the backing device when it was attached or resized.
    pub(super) size_bytes: AtomicU64,
    pub(super) block_bytes: u32,
    pub(super) is_read_only: bool,
    pub(super) allow_data_loss: bool,
    /// Requests are refused: the volume is being detached, or is.
    pub(super) is_closed: AtomicBool,
    /// Cancelled when the volume is detached.
    pub(super) detached: CancellationToken,
    /// Requests that run. Parts of those whose callers have gone hold locks.
    running: AtomicU64,
    /// Requests wait to begin: the volume is being resized.
    pub(super) is_paused: AtomicBool,
    pub(super) resumed: Notify,
    /// Held while the mode of all shards is changed.
    pub(super) mode: Mutex<()>,
    /// The backing device was written to since its last flush.
    pub(super) needs_flush: AtomicBool,
    /// Held while the backing device is flushed.
    flush: tokio::sync::Mutex<()>,
    poison: Mutex<Option<Arc<str>>>,
    is_poisoned: AtomicBool,
    /// Why the volume goes on without the cache device.
    loss: OnceLock<String>,
}

impl VolumeState {
    pub(super) fn new(
        id: VolumeId,
        name: String,
        backing: SharedBlockDevice,
        (size_bytes, block_bytes): (u64, u32),
        config: &VolumeConfig,
    ) -> Self {
        VolumeState {
            id,
            name,
            size_bytes: AtomicU64::new(size_bytes),
            backing,
            block_bytes,
            is_read_only: config.read_only,
            allow_data_loss: config.allow_data_loss,
            is_closed: AtomicBool::new(false),
            detached: CancellationToken::new(),
            running: AtomicU64::new(0),
            is_paused: AtomicBool::new(false),
            resumed: Notify::new(),
            mode: Mutex::new(()),
            needs_flush: AtomicBool::new(false),
            flush: tokio::sync::Mutex::new(()),
            poison: Mutex::new(None),
            is_poisoned: AtomicBool::new(false),
            loss: OnceLock::new(),
        }
    }

    /// Goes on without the cache device.
    pub(super) fn lose(&self, reason: &VolumeError) {
        tracing::error!(volume = %self.name, %reason, "the volume goes on without the cache device");
        let _ = self.loss.set(reason.to_string());
    }

    /// Why the volume goes on without the cache device, if it does.
    pub(super) fn loss(&self) -> Option<&str> {
        self.loss.get().map(String::as_str)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.loss.get().is_some()
    }

    /// Counts a request until the result is dropped.
    pub(super) fn begin_request(&self) -> Gauge<'_> {
        Gauge::rise(&self.running)
    }

    /// Refuses writes from now on, because acknowledged data could not be kept.
    pub(super) fn poison(&self, reason: &dyn std::fmt::Display) {
        let mut poison = self.poison.lock();
        if poison.is_none() {
            tracing::error!(volume = %self.name, %reason, "the volume is poisoned: reads go on, writes are refused");
            *poison = Some(reason.to_string().into());
            self.is_poisoned.store(true, SeqCst);
        }
    }

    pub(super) fn poisoned(&self) -> Option<Arc<str>> {
        self.poison.lock().clone()
    }

    /// Fails if writes are refused.
    pub(super) fn check_writable(&self) -> Result<(), VolumeError> {
        if self.is_read_only {
            return Err(VolumeError::ReadOnly);
        }
        self.check_poison()
    }

    /// Fails if it is known that another machine may have written to the backing device.
    pub(super) fn check_reserved(&self) -> Result<(), VolumeError> {
        match self.backing.is_taken_away() {
            false => Ok(()),
            true => Err(VolumeError::TakenAway),
        }
    }

    fn check_poison(&self) -> Result<(), VolumeError> {
        match self.is_poisoned.load(SeqCst) {
            false => Ok(()),
            true => Err(VolumeError::Poisoned(self.poisoned().unwrap_or_default())),
        }
    }

    /// Starts a read of the backing device.
    pub(super) fn read(&self, range: ByteRange) -> OpFuture<IoBuf> {
        let buf = self.backing.allocate(range.len() as usize);
        self.backing.read(range.start, buf)
    }

    /// Makes what was written to the backing device durable, if anything was.
    pub(super) async fn flush_backing(&self) -> Result<(), VolumeError> {
        // A flush that has begun counts only once it has ended.
        let _flush = self.flush.lock().await;
        self.check_reserved()?;
        if !self.needs_flush.swap(false, SeqCst) {
            return Ok(());
        }
        let unflushed = Unflushed(&self.needs_flush);
        self.backing.flush().await.map_err(|error| {
            self.poison(&format!("a flush of the backing device failed: {error}"));
            VolumeError::backing(error)
        })?;
        std::mem::forget(unflushed);
        Ok(())
    }
}

/// Asks for another flush when dropped: one has failed, or is not waited for any more.
struct Unflushed<'a>(&'a AtomicBool);

impl Drop for Unflushed<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

impl Shared {
    /// Counts a request while it runs.
    ///
    /// # Errors
    /// The cache is closed, or about to be.
    pub(super) fn begin_request(&self) -> Result<Gauge<'_>, VolumeError> {
        // Counted first: a cache that closes waits for it.
        let request = Gauge::rise(&self.in_flight);
        if self.is_closing.load(SeqCst) {
            return Err(VolumeError::Closed);
        }
        self.last_request.store(self.clock.now().0, Relaxed);
        Ok(request)
    }

    /// Waits until no request of `volume` runs, and no lock of it is held.
    pub(super) async fn idle(&self, volume: &VolumeState) {
        loop {
            let mut shards = self.shards.iter();
            let is_locked = |shard: &Shard| shard.lock().locks.has_any_of(volume.id);
            if volume.running.load(SeqCst) == 0 && !shards.any(is_locked) {
                return;
            }
            self.clock.sleep(Duration::from_millis(1)).await;
        }
    }

    /// Fails if `mode` makes data dirty that a power loss would erase, and `volume` does
    /// not allow that.
    pub(super) fn check_mode(&self, mode: Mode, allow_data_loss: bool) -> Result<(), VolumeError> {
        match mode.makes_dirty() && !allow_data_loss && self.device.is_volatile() {
            false => Ok(()),
            true => Err(VolumeError::Volatile {
                mode,
                device: self.device.describe(),
            }),
        }
    }

    /// The attached volume of this name.
    pub(super) fn volume_named(&self, name: &str) -> Option<Arc<VolumeState>> {
        let volumes = self.volumes.read();
        volumes.iter().find(|volume| volume.name == name).cloned()
    }

    pub(super) fn volume(&self, id: VolumeId) -> Option<Arc<VolumeState>> {
        let volumes = self.volumes.read();
        volumes.iter().find(|volume| volume.id == id).cloned()
    }

    /// The shard of `extent`, which lies within one region.
    pub(super) fn shard_of(&self, extent: Extent) -> usize {
        self.plan.shard_of(extent.volume, extent.range.start)
    }

    /// The first place of each group of the cache device.
    pub(super) fn groups(&self) -> impl Iterator<Item = u64> + use<> {
        let bytes = self.plan.group_bytes() as usize;
        (0..self.table.plan().places_bytes).step_by(bytes)
    }

    /// Byte offset of `place` on the cache device.
    pub(super) fn offset(&self, place: u64) -> u64 {
        self.table.places_offset() + place
    }

    /// Starts a read of the cache device.
    pub(super) fn read_piece(&self, piece: Piece) -> OpFuture<IoBuf> {
        let buf = self.device.allocate(piece.extent.range.len() as usize);
        self.device.read(self.offset(piece.place), buf)
    }

    /// The result of writing to the cache device for `volume`. A failure is none to a
    /// volume that goes on without it.
    pub(super) async fn or_without_cache(
        &self,
        volume: &VolumeState,
        writing: impl Future<Output = Result<(), VolumeError>>,
    ) -> Result<(), VolumeError> {
        if volume.is_lost() {
            return Ok(());
        }
        let Err(error) = writing.await else {
            return Ok(());
        };
        self.lose_cache(&error).await;
        match volume.is_lost() {
            true => Ok(()),
            false => Err(error),
        }
    }

    /// Makes everything that the volume's writes have acknowledged durable.
    pub(super) async fn flush(&self, volume: &VolumeState) -> Result<(), VolumeError> {
        volume.check_poison()?;
        volume.flush_backing().await?;
        let ended = self.dirty_writes.load(SeqCst);
        self.or_without_cache(volume, async {
            if self.table.unstable() > 0 {
                self.table.commit().await?;
            } else if self.flushed_writes.load(SeqCst) < ended {
                self.device.flush().await.map_err(VolumeError::cache)?;
            }
            self.flushed_writes.fetch_max(ended, SeqCst);
            Ok(())
        })
        .await
    }
}
