//! Opening a namespace as a device.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use floe_core::{ByteSize, Geometry, ZoneId};

use super::command::ZoneAction;
use super::device::NvmeDevice;
use super::drive::{Drive, Interface, Zones};
use super::operations::{Limits, Operations};
use super::zone_report::ZoneDescriptor;
use crate::buffer::IoBuf;
use crate::config::{DeviceConfig, DeviceKind, OpenDeviceError, lower};
use crate::contract::ZoneState;
use crate::file::contents::{CacheShape, Contents, Medium, judge};
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
        let drive = Drive::open_to_change(path)?;
        let path = drive.path().to_owned();
        lock(&drive.file, &path, Access::Write)?;
        let Some(block_device) = drive.block_path() else {
            let why =
                "the kernel has no block device for it, so nothing tells whether it is in use";
            return Err(unusable(&drive, why));
        };
        let claim = claim(block_device)?;
        check_kind(config.kind, &drive)?;
        if let Some(why) = drive.unusable() {
            return Err(unusable(&drive, why));
        }
        let zones = drive.zones().map_err(|error| error.at(&path))?;
        let cache = match config.accept_foreign {
            true => None,
            false => cache_on(&drive, &zones, &claim)?,
        };
        let geometry = match drive.interface() {
            Interface::Zoned(shape) => zoned_geometry(config, &drive, shape, &zones, cache)?,
            Interface::Placement(_) | Interface::Conventional => geometry(config, &drive, cache)?,
        };
        let table = table(&geometry, &drive, &zones)?;
        let (buffers, io) = (config.registered_buffers, config.io);
        let files = [&drive.file, &claim];
        let (arena, rings) =
            arena_and_rings(&files, buffers, io, config.rings, EntryKind::Commands)?;
        let kind = drive.interface().name();
        let kind = kind.strip_prefix("a ").unwrap_or(kind);
        let deallocates = config.discard && drive.controller().has_deallocate;
        let limits = limits(&drive);
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

/// Opens the block device of a namespace exclusively, which fails if it is mounted or
/// otherwise in use. Its cached pages, which passthrough does not see, are written and
/// dropped.
fn claim(path: &Path) -> Result<File, OpenDeviceError> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_EXCL);
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

/// The cache on a namespace, if it is not empty.
///
/// # Errors
/// If it has foreign data.
fn cache_on(
    drive: &Drive,
    zones: &[ZoneDescriptor],
    block_device: &File,
) -> Result<Option<CacheShape>, OpenDeviceError> {
    let contents = match drive.interface() {
        Interface::Zoned(_) => zoned_contents(drive, zones)?,
        Interface::Placement(_) | Interface::Conventional => {
            let namespace = drive.namespace();
            let medium = Medium {
                file: block_device,
                len: namespace.blocks * u64::from(namespace.block_bytes),
                is_block_device: true,
            };
            let found = medium.contents(None);
            found.map_err(|error| io_error(drive.path(), error))?
        }
    };
    match contents {
        Contents::Empty => Ok(None),
        Contents::Cache(shape) => Ok(shape),
        Contents::Foreign { offset, what } => Err(OpenDeviceError::ForeignData {
            path: drive.path().to_owned(),
            offset,
            what,
        }),
    }
}

/// The contents of zones: foreign if a zone is written and none begins as those of a
/// cache do.
fn zoned_contents(drive: &Drive, zones: &[ZoneDescriptor]) -> Result<Contents, OpenDeviceError> {
    const START_BYTES: usize = 4096;
    let block_bytes = drive.namespace().block_bytes as usize;
    let is_written = |zone: &&ZoneDescriptor| match zone.state {
        ZoneState::Empty | ZoneState::Offline => false,
        _ => zone.written != Some(0),
    };
    let mut contents = Contents::Empty;
    let mut start = IoBuf::zeroed(START_BYTES.max(block_bytes));
    for zone in zones.iter().filter(is_written) {
        let read = drive.read(zone.start, &mut start);
        read.map_err(|error| super::drive::DriveError::from(error).at(drive.path()))?;
        let offset = zone.start * block_bytes as u64;
        if let Some(found @ Contents::Cache(_)) = judge((offset, &start[..])) {
            return Ok(found);
        }
        if contents == Contents::Empty {
            let what = "a written zone";
            contents = Contents::Foreign { offset, what };
        }
    }
    Ok(contents)
}

/// The geometry of a namespace without zones: regions of the configured size.
fn geometry(
    config: &DeviceConfig,
    drive: &Drive,
    cache: Option<CacheShape>,
) -> Result<Geometry, OpenDeviceError> {
    let namespace = drive.namespace();
    let available = ByteSize(namespace.blocks * u64::from(namespace.block_bytes));
    let whole = drive.atomic_bytes().max(u64::from(namespace.block_bytes));
    let whole = ByteSize(1 << whole.ilog2());
    let config = &fitted(config, cache, || Some(whole));
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
    let is_own = |setting: Option<ByteSize>, own| setting.is_none_or(|it| it == ByteSize(own));
    if !is_own(config.zone_size_of_drive(), zone_size)
        || !is_own(config.zone_capacity, zone_capacity)
    {
        let (size, capacity) = (ByteSize(zone_size), ByteSize(zone_capacity));
        let why = format!(
            "its zones have {size}, of which {capacity} can be written; leave zone_size and \
             zone_capacity unset"
        );
        return Err(unusable(drive, why));
    }
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
/// they do not count against the limit of open zones.
fn table(
    geometry: &Geometry,
    drive: &Drive,
    zones: &[ZoneDescriptor],
) -> Result<ZoneTable, OpenDeviceError> {
    if zones.is_empty() {
        return Ok(ZoneTable::new(geometry, ZoneState::Unknown));
    }
    let block = u64::from(drive.namespace().block_bytes);
    let mut table = ZoneTable::new(geometry, ZoneState::Empty);
    if zones.iter().any(|zone| zone.state == ZoneState::Open) {
        let closed = drive.change_zones(None, ZoneAction::Close);
        closed.map_err(|error| super::drive::DriveError::from(error).at(drive.path()))?;
    }
    for (zone, found) in geometry.zones().zip(zones) {
        // A zone that was opened and not written is empty after it is closed.
        let state = match (found.state, found.written) {
            (ZoneState::Open, Some(0)) => ZoneState::Empty,
            (ZoneState::Open, _) => ZoneState::Closed,
            (state, _) => state,
        };
        say_if_withdrawn(drive, zone, state);
        let written = found.written.unwrap_or(found.capacity);
        table.restore(zone, state, written * block);
    }
    Ok(table)
}

fn say_if_withdrawn(drive: &Drive, zone: ZoneId, state: ZoneState) {
    if let ZoneState::ReadOnly | ZoneState::Offline = state {
        tracing::warn!(device = %drive.path().display(), %zone, ?state, "the drive has withdrawn a zone");
    }
}

fn limits(drive: &Drive) -> Limits {
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
        part_bytes: drive.max_transfer_bytes() as usize,
        is_zoned: matches!(drive.interface(), Interface::Zoned(_)),
        placements,
        group,
        has_write_cache: drive.has_write_cache(),
        unwritten_reads_zero: drive.namespace().unwritten_reads_zero,
    }
}
