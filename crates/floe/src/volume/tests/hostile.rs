//! Clients that go, caches that close, and requests at the edges.

use std::time::Duration;

use floe_core::layout::volume::{BlockBatch, BlockRecord};
use floe_device::{Faults, Faulty, IoBuf, PowerGroup, virtual_time};

use super::faults::{SLOW, attach, failing, open, put, sectors, slow};
use super::seeds::each_seed;
use super::*;
use crate::volume::table::Boot;

/// Devices that delay some operations.
fn delayed(clock: &Clock, mib: u64, seed: u64) -> SharedBlockDevice {
    let faults = Faults {
        delays: 0.7,
        delay_max: Duration::from_micros(800),
        ..Faults::default()
    };
    Arc::new(Faulty::new(memory(mib), clock.clone(), seed, faults))
}

async fn first_byte(volume: &Volume, at: u64) -> u8 {
    let len = volume.block_bytes() as usize;
    volume.read_at(at, len).await.expect("it reads")[0]
}

/// A write-back volume with a dirty block, on a cache device whose log is slow.
async fn before_slow_log(clock: &Clock) -> (VolumeCache, Volume) {
    let cache = open(&slow(memory(4), clock, 1 << 20), clock, Fill::Sector).await;
    let volume = attach(&cache, &memory(6), Mode::WriteBack).await;
    put(&volume, 0, sectors(1, 8), true).await;
    (cache, volume)
}

/// Writes to the first block, and goes before the answer comes.
async fn write_and_go(volume: &Volume, clock: &Clock) {
    let gone = clock.sleep(SLOW / 2);
    tokio::select! {
        _ = volume.write_at(0, sectors(2, 8), false) => panic!("something is slow"),
        () = gone => {}
    }
}

/// A request whose client goes has taken effect or has not, before any that is issued
/// later.
#[test]
fn requests_whose_clients_go_overtake_none() {
    each_seed(2, 100, |seed| {
        for mode in Mode::ALL {
            for fill in [Fill::Fetch, Fill::Sector] {
                virtual_time::run(seed, |clock| async move {
                    let backing = delayed(&clock, 6, !seed);
                    let cache = open(&delayed(&clock, 4, seed), &clock, fill).await;
                    let volume = attach(&cache, &backing, mode).await;
                    let mut oracle = Oracle::new(6 << 20, seed).slowed_by(&clock);
                    let errors = oracle.run_with_departures(&volume, (400, 8), 0.3).await;
                    assert!(errors.is_empty(), "{errors:?}");
                    oracle.verify(&volume).await;
                    cache.close().await.expect("it closes");
                });
            }
        }
    });
}

/// Requests that run while the cache closes end, or are refused.
#[test]
fn a_cache_closes_while_requests_run() {
    for seed in 0..20 {
        virtual_time::run(seed, |clock| async move {
            let (device, backing) = (delayed(&clock, 4, seed), delayed(&clock, 6, !seed));
            let mode = Mode::ALL[seed as usize % Mode::ALL.len()];
            let cache = open(&device, &clock, Fill::Sector).await;
            let volume = attach(&cache, &backing, mode).await;
            let mut oracle = Oracle::new(6 << 20, seed).slowed_by(&clock);
            let (closing, after) = (cache.clone(), Duration::from_millis(5 + seed));
            let sleep = clock.sleep(after);
            let closed = tokio::spawn(async move {
                sleep.await;
                closing.close().await
            });
            let errors = oracle.run_with_departures(&volume, (400, 8), 0.2).await;
            let is_refused = |error: &VolumeError| matches!(error, VolumeError::Closed);
            assert!(
                !errors.is_empty() && errors.iter().all(is_refused),
                "{errors:?}"
            );
            closed.await.expect("it ends").expect("it closes");
            let writes = device.counters().snapshot();
            clock.sleep(Duration::from_secs(60)).await;
            assert_eq!(
                device.counters().snapshot(),
                writes,
                "after the cache was closed"
            );
            let cache = open(&device, &clock, Fill::Sector).await;
            let volume = attach(&cache, &backing, mode).await;
            oracle.verify(&volume).await;
            oracle.run(&volume, 100, 8).await;
            cache.close().await.expect("it closes");
        });
    }
}

/// A write whose client goes while it waits for dirty data to be written back.
#[test]
fn a_write_that_has_not_begun_goes_with_its_client() {
    virtual_time::run(1, |clock| async move {
        let cache = open(&memory(4), &clock, Fill::Sector).await;
        let volume = attach(&cache, &slow(memory(6), &clock, 0), Mode::WriteBack).await;
        put(&volume, 0, sectors(1, 8), true).await;
        for shard in &volume.shared.shards {
            let mut state = shard.lock();
            state.cache.set_mode_of(volume.state.id, Mode::WriteThrough);
        }
        write_and_go(&volume, &clock).await;
        put(&volume, 0, sectors(3, 8), false).await;
        clock.sleep(10 * SLOW).await;
        assert_eq!(first_byte(&volume, 0).await, 3);
        cache.close().await.expect("it closes");
    });
}

/// The client of an overwrite goes while it appends the records of others to the log.
#[test]
fn records_reach_the_log_though_the_client_goes() {
    virtual_time::run(1, |clock| async move {
        let (cache, volume) = before_slow_log(&clock).await;
        let table = &volume.shared.table;
        table.need(table.enqueue([BlockRecord::Intent { bit: 20_000 }]));
        write_and_go(&volume, &clock).await;
        put(&volume, 0, sectors(3, 8), true).await;
        assert_eq!(table.unstable(), 0);
        cache.close().await.expect("it closes");
    });
}

/// A commit that began after another one was called need not have all its records.
#[test]
fn a_commit_covers_every_record_before_it() {
    virtual_time::run(1, |clock| async move {
        let (cache, volume) = before_slow_log(&clock).await;
        let table = Arc::clone(&volume.shared.table);
        let records = |count: u32| (0..count).map(|bit| BlockRecord::Intent { bit: 20_000 + bit });
        let ticket = table.enqueue(records(1));
        let (first, second) = (Arc::clone(&table), Arc::clone(&table));
        tokio::spawn(async move { first.written(ticket).await });
        clock.sleep(SLOW / 4).await;
        table.enqueue(records(1));
        tokio::spawn(async move { second.commit().await });
        clock.sleep(SLOW / 4).await;
        table.enqueue(records(BlockBatch::RECORDS_MAX as u32 + 900));
        table.commit().await.expect("it commits");
        assert_eq!(table.unstable(), 0);
        cache.close().await.expect("it closes");
    });
}

/// Zeros over a block that is being written back: before the backing device has the block
/// durably, the table must not forget it.
#[test]
fn a_block_is_not_forgotten_before_it_is_written_back_durably() {
    for (seed, discards) in (0..16).flat_map(|seed| [(seed, false), (seed, true)]) {
        virtual_time::run(seed, |clock| async move {
            let power = PowerGroup::default();
            let device = power.add(ByteSize::mib(4), 512).expect("a device");
            let backing = power.add(ByteSize::mib(6), 512).expect("a device");
            let cache = open(&device, &clock, Fill::Sector).await;
            let volume = attach(&cache, &slow(backing, &clock, 0), Mode::WriteBack).await;
            put(&volume, 0, sectors(1, 8), true).await;
            let (cleaned, changed) = (volume.clone(), volume.clone());
            tokio::spawn(async move { cleaned.clean().await });
            clock.sleep(SLOW / 4).await;
            tokio::spawn(async move {
                match discards {
                    true => changed.discard(0, 4096).await,
                    false => changed.write_zeroes(0, 4096, false).await,
                }
            });
            clock.sleep(SLOW / 4).await;
            volume.shared.table.commit().await.expect("it commits");
            power.crash(seed);
            cache.abandon();
            let devices = power.restart();
            let [device, backing] = devices.try_into().expect("two devices");
            let (settings, boot) = (config(Fill::Sector), Boot([10; 16]));
            let opened = VolumeCache::open_as(device, None, clock, &settings, boot, ([1; 16], 1));
            let cache = opened.await.expect("it opens");
            let volume = attach(&cache, &backing, Mode::WriteBack).await;
            let read = volume.read_at(0, 4096).await.expect("it reads");
            let sectors = read.chunks_exact(512).map(|sector| sector[0]);
            let sectors: Vec<u8> = sectors.collect();
            // Zeros may be there in part; without them the flushed data is.
            let zeros_began = sectors.contains(&0) && !discards;
            assert!(zeros_began || discards || sectors == [1; 8], "{sectors:?}");
            cache.abandon();
        });
    }
}

/// A discard that the backing device fails leaves the newest data.
#[test]
fn a_discard_that_fails_keeps_dirty_data() {
    virtual_time::run(1, |clock| async move {
        for fill in [Fill::Fetch, Fill::Sector] {
            let (device, below) = (memory(4), memory(6));
            let backing = failing(&below, &clock);
            let failing: SharedBlockDevice = backing.clone();
            let cache = open(&device, &clock, fill).await;
            let volume = attach(&cache, &failing, Mode::WriteBack).await;
            put(&volume, 0, sectors(7, 16), false).await;
            for len in [512, 4096, 8192] {
                let discarded = volume.discard(0, len).await;
                assert!(matches!(discarded, Err(VolumeError::Backing(_))));
                assert_eq!(first_byte(&volume, 0).await, 7);
            }
            assert_eq!(volume.status().poisoned, None);
            backing.enable(false);
            volume.clean().await.expect("it cleans");
            let read = below.read(0, IoBuf::zeroed(8192)).await.expect("it reads");
            assert!(read.iter().all(|byte| *byte == 7));
            cache.close().await.expect("it closes");
        }
    });
}

/// Reads that the cache device fails: clean data comes from the backing device, dirty
/// data cannot, and stays.
#[test]
fn a_cache_device_that_fails_reads_loses_nothing() {
    virtual_time::run(1, |clock| async move {
        for mode in [Mode::WriteThrough, Mode::WriteBack] {
            let faults = Faults {
                read_errors: 1.0,
                ..Faults::default()
            };
            let device = Arc::new(Faulty::new(memory(4), clock.clone(), 1, faults));
            device.enable(false);
            let of_cache: SharedBlockDevice = device.clone();
            let cache = open(&of_cache, &clock, Fill::Sector).await;
            let volume = attach(&cache, &memory(6), mode).await;
            put(&volume, 0, sectors(5, 8), false).await;
            device.enable(true);
            let read = volume.read_at(0, 4096).await;
            let longer = volume.read_at(0, 8192).await;
            let is_lost =
                |result: &Result<IoBuf, VolumeError>| matches!(result, Err(VolumeError::Cache(_)));
            assert_eq!(is_lost(&read), mode.makes_dirty());
            assert_eq!(is_lost(&longer), mode.makes_dirty());
            assert_eq!(volume.status().poisoned, None);
            device.enable(false);
            assert_eq!(first_byte(&volume, 0).await, 5);
            put(&volume, 0, sectors(6, 1), false).await;
            assert_eq!(first_byte(&volume, 0).await, 6);
            assert_eq!(first_byte(&volume, 512).await, 5);
            cache.close().await.expect("it closes");
        }
    });
}

/// Dirty data that cannot be written back: the volume can be attached later.
#[test]
fn a_volume_that_cannot_be_cleaned_attaches_later() {
    virtual_time::run(1, |clock| async move {
        let (device, below) = (memory(4), memory(6));
        let cache = open(&device, &clock, Fill::Sector).await;
        let volume = attach(&cache, &below, Mode::WriteBack).await;
        put(&volume, 0, sectors(5, 8), true).await;
        cache.abandon();
        let failing: SharedBlockDevice = failing(&below, &clock);
        let cache = open(&device, &clock, Fill::Sector).await;
        cache.loaded().await.expect("it reads");
        let through = VolumeConfig::default();
        let attached = cache.attach("disk", failing, &through).await;
        assert!(matches!(attached, Err(OpenVolumesError::Volume(_))));
        assert!(cache.volumes().is_empty());
        let volume = attach(&cache, &below, Mode::WriteThrough).await;
        assert_eq!(first_byte(&volume, 0).await, 5);
        assert_eq!(
            below.read(0, IoBuf::zeroed(512)).await.expect("it reads")[0],
            5
        );
        cache.close().await.expect("it closes");
    });
}

/// One of two volumes loses its backing device.
#[test]
fn a_volume_does_not_suffer_from_another() {
    virtual_time::run(1, |clock| async move {
        let faults = Faults {
            flush_errors: 1.0,
            ..Faults::default()
        };
        let failing = Arc::new(Faulty::new(memory(6), clock.clone(), 1, faults));
        failing.enable(false);
        let cache = open(&memory(4), &clock, Fill::Sector).await;
        let write_back = VolumeConfig {
            mode: Mode::WriteBack,
            allow_data_loss: true,
            ..VolumeConfig::default()
        };
        let backing: SharedBlockDevice = Arc::clone(&failing) as _;
        let first = cache.attach("first", backing, &write_back).await;
        let second = cache.attach("second", memory(6), &write_back).await;
        let [first, second] = [first, second].map(|volume| volume.expect("it attaches"));
        failing.enable(true);
        put(&first, 0, sectors(1, 8), true).await;
        put(&second, 0, sectors(2, 8), true).await;
        assert!(first.clean().await.is_err());
        assert!(first.status().poisoned.is_some() && second.status().poisoned.is_none());
        put(&second, 0, sectors(3, 8), true).await;
        second.clean().await.expect("it cleans");
        assert_eq!(first_byte(&first, 0).await, 1);
        assert_eq!(first_byte(&second, 0).await, 3);
        assert!(
            cache.close().await.is_err(),
            "the first volume is not durable"
        );
    });
}

/// Requests of no bytes, at the end, past it, and past every address.
#[test]
fn requests_at_the_edges() {
    run(async {
        let bytes = (6 << 20) + 3 * 512;
        for (cache_block, block) in [(512, 512), (4096, 512), (512, 4096)] {
            let whole = bytes / u64::from(block) * u64::from(block);
            let backing = MemoryBlocks::new(ByteSize(whole), block).expect("a device");
            let backing: SharedBlockDevice = Arc::new(backing);
            for fill in [Fill::Fetch, Fill::Sector] {
                let device = MemoryBlocks::new(ByteSize::mib(4), cache_block);
                let device = Arc::new(device.expect("a device"));
                let opened = VolumeCache::open(device, Clock::real(), &config(fill)).await;
                let cache = opened.expect("it opens");
                let volume = attach(&cache, &backing, Mode::WriteBack).await;
                let (size, unit) = (volume.size_bytes(), u64::from(volume.block_bytes()));
                assert_eq!(size, whole / unit * unit, "whole blocks");
                let last = size - unit;
                let data = || sectors(9, unit as usize / 512);
                for at in [0, last, size] {
                    let empty = || volume.allocate(0).freeze();
                    volume.write_at(at, empty(), true).await.expect("nothing");
                    volume.write_zeroes(at, 0, false).await.expect("nothing");
                    volume.discard(at, 0).await.expect("nothing");
                    assert_eq!(volume.read_at(at, 0).await.expect("nothing").len(), 0);
                }
                for at in [size, size + unit, u64::MAX - unit + 1, u64::MAX] {
                    let outside = [
                        volume.write_at(at, data(), false).await,
                        volume.write_zeroes(at, unit, false).await,
                        volume.discard(at, unit).await,
                        volume.read_at(at, unit as usize).await.map(drop),
                        volume.prefetch(at, unit).await,
                    ];
                    let is_outside = |result: &Result<(), VolumeError>| {
                        matches!(result, Err(VolumeError::OutOfRange { .. }))
                    };
                    assert!(outside.iter().all(is_outside), "{at}: {outside:?}");
                }
                let unaligned = volume.write_zeroes(0, unit / 2, false).await;
                assert!(matches!(unaligned, Err(VolumeError::Unaligned { .. })));
                volume.read_at(last, unit as usize).await.expect("it reads");
                put(&volume, last, data(), true).await;
                assert_eq!(first_byte(&volume, last).await, 9);
                volume.clean().await.expect("it cleans");
                volume.write_zeroes(last, unit, true).await.expect("zeros");
                assert_eq!(first_byte(&volume, last).await, 0);
                put(&volume, last, data(), false).await;
                volume.discard(0, size).await.expect("all of it");
                volume.prefetch(0, size).await.expect("all of it");
                cache.close().await.expect("it closes");
            }
        }
    });
}
