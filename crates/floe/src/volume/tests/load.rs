//! Requests while the blocks of an earlier run are being read.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use floe_device::block::BlockDevice;
use floe_device::{IoBuf, IoData, OpFuture, PowerGroup, virtual_time};

use super::below::below;
use super::faults::{put, sectors, slow};
use super::seeds::each_seed;
use super::*;
use crate::volume::table::Boot;

const MIB: u64 = 1 << 20;

/// Bytes of the volume.
const BYTES: u64 = 24 * MIB;

/// The time that a read of the table takes.
const SLOW: Duration = Duration::from_millis(10);

/// A device whose reads of some bytes take long.
#[derive(Debug)]
struct SlowTable {
    below: SharedBlockDevice,
    clock: Clock,
    table: Range<u64>,
    /// Reads of these bytes that have begun.
    reads: AtomicU64,
}

impl BlockDevice for SlowTable {
    below!(write_zeroes, discard, flush);

    fn read(&self, at: u64, buf: IoBuf) -> OpFuture<IoBuf> {
        let read = self.below.read(at, buf);
        if !self.table.contains(&at) {
            return read;
        }
        // One after another.
        let number = self.reads.fetch_add(1, SeqCst) % 16;
        let sleep = self.clock.sleep(SLOW * (1 + number as u32));
        OpFuture::new(async move {
            sleep.await;
            read.await
        })
    }

    fn write(&self, at: u64, data: IoData) -> OpFuture<()> {
        self.below.write(at, data)
    }
}

/// Eight shards, whose groups have more than a page of the table each.
fn settings() -> VolumeCacheConfig {
    VolumeCacheConfig {
        sizes: "4KiB..1MiB".parse().expect("sizes"),
        shards: 8,
        ..config(Fill::Sector)
    }
}

/// A cache device with a table that is slow to read, and its cache.
async fn open(
    device: &SharedBlockDevice,
    clock: &Clock,
    boot: u8,
) -> (Arc<SlowTable>, VolumeCache) {
    let settings = settings();
    let plan = layout::plan(device.size_bytes(), device.block_bytes(), &settings);
    let plan = plan.expect("there is room");
    let slow = Arc::new(SlowTable {
        below: Arc::clone(device),
        clock: clock.clone(),
        table: plan.table_offset..plan.table_end(),
        reads: AtomicU64::new(0),
    });
    let (on, now): (SharedBlockDevice, _) = (Arc::clone(&slow) as _, clock.clone());
    let boot = Boot([boot; 16]);
    let opened = VolumeCache::open_as(on, None, now, &settings, boot, ([1; 16], 1));
    (slow, opened.await.expect("it opens"))
}

async fn attach(cache: &VolumeCache, backing: &SharedBlockDevice, mode: Mode) -> Volume {
    let config = of_mode(mode);
    let attached = cache.attach("disk", Arc::clone(backing), &config).await;
    attached.expect("it attaches")
}

/// The devices of a process that has died after some requests in write-back.
async fn left_behind(
    clock: &Clock,
    requests: usize,
) -> (SharedBlockDevice, SharedBlockDevice, Oracle) {
    let (device, backing) = (memory(40), memory(BYTES / MIB));
    let (_, cache) = open(&device, clock, 0).await;
    let volume = attach(&cache, &backing, Mode::WriteBack).await;
    let mut oracle = Oracle::new(BYTES, 1).slowed_by(clock);
    oracle.run(&volume, requests, 8).await;
    cache.abandon();
    (device, backing, oracle)
}

/// Waits until the table has been moved out of the log: it has the blocks.
async fn reopened(device: &SharedBlockDevice, clock: &Clock) {
    let (_, cache) = open(device, clock, 0).await;
    cache.loaded().await.expect("it reads");
    cache.abandon();
}

#[test]
fn requests_do_not_wait_for_the_whole_table() {
    for mode in [Mode::WriteBack, Mode::WriteThrough] {
        virtual_time::run(1, |clock| async move {
            let (device, backing, mut oracle) = left_behind(&clock, 600).await;
            reopened(&device, &clock).await;
            let mut counts = Vec::new();
            for at in (0..BYTES).step_by(MIB as usize) {
                let (slow, cache) = open(&device, &clock, 0).await;
                let volume = attach(&cache, &backing, mode).await;
                let data = volume.read_at(at, 4096).await;
                assert_eq!(data.expect("it reads").len(), 4096);
                volume.flush().await.expect("it flushes");
                assert!(cache.stats().unread_bytes > 0, "{at}");
                counts.push(slow.reads.load(SeqCst));
                if at == 0 {
                    cache.loaded().await.expect("it reads");
                    assert_eq!(cache.stats().unread_bytes, 0);
                    counts.push(slow.reads.load(SeqCst));
                    oracle.verify(&volume).await;
                }
                cache.abandon();
            }
            // The shard that is being read, the wanted one, and the next one's first reads.
            let all = counts.remove(1);
            let most = counts.into_iter().max();
            assert!(most < Some(all / 2), "{most:?} of {all}");
        });
    }
}

/// Dirty blocks of an earlier mode are written back behind the attaching.
#[test]
fn a_volume_that_is_not_yet_read_is_cleaned_later() {
    virtual_time::run(1, |clock| async move {
        let (device, backing, mut oracle) = left_behind(&clock, 300).await;
        let (_, cache) = open(&device, &clock, 0).await;
        let volume = attach(&cache, &backing, Mode::WriteThrough).await;
        assert!(cache.stats().unread_bytes > 0);
        oracle.run(&volume, 100, 8).await;
        clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(cache.stats().occupancy.dirty_bytes, 0);
        oracle.verify_backing(&backing).await;
        cache.close().await.expect("it closes");
    });
}

/// A cache that is closed before all is read leaves what a crash leaves.
#[test]
fn a_cache_can_be_closed_while_blocks_are_read() {
    virtual_time::run(1, |clock| async move {
        let (device, backing) = (memory(40), memory(BYTES / MIB));
        let mut oracle = Oracle::new(BYTES, 3).slowed_by(&clock);
        for round in 0..6 {
            let (_, cache) = open(&device, &clock, 0).await;
            let mode = [Mode::WriteBack, Mode::WriteThrough][round % 2];
            let volume = attach(&cache, &backing, mode).await;
            let waiting = volume.clone();
            let read = tokio::spawn(async move { waiting.read_at(BYTES - 4096, 4096).await });
            match round {
                1 | 2 => clock.sleep(SLOW).await,
                3 => drop(oracle.run(&volume, 10, 4).await),
                _ => {
                    oracle.verify(&volume).await;
                    oracle.run(&volume, 200, 8).await;
                }
            }
            cache.close().await.expect("it closes");
            let _ = read.await.expect("a request ends");
        }
    });
}

/// The process dies, and later the power fails: a flush after the first covers writes
/// before it, and blocks that were left out never come back.
#[test]
fn a_power_loss_after_deaths_keeps_what_was_flushed() {
    each_seed(16, 400, |seed| {
        virtual_time::run(seed, |clock| async move {
            let power = PowerGroup::default();
            let [mut device, mut backing] = devices(&power);
            let mut oracle = Oracle::with_power_loss(BYTES, seed).slowed_by(&clock);
            let mut boot = 0;
            for round in 0..8_u64 {
                let number = seed * 8 + round;
                let loses_power = number.is_multiple_of(3);
                let (_, cache) = open(&device, &clock, boot).await;
                let mode = Mode::ALL[(seed as usize + round as usize) % Mode::ALL.len()];
                let volume = attach(&cache, &backing, mode).await;
                if round % 4 == 0 {
                    oracle.verify(&volume).await;
                }
                let requests = 1 + number as usize * 37 % 200;
                if loses_power {
                    power.crash_after(20 + number * 377 % 900, number);
                    assert!(oracle.run(&volume, 100_000, 8).await);
                    oracle.crash(true);
                    boot += 1;
                } else {
                    oracle.run_and_leave(&volume, requests, 8).await;
                    oracle.die();
                }
                cache.abandon();
                [device, backing] = power.restart().try_into().expect("two devices");
            }
        });
    });
}

/// A cache device and a backing device that lose their power together.
fn devices(power: &PowerGroup) -> [SharedBlockDevice; 2] {
    [40, BYTES / MIB].map(|mib| power.add(ByteSize::mib(mib), 512).expect("a device"))
}

/// Loses the power, and reads a byte after the restart.
async fn byte_after_power_loss(power: &PowerGroup, clock: &Clock, mode: Mode) -> u8 {
    power.crash(7);
    let [device, backing] = power.restart().try_into().expect("two devices");
    let (_, cache) = open(&device, clock, 1).await;
    let volume = attach(&cache, &backing, mode).await;
    volume.read_at(4096, 512).await.expect("it reads")[0]
}

/// The first flush after the death of a process covers what that had written, though its
/// volume has no block and another one was attached first.
#[test]
fn a_flush_covers_the_writes_of_a_process_that_died() {
    for mode in Mode::ALL {
        virtual_time::run(1, |clock| async move {
            let power = PowerGroup::default();
            let [device, backing] = devices(&power);
            let (_, cache) = open(&device, &clock, 0).await;
            let volume = attach(&cache, &backing, mode).await;
            put(&volume, 4096, sectors(5, 8), false).await;
            cache.abandon();
            let (_, cache) = open(&device, &clock, 0).await;
            let config = VolumeConfig::default();
            let other = cache.attach("other", memory(4), &config).await;
            other.expect("it attaches");
            let volume = attach(&cache, &backing, mode).await;
            volume.flush().await.expect("it flushes");
            cache.abandon();
            assert_eq!(
                byte_after_power_loss(&power, &clock, mode).await,
                5,
                "{mode}"
            );
        });
    }
}

/// A dead process has written to the backing device without a flush. A block that is filled
/// from there after the area has become idle stays equal to the backing device.
#[test]
fn blocks_are_filled_from_what_is_durable() {
    virtual_time::run(1, |clock| async move {
        let power = PowerGroup::default();
        let [device, backing] = devices(&power);
        let (_, cache) = open(&device, &clock, 0).await;
        let volume = attach(&cache, &backing, Mode::WriteThrough).await;
        put(&volume, 4096, sectors(5, 8), false).await;
        cache.abandon();
        let (_, cache) = open(&device, &clock, 0).await;
        clock.sleep(Duration::from_secs(100)).await;
        let volume = attach(&cache, &backing, Mode::WriteThrough).await;
        let read = volume.read_at(4096, 512).await.expect("it reads");
        assert_eq!(read[0], 5);
        clock.sleep(Duration::from_secs(10)).await;
        cache.abandon();
        power.crash(7);
        let [device, backing] = power.restart().try_into().expect("two devices");
        let (_, cache) = open(&device, &clock, 1).await;
        let volume = attach(&cache, &backing, Mode::WriteThrough).await;
        let cached = volume.read_at(4096, 512).await.expect("it reads")[0];
        let below = backing.read(4096, IoBuf::zeroed(512)).await;
        assert_eq!(cached, below.expect("it reads")[0]);
    });
}

/// The cache is closed while a task of its own flushes: that flush counts for nothing.
#[test]
fn a_flush_that_is_given_up_is_repeated() {
    virtual_time::run(1, |clock| async move {
        let (device, backing) = (memory(40), memory(BYTES / MIB));
        let opened = clock.now();
        let (_, cache) = open(&device, &clock, 0).await;
        let slow = slow(Arc::clone(&backing), &clock, 0);
        let volume = attach(&cache, &slow, Mode::WriteThrough).await;
        put(&volume, 4096, sectors(5, 8), false).await;
        let flushes = || backing.counters().snapshot().flushes;
        let before = flushes();
        // The area is idle after the second interval.
        clock
            .sleep_until(opened + Duration::from_secs(60) + SLOW / 2)
            .await;
        assert_eq!(flushes(), before + 1);
        cache.close().await.expect("it closes");
        assert_eq!(flushes(), before + 2);
    });
}

/// A page of the table is damaged: reads of blocks that are not known fail, and nothing is
/// written any more.
#[test]
fn a_damaged_table_poisons_its_volumes() {
    virtual_time::run(1, |clock| async move {
        let (device, backing, _) = left_behind(&clock, 300).await;
        reopened(&device, &clock).await;
        let (slow, cache) = open(&device, &clock, 0).await;
        let junk = IoBuf::copy_of(&[0x5a; 8192], 8192).freeze();
        let written = device.write(slow.table.start, junk).await;
        written.expect("memory takes it");
        cache.abandon();
        let (_, cache) = open(&device, &clock, 0).await;
        let volume = attach(&cache, &backing, Mode::WriteBack).await;
        let error = cache.loaded().await.expect_err("a page is damaged");
        assert!(error.to_string().contains("page 0"), "{error}");
        assert!(volume.status().poisoned.is_some());
        assert!(volume.read_at(0, BYTES as usize).await.is_err());
        let config = VolumeConfig::default();
        let again = cache.attach("other", memory(4), &config).await;
        assert!(again.is_err());
    });
}
