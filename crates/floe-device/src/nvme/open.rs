//! Opening a namespace as a device.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use floe_core::{ByteSize, Geometry, ZoneId};

use super::command::ZoneAction;
use super::device::NvmeDevice;
use super::drive::{Drive, DriveError, Interface, Zones};
use super::operations::{Limits, Operations};
use super::zone_report::ZoneDescriptor;
use crate::buffer::IoBuf;
use crate::config::{DeviceConfig, DeviceKind, OpenDeviceError, lower};
use crate::contract::ZoneState;
use crate::drive_zones::{self, DriveZone};
use crate::file::contents::{CacheShape, Contents, Medium};
use crate::file::entries::EntryKind;
use crate::file::open::fitted;
use crate::file::opening::{Access, arena_and_rings, io_error, lock, patiently};
use crate::file::owner::OpenFile;
use crate::file::states::ZoneStates;
use crate::zones::ZoneTable;

impl NvmeDevice {
    /// Opens the namespace at the configured path: its character device, its block device
    /// or `nvme:SERIAL`, with `:NAMESPACE` where a drive has several.
    ///
    /// # Errors
    /// See [`OpenDeviceError`]; nothing was changed.
    pub fn open(config: &DeviceConfig) -> Result<Self, OpenDeviceError> {
        let Some(path) = config.path.as_deref() else {
            return Err(OpenDeviceError::Missing("path"));
        };
        let (drive, claim) = open_exclusively(path, Access::Read)?;
        let path = drive.path().to_owned();
        check_kind(config.kind, &drive)?;
        check_usable(&drive)?;
        let zones = drive.zones().map_err(|error| error.at(&path))?;
        let cache = match config.accept_foreign {
            true => None,
            false => contents(&drive, &zones, &claim, config.zone_size)?.cache(&path)?,
        };
        let mut geometry = geometry(config, &drive, &zones, cache)?;
        let table = table(&mut geometry, &drive, zones)?;
        let (buffers, io) = (config.registered_buffers, config.io);
        let files = [&drive.file, &claim];
        let (arena, rings) =
            arena_and_rings(&files, buffers, io, config.rings, EntryKind::Commands)?;
        let kind = drive.interface().name();
        let kind = kind.strip_prefix("a ").unwrap_or(kind);
        let deallocates = config.discard.unwrap_or(true) && drive.controller().has_deallocate;
        let limits = limits(&drive, &geometry);
        let (file, path) = drive.into_file();
        let operations = Operations {
            limits,
            deallocates: AtomicBool::new(deallocates),
            zeros: IoBuf::zeroed(geometry.block_size as usize).freeze(),
            zones: ZoneStates::new(table),
            geometry,
            open: OpenFile {
                claim: Some(claim),
                ..OpenFile::new(&path, file, true, arena)
            },
        };
        Ok(NvmeDevice::over(operations, rings, kind))
    }
}

fn unusable(drive: &Drive, why: impl Into<String>) -> OpenDeviceError {
    OpenDeviceError::Unusable {
        path: drive.path().to_owned(),
        why: why.into(),
    }
}

/// Checks that Floe can use the namespace.
pub(crate) fn check_usable(drive: &Drive) -> Result<(), OpenDeviceError> {
    match drive.unusable() {
        Some(why) => Err(unusable(drive, why)),
        None => Ok(()),
    }
}

/// Opens a namespace that no other process uses, and its block device for `access`.
///
/// # Errors
/// As [`Drive::open`], or if it is in use.
pub(crate) fn open_exclusively(
    path: &Path,
    access: Access,
) -> Result<(Drive, File), OpenDeviceError> {
    let drive = Drive::open_to_change(path)?;
    lock(&drive.file, drive.path(), Access::Write)?;
    let block_device = block_device(&drive)?;
    let claim = claim(block_device, access)?;
    // Those who only read it see that it changes.
    lock(&claim, block_device, Access::Write)?;
    Ok((drive, claim))
}

/// Opens a namespace and its block device for reading. Others may use it.
///
/// # Errors
/// As [`Drive::open`], or if it has no block device.
pub(crate) fn open_to_look(path: &Path) -> Result<(Drive, File), OpenDeviceError> {
    let drive = Drive::open(path)?;
    let block_device = block_device(&drive)?;
    let file = File::open(block_device).map_err(|error| io_error(block_device, error))?;
    Ok((drive, file))
}

fn block_device(drive: &Drive) -> Result<&Path, OpenDeviceError> {
    let why = "the kernel has no block device for it, so nothing tells whether it is in use";
    drive.block_path().ok_or_else(|| unusable(drive, why))
}

/// Opens the block device of a namespace exclusively, which fails if it is mounted or
/// otherwise in use. Its cached pages, which passthrough does not see, are written and
/// dropped.
fn claim(path: &Path, access: Access) -> Result<File, OpenDeviceError> {
    let mut options = OpenOptions::new();
    options.read(true).write(access != Access::Read);
    options.custom_flags(libc::O_EXCL);
    let file = patiently(|| options.open(path)).map_err(|error| io_error(path, error))?;
    let dropped = rustix::fs::fsync(&file)
        .and_then(|()| rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed));
    dropped.map_err(|error| io_error(path, error.into()))?;
    Ok(file)
}

fn check_kind(kind: DeviceKind, drive: &Drive) -> Result<(), OpenDeviceError> {
    let (is_it, wanted) = match (kind, drive.interface()) {
        (DeviceKind::Zns, found) => (matches!(found, Interface::Zoned(_)), "zns"),
        (DeviceKind::Fdp, found) => (matches!(found, Interface::Placement(_)), "fdp"),
        (DeviceKind::Nvme, found) => (*found == Interface::Conventional, "nvme"),
        (DeviceKind::File | DeviceKind::Memory | DeviceKind::Sim, _) => (true, ""),
    };
    if is_it {
        return Ok(());
    }
    Err(OpenDeviceError::OtherNamespace {
        path: drive.path().to_owned(),
        found: drive.interface().name(),
        wanted,
        kind: match drive.interface() {
            Interface::Zoned(_) => "zns",
            Interface::Placement(_) => "fdp",
            Interface::Conventional => "nvme",
        },
    })
}

/// The contents of a namespace with these zones. `zone_size` is one more possible location of
/// a second superblock.
pub(crate) fn contents(
    drive: &Drive,
    zones: &[ZoneDescriptor],
    block_device: &File,
    zone_size: Option<ByteSize>,
) -> Result<Contents, OpenDeviceError> {
    match drive.interface() {
        Interface::Zoned(_) => {
            let block_bytes = drive.namespace().block_bytes;
            let block = u64::from(block_bytes);
            let in_bytes = |zone: &ZoneDescriptor| DriveZone {
                start: zone.start * block,
                state: zone.state,
                written: zone.written.unwrap_or(zone.capacity) * block,
            };
            let zones: Vec<_> = zones.iter().map(in_bytes).collect();
            let read = |start: u64, buf: &mut [u8]| drive.read(start / block, buf);
            let found = drive_zones::contents(&zones, block_bytes, read);
            found.map_err(|error| DriveError::from(error).at(drive.path()))
        }
        Interface::Placement(_) | Interface::Conventional => {
            let medium = Medium {
                file: block_device,
                len: drive.namespace().bytes(),
                is_block_device: true,
            };
            let found = medium.contents(zone_size.map(ByteSize::bytes));
            found.map_err(|error| io_error(drive.path(), error))
        }
    }
}

/// The geometry of a namespace with these zones and, if it has one, this cache.
pub(crate) fn geometry(
    config: &DeviceConfig,
    drive: &Drive,
    zones: &[ZoneDescriptor],
    cache: Option<CacheShape>,
) -> Result<Geometry, OpenDeviceError> {
    match drive.interface() {
        Interface::Zoned(shape) => zoned_geometry(config, drive, shape, zones, cache),
        Interface::Placement(_) | Interface::Conventional => regions(config, drive, cache),
    }
}

/// The geometry of a namespace without zones: regions of the configured size.
fn regions(
    config: &DeviceConfig,
    drive: &Drive,
    cache: Option<CacheShape>,
) -> Result<Geometry, OpenDeviceError> {
    let available = ByteSize(drive.namespace().bytes());
    let config = &fitted(config, cache, || Some(ByteSize(drive.atomic_bytes())));
    check_block_size(config.block_size, drive)?;
    let mut geometry = config.geometry(wanted_size(config, drive, available)?)?;
    if let Interface::Placement(placement) = drive.interface() {
        geometry.placement_handles = placement.handles.len() as u16;
    }
    Ok(geometry)
}

fn zoned_geometry(
    config: &DeviceConfig,
    drive: &Drive,
    shape: &Zones,
    zones: &[ZoneDescriptor],
    cache: Option<CacheShape>,
) -> Result<Geometry, OpenDeviceError> {
    let block = u64::from(drive.namespace().block_bytes);
    let capacity = zones.iter().map(|zone| zone.capacity).max().unwrap_or(0);
    let is_other =
        |zone: &ZoneDescriptor| zone.capacity != capacity && zone.state != ZoneState::Offline;
    if zones.iter().any(is_other) {
        return Err(unusable(drive, "its zones differ in capacity"));
    }
    let (zone_size, zone_capacity) = (shape.zone_blocks * block, capacity * block);
    drive_zones::check_settings(config, zone_size, zone_capacity)
        .map_err(|why| unusable(drive, why))?;
    let block_size = match cache.filter(|_| config.fits_block_size) {
        Some(cache) => ByteSize(cache.block_size.into()),
        None => config.block_size,
    };
    check_block_size(block_size, drive)?;
    let size = wanted_size(config, drive, ByteSize(shape.count * zone_size))?;
    let append = config.max_append.bytes().min(zone_capacity);
    let append = append.min(u64::from(shape.max_append_bytes));
    let config = &DeviceConfig {
        zone_size: Some(ByteSize(zone_size)),
        zone_capacity: Some(ByteSize(zone_capacity)),
        block_size,
        max_open_zones: lower(config.max_open_zones, shape.max_open),
        max_active_zones: lower(config.max_active_zones, shape.max_active),
        max_append: ByteSize(append / block_size.bytes() * block_size.bytes()),
        ..config.clone()
    };
    let mut geometry = config.geometry(size)?;
    geometry.random_writes = false;
    geometry.native_append = true;
    Ok(geometry)
}

/// Checks that a block of Floe is whole blocks of the drive, and a command can hold it.
fn check_block_size(wanted: ByteSize, drive: &Drive) -> Result<(), OpenDeviceError> {
    let logical = ByteSize(drive.namespace().block_bytes.into());
    if wanted < logical {
        return Err(OpenDeviceError::BelowLogicalBlock {
            path: drive.path().to_owned(),
            wanted,
            logical,
        });
    }
    let limit = match drive.interface() {
        Interface::Zoned(zones) => zones.max_append_bytes,
        _ => drive.max_transfer_bytes(),
    };
    match wanted.bytes() <= u64::from(limit) {
        true => Ok(()),
        false => {
            let limit = ByteSize(limit.into());
            let why = format!("it transfers at most {limit}, less than the block size {wanted}");
            Err(unusable(drive, why))
        }
    }
}

fn wanted_size(
    config: &DeviceConfig,
    drive: &Drive,
    available: ByteSize,
) -> Result<ByteSize, OpenDeviceError> {
    match config.size {
        Some(wanted) if wanted > available => Err(OpenDeviceError::SmallerThanConfigured {
            path: drive.path().to_owned(),
            available,
            wanted,
        }),
        size => Ok(size.unwrap_or(available)),
    }
}

/// The states of the zones. Those that an earlier process left open are closed, so that
/// they do not count against the limit of open zones. Those that are active behind the
/// device lower its limit of active zones.
fn table(
    geometry: &mut Geometry,
    drive: &Drive,
    mut zones: Vec<ZoneDescriptor>,
) -> Result<ZoneTable, OpenDeviceError> {
    let Interface::Zoned(shape) = drive.interface() else {
        return Ok(ZoneTable::new(geometry, ZoneState::Unknown));
    };
    if zones.iter().any(|zone| zone.state == ZoneState::Open) {
        let closed = drive.change_zones(None, ZoneAction::Close);
        let closed = closed.map_err(DriveError::from);
        // The drive tells whether a zone without data is still active.
        zones = closed
            .and_then(|()| drive.zones())
            .map_err(|error| error.at(drive.path()))?;
    }
    let states = zones.iter().map(|zone| zone.state);
    drive_zones::leave_active(geometry, shape.max_active, states)
        .map_err(|why| unusable(drive, why))?;
    let block = u64::from(drive.namespace().block_bytes);
    let mut table = ZoneTable::new(geometry, ZoneState::Empty);
    for (zone, found) in geometry.zones().zip(&zones) {
        say_if_withdrawn(drive, zone, found.state);
        let written = found.written.unwrap_or(found.capacity);
        table.restore(zone, found.state, written * block);
    }
    Ok(table)
}

fn say_if_withdrawn(drive: &Drive, zone: ZoneId, state: ZoneState) {
    if state.is_unwritable() {
        tracing::warn!(device = %drive.path().display(), %zone, ?state, "the drive has withdrawn a zone");
    }
}

fn limits(drive: &Drive, geometry: &Geometry) -> Limits {
    // No command ends inside a block of Floe, which is written whole.
    let block = geometry.block_size;
    let part_bytes = drive.max_transfer_bytes() / block * block;
    let (placements, group) = match drive.interface() {
        Interface::Placement(placement) => {
            let handles = placement.handles.iter();
            (
                handles.map(|handle| handle.placement).collect(),
                Some(placement.group),
            )
        }
        _ => (Vec::new(), None),
    };
    Limits {
        namespace: drive.number(),
        block_bytes: u64::from(drive.namespace().block_bytes),
        part_bytes: part_bytes as usize,
        is_zoned: matches!(drive.interface(), Interface::Zoned(_)),
        placements,
        group,
        has_write_cache: drive.controller().has_write_cache,
        unwritten_reads_zero: drive.namespace().unwritten_reads_zero,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::identify::{
        Controller, IDENTIFY_BYTES, Namespace, ZonedNamespace, max_append_log2_pages,
    };
    use super::*;

    /// A little-endian number: its offset, length and value.
    type Field = (usize, usize, u64);

    /// Zeros with numbers.
    fn page(fields: &[Field]) -> Vec<u8> {
        let mut page = vec![0; IDENTIFY_BYTES];
        for &(at, len, value) in fields {
            page[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        }
        page
    }

    fn drive(
        controller: &[Field],
        namespace: &[Field],
        zoned: Option<(&[Field], u8)>,
    ) -> Option<Drive> {
        let controller = Controller::decode(&page(controller)).unwrap();
        let namespace = Namespace::decode(&page(namespace)).ok()?;
        let zoned = zoned.map(|(fields, append)| {
            let append = max_append_log2_pages(&[append]).unwrap();
            (ZonedNamespace::decode(&page(fields)).unwrap(), append)
        });
        Drive::imagined(controller, namespace, zoned.as_ref()).ok()
    }

    const MAX_TRANSFER: usize = 77;
    const ATOMIC: usize = 528;
    const BLOCKS: usize = 0;
    const FEATURES: usize = 24;
    const OWN_ATOMIC: usize = 36;
    const BOUNDARY_START: usize = 42;
    const BOUNDARY: usize = 44;
    const BLOCK_LOG2: usize = 130;
    const ZONE_BLOCKS: usize = 2816;

    #[test]
    fn atomic_writes_cross_no_boundary() {
        let whole = |atomic: u64, boundary, start| {
            let namespace = [
                (BLOCKS, 8, 1 << 20),
                (FEATURES, 1, 2),
                (OWN_ATOMIC, 2, atomic - 1),
                (BOUNDARY_START, 2, start),
                (BOUNDARY, 2, boundary),
                (BLOCK_LOG2, 1, 9),
            ];
            drive(&[], &namespace, None).unwrap().atomic_bytes() / 512
        };
        assert_eq!(whole(1, 0, 0), 1);
        assert_eq!(whole(33, 0, 0), 32, "a power of two");
        assert_eq!(whole(32, 8 - 1, 0), 8, "as long as the boundary");
        assert_eq!(whole(32, 24 - 1, 0), 8, "boundaries at 24, 48 and 72");
        assert_eq!(whole(32, 16 - 1, 4), 4, "boundaries at 4, 20 and 36");
        let of_controller = [(BLOCKS, 8, 1 << 20), (BLOCK_LOG2, 1, 12)];
        let drive = drive(&[(ATOMIC, 2, 3)], &of_controller, None).unwrap();
        assert_eq!(drive.atomic_bytes(), 16384);
    }

    #[test]
    fn no_command_ends_inside_a_block() {
        // 16 pages of 4096 bytes, and Floe's block of 4096 bytes is 8 of the drive's.
        let namespace = [(BLOCKS, 8, 1 << 20), (BLOCK_LOG2, 1, 9)];
        let drive = drive(&[(MAX_TRANSFER, 1, 4)], &namespace, None).unwrap();
        let geometry = geometry(&DeviceConfig::default(), &drive, &[], None).unwrap();
        let odd = Geometry {
            block_size: 48 << 10,
            ..geometry
        };
        assert_eq!(limits(&drive, &geometry).part_bytes, 64 << 10);
        assert_eq!(limits(&drive, &odd).part_bytes, 48 << 10);
    }

    /// Numbers at the ends of their range are as likely as all others.
    fn extreme() -> impl Strategy<Value = u64> {
        let power = (0..64_u32, -1..=1_i64)
            .prop_map(|(log2, step)| (1_u64 << log2).wrapping_add_signed(step));
        prop_oneof![power, any::<u64>(), Just(0), Just(u64::MAX)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// A drive may claim any sizes and limits: opening it gives a geometry inside them, or
        /// an error.
        #[test]
        fn hostile_drives_are_opened_or_rejected(
            transfer in any::<u8>(),
            append in any::<u8>(),
            sizes in (extreme(), extreme(), prop_oneof![9..13_u8, any::<u8>()]),
            zoned in any::<bool>(),
            limits_of_zones in (any::<u32>(), any::<u32>()),
            atomic in (any::<u8>(), any::<u16>(), any::<u16>(), any::<u16>()),
            zones in prop::collection::vec((extreme(), extreme(), 0..6_usize), 0..4),
            size in prop::option::of(extreme()),
        ) {
            let (blocks, zone_blocks, log2) = sizes;
            let controller = [(MAX_TRANSFER, 1, transfer.into()), (ATOMIC, 2, atomic.1.into())];
            let namespace = [
                (BLOCKS, 8, blocks),
                (FEATURES, 1, atomic.0.into()),
                (OWN_ATOMIC, 2, atomic.1.into()),
                (BOUNDARY_START, 2, atomic.2.into()),
                (BOUNDARY, 2, atomic.3.into()),
                (BLOCK_LOG2, 1, log2.into()),
            ];
            let shape = [
                (4, 4, limits_of_zones.0.into()),
                (8, 4, limits_of_zones.1.into()),
                (ZONE_BLOCKS, 8, zone_blocks),
            ];
            let Some(drive) = drive(&controller, &namespace, zoned.then_some((&shape, append)))
            else {
                return Ok(());
            };
            prop_assert!(drive.atomic_bytes().is_power_of_two());
            if drive.unusable().is_some() {
                return Ok(());
            }
            let states = [
                ZoneState::Empty,
                ZoneState::Closed,
                ZoneState::Full,
                ZoneState::ReadOnly,
                ZoneState::Offline,
                ZoneState::Closed,
            ];
            // As the drive's report is checked.
            let found: Vec<_> = (0..).zip(&zones).map(|(number, &(capacity, written, state))| {
                let capacity = capacity % zone_blocks.max(1).saturating_add(1);
                ZoneDescriptor {
                    state: states[state],
                    start: zone_blocks.wrapping_mul(number),
                    capacity,
                    written: (state < 2).then_some(written.min(capacity)),
                }
            }).collect();
            let config = DeviceConfig {
                size: size.map(ByteSize),
                ..DeviceConfig::default()
            };
            let opened = match drive.interface() {
                Interface::Zoned(shape) => zoned_geometry(&config, &drive, shape, &found, None),
                _ => geometry(&config, &drive, &[], None),
            };
            let Ok(mut geometry) = opened else {
                return Ok(());
            };
            prop_assert!(geometry.validate().is_ok());
            let all = geometry.zone_size * u64::from(geometry.zone_count);
            prop_assert!(all <= drive.namespace().bytes());
            if geometry.zone_count < 1 << 16 && table(&mut geometry, &drive, found).is_err() {
                return Ok(());
            }
            let part = limits(&drive, &geometry).part_bytes;
            prop_assert!(part > 0 && part.is_multiple_of(geometry.block_size as usize));
            prop_assert!(part <= drive.max_transfer_bytes() as usize);
        }
    }
}
