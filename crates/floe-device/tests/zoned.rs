//! Zoned block devices. `cargo xtask vm` provides drives and zoned `null_blk`.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::process::Command;

use floe_core::{Address, ByteSize, ZoneId};
use floe_device::config::{DeviceKind, Direct, IoChoice};
use floe_device::conformance::{check, pattern};
use floe_device::{
    Clock, DeviceConfig, DeviceError, DeviceErrorKind, FileBlocks, FileBlocksConfig, IoBuf,
    OpenDeviceError, Placement, SharedDevice, ZoneState, open,
};

fn path() -> PathBuf {
    named("FLOE_TEST_ZONED_DEVICE").expect("it names a scratch device")
}

/// The path in an environment variable, without which a test is skipped.
fn named(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        eprintln!("skipped: {variable} is not set");
    }
    path
}

fn config() -> DeviceConfig {
    DeviceConfig {
        kind: DeviceKind::File,
        path: Some(path()),
        accept_foreign: true,
        max_append: ByteSize::kib(64),
        registered_buffers: ByteSize::mib(2),
        ..DeviceConfig::default()
    }
}

fn opened(config: &DeviceConfig) -> SharedDevice {
    open(config, &Clock::real()).expect("the device can be opened")
}

fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test());
}

/// Runs a test of the device without data, and empties it again.
fn run_on_empty(test: impl AsyncFnOnce(SharedDevice)) {
    run(async || {
        let device = opened(&config());
        empty(&device).await;
        test(device).await;
        empty(&opened(&config())).await;
    });
}

async fn empty(device: &SharedDevice) {
    for zone in device.geometry().zones() {
        device.reset(zone).await.unwrap();
    }
}

async fn append(device: &SharedDevice, zone: u32, tag: u64) -> Result<Address, DeviceError> {
    let data = pattern(tag, device.geometry().block_size as usize);
    device.append(ZoneId(zone), data, Placement(0)).await
}

#[test]
#[ignore = "needs a scratch zoned block device in FLOE_TEST_ZONED_DEVICE"]
fn it_keeps_the_contract() {
    for (io, method) in [(IoChoice::Auto, "io_uring"), (IoChoice::Threads, "threads")] {
        run(async || {
            let device = opened(&DeviceConfig { io, ..config() });
            let described = device.describe();
            assert!(described.starts_with("zoned block device"), "{described}");
            assert!(described.contains(method), "{described}");
            assert!(!device.geometry().random_writes);
            check(&device).await;
        });
    }
}

#[test]
#[ignore = "needs a scratch zoned block device in FLOE_TEST_ZONED_DEVICE"]
fn states_and_data_outlive_the_device() {
    run(async || {
        let config = config();
        let device = opened(&config);
        empty(&device).await;
        let block = u64::from(device.geometry().block_size);
        let half = append(&device, 0, 1).await.unwrap();
        append(&device, 1, 2).await.unwrap();
        device.finish(ZoneId(1)).await.unwrap();
        device.flush().await.unwrap();
        drop(device);

        let refused = open(
            &DeviceConfig {
                accept_foreign: false,
                ..config.clone()
            },
            &Clock::real(),
        );
        let is_foreign = matches!(refused, Err(OpenDeviceError::ForeignData { .. }));
        assert!(is_foreign, "{refused:?}");

        // A device that will be wiped frees the places of all active zones.
        let device = opened(&config);
        let report = device.report().await.unwrap();
        let states = [0, 1, 2].map(|zone: usize| report[zone].state);
        assert_eq!(states, [ZoneState::Full, ZoneState::Full, ZoneState::Empty]);
        let buf = device
            .read(half, IoBuf::zeroed(block as usize))
            .await
            .unwrap();
        assert!(*buf == *pattern(1, block as usize));
        empty(&device).await;
    });
}

/// A write that the device does not know of, as of another program.
async fn write_behind_its_back(device: &SharedDevice, zone: u32, tag: u64) {
    let at = append(device, zone, tag).await.unwrap();
    let block = device.geometry().block_size as usize;
    let behind = start_of(zone) + at.offset + block as u64;
    let file = past_the_device();
    file.write_all_at(&pattern(tag, block), behind).unwrap();
}

fn past_the_device() -> File {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    options.custom_flags(libc::O_DIRECT).open(path()).unwrap()
}

/// The byte at which a zone begins, behind conventional zones.
fn start_of(zone: u32) -> u64 {
    let mut report = Command::new("blkzone");
    let report = report.arg("report").arg(path()).output().unwrap();
    let report = String::from_utf8(report.stdout).unwrap();
    let mut sequential = report.lines().filter(|line| !line.contains("type: 1("));
    let line = sequential.nth(zone as usize).expect("the zone is reported");
    let sector = line
        .split("start: 0x")
        .nth(1)
        .expect("its start is reported");
    let digits = sector.split([',', ' ']).next().unwrap();
    u64::from_str_radix(digits, 16).unwrap() * 512
}

#[test]
#[ignore = "needs a scratch zoned block device in FLOE_TEST_ZONED_DEVICE"]
fn a_failed_append_leaves_the_zone_as_the_drive_has_it() {
    run(async || {
        let device = opened(&config());
        empty(&device).await;
        let block = u64::from(device.geometry().block_size);
        write_behind_its_back(&device, 0, 1).await;
        // The drive's write pointer is a block ahead of the device's.
        let appends: Vec<_> = (0..3)
            .map(|tag| device.append(ZoneId(0), pattern(tag, block as usize), Placement(0)))
            .collect();
        let mut landed = 0;
        for (number, append) in appends.into_iter().enumerate() {
            // The first one fails at the drive, the others behind it, or while the zone is
            // inspected.
            let end = append.await;
            assert!(
                number > 0 || end.is_err(),
                "a write off the write pointer fails"
            );
            landed += u64::from(end.is_ok());
        }
        let at = loop {
            match append(&device, 0, 7).await {
                Ok(at) => break at,
                // The zone's state is being read.
                Err(_) => tokio::task::yield_now().await,
            }
        };
        assert_eq!(at.offset, (2 + landed) * block);
        let zone = device.report().await.unwrap()[0];
        let pointer = at.offset + block;
        assert_eq!((zone.state, zone.write_pointer), (ZoneState::Open, pointer));
        device.reset(ZoneId(0)).await.unwrap();
        let again = append(&device, 0, 8).await.unwrap();
        assert_eq!(again.offset, 0);
        empty(&device).await;
    });
}

/// The kernel fails a write off the write pointer, and then may fail the next one that is not.
#[test]
#[ignore = "needs a scratch zoned block device in FLOE_TEST_ZONED_DEVICE"]
fn an_append_that_the_kernel_refuses_is_repeated() {
    run(async || {
        let device = opened(&config());
        empty(&device).await;
        let block = device.geometry().block_size as usize;
        let (file, start) = (past_the_device(), start_of(0));
        for number in 0..50 {
            let off = start + (number + 7) * block as u64;
            let refused = file.write_all_at(&pattern(1, block), off);
            refused.expect_err("it is off the write pointer");
            let at = append(&device, 0, number).await.expect("it is repeated");
            assert_eq!(at.offset, number * block as u64);
        }
        empty(&device).await;
    });
}

/// The kernel does not learn of a reset by passthrough, and fails what is written then.
#[test]
#[ignore = "needs a scratch zoned block device in FLOE_TEST_ZONED_DEVICE"]
fn zones_that_were_reset_by_passthrough_take_appends() {
    let Some(namespace) = named("FLOE_TEST_ZONED_NAMESPACE") else {
        return;
    };
    run_on_empty(async |device| {
        for number in 0..3 {
            append(&device, 0, number).await.unwrap();
        }
        drop(device);
        empty(&opened(&DeviceConfig {
            path: Some(namespace),
            ..config()
        }))
        .await;
        let device = opened(&config());
        for number in 0..3 {
            let at = append(&device, 0, number).await;
            let place = number * u64::from(device.geometry().block_size);
            assert_eq!(at.expect("it is repeated").offset, place);
        }
    });
}

#[test]
#[ignore = "needs zoned null_blk in FLOE_TEST_ZONED_DEVICE, and its folder in FLOE_TEST_ZONED_CONDITIONS"]
fn zones_that_the_drive_withdraws_are_known() {
    let Some(folder) = named("FLOE_TEST_ZONED_CONDITIONS") else {
        return;
    };
    run(async || {
        let device = opened(&config());
        empty(&device).await;
        let states = [ZoneState::ReadOnly, ZoneState::Offline];
        // A second time, null_blk makes the zone empty again.
        let withdraw = || {
            for (zone, name) in [(0, "zone_readonly"), (1, "zone_offline")] {
                let sector = start_of(zone) / 512;
                std::fs::write(folder.join(name), sector.to_string()).unwrap();
            }
        };
        let at = append(&device, 0, 1).await.unwrap();
        append(&device, 1, 2).await.unwrap();
        withdraw();
        for zone in [0, 1] {
            append(&device, zone, 3).await.unwrap_err();
            while device.report().await.unwrap()[zone as usize].state != states[zone as usize] {
                // The zone's state is being read.
                append(&device, zone, 3).await.unwrap_err();
            }
            device.reset(ZoneId(zone)).await.unwrap_err();
        }
        let kept = device
            .read(at, device.allocate(pattern(1, 4096).len()))
            .await;
        assert!(kept.is_ok_and(|kept| *kept == *pattern(1, 4096)));
        append(&device, 2, 4).await.unwrap();
        drop(device);

        let device = opened(&config());
        let report = device.report().await.unwrap();
        assert_eq!([report[0].state, report[1].state], states);
        append(&device, 0, 5).await.unwrap_err();
        append(&device, 3, 5).await.unwrap();
        drop(device);
        withdraw();
        empty(&opened(&config())).await;
    });
}

#[test]
#[ignore = "needs a scratch zoned block device in FLOE_TEST_ZONED_DEVICE"]
fn many_zones_fill_at_the_limit_of_active_zones() {
    run(async || {
        let device = opened(&config());
        empty(&device).await;
        let geometry = device.geometry().clone();
        let limits = [geometry.max_open_zones, geometry.max_active_zones];
        let limit = limits
            .into_iter()
            .flatten()
            .min()
            .expect("the drive has limits");
        if geometry.zone_capacity > 16 << 20 {
            eprintln!(
                "skipped: zones of {} bytes take long to fill",
                geometry.zone_capacity
            );
            return;
        }
        let data = pattern(1, geometry.max_append_bytes as usize);
        // The zones of the second half start as soon as the device takes them, while the
        // drive still fills those of the first: it must never see one zone too many.
        let mut ends = Vec::new();
        for zone in (0..2 * limit).map(ZoneId) {
            for _ in 0..geometry.zone_capacity / data.len() as u64 {
                let append = device.append(zone, data.clone(), Placement(0));
                ends.push((zone.0 < limit, append));
            }
        }
        for (is_first_half, end) in ends {
            match end.await {
                Ok(_) => {}
                Err(error) if is_first_half => panic!("{error}"),
                Err(error) => assert!(
                    matches!(error.kind, DeviceErrorKind::TooManyZones(_)),
                    "{error}"
                ),
            }
        }
        empty(&device).await;
    });
}

#[test]
#[ignore = "needs a scratch zoned block device in FLOE_TEST_ZONED_DEVICE"]
fn unfit_settings_and_uses_are_refused() {
    let zoned = |config: DeviceConfig| match open(&config, &Clock::real()) {
        Err(OpenDeviceError::Unusable { why, .. }) => why,
        other => panic!("not refused: {other:?}"),
    };
    let why = zoned(DeviceConfig {
        zone_size: Some(ByteSize::kib(64)),
        ..config()
    });
    assert!(why.contains("zone_size"), "{why}");
    opened(&DeviceConfig {
        zone_size: Some(ByteSize::kib(64)),
        fits_zone_size: true,
        ..config()
    });
    let why = zoned(DeviceConfig {
        direct: Direct::Off,
        ..config()
    });
    assert!(why.contains("direct"), "{why}");
    let why = zoned(DeviceConfig {
        size: Some(ByteSize::gib(900)),
        ..config()
    });
    assert!(why.contains("size"), "{why}");
    let flat = FileBlocks::open(&FileBlocksConfig::new(path()));
    assert!(
        matches!(flat, Err(OpenDeviceError::NoRandomWrites(_))),
        "{flat:?}"
    );
}
