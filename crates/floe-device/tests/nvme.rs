//! NVMe namespaces by passthrough, on drives that the environment names.
//!
//! `FLOE_NVME_DEVICES` lists namespaces, separated by commas: `/dev/ng0n1,nvme:SERIAL`. The
//! tests overwrite them. `FLOE_NVME_UNUSABLE` lists namespaces that must be rejected, such
//! as those with metadata. Without them the tests are skipped, and say so.

use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_device::config::{DeviceConfig, DeviceKind, IoChoice, OpenDeviceError};
use floe_device::nvme::command::ZoneAction;
use floe_device::nvme::{CommandError, Drive, Fault, Interface};
use floe_device::{
    Address, ByteSize, Clock, Device as _, DeviceErrorKind, IoBuf, NvmeDevice, Placement,
    SharedDevice, ZoneId, ZoneState, conformance, open,
};
use parking_lot::{Mutex, MutexGuard};

/// One test at a time uses the drives.
static DRIVES: Mutex<()> = Mutex::new(());

/// The namespaces of a variable, for one test.
fn named(variable: &str) -> (Vec<PathBuf>, MutexGuard<'static, ()>) {
    let listed = std::env::var(variable).unwrap_or_default();
    let paths: Vec<_> = listed.split(',').filter(|path| !path.is_empty()).collect();
    if paths.is_empty() {
        eprintln!("SKIPPED: {variable} names no NVMe namespace");
    }
    (
        paths.into_iter().map(PathBuf::from).collect(),
        DRIVES.lock(),
    )
}

fn config(path: &Path) -> DeviceConfig {
    DeviceConfig {
        path: Some(path.to_owned()),
        accept_foreign: true,
        ..DeviceConfig::default()
    }
}

/// Runs `test` on each namespace whose kind `suits`, emptied, in a runtime.
fn on_each<F: Future<Output = ()>>(
    suits: impl Fn(&Interface) -> bool,
    test: impl Fn(PathBuf, NvmeDevice) -> F,
) {
    let (paths, _drives) = named("FLOE_NVME_DEVICES");
    for path in paths {
        let drive = Drive::open_to_change(&path).unwrap();
        if !suits(drive.interface()) {
            continue;
        }
        if is_zoned(drive.interface()) {
            drive.change_zones(None, ZoneAction::Reset).unwrap();
        }
        println!("on {} ({})", path.display(), drive.interface().name());
        runtime(0).block_on(async {
            test(path.clone(), NvmeDevice::open(&config(&path)).unwrap()).await;
        });
    }
}

fn runtime(threads: usize) -> tokio::runtime::Runtime {
    let mut builder = match threads {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.enable_all().build().unwrap()
}

fn is_zoned(interface: &Interface) -> bool {
    matches!(interface, Interface::Zoned(_))
}

const HERE: Placement = Placement(0);
const BLOCK: usize = 4096;

#[test]
fn namespaces_conform() {
    let (paths, _drives) = named("FLOE_NVME_DEVICES");
    for path in paths {
        for (threads, io) in [
            (0, IoChoice::Uring),
            (2, IoChoice::Uring),
            (2, IoChoice::Threads),
        ] {
            println!("conformance of {} with {io:?}", path.display());
            let config = DeviceConfig {
                io,
                // Zones of small namespaces have room for eight.
                max_append: ByteSize::kib(512),
                ..config(&path)
            };
            runtime(threads).block_on(async {
                let device = open(&config, &Clock::real()).unwrap();
                conformance::check(&device).await;
            });
        }
    }
}

#[test]
fn many_appends_in_flight_to_one_zone_never_overlap() {
    on_each(is_zoned, async |_, device| {
        let zones = [ZoneId(0), ZoneId(1), ZoneId(2)];
        let mut started = Vec::new();
        for tag in 0..600_u64 {
            let data = conformance::pattern(tag, BLOCK * (1 + tag as usize % 5));
            let zone = zones[tag as usize % zones.len()];
            started.push((device.append(zone, data.clone(), HERE), zone, data));
        }
        let mut landed = Vec::new();
        for (append, zone, data) in started {
            let at = append.await.unwrap();
            assert_eq!(at.zone, zone);
            let found = device.read(at, device.allocate(data.len())).await.unwrap();
            assert!(
                *found == *data,
                "the data is at the address that the drive returned"
            );
            landed.push((at, data.len() as u64));
        }
        landed.sort_unstable_by_key(|(at, _)| *at);
        for zone in zones {
            let mut end = 0;
            for (at, len) in landed.iter().filter(|(at, _)| at.zone == zone) {
                assert_eq!(at.offset, end, "without gaps and overlaps");
                end += len;
            }
            let report = device.report().await.unwrap();
            assert_eq!(report[zone.index()].write_pointer, end);
        }
    });
}

#[test]
fn zone_states_survive_reopening() {
    on_each(is_zoned, async |path, device| {
        let data = conformance::pattern(1, 3 * BLOCK);
        let at = device.append(ZoneId(3), data.clone(), HERE).await.unwrap();
        device.finish(ZoneId(4)).await.unwrap();
        drop(device);
        let device = NvmeDevice::open(&config(&path)).unwrap();
        let report = device.report().await.unwrap();
        let zone = report[3];
        assert_eq!(
            (zone.state, zone.write_pointer),
            (ZoneState::Closed, 3 * BLOCK as u64)
        );
        assert_eq!(report[4].state, ZoneState::Full);
        assert_eq!(report[5].state, ZoneState::Empty);
        let found = device.read(at, IoBuf::zeroed(data.len())).await.unwrap();
        assert!(*found == *data);
        let next = device.append(ZoneId(3), data, HERE).await.unwrap();
        assert_eq!(next, Address::new(ZoneId(3), 3 * BLOCK as u64));
    });
}

/// Waits until the drive's state of a suspect zone was read.
async fn inspected(device: &NvmeDevice, zone: ZoneId, state: ZoneState, written: Option<u64>) {
    for _ in 0..10_000 {
        let found = device.report().await.unwrap()[zone.index()];
        if found.state == state && written.is_none_or(|written| written == found.write_pointer) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("zone {zone} never becomes {state:?}");
}

#[test]
fn states_follow_the_drive_where_it_refuses() {
    on_each(is_zoned, async |path, device| {
        let drive = Drive::open_to_change(&path).unwrap();
        let Interface::Zoned(shape) = drive.interface() else {
            unreachable!("only zoned namespaces");
        };
        let data = conformance::pattern(2, 2 * BLOCK);
        let change = |zone: u64, action| {
            drive
                .change_zones(Some(zone * shape.zone_blocks), action)
                .unwrap();
        };

        // Another process finishes the zone.
        device.append(ZoneId(0), data.clone(), HERE).await.unwrap();
        change(0, ZoneAction::Finish);
        let kind = device
            .append(ZoneId(0), data.clone(), HERE)
            .await
            .unwrap_err()
            .kind;
        assert!(matches!(kind, DeviceErrorKind::ZoneFull { .. }), "{kind}");
        inspected(&device, ZoneId(0), ZoneState::Full, None).await;

        // Another process opens as many zones as may be open and active.
        let limits = [shape.max_open, shape.max_active];
        let most = u64::from(limits.into_iter().flatten().min().unwrap());
        (1..=most).for_each(|zone| change(zone, ZoneAction::Open));
        let spare = ZoneId(most as u32 + 1);
        let kind = device
            .append(spare, data.clone(), HERE)
            .await
            .unwrap_err()
            .kind;
        assert!(matches!(kind, DeviceErrorKind::TooManyZones(_)), "{kind}");
        inspected(&device, spare, ZoneState::Empty, Some(0)).await;
        change(1, ZoneAction::Reset);
        device.append(spare, data.clone(), HERE).await.unwrap();
        drive.change_zones(None, ZoneAction::Reset).unwrap();

        // Another process writes the zone until one block is left.
        let mut options = std::fs::OpenOptions::new();
        options.write(true).custom_flags(libc::O_DIRECT);
        let raw = options.open(drive.block_path().unwrap()).unwrap();
        let zone = ZoneId(device.geometry().zone_count - 1);
        let geometry = device.geometry();
        let start = u64::from(zone.0) * geometry.zone_size;
        let chunk = IoBuf::zeroed(128 << 10);
        let mut end = 0;
        while end < geometry.zone_capacity - BLOCK as u64 {
            let len = chunk
                .len()
                .min((geometry.zone_capacity - BLOCK as u64 - end) as usize);
            raw.write_all_at(&chunk[..len], start + end).unwrap();
            end += len as u64;
        }
        let kind = device.append(zone, data, HERE).await.unwrap_err().kind;
        let DeviceErrorKind::Nvme(status) = kind else {
            panic!("a status of the drive, not {kind}");
        };
        assert_eq!(status.fault(), Fault::ZoneBoundary);
        inspected(&device, zone, ZoneState::Open, Some(end)).await;
        let last = device
            .append(zone, conformance::pattern(3, BLOCK), HERE)
            .await
            .unwrap();
        assert_eq!(last.offset, geometry.zone_capacity - BLOCK as u64);
        inspected(&device, zone, ZoneState::Full, None).await;
    });
}

fn fault(result: Result<(), CommandError>) -> Fault {
    match result {
        Err(CommandError::Drive(status)) => status.fault(),
        other => panic!("not a status of the drive: {other:?}"),
    }
}

/// A device never makes these mistakes, since it checks before the drive.
#[test]
fn a_drive_raises_the_status_of_each_mistake() {
    on_each(
        |_| true,
        async |path, device| {
            drop(device);
            let drive = Drive::open_to_change(&path).unwrap();
            let mut block = vec![7; drive.namespace().block_bytes as usize];
            let end = drive.namespace().blocks;
            assert_eq!(fault(drive.read(end, &mut block)), Fault::OutOfRange);
            assert_eq!(fault(drive.write(end, &mut block, None)), Fault::OutOfRange);
            let Interface::Zoned(shape) = drive.interface() else {
                return;
            };
            let start = |zone: u32| u64::from(zone) * shape.zone_blocks;
            let change = |zone, action| drive.change_zones(Some(start(zone)), action);
            let mut write = |block_number| drive.write(block_number, &mut block, None);
            assert_eq!(fault(write(start(0) + 1)), Fault::ZoneInvalidWrite);
            write(start(0)).unwrap();
            assert_eq!(fault(write(start(0))), Fault::ZoneInvalidWrite);
            change(0, ZoneAction::Finish).unwrap();
            assert_eq!(fault(write(start(0))), Fault::ZoneFull);
            let opened = change(0, ZoneAction::Open);
            assert_eq!(fault(opened), Fault::ZoneTransition);

            let (open, active) = (shape.max_open.unwrap(), shape.max_active.unwrap());
            (1..=open).for_each(|zone| change(zone, ZoneAction::Open).unwrap());
            assert_eq!(
                fault(change(open + 1, ZoneAction::Open)),
                Fault::TooManyOpenZones
            );
            drive.change_zones(None, ZoneAction::Reset).unwrap();
            for zone in 1..=active {
                write(start(zone)).unwrap();
                change(zone, ZoneAction::Close).unwrap();
            }
            assert_eq!(fault(write(start(0))), Fault::TooManyActiveZones);
            let mut across = vec![0; 2 * drive.namespace().block_bytes as usize];
            let read = drive.read(start(1) - 1, &mut across);
            assert_eq!(fault(read), Fault::ZoneBoundary);
            drive.change_zones(None, ZoneAction::Reset).unwrap();
        },
    );
}

#[test]
fn a_write_to_a_handle_that_is_not_there_is_kept() {
    let is_placed = |interface: &Interface| matches!(interface, Interface::Placement(_));
    on_each(is_placed, async |path, device| {
        drop(device);
        let drive = Drive::open_to_change(&path).unwrap();
        let mut block = vec![9; drive.namespace().block_bytes as usize];
        // The drive takes it to its default handle.
        drive.write(64, &mut block, Some(0x7fff)).unwrap();
        let mut found = vec![0; block.len()];
        drive.read(64, &mut found).unwrap();
        assert_eq!(found, block);
    });
}

#[test]
fn long_transfers_are_split() {
    on_each(
        |_| true,
        async |_, device| {
            let zone = ZoneId(1);
            device.reset(zone).await.unwrap();
            let len = device.geometry().max_append_bytes as usize;
            let mut all = Vec::new();
            for tag in 0..(4 << 20) / len {
                let data = conformance::pattern(tag as u64, len);
                device.append(zone, data.clone(), HERE).await.unwrap();
                all.extend_from_slice(&data);
            }
            let buf = IoBuf::zeroed(all.len());
            let found = device.read(Address::new(zone, 0), buf).await.unwrap();
            assert!(found[..] == all[..]);
            let counts = device.counters().snapshot();
            assert_eq!((counts.reads, counts.read_bytes), (1, all.len() as u64));
            assert_eq!(counts.append_bytes, all.len() as u64);
        },
    );
}

#[test]
fn operations_in_flight_outlive_their_futures_and_the_device() {
    on_each(
        |_| true,
        async |path, device| {
            let zone = ZoneId(2);
            device.reset(zone).await.unwrap();
            let data = conformance::pattern(8, 4 * BLOCK);
            for _ in 0..200 {
                drop(device.append(zone, data.clone(), HERE));
                drop(device.read(Address::new(zone, 0), device.allocate(4 * BLOCK)));
            }
            drop(device);
            // Nothing is in flight any more.
            let device = NvmeDevice::open(&config(&path)).unwrap();
            for index in 0..200 {
                let at = Address::new(zone, index * data.len() as u64);
                let found = device.read(at, IoBuf::zeroed(data.len())).await.unwrap();
                assert!(*found == *data);
            }
        },
    );
}

#[test]
fn placement_handles_reach_the_drive_and_it_counts_writes() {
    let is_placed = |interface: &Interface| matches!(interface, Interface::Placement(_));
    on_each(is_placed, async |path, device| {
        let free = || {
            let drive = Drive::open(&path).unwrap();
            let Interface::Placement(placement) = drive.interface() else {
                unreachable!("only namespaces with data placement");
            };
            let handles = placement.handles.iter();
            handles.map(|handle| handle.free_blocks).collect::<Vec<_>>()
        };
        let handles = device.geometry().placement_handles;
        assert_eq!(usize::from(handles), free().len());
        let before = (free(), device.media_statistics().unwrap());
        let data = conformance::pattern(1, 16 * BLOCK);
        device.reset(ZoneId(0)).await.unwrap();
        device
            .append(ZoneId(0), data.clone(), Placement(3))
            .await
            .unwrap();
        let after = (free(), device.media_statistics().unwrap());
        for (handle, (before, after)) in before.0.iter().zip(&after.0).enumerate() {
            let used = if handle == 3 { 16 } else { 0 };
            // The first block was zeroed by handle 0, or by no handle.
            assert!(handle == 0 || before - after == used, "handle {handle}");
        }
        let written = after.1.host_written_bytes - before.1.host_written_bytes;
        assert!(written >= data.len() as u64, "{written}");
        assert!(after.1.write_amplification().unwrap() >= 1.0);
        device
            .write(Address::new(ZoneId(0), 0), data, Placement(handles + 5))
            .await
            .unwrap();
        let wrapped = usize::from(5 % handles);
        assert_eq!(
            after.0[wrapped] - free()[wrapped],
            16,
            "taken modulo their number"
        );
    });
}

#[test]
fn a_namespace_in_use_or_of_another_kind_is_rejected() {
    on_each(
        |_| true,
        async |path, device| {
            let second = NvmeDevice::open(&config(&path));
            assert!(
                matches!(second, Err(OpenDeviceError::InUse(_))),
                "{second:?}"
            );
            // Both may begin with a superblock of an earlier cache.
            device.reset(ZoneId(0)).await.unwrap();
            device.reset(ZoneId(1)).await.unwrap();
            let data = conformance::pattern(1, BLOCK);
            device.append(ZoneId(0), data, HERE).await.unwrap();
            drop(device);

            let drive = Drive::open(&path).unwrap();
            let block = drive.block_path().unwrap();
            let exclusive = std::fs::OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_EXCL)
                .open(block)
                .unwrap();
            let claimed = NvmeDevice::open(&config(&path));
            assert!(
                matches!(claimed, Err(OpenDeviceError::InUse(_))),
                "{claimed:?}"
            );
            drop(exclusive);

            let careful = DeviceConfig {
                accept_foreign: false,
                ..config(&path)
            };
            let foreign = NvmeDevice::open(&careful);
            assert!(
                matches!(foreign, Err(OpenDeviceError::ForeignData { .. })),
                "{foreign:?}"
            );

            let kinds = [DeviceKind::Zns, DeviceKind::Fdp, DeviceKind::Nvme];
            let opened = kinds.map(|kind| {
                let of_kind = DeviceConfig {
                    kind,
                    path: Some(block.to_owned()),
                    ..config(&path)
                };
                match NvmeDevice::open(&of_kind) {
                    Ok(_) => true,
                    Err(OpenDeviceError::OtherNamespace { .. }) => false,
                    Err(other) => panic!("{other}"),
                }
            });
            assert_eq!(
                opened.iter().filter(|opened| **opened).count(),
                1,
                "{opened:?}"
            );
        },
    );
}

#[test]
fn unusable_namespaces_are_rejected_with_the_reason() {
    let (paths, _drives) = named("FLOE_NVME_UNUSABLE");
    for path in paths {
        let error = runtime(0).block_on(async { NvmeDevice::open(&config(&path)).unwrap_err() });
        let message = error.to_string();
        assert!(message.contains("metadata"), "{message}");
    }
}

#[test]
fn a_drive_that_is_not_there_is_named() {
    let missing = NvmeDevice::open(&config(Path::new("nvme:no-such-serial:1"))).unwrap_err();
    assert!(matches!(missing, OpenDeviceError::NotNvme(_)), "{missing}");
    let no_drive = DeviceConfig {
        kind: DeviceKind::Zns,
        ..config(Path::new("/dev/null"))
    };
    let error = open(&no_drive, &Clock::real()).unwrap_err();
    assert!(error.to_string().contains("floe device list"), "{error}");
}

/// A shared device is what drivers use.
#[test]
fn a_serial_number_opens_any_kind() {
    let (paths, _drives) = named("FLOE_NVME_DEVICES");
    for path in paths {
        let drive = Drive::open(&path).unwrap();
        let by_serial = format!("nvme:{}:{}", drive.controller().serial, drive.number());
        runtime(0).block_on(async {
            let opened = open(&config(Path::new(&by_serial)), &Clock::real());
            let device: SharedDevice = opened.unwrap();
            let path = drive.path().display().to_string();
            assert!(Arc::clone(&device).describe().ends_with(&path));
        });
    }
}
