//! Data of different lifetimes lies apart: each zone and each kind of data has its
//! placement handle, and a drive with data placement has less to move.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use common::{drive, in_place, memory, tiny_config};
use floe::tiny::TinyConfig;
use floe::volume::{VolumeCache, VolumeCacheConfig, VolumeConfig};
use floe::{ChunkConfig, PutOptions, Store, StoreConfig, Tiny};
use floe_core::chunk::{ClruLayout, Eviction, ZonePhase};
use floe_core::ssd::Statistics;
use floe_core::volume::mode::Mode;
use floe_core::{ByteSize, Geometry, ZoneId};
use floe_device::block::flat::Flat;
use floe_device::config::DeviceKind;
use floe_device::nvme::{Drive, Interface};
use floe_device::{
    Address, Clock, Counters, Device, DeviceConfig, IoBuf, IoData, MemoryBlocks, OpFuture,
    Placement, SharedBlockDevice, SharedDevice, SimConfig, SimDevice, SimModel, ZoneReport, open,
    virtual_time,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// A range of a drive's zones, with handles of its own, as a namespace has them. It notes
/// what is written by each handle.
#[derive(Debug)]
struct Part {
    below: SharedDevice,
    first_zone: u32,
    first_handle: u16,
    geometry: Geometry,
    written: Mutex<Written>,
}

#[derive(Clone, Debug, Default)]
struct Written {
    bytes: BTreeMap<u16, u64>,
    /// The handles of each zone's current life.
    zones: BTreeMap<ZoneId, BTreeSet<u16>>,
    /// Zones whose life had several.
    mixed: BTreeSet<ZoneId>,
}

impl Part {
    /// `zones` zones of `below` from `first_zone` on, with `handles` handles from
    /// `first_handle` on.
    fn new(
        below: &SharedDevice,
        (first_zone, zones): (u32, u32),
        (first_handle, handles): (u16, u16),
    ) -> Arc<Part> {
        Arc::new(Part {
            below: Arc::clone(below),
            first_zone,
            first_handle,
            geometry: Geometry {
                zone_count: zones,
                placement_handles: handles,
                ..below.geometry().clone()
            },
            written: Mutex::default(),
        })
    }

    /// A whole device in memory with `handles` handles.
    fn memory(zones: u32, handles: u16) -> Arc<Part> {
        let below = memory(in_place(zones, 1 << 20));
        Part::new(&below, (0, zones), (0, handles))
    }

    fn zone(&self, zone: ZoneId) -> ZoneId {
        ZoneId(self.first_zone + zone.0)
    }

    fn below(&self, at: Address) -> Address {
        Address::new(self.zone(at.zone), at.offset)
    }

    fn place(&self, zone: ZoneId, bytes: usize, Placement(handle): Placement) -> Placement {
        assert!(
            handle < self.geometry.placement_handles.max(1),
            "no handle {handle}"
        );
        let mut written = self.written.lock();
        *written.bytes.entry(handle).or_default() += bytes as u64;
        let of_zone = written.zones.entry(zone).or_default();
        of_zone.insert(handle);
        if of_zone.len() > 1 {
            written.mixed.insert(zone);
        }
        Placement(self.first_handle + handle)
    }

    fn written(&self) -> Written {
        self.written.lock().clone()
    }
}

impl Device for Part {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn describe(&self) -> String {
        format!("part of {}", self.below.describe())
    }

    fn allocate(&self, len: usize) -> IoBuf {
        self.below.allocate(len)
    }

    fn read(&self, at: Address, buf: IoBuf) -> OpFuture<IoBuf> {
        self.below.read(self.below(at), buf)
    }

    fn append(&self, zone: ZoneId, data: IoData, placement: Placement) -> OpFuture<Address> {
        let placement = self.place(zone, data.len(), placement);
        let append = self.below.append(self.zone(zone), data, placement);
        OpFuture::new(async move { Ok(Address::new(zone, append.await?.offset)) })
    }

    fn write(&self, at: Address, data: IoData, placement: Placement) -> OpFuture<()> {
        let placement = self.place(at.zone, data.len(), placement);
        self.below.write(self.below(at), data, placement)
    }

    fn reset(&self, zone: ZoneId) -> OpFuture<()> {
        self.written.lock().zones.remove(&zone);
        self.below.reset(self.zone(zone))
    }

    /// Does nothing, as for a namespace with data placement. The model of a whole drive
    /// would begin another reclaim unit.
    fn finish(&self, _zone: ZoneId) -> OpFuture<()> {
        OpFuture::ready(Ok(()))
    }

    fn flush(&self) -> OpFuture<()> {
        self.below.flush()
    }

    fn report(&self) -> OpFuture<Vec<ZoneReport>> {
        let report = self.below.report();
        let (first, count) = (self.first_zone, self.geometry.zone_count as usize);
        OpFuture::new(async move {
            let zones = report.await?.into_iter().skip(first as usize).take(count);
            let here = zones.map(|zone| ZoneReport {
                zone: ZoneId(zone.zone.0 - first),
                ..zone
            });
            Ok(here.collect())
        })
    }

    fn counters(&self) -> &Counters {
        self.below.counters()
    }
}

/// A log of chunks with host GC and four open zones.
fn store_config(eviction: Eviction) -> StoreConfig {
    let mut config = StoreConfig {
        chunk: ChunkConfig {
            size: ByteSize::kib(64),
            eviction,
            clru_layout: match eviction {
                Eviction::Clru => ClruLayout::Log,
                _ => ClruLayout::Auto,
            },
            open_zones: Some(OPEN_ZONES),
            write_buffer: ByteSize::mib(2),
            ..ChunkConfig::default()
        },
        seed: Some(7),
        format: true,
        ..StoreConfig::default()
    };
    config.ram.size = ByteSize(0);
    config
}

const OPEN_ZONES: u32 = 4;

async fn open_store(device: &Arc<Part>, clock: &Clock, eviction: Eviction) -> Store {
    let device: SharedDevice = Arc::<Part>::clone(device);
    let config = store_config(eviction);
    let opened = Store::open(device, clock.clone(), &config).await;
    opened.expect("opens")
}

/// Writes `bytes` of values, whose keys fill 4/5 of the device, and reads those of a tenth
/// of the keys, which chunk LRU keeps.
async fn write_values(store: &Store, capacity: u64, bytes: u64, seed: u64) {
    const MEAN: u64 = 40 << 10;
    let mut random = StdRng::seed_from_u64(seed);
    let keys = capacity / 5 * 4 / MEAN;
    let mut left = bytes;
    while left > 0 {
        let read = random.random_range(0..keys / 10).to_le_bytes();
        store.get(&read).await.expect("get");
        let key = random.random_range(0..keys);
        let len = random.random_range(MEAN / 2..MEAN / 2 * 3) as usize;
        let value = Bytes::from(vec![key as u8; len]);
        let name = key.to_le_bytes();
        let put = store.put(&name, value, PutOptions::default());
        put.await.expect("put");
        left = left.saturating_sub(len as u64);
    }
    store.flush().await.expect("flushes");
}

/// Writes `bytes` of tiny objects.
async fn write_objects(tiny: &Tiny, bytes: u64, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..bytes / 240 {
        let key = random.random_range(0..bytes / 240).to_le_bytes();
        let put = tiny.put(&key, &[7; 230], PutOptions::default());
        put.await.expect("put");
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn a_zone_has_one_handle_and_values_of_each_age_have_their_own() {
    for (handles, of_metadata, of_new) in [
        (0, vec![0], vec![0]),
        (1, vec![0], vec![0]),
        (2, vec![0], vec![1]),
        (3, vec![0], vec![2]),
        (8, vec![0], vec![2, 3, 4, 5]),
    ] {
        virtual_time::run(1, |clock: Clock| async move {
            let device = Part::memory(40, handles);
            let store = open_store(&device, &clock, Eviction::Clru).await;
            write_values(&store, 38 * MIB, 100 * MIB, 1).await;
            let moved = store.stats().engine.counts.gc_bytes;
            assert!(moved > 0, "host GC moves values");
            store.close().await.expect("closes");
            let written = device.written();
            let used: Vec<u16> = written.bytes.keys().copied().collect();
            let mut wanted: BTreeSet<u16> = of_metadata.into_iter().chain(of_new.clone()).collect();
            wanted.extend((handles > 2).then_some(1));
            assert_eq!(used, Vec::from_iter(wanted), "{handles} handles");
            assert_eq!(written.mixed, BTreeSet::new(), "{handles} handles");
            for metadata in [ZoneId(0), ZoneId(1)] {
                let of_zone = written.zones.get(&metadata).into_iter().flatten();
                assert!(of_zone.eq([&0]), "{handles} handles");
            }
            if handles > 2 {
                let moved_here = written.bytes[&1];
                // Summaries, headers and what users write if no other zone is left.
                assert!(moved_here >= moved * 9 / 10, "{moved_here} of {moved}");
            }
            let bytes = of_new.iter().map(|handle| written.bytes[handle]);
            let (least, most) = (bytes.clone().min(), bytes.max());
            assert!(least.unwrap() * 2 > most.unwrap(), "{:?}", written.bytes);
        });
    }
}

#[test]
fn zones_that_are_open_at_once_have_different_handles() {
    for eviction in [Eviction::Zplru, Eviction::Fifo] {
        virtual_time::run(1, |clock: Clock| async move {
            let device = Part::memory(40, 5);
            let store = open_store(&device, &clock, eviction).await;
            for round in 0..20 {
                write_values(&store, 38 * MIB, 7 * MIB, round).await;
                let zones = store.zone_stats();
                let open = zones.iter().filter(|zone| zone.phase == ZonePhase::Open);
                let written = device.written();
                let handles_of = |zone: u32| written.zones[&ZoneId(zone)].clone();
                let handles: Vec<_> = open.map(|zone| handles_of(zone.zone)).collect();
                let distinct: BTreeSet<_> = handles.iter().collect();
                assert_eq!(distinct.len(), handles.len(), "{handles:?}");
            }
            assert_eq!(device.written().mixed, BTreeSet::new());
        });
    }
}

#[test]
fn each_tiny_instance_has_its_handles() {
    virtual_time::run(1, |clock: Clock| async move {
        let device = Part::memory(42, 8);
        let config = TinyConfig {
            instances: Some(2),
            ..tiny_config()
        };
        let shared: SharedDevice = Arc::<Part>::clone(&device);
        let tiny = Tiny::open(shared, clock, &config).await.expect("opens");
        write_objects(&tiny, 30 * MIB, 1).await;
        tiny.close().await.expect("closes");
        let written = device.written();
        // 0 is the metadata's, 1 and 2 are index pages', 3 and 4 set-groups'.
        let of = |zones: std::ops::Range<u32>, handles: [u16; 2]| {
            let used: BTreeSet<_> = zones
                .filter_map(|zone| written.zones.get(&ZoneId(zone)))
                .flatten()
                .copied()
                .collect();
            assert!(used.contains(&handles[1]), "{used:?}");
            assert!(
                used.iter().all(|handle| handles.contains(handle)),
                "{used:?}"
            );
        };
        of(0..2, [0, 0]);
        of(2..22, [1, 3]);
        of(22..42, [2, 4]);
    });
}

/// A simulated drive with data placement.
fn fdp_drive(size: ByteSize, zone_size: ByteSize, clock: &Clock) -> SimDevice {
    let config = DeviceConfig {
        kind: DeviceKind::Sim,
        size: Some(size),
        zone_size: Some(zone_size),
        sim: SimConfig {
            model: SimModel::Fdp,
            mapping_unit: Some(ByteSize::kib(4)),
            precondition: false,
            ..SimConfig::default()
        },
        ..DeviceConfig::default()
    };
    SimDevice::open(&config, clock).expect("opens")
}

/// What a simulated drive wrote for a cache of chunks and one of tiny objects.
fn simulated(handles: (u16, u16)) -> Statistics {
    const ZONE: ByteSize = ByteSize::kib(1536);
    virtual_time::run(1, |clock: Clock| async move {
        let drive: SharedDevice = Arc::new(fdp_drive(ByteSize::mib(300), ZONE, &clock));
        let zones = drive.geometry().zone_count;
        let of_tiny = zones / 5;
        let chunks = Part::new(&drive, (0, zones - of_tiny), (0, handles.0));
        let objects = Part::new(&drive, (zones - of_tiny, of_tiny), (handles.0, handles.1));
        let store = open_store(&chunks, &clock, Eviction::Clru).await;
        let shared: SharedDevice = objects;
        let config = tiny_config();
        let tiny = Tiny::open(shared, clock.clone(), &config)
            .await
            .expect("opens");
        let capacity = u64::from(zones - of_tiny) * ZONE.bytes();
        let mut before = Statistics::default();
        for round in 0..6_u64 {
            if round == 3 {
                before = drive.media_statistics().expect("a whole drive");
            }
            futures::join!(
                write_values(&store, capacity, capacity / 4, round),
                write_objects(&tiny, capacity / 16, round),
            );
        }
        let moved = store.stats().engine.counts.gc_bytes;
        assert!(moved > 0, "host GC moves values");
        drive
            .media_statistics()
            .expect("a whole drive")
            .since(&before)
    })
}

#[test]
fn placement_spares_a_simulated_drive_its_collection() {
    // One handle for all, one for each engine, and one for each stream.
    let cases = [(0, 0), (1, 1), (6, 3)];
    let runs = cases.map(|handles| std::thread::spawn(move || simulated(handles)));
    let [shared, of_engines, of_streams] = runs.map(|run| {
        let written = run.join().expect("it ends");
        println!("{:?}", written.programmed);
        written.write_amplification().expect("it wrote")
    });
    println!("{shared:.4} with one handle, {of_engines:.4} with two, {of_streams:.4} with nine");
    assert!(shared > 1.1, "{shared}");
    assert!(
        of_engines < 1.01 && of_streams < 1.01,
        "{of_engines} {of_streams}"
    );
}

/// What a simulated drive wrote for a cache of volumes of a quarter of its volume: half of the
/// requests write to a fortieth of it, half read anywhere and fill clean blocks.
fn simulated_volumes(handles: u16) -> (Statistics, Written) {
    const ZONE: ByteSize = ByteSize::kib(1536);
    const BLOCK: u64 = 16 << 10;
    virtual_time::run(1, |clock: Clock| async move {
        let drive: SharedDevice = Arc::new(fdp_drive(ByteSize::mib(60), ZONE, &clock));
        let zones = drive.geometry().zone_count;
        let part = Part::new(&drive, (0, zones), (0, handles));
        let flat: SharedBlockDevice = Arc::new(Flat::new(Arc::<Part>::clone(&part)).expect("flat"));
        let size = ByteSize(flat.size_bytes() * 4);
        let config = VolumeCacheConfig {
            sizes: "16KiB".parse().expect("a size"),
            checksums: handles == 3,
            ..VolumeCacheConfig::default()
        };
        let cache = VolumeCache::open(flat, clock.clone(), &config).await;
        let cache = cache.expect("opens");
        let backing = MemoryBlocks::new(size, 4096).expect("whole blocks");
        let mode = VolumeConfig {
            mode: Mode::WriteBack,
            allow_data_loss: true,
            ..VolumeConfig::default()
        };
        let volume = cache.attach("v", Arc::new(backing), &mode).await;
        let volume = volume.expect("attaches");
        let mut random = StdRng::seed_from_u64(1);
        let blocks = size.bytes() / BLOCK;
        let data = IoBuf::zeroed(BLOCK as usize).freeze();
        let mut before = Statistics::default();
        for request in 0..40_000_u64 {
            if request == 20_000 {
                before = drive.media_statistics().expect("a whole drive");
            }
            match random.random_ratio(1, 2) {
                true => {
                    let at = random.random_range(0..blocks / 40) * BLOCK;
                    volume
                        .write_at(at, data.clone(), false)
                        .await
                        .expect("writes");
                }
                false => {
                    let at = random.random_range(0..blocks) * BLOCK;
                    volume.read_at(at, BLOCK as usize).await.expect("reads");
                }
            }
        }
        cache.close().await.expect("closes");
        let written = drive.media_statistics().expect("a whole drive");
        (written.since(&before), part.written())
    })
}

#[test]
fn volumes_write_metadata_and_clean_and_dirty_data_apart() {
    for (handles, used, most) in [
        (0, vec![0], 2.0),
        (2, vec![0, 1], 2.0),
        (3, vec![0, 1, 2], 1.1),
        (8, vec![0, 1, 2], 1.1),
    ] {
        let (statistics, written) = simulated_volumes(handles);
        let handles_used: Vec<u16> = written.bytes.keys().copied().collect();
        assert_eq!(handles_used, used);
        let amplification = statistics.write_amplification().expect("it wrote");
        assert!(amplification < most, "{handles} handles: {amplification}");
        println!(
            "volumes, {handles} handles: {amplification:.4}, {:?}",
            written.bytes
        );
    }
}

#[test]
#[ignore = "needs a scratch drive with data placement in FLOE_TEST_DRIVE"]
fn on_a_drive() {
    let config = DeviceConfig {
        zone_size: Some(ByteSize::mib(1)),
        ..drive(ByteSize::mib(40))
    };
    let path = config.path.clone().expect("a drive");
    // The handles' rooms, and what the host and the drive wrote.
    let observe = || {
        let drive = Drive::open(&path).expect("opens");
        let Interface::Placement(placement) = drive.interface() else {
            panic!("{} has no data placement", path.display());
        };
        let free = placement.handles.iter().map(|handle| handle.free_blocks);
        let statistics = drive.placement_statistics(placement.group).expect("root");
        let unit = placement
            .configuration
            .as_ref()
            .expect("root")
            .reclaim_unit_bytes;
        (free.collect::<Vec<_>>(), statistics, unit / 4096)
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let clock = Clock::real();
        let drive = open(&config, &clock).expect("opens");
        let handles = drive.geometry().placement_handles;
        let part = Part::new(&drive, (0, drive.geometry().zone_count), (0, handles));
        let store = open_store(&part, &clock, Eviction::Clru).await;
        let before = (part.written(), drive.counters().snapshot(), observe());
        write_values(&store, 38 * MIB, 60 * MIB, 1).await;
        store.close().await.expect("closes");
        let after = (part.written(), drive.counters().snapshot(), observe());
        let (free_before, wrote_before, unit_blocks) = before.2;
        let (free_after, wrote_after, _) = after.2;
        let resets = after.1.resets - before.1.resets;
        let (mut used, mut filled) = (0, 0);
        for (handle, (had, has)) in free_before.into_iter().zip(free_after).enumerate() {
            let bytes =
                |written: &Written| written.bytes.get(&(handle as u16)).copied().unwrap_or(0);
            let mut blocks = (bytes(&after.0) - bytes(&before.0)) / 4096;
            used += usize::from(blocks > 0);
            if handle == 0 {
                // A reset zeroes the first block, without a handle.
                blocks += resets;
            }
            filled += (unit_blocks - had + blocks) / unit_blocks;
            let taken = (had + unit_blocks - has) % unit_blocks;
            assert_eq!(taken, blocks % unit_blocks, "handle {handle}");
        }
        assert_eq!(used, 6, "metadata, moved values, and four open zones");
        let host = wrote_after.host_written_bytes - wrote_before.host_written_bytes;
        let media = wrote_after.media_written_bytes - wrote_before.media_written_bytes;
        // QEMU counts the part of a write that fills a reclaim unit twice.
        let twice = filled * u64::from(drive.geometry().max_append_bytes);
        assert!(
            (host..=host + u128::from(twice)).contains(&media),
            "the drive moves nothing: {host} bytes by the host, {media} by the drive"
        );
        println!("{used} handles, {host} bytes by the host, {media} by the drive");
    });
}
