//! Cost of operations without any I/O: the devices in memory, and the simulated SSD
//! in virtual time.
//!
//! `cargo bench -p floe-device --bench memory`

use std::sync::Arc;
use std::time::Duration;

use floe_core::ByteSize;
use floe_device::baseline::{Cost, Stopwatch};
use floe_device::config::{DeviceConfig, DeviceKind};
use floe_device::{
    Address, Clock, IoBuf, MemoryBlocks, Placement, SharedBlockDevice, SharedDevice, ZoneId, open,
    virtual_time,
};

const BLOCK: usize = 4096;
const COUNT: u64 = 1_000_000;

fn main() {
    println!("{:<40} {:>12} {:>10}", "", "per second", "CPU ns");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let clock = Clock::real();
    let memory = || device(DeviceKind::Memory, &clock);
    print(
        "memory, append 4 KiB",
        runtime.block_on(appends(memory(), COUNT)),
    );
    print(
        "memory, read 4 KiB",
        runtime.block_on(reads(memory(), COUNT)),
    );
    let blocks: SharedBlockDevice =
        Arc::new(MemoryBlocks::new(ByteSize::mib(64), 4096).expect("64 MiB are whole blocks"));
    let cost = runtime.block_on(block_writes(&blocks, COUNT));
    print("block device in memory, write 4 KiB", cost);
    let cost = runtime.block_on(block_reads(&blocks, COUNT));
    print("block device in memory, read 4 KiB", cost);
    let cost = virtual_time::run(1, |clock| async move {
        reads(device(DeviceKind::Sim, &clock), COUNT).await
    });
    print("sim in virtual time, read 4 KiB, depth 1", cost);
    let cost = virtual_time::run(1, |clock| async move {
        let device = device(DeviceKind::Sim, &clock);
        let watch = Stopwatch::start();
        let readers: Vec<_> = (0..64)
            .map(|_| tokio::spawn(reads(device.clone(), COUNT / 64)))
            .collect();
        for reader in readers {
            reader.await.expect("a reader reads");
        }
        watch.stop(COUNT)
    });
    print("sim in virtual time, read 4 KiB, depth 64", cost);
    let cost = virtual_time::run(1, |clock| async move {
        let watch = Stopwatch::start();
        for _ in 0..COUNT {
            clock.sleep(Duration::from_micros(80)).await;
        }
        watch.stop(COUNT)
    });
    print("sleep in virtual time", cost);
}

fn print(name: &str, cost: Cost) {
    let ns = cost.cpu_per_operation().as_nanos();
    println!("{name:<40} {:>12.0} {ns:>10}", cost.rate());
}

fn device(kind: DeviceKind, clock: &Clock) -> SharedDevice {
    let config = DeviceConfig {
        kind,
        size: Some(ByteSize::mib(64)),
        zone_size: Some(ByteSize::mib(8)),
        ..DeviceConfig::default()
    };
    open(&config, clock).expect("it opens")
}

async fn appends(device: SharedDevice, count: u64) -> Cost {
    let data = IoBuf::zeroed(BLOCK).freeze();
    let per_zone = device.geometry().zone_capacity / BLOCK as u64;
    let watch = Stopwatch::start();
    for i in 0..count {
        let zone = ZoneId((i / per_zone % 8) as u32);
        if i % per_zone == 0 {
            device.reset(zone).await.expect("it resets");
        }
        let appended = device.append(zone, data.clone(), Placement(0)).await;
        appended.expect("it appends");
    }
    watch.stop(count)
}

async fn reads(device: SharedDevice, count: u64) -> Cost {
    let mut buf = IoBuf::zeroed(BLOCK);
    let watch = Stopwatch::start();
    for i in 0..count {
        let at = Address::new(ZoneId((i % 8) as u32), i * 7919 % 2048 * BLOCK as u64);
        buf = device.read(at, buf).await.expect("it reads");
    }
    watch.stop(count)
}

async fn block_writes(device: &SharedBlockDevice, count: u64) -> Cost {
    let data = IoBuf::zeroed(BLOCK).freeze();
    let watch = Stopwatch::start();
    for i in 0..count {
        let at = i * 7919 % 16384 * BLOCK as u64;
        device.write(at, data.clone()).await.expect("it writes");
    }
    watch.stop(count)
}

/// Each read takes a buffer from the device.
async fn block_reads(device: &SharedBlockDevice, count: u64) -> Cost {
    let watch = Stopwatch::start();
    for i in 0..count {
        let at = i * 7919 % 16384 * BLOCK as u64;
        let read = device.read(at, device.allocate(BLOCK)).await;
        read.expect("it reads");
    }
    watch.stop(count)
}
