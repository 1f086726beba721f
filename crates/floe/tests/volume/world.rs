//! A cache with one volume, whose devices yield to the checker.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use floe_core::ByteSize;
use floe_core::hash::HashSeed;
use floe_core::layout::CacheId;
use floe_core::volume::mode::Mode;
use floe_core::volume::{ByteRange, Cache, Extent, Fill, Piece, Plan, VolumeId};
use floe_device::block::BlockDevice;
use floe_device::{Clock, IoBuf, IoData, MemoryBlocks, OpFuture, SharedBlockDevice};
use parking_lot::{Mutex, RwLock};
use shuttle::future::{block_on, yield_now};
use tokio::sync::{Notify, Semaphore};

use super::below::below;
use super::config::{VolumeCacheConfig, VolumeConfig};
use super::decide::dirty_of;
use super::error::OpenVolumesError;
use super::layout;
use super::limits::Cleaning;
use super::loading::Loading;
use super::shard::Shard;
use super::state::{Shared, VolumeState};
use super::table::{self, Boot, Opened, Trust};
use super::write::Change;

pub(super) const SECTOR: u64 = 512;

/// Sectors of the volume.
pub(super) const SECTORS: usize = 512;

const VOLUME: VolumeId = VolumeId(0);
const BOOT: Boot = Boot([1; 16]);

/// A cache, its volume, and what was written to it.
pub(super) struct World {
    pub(super) shared: Arc<Shared>,
    volume: Arc<VolumeState>,
    device: SharedBlockDevice,
    backing: SharedBlockDevice,
    yields: Arc<AtomicBool>,
    /// The newest version of each sector that was issued, and that was acknowledged. Writes
    /// to one sector follow each other.
    issued: Mutex<[u64; SECTORS]>,
    acknowledged: Mutex<[u64; SECTORS]>,
}

impl World {
    /// The smallest cache there is, before a volume of zeros that is twice as large.
    pub(super) fn new(mode: Mode, fill: Fill) -> Arc<Self> {
        let yields = Arc::new(AtomicBool::new(false));
        let device = |bytes: u64| {
            let below = MemoryBlocks::new(ByteSize(bytes), 512).expect("whole blocks");
            let (below, yields) = (Arc::new(below), Arc::clone(&yields));
            let device: SharedBlockDevice = Arc::new(Yielding { below, yields });
            device
        };
        let settings = VolumeCacheConfig {
            sizes: "4KiB,8KiB".parse().expect("sizes"),
            shards: 1,
            read_miss: fill,
            write_miss: fill,
            ..VolumeCacheConfig::default()
        };
        let least = layout::plan(0, 512, &settings);
        let Err(OpenVolumesError::TooSmall { needed, .. }) = least else {
            unreachable!("a device of no bytes is too small");
        };
        let cache_device = device(needed);
        let backing = device(SECTORS as u64 * SECTOR);
        let size = cache_device.size_bytes();
        let on_device = layout::plan(size, 512, &settings).expect("there is room");
        let identity = (CacheId([1; 16]), HashSeed(1));
        let format = table::format(Arc::clone(&cache_device), on_device, identity, 0, BOOT, 0);
        let opened = block_on(format).expect("it is laid out");
        let volumes = vec![floe_core::layout::volume::VolumeEntry {
            volume: VOLUME,
            name: "disk".to_owned(),
            size_bytes: backing.size_bytes(),
            stamp: [0; 32],
            is_reserved: false,
        }];
        block_on(opened.table.set_volumes(volumes)).expect("it is written");
        let plan = Plan::new(&settings.core(on_device.places_bytes, 1, 1)).expect("it fits");
        let mut cache = Cache::of_shard(&plan, 0);
        let bytes = ByteSize(backing.size_bytes());
        cache.set_size_of(VOLUME, bytes).expect("it is addressed");
        cache.set_mode_of(VOLUME, mode);
        let name = "disk".to_owned();
        let config = VolumeConfig::default();
        let volume = VolumeState::new(
            VOLUME,
            name,
            Arc::clone(&backing),
            (bytes.bytes(), 512),
            &config,
        );
        let volume = Arc::new(volume);
        let shared = Arc::new(Shared {
            device: Arc::clone(&cache_device),
            clock: Clock::real(),
            table: opened.table,
            sums: None,
            plan,
            shards: Shard::of_all(vec![cache], settings.locks, true),
            volumes: RwLock::new(vec![Arc::clone(&volume)]),
            short: Notify::new(),
            // Readers fill the cache themselves.
            fills: Arc::new(Semaphore::new(0)),
            dirty_writes: AtomicU64::default(),
            flushed_writes: AtomicU64::default(),
            is_closing: AtomicBool::default(),
            last_request: AtomicU64::default(),
            in_flight: AtomicU64::default(),
            cleaning: Cleaning::new(&settings),
            loading: Loading::new(1, 0),
            witness: None,
        });
        Arc::new(World {
            shared,
            volume,
            device: cache_device,
            backing,
            yields,
            issued: Mutex::new([0; SECTORS]),
            acknowledged: Mutex::new([0; SECTORS]),
        })
    }

    /// Lets devices yield from now on.
    pub(super) fn begin(&self) {
        self.yields.store(true, SeqCst);
    }

    /// Writes `version` to sectors.
    pub(super) async fn write(&self, sectors: Range<usize>, version: u64) {
        self.issued.lock()[sectors.clone()].fill(version);
        let mut buf = IoBuf::zeroed(sectors.len() * SECTOR as usize);
        let (words, _) = buf.as_chunks_mut::<8>();
        words.fill(version.to_le_bytes());
        let change = Change::Write(buf.freeze());
        let written = self.shared.change(&self.volume, range(&sectors), change);
        written.await.expect("no device fails");
        self.acknowledged.lock()[sectors].fill(version);
    }

    /// Reads sectors, and checks that none is older than what was acknowledged before.
    pub(super) async fn read(&self, sectors: Range<usize>) {
        let oldest = *self.acknowledged.lock();
        let read = self.shared.read(&self.volume, range(&sectors));
        let buf = read.await.expect("no device fails");
        let newest = *self.issued.lock();
        for (sector, found) in sectors.zip(versions(&buf)) {
            let possible = oldest[sector]..=newest[sector];
            assert!(
                possible.contains(&found),
                "sector {sector} reads as {found}, not as one of {possible:?}"
            );
        }
    }

    /// Writes the dirty blocks back that no request has.
    pub(super) async fn clean(&self) {
        let all = Extent {
            volume: VOLUME,
            range: range(&(0..SECTORS)),
        };
        let dirty: Vec<Piece> = dirty_of(&self.shared.shards[0].lock().cache, all);
        let cleaned = self.shared.clean_pieces(0, &dirty).await;
        cleaned.expect("no device fails");
    }

    /// Evicts blocks whenever requests lack room, until the end.
    pub(super) async fn reclaim(&self) {
        Arc::clone(&self.shared).reclaim_ahead().await;
    }

    /// Ends [`World::reclaim`].
    pub(super) fn end(&self) {
        self.shared.is_closing.store(true, SeqCst);
        self.shared.short.notify_one();
    }

    /// Checks, while nothing runs, that the newest data is read, and that it is there
    /// after the death of the process.
    pub(super) async fn check(&self) {
        self.yields.store(false, SeqCst);
        let has_locks = self.shared.shards[0].lock().locks.has_any_of(VOLUME);
        assert!(!has_locks, "locks are left");
        self.read(0..SECTORS).await;
        self.shared.table.commit().await.expect("no device fails");
        self.die().await;
    }

    /// Checks what is there if the process dies now: nothing older than what was
    /// acknowledged. No other client runs meanwhile.
    pub(super) async fn die(&self) {
        let yields = self.yields.swap(false, SeqCst);
        let device = copy_of(&self.device).await;
        let found = self.recovered(device).await;
        self.yields.store(yields, SeqCst);
        let (oldest, newest) = (*self.acknowledged.lock(), *self.issued.lock());
        for (sector, found) in found.into_iter().enumerate() {
            let possible = oldest[sector]..=newest[sector];
            assert!(
                possible.contains(&found),
                "sector {sector} is {found} after the death of the process, not one of {possible:?}"
            );
        }
    }

    /// The version of each sector that an opening of the cache on `device` would find.
    async fn recovered(&self, device: SharedBlockDevice) -> Vec<u64> {
        let superblock = table::read_superblock(&device).await;
        let superblock = superblock.expect("it reads").expect("a superblock");
        let opened = table::open(Arc::clone(&device), superblock, BOOT, Trust::default()).await;
        let Opened { table, unread, .. } = opened.expect("it opens");
        let unread = unread.expect("an earlier run has ended");
        let all = 0..table.plan().granules();
        let blocks = table.read_blocks(&unread, &[all]).await;
        let len = SECTORS * SECTOR as usize;
        let below = self.backing.read(0, IoBuf::zeroed(len)).await;
        let mut found: Vec<u64> = versions(&below.expect("no device fails")).collect();
        let granule_bytes = self.shared.plan.granule_bytes();
        for block in blocks.expect("it reads").blocks {
            let start = block.block.address * granule_bytes;
            let place = u64::from(block.granule) * granule_bytes;
            for (range, _) in block.valid {
                let at = self.shared.offset(place + range.start - start);
                let read = device.read(at, IoBuf::zeroed(range.len() as usize));
                let buf = read.await.expect("no device fails");
                let first = (range.start / SECTOR) as usize;
                for (sector, version) in (first..).zip(versions(&buf)) {
                    found[sector] = version;
                }
            }
        }
        found
    }
}

async fn copy_of(device: &SharedBlockDevice) -> SharedBlockDevice {
    let bytes = device.size_bytes();
    let copy = MemoryBlocks::new(ByteSize(bytes), device.block_bytes()).expect("whole blocks");
    let content = device.read(0, IoBuf::zeroed(bytes as usize)).await;
    let written = copy.write(0, content.expect("no device fails").freeze());
    written.await.expect("no device fails");
    Arc::new(copy)
}

fn range(sectors: &Range<usize>) -> ByteRange {
    ByteRange {
        start: sectors.start as u64 * SECTOR,
        end: sectors.end as u64 * SECTOR,
    }
}

/// The version of each sector.
fn versions(buf: &[u8]) -> impl Iterator<Item = u64> {
    let (sectors, _) = buf.as_chunks::<{ SECTOR as usize }>();
    sectors.iter().map(|sector| {
        let (words, _) = sector.as_chunks::<8>();
        assert!(
            words.iter().all(|word| *word == words[0]),
            "a sector is torn"
        );
        u64::from_le_bytes(words[0])
    })
}

/// A device that lets others run before and after its operations, and in the middle of
/// writes.
#[derive(Debug)]
struct Yielding {
    below: Arc<MemoryBlocks>,
    yields: Arc<AtomicBool>,
}

impl Yielding {
    /// Begins `operation` once others have run.
    fn later<T: Send + 'static>(
        &self,
        operation: impl FnOnce(Arc<MemoryBlocks>) -> OpFuture<T> + Send + 'static,
    ) -> OpFuture<T> {
        let below = Arc::clone(&self.below);
        if !self.yields.load(SeqCst) {
            return operation(below);
        }
        OpFuture::new(async move {
            yield_now().await;
            let result = operation(below).await;
            yield_now().await;
            result
        })
    }
}

impl BlockDevice for Yielding {
    below!();

    fn read(&self, at: u64, buf: IoBuf) -> OpFuture<IoBuf> {
        self.later(move |below| below.read(at, buf))
    }

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        let half = data.len() / 2 / SECTOR as usize * SECTOR as usize;
        if half == 0 {
            return self.later(move |below| below.write(at, data));
        }
        let (first, second) = (data.slice(0..half), data.slice(half..data.len()));
        let first = self.later(move |below| below.write(at, first));
        let second = self.later(move |below| below.write(at + half as u64, second));
        OpFuture::new(async move {
            first.await?;
            second.await
        })
    }

    fn write_zeroes(&self, range: Range<u64>) -> OpFuture<()> {
        self.later(move |below| below.write_zeroes(range))
    }

    fn discard(&self, range: Range<u64>) -> OpFuture<()> {
        self.later(move |below| below.discard(range))
    }

    fn flush(&self) -> OpFuture<()> {
        self.later(|below| below.flush())
    }
}
