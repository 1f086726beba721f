//! An open namespace: its kind, its limits, and the commands that callers wait for.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use super::command::{Command, CommandSet, Feature, Identify, LogPage, ZoneAction};
use super::fields::DecodeError;
use super::find::{Found, resolve};
use super::identify::{
    Controller, IDENTIFY_BYTES, Namespace, ZonedNamespace, command_set, max_append_log2_pages,
};
use super::ioctl::{self, CommandError};
use super::log_page::{
    ENDURANCE_GROUP_BYTES, EnduranceGroup, HEALTH_BYTES, HandleUsage, Health,
    PlacementConfiguration, PlacementEvent, PlacementHandle, PlacementStatistics, STATISTICS_BYTES,
    SizedBy,
};
use super::status::Fault;
use super::zone_report::{self, ZoneDescriptor, report_bytes};
use crate::config::OpenDeviceError;
use crate::file::opening::io_error;

/// Bytes of a controller's memory page. Drives may have larger ones, but the kernel does
/// not tell; then transfers are smaller than they could be.
const MEMORY_PAGE_BYTES: u64 = 4096;
/// Most bytes of a transfer where the kernel tells no limit of its own.
const UNTOLD_TRANSFER_BYTES: u64 = 128 << 10;
/// Most zones of one report.
const REPORTED_MAX: usize = 1 << 14;
/// Most blocks of one command.
const BLOCKS_MAX: u64 = 1 << 16;
/// Most bytes of a block that Floe can use.
const BLOCK_BYTES_MAX: u32 = 1 << 16;

/// An open NVMe namespace.
#[derive(Debug)]
pub struct Drive {
    pub(super) file: File,
    found: Found,
    /// The namespace's number on its drive.
    pub(super) number: u32,
    controller: Controller,
    namespace: Namespace,
    interface: Interface,
    max_transfer_bytes: u32,
}

/// The kind of a namespace, with what only that kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    /// Blocks in any order.
    Conventional,
    /// Blocks in any order, with flexible data placement.
    Placement(Placement),
    /// Zones.
    Zoned(Zones),
}

/// The data placement of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The namespace's reclaim unit handles.
    pub handles: Vec<PlacementHandle>,
    /// The endurance group.
    pub group: u16,
    /// Its configuration; `None` if the process may not read it.
    pub configuration: Option<PlacementConfiguration>,
}

/// The zones of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zones {
    /// Blocks between the starts of two zones.
    pub zone_blocks: u64,
    /// Number of zones.
    pub count: u64,
    /// Most zones that may be open; `None` without a limit.
    pub max_open: Option<u32>,
    /// Most zones that may be active; `None` without a limit.
    pub max_active: Option<u32>,
    /// Most bytes of one append.
    pub max_append_bytes: u32,
}

impl Interface {
    /// The kind in messages, with an article.
    pub fn name(&self) -> &'static str {
        match self {
            Interface::Conventional => "a conventional namespace",
            Interface::Placement(_) => "a namespace with data placement",
            Interface::Zoned(_) => "a zoned namespace",
        }
    }
}

/// A command failed, or the drive's answer makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The answer cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl Drive {
    /// Opens the namespace at `path` for reading. A path is its character device, its
    /// block device, or `nvme:SERIAL` with `:NAMESPACE` where a drive has several.
    ///
    /// # Errors
    /// If there is no such namespace, or it cannot be identified.
    pub fn open(path: &Path) -> Result<Self, OpenDeviceError> {
        Drive::open_with(path, false)
    }

    /// As [`open`](Self::open), also for commands that change its zones. Nothing keeps
    /// others from using the namespace.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_to_change(path: &Path) -> Result<Self, OpenDeviceError> {
        Drive::open_with(path, true)
    }

    fn open_with(path: &Path, writes: bool) -> Result<Self, OpenDeviceError> {
        let found = resolve(path)?;
        let file = OpenOptions::new()
            .read(true)
            .write(writes)
            .open(&found.path);
        let file = file.map_err(|error| io_error(&found.path, error))?;
        let path = found.path.clone();
        Drive::identify(file, found).map_err(|error| error.at(&path))
    }

    fn identify(file: File, found: Found) -> Result<Self, DriveError> {
        let number = ioctl::namespace_number(&file).map_err(CommandError::from)?;
        let identify = |structure| identify(&file, number, structure);
        let controller = Controller::decode(&identify(Identify::Controller)?)?;
        // Drives may have come and gone since they were listed.
        if controller.serial != found.serial || ![0, number].contains(&found.namespace) {
            return Err(DecodeError("another namespace than the one of this name").into());
        }
        let namespace = Namespace::decode(&identify(Identify::Namespace)?)?;
        let zoned_structure = Identify::NamespaceOf(CommandSet::Zoned);
        let set = match identify(Identify::Descriptors) {
            Ok(bytes) => command_set(&bytes),
            // Without CAP_SYS_ADMIN the kernel allows only the structures of command
            // sets, and a drive returns that of zones only if the namespace has them.
            Err(CommandError::Kernel(_)) => match identify(zoned_structure) {
                Ok(_) => CommandSet::Zoned,
                Err(_) => CommandSet::Nvm,
            },
            // Drives before version 1.3 have no descriptors.
            Err(CommandError::Drive(_)) => CommandSet::Nvm,
        };
        let zoned = match set {
            CommandSet::Nvm => None,
            CommandSet::Zoned => {
                let limits = identify(Identify::ControllerOf(CommandSet::Zoned))?;
                let zoned = ZonedNamespace::decode(&identify(zoned_structure)?)?;
                Some((zoned, max_append_log2_pages(&limits)?))
            }
            CommandSet::Other(_) => {
                return Err(DecodeError("a namespace of an unknown command set").into());
            }
        };
        let kernel = found.block_path.as_deref().and_then(kernel_transfer_bytes);
        let max_transfer_bytes = max_transfer_bytes(&controller, &namespace, kernel);
        let mut drive = Drive {
            file,
            found,
            number,
            controller,
            interface: interface(&namespace, zoned.as_ref(), max_transfer_bytes)?,
            namespace,
            max_transfer_bytes,
        };
        if zoned.is_none()
            && let Some(placement) = drive.placement()?
        {
            drive.interface = Interface::Placement(placement);
        }
        Ok(drive)
    }

    /// The data placement, if it is turned on.
    fn placement(&self) -> Result<Option<Placement>, DriveError> {
        if !self.controller.has_data_placement {
            return Ok(None);
        }
        let handles = match self.handles() {
            Ok(handles) => handles,
            Err(error) if error.is_unsupported() => return Ok(None),
            Err(error) => return Err(error),
        };
        let group = self.namespace.endurance_group;
        Ok((!handles.is_empty()).then(|| Placement {
            handles,
            group,
            configuration: self.configuration(group),
        }))
    }

    fn handles(&self) -> Result<Vec<PlacementHandle>, DriveError> {
        let bytes = sized(SizedBy::Handles, |len| {
            let mut bytes = vec![0; len];
            let command = Command::reclaim_unit_handles(self.number, len as u32);
            ioctl::io(&self.file, &command, &mut bytes)?;
            Ok(bytes)
        })?;
        Ok(PlacementHandle::decode_all(&bytes)?)
    }

    /// The configuration in use of the endurance group `group`.
    fn configuration(&self, group: u16) -> Option<PlacementConfiguration> {
        let feature = Command::get_feature(Feature::DataPlacement(group));
        let value = ioctl::admin(&self.file, &feature, &mut []).ok()?;
        let index = usize::from((value >> 8) as u8);
        let page = LogPage::PlacementConfigurations(group);
        let bytes = self.sized_page(SizedBy::Configurations, page).ok()?;
        let all = PlacementConfiguration::decode_all(&bytes).ok()?;
        all.into_iter().nth(index)
    }

    fn sized_page(&self, kind: SizedBy, page: LogPage) -> Result<Vec<u8>, DriveError> {
        sized(kind, |len| self.log_page(page, len))
    }

    fn log_page(&self, page: LogPage, len: usize) -> Result<Vec<u8>, CommandError> {
        log_page(&self.file, page, len)
    }

    /// Its character device.
    pub fn path(&self) -> &Path {
        &self.found.path
    }

    /// Its block device, if the kernel offers one.
    pub fn block_path(&self) -> Option<&Path> {
        self.found.block_path.as_deref()
    }

    /// The namespace's number on its drive.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The controller.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The kind of the namespace.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Most bytes of one command: the drive's limit, or the kernel's if it is lower.
    pub fn max_transfer_bytes(&self) -> u32 {
        self.max_transfer_bytes
    }

    /// Bytes, a power of two, that an aligned write of them leaves whole even if power
    /// fails.
    pub fn atomic_bytes(&self) -> u64 {
        let namespace = &self.namespace;
        let blocks = namespace.atomic_blocks;
        let blocks = blocks.unwrap_or(self.controller.atomic_blocks);
        let boundary = namespace.atomic_boundary_blocks.unwrap_or(0);
        // No boundary lies inside an aligned range whose length divides all of them.
        let divides = boundary | u32::from(namespace.atomic_boundary_start);
        let log2 = blocks.ilog2().min(divides.trailing_zeros());
        u64::from(namespace.block_bytes) << log2
    }

    /// The reason why Floe cannot use the namespace, if there is one.
    pub fn unusable(&self) -> Option<&'static str> {
        let namespace = &self.namespace;
        if namespace.metadata_bytes > 0 || namespace.is_protected {
            return Some(
                "its blocks have metadata; format it with a block format without metadata \
                 (`nvme format`), which erases it",
            );
        }
        if namespace.block_bytes > BLOCK_BYTES_MAX {
            return Some("its blocks have more than 64 KiB");
        }
        match &self.interface {
            Interface::Zoned(zones) if zones.count == 0 => Some("it has no zone"),
            Interface::Zoned(zones) if zones.count > u64::from(u32::MAX) => {
                Some("it has 2^32 zones or more")
            }
            _ => None,
        }
    }

    /// Every zone, in order. Empty if the namespace has none.
    ///
    /// # Errors
    /// If the command fails, or the drive reports zones that are not in order.
    pub fn zones(&self) -> Result<Vec<ZoneDescriptor>, DriveError> {
        let Interface::Zoned(zones) = &self.interface else {
            return Ok(Vec::new());
        };
        let mut all: Vec<ZoneDescriptor> = Vec::new();
        while (all.len() as u64) < zones.count {
            let left = (zones.count - all.len() as u64) as usize;
            let len = report_bytes(left.min(REPORTED_MAX)).min(self.max_transfer_bytes as usize);
            let start = all.len() as u64 * zones.zone_blocks;
            let mut part = report(&self.file, self.number, start, len)?;
            part.truncate(left);
            let is_next = |(index, zone): (u64, &ZoneDescriptor)| {
                zone.start == start + index * zones.zone_blocks
                    && zone.capacity <= zones.zone_blocks
            };
            if part.is_empty() || !(0..).zip(&part).all(is_next) {
                return Err(DecodeError("a report with zones out of order").into());
            }
            all.extend(part);
        }
        Ok(all)
    }

    /// Changes the state of the zone that starts at block `zone`, or of all zones.
    ///
    /// # Errors
    /// If the command fails.
    pub fn change_zones(&self, zone: Option<u64>, action: ZoneAction) -> Result<(), CommandError> {
        let command = Command::manage_zone(self.number, zone, action);
        ioctl::io(&self.file, &command, &mut []).map(drop)
    }

    /// The reason why Floe cannot use the namespace with another of its block formats, or the
    /// drive would erase more than this namespace; `None` if neither is so.
    ///
    /// # Errors
    /// If the zones of that format cannot be read.
    pub fn unfit_format(&self, format: u8) -> Result<Option<&'static str>, DriveError> {
        let formats = &self.namespace.formats;
        let why = match formats.get(usize::from(format)) {
            None => "it has no such format; `floe device info` lists them",
            Some(found) if found.block_bytes < 512 => {
                "it has no such format; `floe device info` lists them"
            }
            Some(found) if found.metadata_bytes > 0 => "blocks of this format have metadata",
            Some(found) if found.block_bytes > BLOCK_BYTES_MAX => {
                "blocks of this format have more than 64 KiB"
            }
            Some(_) if self.controller.may_format_others() => {
                "its drive formats all namespaces at once and may have others"
            }
            Some(_) => {
                if matches!(self.interface, Interface::Zoned(_)) {
                    let structure = Identify::NamespaceOf(CommandSet::Zoned);
                    let bytes = identify(&self.file, self.number, structure)?;
                    ZonedNamespace::decode(&bytes)?.zone_blocks(format.into())?;
                }
                return Ok(None);
            }
        };
        Ok(Some(why))
    }

    /// Gives the namespace another of its block formats, which erases it. This object does not
    /// know the new format: open the namespace again. Needs CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// If the command fails.
    pub fn format(&self, format: u8) -> Result<(), CommandError> {
        let command = Command::format(self.number, format);
        ioctl::admin(&self.file, &command, &mut []).map(drop)
    }

    /// Reads blocks from `block` into `buf`, which holds whole blocks.
    ///
    /// # Errors
    /// If the command fails.
    pub fn read(&self, block: u64, buf: &mut [u8]) -> Result<(), CommandError> {
        let command = Command::read(self.number, block, self.blocks_of(buf));
        ioctl::io(&self.file, &command, buf).map(drop)
    }

    /// Writes blocks from `block` with a placement identifier. `buf` holds whole blocks and
    /// stays as it is.
    ///
    /// # Errors
    /// If the command fails.
    pub fn write(
        &self,
        block: u64,
        buf: &mut [u8],
        placement: Option<u16>,
    ) -> Result<(), CommandError> {
        let command = Command::write(self.number, block, self.blocks_of(buf), placement);
        ioctl::io(&self.file, &command, buf).map(drop)
    }

    fn blocks_of(&self, buf: &[u8]) -> u32 {
        let block_bytes = self.namespace.block_bytes;
        assert!(!buf.is_empty() && (buf.len() as u64).is_multiple_of(u64::from(block_bytes)));
        buf.len() as u32 / block_bytes
    }

    /// The drive's health. Needs CAP_SYS_ADMIN, as all log pages do.
    ///
    /// # Errors
    /// If the command fails.
    pub fn health(&self) -> Result<Health, DriveError> {
        let bytes = self.log_page(LogPage::Health, HEALTH_BYTES)?;
        Ok(Health::decode(&bytes)?)
    }

    /// The health of the namespace's endurance group; `None` if it is in none.
    ///
    /// # Errors
    /// If the command fails.
    pub fn endurance_group(&self) -> Result<Option<EnduranceGroup>, DriveError> {
        let group = self.namespace.endurance_group;
        if group == 0 || !self.controller.has_endurance_groups {
            return Ok(None);
        }
        let bytes = self.log_page(LogPage::EnduranceGroup(group), ENDURANCE_GROUP_BYTES)?;
        Ok(Some(EnduranceGroup::decode(&bytes)?))
    }

    /// Bytes that hosts and the drive wrote since data placement was turned on.
    ///
    /// # Errors
    /// If the command fails.
    pub fn placement_statistics(&self, group: u16) -> Result<PlacementStatistics, DriveError> {
        placement_statistics(&self.file, group)
    }

    /// The use of each reclaim unit handle of the endurance group `group`.
    ///
    /// # Errors
    /// If the command fails.
    pub fn handle_usage(&self, group: u16) -> Result<Vec<HandleUsage>, DriveError> {
        let bytes = self.sized_page(SizedBy::Usage, LogPage::PlacementUsage(group))?;
        Ok(HandleUsage::decode_all(&bytes)?)
    }

    /// The events that concern the host, at most 1023.
    ///
    /// # Errors
    /// If the command fails.
    pub fn placement_events(&self, group: u16) -> Result<Vec<PlacementEvent>, DriveError> {
        let bytes = self.sized_page(SizedBy::Events, LogPage::PlacementEvents(group))?;
        Ok(PlacementEvent::decode_all(&bytes)?)
    }

    /// True if the drive has a volatile write cache, and it is on now or the drive does not tell.
    /// A reset of the controller may turn one on that was off.
    pub fn write_cache_is_on(&self) -> bool {
        let feature = Command::get_feature(Feature::VolatileWriteCache);
        self.controller.has_write_cache
            && ioctl::admin(&self.file, &feature, &mut []).map_or(true, |value| value & 1 != 0)
    }

    /// A drive that identified itself so, without one.
    #[cfg(test)]
    pub(super) fn imagined(
        controller: Controller,
        namespace: Namespace,
        zoned: Option<&(ZonedNamespace, Option<u8>)>,
    ) -> Result<Self, DecodeError> {
        let max_transfer_bytes = max_transfer_bytes(&controller, &namespace, None);
        let path = PathBuf::from("/dev/null");
        Ok(Drive {
            file: File::open(&path).expect("every machine has it"),
            found: Found {
                path,
                block_path: None,
                serial: controller.serial.clone(),
                model: controller.model.clone(),
                namespace: 1,
            },
            number: 1,
            controller,
            interface: interface(&namespace, zoned, max_transfer_bytes)?,
            namespace,
            max_transfer_bytes,
        })
    }

    /// Its file and the path of that, for a device.
    pub(super) fn into_file(self) -> (File, PathBuf) {
        (self.file, self.found.path)
    }
}

impl DriveError {
    /// True if the drive does not have what was asked for.
    pub fn is_unsupported(&self) -> bool {
        match self {
            DriveError::Command(CommandError::Drive(status)) => {
                status.fault() == Fault::InvalidCommand
            }
            _ => false,
        }
    }

    pub(crate) fn at(self, path: &Path) -> OpenDeviceError {
        match self {
            DriveError::Command(CommandError::Kernel(error)) => io_error(path, error),
            other => OpenDeviceError::Unusable {
                path: path.to_owned(),
                why: other.to_string(),
            },
        }
    }
}

/// A structure of the namespace `number`, or of its controller.
fn identify(file: &File, number: u32, structure: Identify) -> Result<Vec<u8>, CommandError> {
    let number = match structure {
        Identify::Controller | Identify::ControllerOf(_) => 0,
        _ => number,
    };
    let mut bytes = vec![0; IDENTIFY_BYTES];
    ioctl::admin(file, &Command::identify(structure, number), &mut bytes)?;
    Ok(bytes)
}

/// A structure whose header tells its length, by a command that returns so many bytes.
fn sized(
    kind: SizedBy,
    read: impl Fn(usize) -> Result<Vec<u8>, CommandError>,
) -> Result<Vec<u8>, DriveError> {
    let header = read(kind.header_bytes())?;
    Ok(read(kind.bytes(&header)?)?)
}

fn log_page(file: &File, page: LogPage, len: usize) -> Result<Vec<u8>, CommandError> {
    let mut bytes = vec![0; len];
    ioctl::admin(file, &Command::log_page(page, len as u32), &mut bytes)?;
    Ok(bytes)
}

/// The zones from the one at `block`, as far as `len` bytes hold them.
fn report(
    file: &File,
    namespace: u32,
    block: u64,
    len: usize,
) -> Result<Vec<ZoneDescriptor>, DriveError> {
    let mut bytes = vec![0; len];
    let command = Command::report_zones(namespace, block, len as u32);
    ioctl::io(file, &command, &mut bytes)?;
    Ok(zone_report::decode(&bytes)?)
}

/// Bytes that hosts and the drive `file` wrote since data placement was turned on.
pub(super) fn placement_statistics(
    file: &File,
    group: u16,
) -> Result<PlacementStatistics, DriveError> {
    let bytes = log_page(file, LogPage::PlacementStatistics(group), STATISTICS_BYTES)?;
    Ok(PlacementStatistics::decode(&bytes)?)
}

fn pages_bytes(log2: u8) -> u64 {
    let pages = 1_u64.checked_shl(log2.into());
    let bytes = pages.and_then(|pages| pages.checked_mul(MEMORY_PAGE_BYTES));
    bytes.unwrap_or(u64::MAX)
}

/// The interface of a namespace, if it has no data placement.
fn interface(
    namespace: &Namespace,
    zoned: Option<&(ZonedNamespace, Option<u8>)>,
    max_transfer_bytes: u32,
) -> Result<Interface, DecodeError> {
    let Some((zoned, append)) = zoned else {
        return Ok(Interface::Conventional);
    };
    let zone_blocks = zoned.zone_blocks(namespace.format)?;
    let append_bytes = append.map_or(u64::MAX, pages_bytes);
    Ok(Interface::Zoned(Zones {
        zone_blocks,
        count: namespace.blocks / zone_blocks,
        max_open: zoned.max_open_zones,
        max_active: zoned.max_active_zones,
        max_append_bytes: append_bytes.min(max_transfer_bytes.into()) as u32,
    }))
}

/// The lowest of the limits of the drive, of the kernel for its queue, and of a command.
fn max_transfer_bytes(controller: &Controller, namespace: &Namespace, kernel: Option<u64>) -> u32 {
    let drive = controller
        .max_transfer_log2_pages
        .map_or(u64::MAX, pages_bytes);
    let block = u64::from(namespace.block_bytes);
    let most = drive
        .min(kernel.unwrap_or(UNTOLD_TRANSFER_BYTES))
        .min(BLOCKS_MAX * block)
        .min(1 << 30);
    (most / block * block).max(block) as u32
}

/// Most bytes of a request in the kernel's queue of a block device. Pages of a buffer may
/// lie anywhere, so that each may be a segment of its own.
fn kernel_transfer_bytes(block_path: &Path) -> Option<u64> {
    let queue = Path::new("/sys/class/block")
        .join(block_path.file_name()?)
        .join("queue");
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(queue.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let sectors = number("max_hw_sectors_kb")?.saturating_mul(1 << 10);
    // A buffer may begin within a page, and needs one more then.
    let pages = number("max_segments")?.saturating_sub(1).max(1);
    Some(sectors.min(pages.saturating_mul(MEMORY_PAGE_BYTES)))
}
