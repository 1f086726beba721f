//! The conformance suite on every device.

use std::sync::Arc;

use floe_core::ByteSize;
use floe_device::config::{DeviceConfig, DeviceKind, Direct, IoChoice, RingChoice};
use floe_device::{
    Clock, Faults, Faulty, Metered, Recorded, SharedDevice, SimConfig, SimModel, conformance, open,
    virtual_time,
};

fn small(kind: DeviceKind) -> DeviceConfig {
    DeviceConfig {
        kind,
        size: Some(ByteSize::mib(8)),
        zone_size: Some(ByteSize::mib(1)),
        accept_foreign: true,
        max_append: ByteSize::kib(64),
        registered_buffers: ByteSize::mib(2),
        ..DeviceConfig::default()
    }
}

/// A device inside every wrapper. None may change its behaviour.
fn wrapped(device: SharedDevice) -> SharedDevice {
    let metered = Arc::new(Metered::new(device, Clock::real()));
    let recorded = Arc::new(Recorded::new(metered, Clock::real(), 100));
    Arc::new(Faulty::new(recorded, Clock::real(), 1, Faults::default()))
}

/// Runs the suite on a device of this configuration, with and without limits,
/// on both kinds of runtime.
fn conforms(config: DeviceConfig) {
    let limited = DeviceConfig {
        max_open_zones: Some(3),
        max_active_zones: Some(4),
        zone_capacity: Some(ByteSize::kib(768)),
        ..config.clone()
    };
    for config in [config, limited] {
        for threads in [0, 2] {
            let directory = tempfile::tempdir().unwrap();
            let config = DeviceConfig {
                path: Some(directory.path().join("device")),
                ..config.clone()
            };
            let mut builder = match threads {
                0 => tokio::runtime::Builder::new_current_thread(),
                _ => tokio::runtime::Builder::new_multi_thread(),
            };
            let runtime = builder.enable_all().build().unwrap();
            runtime.block_on(async {
                let device: SharedDevice = open(&config, &Clock::real()).unwrap();
                conformance::check(&device).await;
                conformance::check(&wrapped(device)).await;
            });
        }
    }
}

#[test]
fn memory() {
    conforms(small(DeviceKind::Memory));
}

#[test]
fn sim_in_real_time() {
    for zoned in [true, false] {
        conforms(DeviceConfig {
            sim: quick(zoned),
            ..small(DeviceKind::Sim)
        });
    }
}

/// A simulated SSD that is fast in real time.
fn quick(zoned: bool) -> SimConfig {
    SimConfig {
        zoned,
        read_us: 0.0,
        write_us: 0.0,
        reset_us: 0.0,
        ..SimConfig::default()
    }
}

fn conforms_in_virtual_time(config: DeviceConfig) {
    virtual_time::run(1, |clock| async move {
        let device = open(&config, &clock).unwrap();
        conformance::check(&device).await;
        conformance::check(&wrapped(device)).await;
    });
}

#[test]
fn sim_in_virtual_time() {
    for (zoned, native_append) in [(true, None), (true, Some(false)), (false, None)] {
        for volatile_cache in [true, false] {
            let config = DeviceConfig {
                sim: SimConfig {
                    zoned,
                    native_append,
                    volatile_cache,
                    ..SimConfig::default()
                },
                max_open_zones: Some(4),
                ..small(DeviceKind::Sim)
            };
            conforms_in_virtual_time(config);
        }
    }
}

#[test]
fn whole_ssds_in_virtual_time() {
    let zone = ByteSize::kib(1536);
    for (model, size) in [
        (SimModel::Zn540, ByteSize::mib(48)),
        (SimModel::Sn540, ByteSize::mib(400)),
        (SimModel::Fdp, ByteSize::mib(400)),
        (SimModel::Optane, ByteSize::mib(48)),
    ] {
        let config = DeviceConfig {
            size: Some(size),
            zone_size: Some(zone),
            zone_capacity: Some(zone),
            sim: SimConfig {
                model,
                mapping_unit: Some(ByteSize::kib(64)),
                ..SimConfig::default()
            },
            ..small(DeviceKind::Sim)
        };
        conforms_in_virtual_time(config);
    }
}

#[test]
fn file_uring_direct() {
    conforms(DeviceConfig {
        io: IoChoice::Uring,
        direct: Direct::On,
        ..small(DeviceKind::File)
    });
}

#[test]
fn file_uring_buffered_with_discard_without_registered_buffers() {
    conforms(DeviceConfig {
        io: IoChoice::Uring,
        direct: Direct::Off,
        discard: Some(true),
        registered_buffers: ByteSize(0),
        ..small(DeviceKind::File)
    });
}

#[test]
fn file_uring_with_one_ring_for_all_and_one_for_every_thread() {
    for rings in [RingChoice::Shared, RingChoice::PerThread] {
        conforms(DeviceConfig {
            io: IoChoice::Uring,
            rings,
            ..small(DeviceKind::File)
        });
    }
}

#[test]
fn file_threads() {
    conforms(DeviceConfig {
        io: IoChoice::Threads,
        ..small(DeviceKind::File)
    });
}

/// Overwrites the block device that `FLOE_TEST_BLOCK_DEVICE` names, of at least
/// 8 MiB. `cargo xtask devices` provides a loop device over a scratch file.
#[test]
#[ignore = "needs a scratch block device in FLOE_TEST_BLOCK_DEVICE"]
fn block_device() {
    let path = std::env::var_os("FLOE_TEST_BLOCK_DEVICE").expect("names a scratch device");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for (io, discard, method) in [
        (IoChoice::Auto, true, "io_uring"),
        (IoChoice::Uring, false, "io_uring"),
        (IoChoice::Threads, true, "threads"),
    ] {
        let config = DeviceConfig {
            path: Some(path.clone().into()),
            io,
            discard: Some(discard),
            ..small(DeviceKind::File)
        };
        runtime.block_on(async {
            let device = open(&config, &Clock::real()).unwrap();
            let described = device.describe();
            assert!(
                described.starts_with("block device") && described.contains(method),
                "{described}"
            );
            conformance::check(&device).await;
        });
    }
}
