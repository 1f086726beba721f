//! Opening a zoned block device.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use floe_core::{ByteSize, Geometry};
use parking_lot::Mutex;

use super::ZonedDevice;
use super::kernel::{self, Change, KernelZone, Queue};
use super::lanes::Lanes;
use super::operations::Operations;
use crate::config::{DeviceConfig, Direct, OpenDeviceError, lower};
use crate::contract::ZoneState;
use crate::drive_zones::{self, DriveZone};
use crate::file::contents::{CacheShape, Contents};
use crate::file::engine::Engine;
use crate::file::entries::EntryKind;
use crate::file::open::whole_block;
use crate::file::opening::{
    Access, arena_and_rings, choose_direct, io_error, lock, logical_block_bytes, open_file,
};
use crate::file::owner::OpenFile;
use crate::file::states::ZoneStates;
use crate::zones::ZoneTable;

/// True if `path` is a block device whose zones must be written in sequence.
pub(crate) fn is_host_managed(path: &Path) -> bool {
    Queue::of(path).is_some_and(|queue| queue.is_host_managed())
}

impl ZonedDevice {
    /// Opens the configured zoned block device. Conventional zones at its start stay
    /// unused. Zones that another program left open are closed, which keeps their data.
    ///
    /// # Errors
    /// See [`OpenDeviceError`].
    pub fn open(config: &DeviceConfig) -> Result<Self, OpenDeviceError> {
        let path = config.required_path()?;
        let unfit = |why: String| OpenDeviceError::Unusable {
            path: path.to_owned(),
            why,
        };
        let failed = |error: io::Error| io_error(path, error);
        let queue = Queue::of(path).ok_or_else(|| OpenDeviceError::NotFound(path.to_owned()))?;
        let file = open_file(path, Access::Write)?;
        lock(&file, path, Access::Write)?;
        let drive = Drive::of(&file).map_err(failed)?.map_err(unfit)?;
        let cache = match config.accept_foreign {
            true => None,
            false => drive.contents(&file).map_err(failed)?.cache(path)?,
        };
        let mut geometry = drive.shape(&file, path, config, cache)?;
        if config.direct == Direct::Off {
            return Err(unfit(
                "writes in sequence need direct I/O; set direct to `auto`".into(),
            ));
        }
        // The kernel may write pages of its cache in any order.
        let is_direct = choose_direct(
            &file,
            path,
            Direct::On,
            ByteSize(geometry.block_size.into()),
        )?;
        let mut zones = Vec::new();
        for (number, zone) in (0..).zip(&drive.zones) {
            let will_be_wiped = config.accept_foreign && number < geometry.zone_count;
            zones.push(settle(&file, zone, will_be_wiped).map_err(failed)?);
        }
        let state = |zone: &KernelZone| zone.state.unwrap_or(ZoneState::Unknown);
        let most = queue.limit("max_active_zones");
        drive_zones::leave_active(&mut geometry, most, zones.iter().map(state)).map_err(unfit)?;
        let mut table = ZoneTable::new(&geometry, ZoneState::Empty);
        for (zone, found) in geometry.zones().zip(&zones) {
            table.restore(
                zone,
                state(found),
                found.written.min(geometry.zone_capacity),
            );
        }
        let (buffers, io) = (config.registered_buffers, config.io);
        let (arena, rings) =
            arena_and_rings(&[&file], buffers, io, config.rings, EntryKind::Transfers)?;
        let operations = Arc::new(Operations {
            start: drive.zones[0].start,
            zones: ZoneStates::new(table),
            lanes: Mutex::new(Lanes::new(geometry.zone_count)),
            open: OpenFile::new(path, file, is_direct, arena),
            geometry,
        });
        Ok(ZonedDevice {
            engine: Engine::new(Arc::<Operations>::clone(&operations), rings),
            operations,
        })
    }
}

/// Frees the place of an open zone, which another program may have left: closes it, or
/// finishes it if its data will be wiped. Returns the zone as the drive reports it then,
/// since one without data may still be active.
fn settle(file: &File, zone: &KernelZone, will_be_wiped: bool) -> io::Result<KernelZone> {
    let needed = match zone.state {
        Some(ZoneState::Open | ZoneState::Closed) if will_be_wiped => Change::Finish,
        Some(ZoneState::Open) => Change::Close,
        _ => return Ok(*zone),
    };
    kernel::change(file, zone.start, zone.len, needed)?;
    kernel::report_one(file, zone.start)
}

/// Every zone of a drive, also conventional ones.
pub(crate) fn all_zones(file: &File) -> io::Result<Vec<KernelZone>> {
    let mut zones: Vec<KernelZone> = Vec::new();
    loop {
        let at = zones.last().map_or(0, |zone| zone.start + zone.len);
        let more = kernel::report(file, at)?;
        let end = more.last().map_or(at, |zone| zone.start + zone.len);
        if end == at {
            return Ok(zones);
        }
        zones.extend(more);
    }
}

/// The contents of these zones of a drive.
pub(crate) fn contents(file: &File, zones: &[KernelZone]) -> io::Result<Contents> {
    let known = |zone: &KernelZone| DriveZone {
        start: zone.start,
        state: zone.state.unwrap_or(ZoneState::Unknown),
        written: zone.written,
    };
    let zones: Vec<_> = zones.iter().map(known).collect();
    let block_bytes = logical_block_bytes(file)?;
    drive_zones::contents(&zones, block_bytes, |start, buf| {
        file.read_exact_at(buf, start)
    })
}

/// The zones of a drive that Floe uses.
pub(crate) struct Drive {
    pub(crate) zones: Vec<KernelZone>,
}

impl Drive {
    /// The zones that are written in sequence: all but conventional ones at the start
    /// and a smaller one at the end. An inner error says why they are unfit.
    pub(crate) fn of(file: &File) -> io::Result<Result<Self, String>> {
        Ok(Self::from(all_zones(file)?))
    }

    fn from(mut zones: Vec<KernelZone>) -> Result<Self, String> {
        let first = zones.iter().position(|zone| zone.state.is_some());
        let first = first.ok_or("it has only conventional zones")?;
        zones.drain(..first);
        let len = zones[0].len;
        zones.pop_if(|last| last.len < len);
        let capacity = zones.first().map_or(0, |zone| zone.capacity);
        for zone in &zones {
            if zone.state.is_none() {
                return Err(format!(
                    "the zone at byte {} is conventional and lies between others",
                    zone.start
                ));
            }
            if (zone.len, zone.capacity) != (len, capacity) {
                return Err("its zones differ in size or capacity".to_owned());
            }
        }
        match zones.is_empty() {
            true => Err("it has no whole zone".to_owned()),
            false => Ok(Drive { zones }),
        }
    }

    /// The geometry of a drive with this cache, if it has one.
    pub(crate) fn shape(
        &self,
        file: &File,
        path: &Path,
        config: &DeviceConfig,
        cache: Option<CacheShape>,
    ) -> Result<Geometry, OpenDeviceError> {
        let queue = Queue::of(path).ok_or_else(|| OpenDeviceError::NotFound(path.to_owned()))?;
        let whole = match (config.fits_block_size, cache) {
            (false, _) => None,
            (true, Some(cache)) => Some(ByteSize(cache.block_size.into())),
            (true, None) => whole_block(file).map(|whole| whole.min(config.block_size)),
        };
        let block_size = whole.unwrap_or(config.block_size);
        let logical = logical_block_bytes(file).map_err(|error| io_error(path, error))?;
        if block_size.bytes() < u64::from(logical) {
            return Err(OpenDeviceError::BelowLogicalBlock {
                path: path.to_owned(),
                wanted: block_size,
                logical: ByteSize(logical.into()),
            });
        }
        let unfit = |why: String| OpenDeviceError::Unusable {
            path: path.to_owned(),
            why,
        };
        let geometry = self.geometry(config, block_size, &queue).map_err(unfit)?;
        geometry.validate().map_err(OpenDeviceError::Geometry)?;
        Ok(geometry)
    }

    pub(crate) fn contents(&self, file: &File) -> io::Result<Contents> {
        contents(file, &self.zones)
    }

    /// The shape of the device. Settings may lower the drive's limits.
    fn geometry(
        &self,
        config: &DeviceConfig,
        block_size: ByteSize,
        queue: &Queue,
    ) -> Result<Geometry, String> {
        let KernelZone { len, capacity, .. } = self.zones[0];
        drive_zones::check_settings(config, len, capacity)?;
        let available = self.zones.len() as u64;
        let zones = config.size.map_or(available, |size| size.bytes() / len);
        if zones == 0 || zones > available {
            return Err(format!(
                "it has {available} zones of {}, which is not the configured size",
                ByteSize(len)
            ));
        }
        let block = block_size.bytes();
        let appends = [
            config.max_append.bytes(),
            capacity,
            queue.request_bytes_max().unwrap_or(u64::MAX),
        ];
        let append_max = appends.into_iter().fold(1 << 30, u64::min);
        Ok(Geometry {
            block_size: block as u32,
            zone_size: len,
            zone_capacity: capacity - capacity % block,
            zone_count: u32::try_from(zones).map_err(|_| "it has too many zones".to_owned())?,
            max_open_zones: lower(config.max_open_zones, queue.limit("max_open_zones")),
            max_active_zones: lower(config.max_active_zones, queue.limit("max_active_zones")),
            max_append_bytes: (append_max / block).max(1) as u32 * block as u32,
            random_writes: false,
            native_append: false,
            placement_handles: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(number: u64, len: u64, state: Option<ZoneState>) -> KernelZone {
        KernelZone {
            start: number * 4096,
            len,
            capacity: len - 1024,
            written: 0,
            state,
        }
    }

    #[test]
    fn conventional_zones_and_a_small_one_stay_unused() {
        let empty = Some(ZoneState::Empty);
        let zones = vec![
            zone(0, 4096, None),
            zone(1, 4096, empty),
            zone(2, 4096, Some(ZoneState::Full)),
            zone(3, 2048, empty),
        ];
        let drive = Drive::from(zones).expect("fits");
        assert_eq!(drive.zones.len(), 2);
        assert_eq!(drive.zones[0].start, 4096);
    }

    #[test]
    fn mixed_drives_are_refused() {
        let empty = Some(ZoneState::Empty);
        for zones in [
            vec![],
            vec![zone(0, 4096, None)],
            vec![zone(0, 4096, empty), zone(1, 4096, None)],
            vec![zone(0, 4096, empty), zone(1, 8192, empty)],
        ] {
            assert!(Drive::from(zones).is_err());
        }
    }
}
