//! The conformance suite on every block device.

use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;

use floe_core::ByteSize;
use floe_device::block::conformance;
use floe_device::block::history::{History, Image};
use floe_device::config::{DeviceKind, Direct, IoChoice};
use floe_device::{
    BlockDevice as _, Clock, DeviceConfig, Faults, Faulty, FileBlocks, FileBlocksConfig, Flat,
    MemoryBlocks, OpenDeviceError, PowerGroup, SharedBlockDevice, SimConfig, SimModel, open,
    virtual_time,
};

fn run(main: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(main);
}

#[test]
fn memory() {
    for block in [512, 4096] {
        let size = ByteSize(conformance::SIZE_BYTES_MIN + 3 * u64::from(block));
        let plain: SharedBlockDevice = Arc::new(MemoryBlocks::new(size, block).unwrap());
        let powered = PowerGroup::default().add(size, block).unwrap();
        run(async {
            conformance::check(&plain).await;
            conformance::check(&powered).await;
        });
    }
}

/// A sparse file of a few blocks more than the suite needs.
fn file(directory: &tempfile::TempDir, block: u64) -> FileBlocksConfig {
    let path = directory.path().join("blocks");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(conformance::SIZE_BYTES_MIN + 3 * block)
        .unwrap();
    FileBlocksConfig {
        block_size: Some(ByteSize(block)),
        registered_buffers: ByteSize::mib(2),
        ..FileBlocksConfig::new(path)
    }
}

#[test]
fn file_direct_and_buffered_on_rings_and_threads() {
    for block in [512, 4096] {
        for direct in [Direct::On, Direct::Off] {
            for io in [IoChoice::Uring, IoChoice::Threads] {
                let directory = tempfile::tempdir().unwrap();
                let config = FileBlocksConfig {
                    direct,
                    io,
                    ..file(&directory, block)
                };
                run(async {
                    let device = FileBlocks::open(&config).unwrap();
                    assert_eq!(device.is_direct(), direct == Direct::On);
                    conformance::check(&(Arc::new(device) as SharedBlockDevice)).await;
                });
            }
        }
    }
}

#[test]
fn file_on_a_runtime_of_several_threads() {
    let directory = tempfile::tempdir().unwrap();
    let config = file(&directory, 512);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let device: SharedBlockDevice = Arc::new(FileBlocks::open(&config).unwrap());
        conformance::check(&device).await;
    });
}

/// A tmpfs has no request for zeros, so that they are written in pieces.
#[test]
fn file_in_memory_without_requests_for_zeros() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let config = file(&directory, 4096);
    run(async {
        let device: SharedBlockDevice = Arc::new(FileBlocks::open(&config).unwrap());
        assert!(device.describe().ends_with("threads)"));
        conformance::check(&device).await;
    });
}

/// Zones with a tail that is not writable, so that blocks skip it.
fn zones(kind: DeviceKind) -> DeviceConfig {
    DeviceConfig {
        kind,
        size: Some(ByteSize::mib(8)),
        zone_size: Some(ByteSize::mib(1)),
        zone_capacity: Some(ByteSize::kib(768)),
        sim: SimConfig {
            zoned: false,
            ..SimConfig::default()
        },
        ..DeviceConfig::default()
    }
}

#[test]
fn flat_memory() {
    run(async {
        let device = open(&zones(DeviceKind::Memory), &Clock::real()).unwrap();
        let flat = Flat::new(device).unwrap();
        assert_eq!(flat.size_bytes(), 6 << 20, "tails are skipped");
        let flat = flat.cut(ByteSize::mib(5)).unwrap();
        assert_eq!(flat.size_bytes(), 5 << 20);
        conformance::check(&(Arc::new(flat) as SharedBlockDevice)).await;
    });
}

#[test]
fn a_flat_device_is_cut_to_whole_blocks_that_it_has() {
    for size in [ByteSize(0), ByteSize(1000), ByteSize::mib(7)] {
        let device = open(&zones(DeviceKind::Memory), &Clock::real()).unwrap();
        assert!(Flat::new(device).unwrap().cut(size).is_err(), "{size}");
    }
}

#[test]
fn flat_simulated_ssds_in_virtual_time() {
    for (model, size) in [
        (SimModel::default(), 8),
        (SimModel::Sn540, 400),
        (SimModel::Optane, 48),
    ] {
        virtual_time::run(1, |clock| async move {
            let zone = ByteSize::kib(1536);
            let whole = SimConfig {
                model,
                mapping_unit: Some(ByteSize::kib(64)),
                ..SimConfig::default()
            };
            let queues = zones(DeviceKind::Sim);
            let config = DeviceConfig {
                size: Some(ByteSize::mib(size)),
                zone_size: Some(zone),
                zone_capacity: Some(zone),
                sim: match model == SimModel::default() {
                    true => queues.sim.clone(),
                    false => whole,
                },
                ..queues
            };
            let device = open(&config, &clock).unwrap();
            let flat: SharedBlockDevice = Arc::new(Flat::new(device).unwrap());
            conformance::check(&flat).await;
        });
    }
}

#[test]
fn a_zoned_drive_is_no_block_device() {
    virtual_time::run(1, |clock| async move {
        let sim = SimConfig {
            zoned: true,
            ..SimConfig::default()
        };
        let config = DeviceConfig {
            sim,
            ..zones(DeviceKind::Sim)
        };
        let error = Flat::new(open(&config, &clock).unwrap()).unwrap_err();
        assert!(
            matches!(error, OpenDeviceError::NoRandomWrites(_)),
            "{error}"
        );
    });
}

/// Neither faults that are turned off nor a record may change the behaviour.
#[test]
fn wrappers() {
    run(async {
        let blank = Image::blank(ByteSize(conformance::SIZE_BYTES_MIN), 512).unwrap();
        let recorded = History::default().record(blank.device(), &blank);
        let faulty = Faulty::new(recorded, Clock::real(), 1, Faults::default());
        conformance::check(&(Arc::new(faulty) as SharedBlockDevice)).await;
    });
}

/// Overwrites the block device that `FLOE_TEST_BLOCK_DEVICE` names. `cargo xtask devices`
/// provides a loop device over a scratch file.
#[test]
#[ignore = "needs a scratch block device in FLOE_TEST_BLOCK_DEVICE"]
fn block_device() {
    let path = std::env::var_os("FLOE_TEST_BLOCK_DEVICE").expect("names a scratch device");
    for io in [IoChoice::Uring, IoChoice::Threads] {
        let config = FileBlocksConfig {
            io,
            ..FileBlocksConfig::new(&path)
        };
        run(async {
            let device: SharedBlockDevice = Arc::new(FileBlocks::open(&config).unwrap());
            assert!(device.describe().starts_with("block device"));
            conformance::check(&device).await;
        });
    }
    let config = FileBlocksConfig::new(&path);
    // The kernel claims a device in the same way when it is mounted.
    let mut options = std::fs::OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_EXCL);
    let claim = options.open(&path).unwrap();
    let error = FileBlocks::open(&config).unwrap_err();
    assert!(matches!(error, OpenDeviceError::InUse(_)), "{error}");
    let reads = FileBlocksConfig {
        read_only: true,
        ..config
    };
    FileBlocks::open(&reads).unwrap();
    drop(claim);
}
