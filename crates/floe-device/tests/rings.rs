//! Several runtimes on one device over io_uring, with every choice of rings.

use std::path::Path;
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError, mpsc};

use floe_core::{Address, ByteSize, ZoneId};
use floe_device::config::{DeviceConfig, IoChoice, RingChoice};
use floe_device::{Device, FileDevice, IoBuf, IoData, OpFuture, Placement};
use tokio::runtime::{Builder, Runtime};

const BLOCK: usize = 4096;
const ZONES: u32 = 8;
const HERE: Placement = Placement(0);
const CHOICES: [RingChoice; 3] = [RingChoice::Auto, RingChoice::Shared, RingChoice::PerThread];

/// Serializes the tests, because one of them counts the rings of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn device(directory: &Path, rings: RingChoice) -> Arc<FileDevice> {
    let config = DeviceConfig {
        path: Some(directory.join("device")),
        size: Some(ByteSize::mib(u64::from(ZONES))),
        zone_size: Some(ByteSize::mib(1)),
        accept_foreign: true,
        io: IoChoice::Uring,
        rings,
        registered_buffers: ByteSize::mib(2),
        ..DeviceConfig::default()
    };
    Arc::new(FileDevice::open(&config).unwrap())
}

/// Runs `test` with a new device for each choice of rings.
fn with_each_choice(test: impl Fn(RingChoice, Arc<FileDevice>)) {
    let _alone = alone();
    for rings in CHOICES {
        let directory = tempfile::tempdir().unwrap();
        test(rings, device(directory.path(), rings));
    }
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

fn block(fill: u8) -> IoData {
    IoBuf::copy_of(&[fill; BLOCK], BLOCK).freeze()
}

fn read(device: &FileDevice, at: Address) -> OpFuture<IoBuf> {
    device.read(at, device.allocate(BLOCK))
}

fn rings_of_this_process() -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    descriptors
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.to_string_lossy().contains("io_uring"))
        .count()
}

#[test]
fn threads_with_a_runtime_each_work_side_by_side() {
    with_each_choice(|rings, device| {
        let threads: Vec<_> = (0..ZONES)
            .map(|zone| {
                let device = Arc::clone(&device);
                std::thread::spawn(move || {
                    let runtime = match zone % 4 {
                        3 => multi_thread(),
                        _ => current_thread(),
                    };
                    runtime.block_on(fill_and_check(device, ZoneId(zone)));
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let counts = device.counters().snapshot();
        assert_eq!(counts.appends, 4 * 2 * 100 * 2, "{rings:?}");
        assert_eq!((counts.errors, counts.resets), (0, 16), "{rings:?}");
    });
}

/// Twice: resets the zone, appends a hundred blocks concurrently, and reads each
/// back in its own task.
async fn fill_and_check(device: Arc<FileDevice>, zone: ZoneId) {
    for round in 0..2_u8 {
        device.reset(zone).await.unwrap();
        let appends: Vec<_> = (0..100)
            .map(|i| (i, device.append(zone, block(i + round), HERE)))
            .collect();
        let mut readers = Vec::new();
        for (i, append) in appends {
            let at = append.await.unwrap();
            let device = Arc::clone(&device);
            readers.push(tokio::spawn(async move {
                let found = read(&device, at).await.unwrap();
                assert!(found.iter().all(|&byte| byte == i + round));
            }));
        }
        for reader in readers {
            reader.await.unwrap();
        }
        device.flush().await.unwrap();
    }
}

#[test]
fn operations_can_be_awaited_on_another_thread() {
    with_each_choice(|rings, device| {
        let (give, take) = mpsc::channel();
        let starter = {
            let device = Arc::clone(&device);
            std::thread::spawn(move || {
                current_thread().block_on(async {
                    device.reset(ZoneId(0)).await.unwrap();
                    for i in 0..100 {
                        give.send(device.append(ZoneId(0), block(i), HERE)).unwrap();
                        tokio::task::yield_now().await;
                    }
                    // The runtime ends while the last appends are in flight.
                });
            })
        };
        current_thread().block_on(async {
            for append in take {
                append.await.unwrap();
            }
        });
        starter.join().unwrap();
        multi_thread().block_on(async {
            for i in 0..100 {
                let at = Address::new(ZoneId(0), u64::from(i) * BLOCK as u64);
                assert_eq!(read(&device, at).await.unwrap()[0], i, "{rings:?}");
            }
        });
    });
}

#[test]
fn writes_and_the_reset_behind_them_complete_after_their_runtime_ends() {
    with_each_choice(|rings, device| {
        for new_runtime in [current_thread, multi_thread] {
            let first = new_runtime();
            let (appends, reset) = first.block_on(async {
                device.reset(ZoneId(0)).await.unwrap();
                let appends: Vec<_> = (0..200)
                    .map(|i| device.append(ZoneId(0), block(i), HERE))
                    .collect();
                (appends, device.reset(ZoneId(0)))
            });
            drop(first);
            current_thread().block_on(async {
                for append in appends {
                    append.await.unwrap();
                }
                reset.await.unwrap();
                let first = read(&device, Address::new(ZoneId(0), 0)).await.unwrap();
                assert_eq!(first[..], [0; BLOCK], "{rings:?}: after the writes");
                let at = device.append(ZoneId(0), block(7), HERE).await.unwrap();
                assert_eq!(at.offset, 0);
            });
        }
    });
}

#[test]
fn a_reset_waits_for_writes_on_other_rings() {
    with_each_choice(|rings, device| {
        let both = Arc::new(Barrier::new(2));
        let writer = {
            let (device, both) = (Arc::clone(&device), Arc::clone(&both));
            std::thread::spawn(move || {
                current_thread().block_on(async {
                    for round in 0..20 {
                        device.reset(ZoneId(0)).await.unwrap();
                        let appends: Vec<_> = (0..50)
                            .map(|_| device.append(ZoneId(0), block(round + 1), HERE))
                            .collect();
                        both.wait();
                        for append in appends {
                            append.await.unwrap();
                        }
                        both.wait();
                    }
                });
            })
        };
        current_thread().block_on(async {
            for _ in 0..20 {
                both.wait();
                device.reset(ZoneId(0)).await.unwrap();
                let first = read(&device, Address::new(ZoneId(0), 0)).await.unwrap();
                assert_eq!(first[..], [0; BLOCK], "{rings:?}");
                both.wait();
            }
        });
        writer.join().unwrap();
    });
}

#[test]
fn blocking_threads_of_a_runtime_can_use_the_device() {
    with_each_choice(|rings, device| {
        current_thread().block_on(async {
            device.reset(ZoneId(0)).await.unwrap();
            let workers: Vec<_> = (0..8_u8)
                .map(|i| {
                    let device = Arc::clone(&device);
                    tokio::task::spawn_blocking(move || {
                        (i, device.append(ZoneId(0), block(i), HERE))
                    })
                })
                .collect();
            for worker in workers {
                let (i, append) = worker.await.unwrap();
                let at = append.await.unwrap();
                assert_eq!(read(&device, at).await.unwrap()[0], i, "{rings:?}");
            }
        });
    });
}

#[test]
fn a_ring_is_closed_with_its_runtime() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let device = device(directory.path(), RingChoice::Auto);
    let before = rings_of_this_process();
    for ends_busy in [false, true, false, true, false] {
        let runtime = current_thread();
        let reads: Vec<_> = runtime.block_on(async {
            device.reset(ZoneId(0)).await.unwrap();
            (0..100)
                .map(|_| read(&device, Address::new(ZoneId(0), 0)))
                .collect()
        });
        assert_eq!(rings_of_this_process(), before + 1);
        if ends_busy {
            drop(reads);
            drop(runtime);
        } else {
            runtime.block_on(async {
                for read in reads {
                    read.await.unwrap();
                }
            });
        }
        // A ring with operations in flight is closed once they complete.
        while ends_busy && rings_of_this_process() > before {
            std::thread::yield_now();
        }
    }
    assert_eq!(rings_of_this_process(), before);
    drop(device);
    assert_eq!(rings_of_this_process(), before - 1);
}

#[test]
fn dropping_a_device_waits_for_the_rings_of_all_runtimes() {
    with_each_choice(|_, device| {
        let runtimes = [current_thread(), current_thread(), multi_thread()];
        let mut appends = Vec::new();
        for (zone, runtime) in (0..).zip(&runtimes) {
            runtime.block_on(async {
                device.reset(ZoneId(zone)).await.unwrap();
                appends
                    .extend((0..50).map(|_| device.append(ZoneId(zone), block(zone as u8), HERE)));
            });
        }
        // The runtimes are blocked: dropping the device completes their
        // operations.
        drop(device);
        current_thread().block_on(async {
            for append in appends {
                append.await.unwrap();
            }
        });
    });
}
