//! Behaviour specific to files: opening, sharing, and the effects of the kernel
//! and the runtime.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use floe_core::ByteSize;
use floe_device::config::{DeviceConfig, Direct, IoChoice, OpenDeviceError};
use floe_device::conformance::pattern;
use floe_device::{
    Address, Clock, Device, DeviceErrorKind, FileDevice, IoBuf, Placement, ZoneId, ZoneState, open,
    virtual_time,
};
use tokio::runtime::{Builder, Runtime};

const BLOCK: usize = 4096;
const HERE: Placement = Placement(0);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn config(directory: &Path) -> DeviceConfig {
    DeviceConfig {
        path: Some(directory.join("device")),
        size: Some(ByteSize::mib(8)),
        zone_size: Some(ByteSize::mib(1)),
        accept_foreign: true,
        registered_buffers: ByteSize::mib(2),
        ..DeviceConfig::default()
    }
}

/// Disk space of a device's file, in units of 512 bytes.
fn blocks(config: &DeviceConfig) -> u64 {
    let path = config.path.as_ref().unwrap();
    std::fs::metadata(path).unwrap().blocks()
}

fn both_methods() -> [IoChoice; 2] {
    [IoChoice::Uring, IoChoice::Threads]
}

fn open_error(config: &DeviceConfig) -> (OpenDeviceError, String) {
    let error = open(config, &Clock::real()).expect_err("it cannot be opened");
    let message = error.to_string();
    (error, message)
}

/// Runs `test` with a new file for each method of I/O.
fn with_both_methods(test: impl Fn(IoChoice, DeviceConfig)) {
    for io in both_methods() {
        let directory = tempfile::tempdir().unwrap();
        let config = DeviceConfig {
            io,
            ..config(directory.path())
        };
        test(io, config);
    }
}

/// Runs `test` on a device of each method, whose first zone is empty.
fn on_both(test: impl AsyncFn(FileDevice)) {
    with_both_methods(|_, config| {
        runtime().block_on(async {
            let device = FileDevice::open(&config).unwrap();
            device.reset(ZoneId(0)).await.unwrap();
            test(device).await;
        });
    });
}

#[test]
fn a_file_that_was_truncated_gives_short_reads_as_errors() {
    with_both_methods(|_, config| {
        runtime().block_on(async {
            let device = FileDevice::open(&config).unwrap();
            let zone = ZoneId(7);
            device.reset(zone).await.unwrap();
            let data = pattern(1, 4 * BLOCK);
            let at = device.append(zone, data.clone(), HERE).await.unwrap();
            let file = OpenOptions::new()
                .write(true)
                .open(config.path.as_ref().unwrap())
                .unwrap();
            file.set_len((7 << 20) + BLOCK as u64).unwrap();
            let error = device
                .read(at, device.allocate(data.len()))
                .await
                .unwrap_err();
            match error.kind {
                DeviceErrorKind::Short { done, wanted } => {
                    assert_eq!((done, wanted), (BLOCK as u64, data.len() as u64));
                }
                other => panic!("a short read, not {other}"),
            }
            file.set_len(0).unwrap();
            let error = device.read(at, device.allocate(BLOCK)).await.unwrap_err();
            assert!(
                matches!(error.kind, DeviceErrorKind::Short { done: 0, .. }),
                "{error}"
            );
            let again = device.append(zone, data.clone(), HERE).await.unwrap();
            let read = device
                .read(again, device.allocate(data.len()))
                .await
                .unwrap();
            assert!(*read == *data, "the device is still usable");
        });
    });
}

#[test]
fn reopening_keeps_data_and_forgets_write_pointers() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let data = pattern(1, 2 * BLOCK);
    runtime().block_on(async {
        let device = FileDevice::open(&config).unwrap();
        device.reset(ZoneId(1)).await.unwrap();
        device.append(ZoneId(1), data.clone(), HERE).await.unwrap();
        device.flush().await.unwrap();
    });
    // A larger size on the second opening extends the file and keeps its data.
    let config = DeviceConfig {
        size: Some(ByteSize::mib(12)),
        ..config
    };
    runtime().block_on(async {
        let device = FileDevice::open(&config).unwrap();
        assert_eq!(device.geometry().zone_count, 12);
        let report = device.report().await.unwrap();
        assert!(report.iter().all(|zone| zone.state == ZoneState::Unknown));
        let at = Address::new(ZoneId(1), 0);
        assert!(*device.read(at, IoBuf::zeroed(data.len())).await.unwrap() == *data);
        let error = device
            .append(ZoneId(1), data.clone(), HERE)
            .await
            .unwrap_err();
        assert!(matches!(error.kind, DeviceErrorKind::Invalid(_)), "{error}");
        device.reset(ZoneId(1)).await.unwrap();
        device.append(ZoneId(1), data.clone(), HERE).await.unwrap();
    });
    // Without a size the device is all of the file; with a smaller one, a part.
    for (size, zones) in [(None, 12), (Some(ByteSize::mib(3)), 3)] {
        let config = DeviceConfig {
            size,
            ..config.clone()
        };
        runtime().block_on(async {
            let device = FileDevice::open(&config).unwrap();
            assert_eq!(device.geometry().zone_count, zones);
        });
        let length = std::fs::metadata(config.path.unwrap()).unwrap().len();
        assert_eq!(length, 12 << 20, "never shortened");
    }
}

#[test]
fn discard_gives_space_back_and_can_be_turned_off() {
    with_both_methods(|_, config| {
        for discard in [true, false] {
            let config = DeviceConfig {
                discard: Some(discard),
                ..config.clone()
            };
            runtime().block_on(async {
                let device = FileDevice::open(&config).unwrap();
                device.reset(ZoneId(0)).await.unwrap();
                device
                    .append(ZoneId(0), pattern(1, 1 << 20), HERE)
                    .await
                    .unwrap();
                device.flush().await.unwrap();
                let blocks = || blocks(&config);
                let full = blocks();
                assert!(full >= 2048);
                device.reset(ZoneId(0)).await.unwrap();
                device.flush().await.unwrap();
                assert_eq!(blocks() < full, discard);
            });
        }
    });
}

#[test]
fn reserved_space_is_taken_at_once_and_kept_when_its_zone_is_reset() {
    const KEPT: u64 = 256 << 10;
    with_both_methods(|_, config| {
        runtime().block_on(async {
            let device = FileDevice::open(&config).unwrap();
            let taken = || blocks(&config) * 512;
            let before = taken();
            device.reserve(ZoneId(0), KEPT).unwrap();
            assert!(taken() >= before + KEPT);
            for zone in [ZoneId(0), ZoneId(1)] {
                device.reset(zone).await.unwrap();
                let data = pattern(1, 4 * BLOCK);
                device.append(zone, data, HERE).await.unwrap();
                device.reset(zone).await.unwrap();
                let first = device.allocate(BLOCK);
                let first = device.read(Address::new(zone, 0), first).await.unwrap();
                assert!(first.iter().all(|byte| *byte == 0), "{zone} is empty");
            }
            device.flush().await.unwrap();
            assert!((KEPT..2 * KEPT).contains(&(taken() - before)));
            let beyond = device.reserve(ZoneId(8), KEPT).unwrap_err();
            assert!(matches!(beyond.kind, DeviceErrorKind::Invalid(_)));
        });
    });
}

#[test]
fn a_second_device_on_a_file_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    runtime().block_on(async {
        let first = FileDevice::open(&config).unwrap();
        assert!(matches!(open_error(&config).0, OpenDeviceError::InUse(_)));
        drop(first);
        for _ in 0..50 {
            let device = FileDevice::open(&config).unwrap();
            device.reset(ZoneId(0)).await.unwrap();
            drop(device.append(ZoneId(0), pattern(1, BLOCK), HERE));
        }
    });
}

#[test]
fn more_operations_than_fit_the_ring_all_succeed() {
    on_both(async |device| {
        let appends: Vec<_> = (0..256)
            .map(|tag| device.append(ZoneId(0), pattern(tag, BLOCK), HERE))
            .collect();
        for append in appends {
            append.await.unwrap();
        }
        let reads: Vec<_> = (0..3000_u64)
            .map(|i| {
                let at = Address::new(ZoneId(0), i % 256 * BLOCK as u64);
                device.read(at, device.allocate(BLOCK))
            })
            .collect();
        for (i, read) in (0..).zip(reads) {
            assert!(*read.await.unwrap() == *pattern(i % 256, BLOCK));
        }
    });
}

#[test]
fn dropping_a_device_completes_its_operations() {
    on_both(async |device| {
        let data = pattern(1, 1 << 16);
        let appends: Vec<_> = (0..16)
            .map(|_| device.append(ZoneId(0), data.clone(), HERE))
            .collect();
        drop(device);
        for append in appends {
            append
                .await
                .expect("the device waits for what is in flight");
        }
    });
}

#[test]
fn a_runtime_that_ends_leaves_the_device_usable_from_another() {
    with_both_methods(|io, config| {
        let data = pattern(1, 1 << 16);
        let first = runtime();
        let (device, appends) = first.block_on(async {
            let device = FileDevice::open(&config).unwrap();
            device.reset(ZoneId(0)).await.unwrap();
            let appends: Vec<_> = (0..16)
                .map(|_| device.append(ZoneId(0), data.clone(), HERE))
                .collect();
            (device, appends)
        });
        drop(first);
        runtime().block_on(async {
            for append in appends {
                // Threads of a runtime that ended may never have started.
                let result = append.await;
                assert!(result.is_ok() || io == IoChoice::Threads, "{result:?}");
            }
            device.reset(ZoneId(1)).await.unwrap();
            let at = device.append(ZoneId(1), data.clone(), HERE).await.unwrap();
            assert!(*device.read(at, device.allocate(data.len())).await.unwrap() == *data);
        });
    });
}

#[test]
fn runtimes_share_a_device_even_while_some_are_blocked() {
    let directory = tempfile::tempdir().unwrap();
    let config = DeviceConfig {
        io: IoChoice::Uring,
        ..config(directory.path())
    };
    let device = std::sync::Arc::new(FileDevice::open(&config).unwrap());
    let (idle, busy) = (runtime(), runtime());
    let read_some = async |count: u64| {
        let reads: Vec<_> = (0..count)
            .map(|_| device.read(Address::new(ZoneId(0), 0), device.allocate(BLOCK)))
            .collect();
        for read in reads {
            read.await.unwrap();
        }
    };
    idle.block_on(read_some(100));
    busy.block_on(read_some(100));
    idle.block_on(read_some(100));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let device = std::sync::Arc::clone(&device);
            std::thread::spawn(move || {
                runtime().block_on(async {
                    for _ in 0..50 {
                        let reads: Vec<_> = (0..40)
                            .map(|_| {
                                device.read(Address::new(ZoneId(0), 0), device.allocate(BLOCK))
                            })
                            .collect();
                        for read in reads {
                            read.await.unwrap();
                        }
                    }
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    busy.block_on(read_some(100));
}

#[test]
fn operations_outside_a_runtime_are_errors() {
    with_both_methods(|_, config| {
        let device = FileDevice::open(&config).unwrap();
        let flush = device.flush();
        let error = runtime().block_on(flush).unwrap_err();
        assert!(
            error.to_string().contains("outside a tokio runtime"),
            "{error}"
        );
    });
    let directory = tempfile::tempdir().unwrap();
    let config = DeviceConfig {
        io: IoChoice::Uring,
        ..config(directory.path())
    };
    let without_io = Builder::new_current_thread().build().unwrap();
    without_io.block_on(async {
        let device = FileDevice::open(&config).unwrap();
        let error = device.flush().await.unwrap_err();
        assert!(error.to_string().contains("enable_io"), "{error}");
    });
}

#[test]
fn errors_of_invalid_configurations_name_cause_and_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let good = config(directory.path());

    let (error, message) = open_error(&DeviceConfig {
        size: Some(ByteSize::kib(512)),
        ..good.clone()
    });
    assert!(
        matches!(error, OpenDeviceError::TooSmall { smallest, .. } if smallest == ByteSize::mib(1))
    );
    assert!(message.contains("at least 1MiB"), "{message}");

    let (_, message) = open_error(&DeviceConfig {
        zone_size: Some(ByteSize(5000)),
        ..good.clone()
    });
    assert!(message.contains("8KiB would be"), "{message}");

    let path = Some(directory.path().to_owned());
    let (error, message) = open_error(&DeviceConfig {
        path,
        ..good.clone()
    });
    assert!(
        matches!(error, OpenDeviceError::IsDirectory(_)),
        "{message}"
    );

    let path = Some(directory.path().join("absent/device"));
    let (error, message) = open_error(&DeviceConfig {
        path,
        ..good.clone()
    });
    assert!(
        matches!(error, OpenDeviceError::NoDirectory(_)),
        "{message}"
    );

    let path = Some("/dev/null".into());
    let (error, message) = open_error(&DeviceConfig {
        path,
        ..good.clone()
    });
    assert!(
        matches!(error, OpenDeviceError::NotStorage { .. }),
        "{message}"
    );

    let (error, message) = open_error(&DeviceConfig {
        path: None,
        ..good.clone()
    });
    assert!(
        matches!(error, OpenDeviceError::Missing("path")),
        "{message}"
    );

    let (error, message) = open_error(&DeviceConfig {
        size: None,
        ..good.clone()
    });
    assert!(
        matches!(error, OpenDeviceError::Missing("size")),
        "{message}"
    );

    let size = Some(ByteSize(1 << 55));
    let (error, message) = open_error(&DeviceConfig {
        size,
        zone_size: Some(ByteSize::gib(64)),
        ..good.clone()
    });
    assert!(
        matches!(error, OpenDeviceError::NoSpace { .. }),
        "{message}"
    );

    let (error, message) = open_error(&DeviceConfig {
        max_open_zones: Some(0),
        ..good.clone()
    });
    assert!(matches!(error, OpenDeviceError::Geometry(_)), "{message}");

    let result = virtual_time::run(0, |clock| {
        let good = good.clone();
        async move { open(&good, &clock).map(drop) }
    });
    assert!(matches!(result, Err(OpenDeviceError::VirtualTime)));
}

#[test]
fn unknown_settings_are_errors() {
    let error = serde_json::from_str::<DeviceConfig>(r#"{"zone_sise": "1MiB"}"#).unwrap_err();
    assert!(
        error.to_string().contains("zone_size"),
        "it lists what there is: {error}"
    );
    let error = serde_json::from_str::<DeviceConfig>(r#"{"sim": {"unit": 3}}"#).unwrap_err();
    assert!(error.to_string().contains("units"), "{error}");
    let config: DeviceConfig =
        serde_json::from_str(r#"{"kind": "sim", "size": "1GiB", "sim": {"units": 3}}"#).unwrap();
    assert_eq!((config.size, config.sim.units), (Some(ByteSize::gib(1)), 3));
    let text = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<DeviceConfig>(&text).unwrap(), config);
}

#[test]
fn direct_and_buffered_see_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("device");
    let mut file = File::create(&path).unwrap();
    file.write_all(&pattern(9, 1 << 20)).unwrap();
    drop(file);
    for direct in [Direct::Auto, Direct::On, Direct::Off] {
        let config = DeviceConfig {
            direct,
            size: None,
            ..config(directory.path())
        };
        runtime().block_on(async {
            let device = FileDevice::open(&config).unwrap();
            assert_eq!(device.is_direct(), direct != Direct::Off);
            let whole = device
                .read(Address::new(ZoneId(0), 0), IoBuf::zeroed(1 << 20))
                .await;
            assert!(*whole.unwrap() == *pattern(9, 1 << 20));
        });
    }
    let mut first = [0; 8];
    File::open(&path)
        .unwrap()
        .read_exact_at(&mut first, 0)
        .unwrap();
    assert_eq!(first, pattern(9, 8)[..8], "opening changes nothing");
}

#[test]
fn the_default_zone_size_fits_the_device() {
    let zone = |size: ByteSize| {
        let config = DeviceConfig {
            zone_size: None,
            ..DeviceConfig::file("unused", size)
        };
        config.geometry(size).unwrap().zone_size
    };
    for (size, expected) in [
        (ByteSize::mib(16), ByteSize::mib(1)),
        (ByteSize::mib(64), ByteSize::mib(4)),
        (ByteSize::mib(256), ByteSize::mib(4)),
        (ByteSize::gib(1), ByteSize::mib(16)),
        (ByteSize::gib(4), ByteSize::mib(64)),
        (ByteSize::gib(4096), ByteSize::mib(64)),
    ] {
        assert_eq!(zone(size), expected.bytes(), "{size}");
    }
    for mib in 2..5000 {
        let (size, zone) = (mib << 20, zone(ByteSize::mib(mib)));
        assert!(zone.is_power_of_two() && zone <= 64 << 20);
        assert!(size / zone >= 16, "{mib} MiB in zones of {zone}");
        assert!(
            zone <= 4 << 20 || size / zone >= 64,
            "{mib} MiB in zones of {zone}"
        );
    }
    let chunks = DeviceConfig {
        value_size: ByteSize::mib(8),
        ..DeviceConfig::file("unused", ByteSize::gib(1))
    };
    assert_eq!(chunks.zone_size_on(ByteSize::gib(1)), ByteSize::mib(64));
}

/// Bytes of a file that are in the page cache and not on the medium, as `cachestat(2)` counts
/// them; `None` where the kernel does not.
fn unwritten_bytes(file: &File) -> Option<u64> {
    const CACHESTAT: libc::c_long = 451;
    let whole = [0_u64; 2];
    let mut pages = [0_u64; 5];
    // SAFETY: the kernel reads two numbers and writes five.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            whole.as_ptr(),
            pages.as_mut_ptr(),
            0,
        )
    };
    let [_, dirty, writing, ..] = pages;
    (result == 0).then_some((dirty + writing) * BLOCK as u64)
}

#[test]
fn a_durable_append_has_left_the_page_cache_and_another_has_not() {
    with_both_methods(|io, config| {
        let config = DeviceConfig {
            direct: Direct::Off,
            ..config
        };
        let device = FileDevice::open(&config).unwrap();
        let file = File::open(config.path.as_ref().unwrap()).unwrap();
        runtime().block_on(async {
            device.reset(ZoneId(0)).await.unwrap();
            device.flush().await.unwrap();
            if !device.appends_durably() || unwritten_bytes(&file) != Some(0) {
                println!("SKIPPED: this kernel or file system does not tell what is written");
                return;
            }
            for _ in 0..4 {
                let append = device.append_durably(ZoneId(0), pattern(1, BLOCK), HERE);
                append.await.unwrap();
                assert_eq!(unwritten_bytes(&file), Some(0), "{io:?}");
            }
            // The kernel may write one back before it is looked at, but not each of them.
            let mut is_seen = false;
            for _ in 0..16 {
                let append = device.append(ZoneId(0), pattern(2, BLOCK), HERE);
                append.await.unwrap();
                is_seen |= unwritten_bytes(&file) >= Some(BLOCK as u64);
            }
            assert!(is_seen, "{io:?}");
        });
    });
}
