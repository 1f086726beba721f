//! A file, block device or namespace that no other process uses.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use floe_core::ByteSize;
use rustix::fs::FallocateFlags;

use crate::config::{DeviceConfig, OpenDeviceError};
use crate::contract::ZoneState;
use crate::drive_zones::OTHER_ZONE;
use crate::file::contents::{Contents, Medium, OTHER_DATA};
use crate::file::open::{fitted, whole_block};
use crate::file::opening::{Access, io_error, lock, lock_bytes, open_file};
use crate::file::space::{discard, punch, zero_out};
use crate::nvme::command::ZoneAction;
use crate::nvme::open as namespace;
use crate::nvme::{Drive, DriveError, Interface, is_namespace};
use crate::zoned::kernel::{self, Change, KernelZone};
use crate::zoned::{is_host_managed, open as zoned};

/// Bytes of one discard or one range of zeros, between reports of progress.
const STEP_BYTES: u64 = 1 << 30;

/// A file, block device or namespace that this process alone uses.
#[derive(Debug)]
pub struct Claimed {
    path: PathBuf,
    reach: Reach,
    /// The file or block device. Of a namespace by passthrough, its block device.
    file: File,
    bytes: u64,
}

/// A device's marks, by which another one at its path is told from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The device and inode of a file, or the number of a block device.
    file: (u64, u64),
    /// The serial number and the namespace's number, if it is reached by passthrough.
    serial: Option<(String, u32)>,
    bytes: u64,
}

/// How the content is reached.
#[derive(Debug)]
enum Reach {
    File,
    Block,
    ZonedBlock,
    Namespace(Box<Drive>),
}

/// How a device was emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emptied {
    /// Its space was freed.
    Freed,
    /// It was discarded, and samples of it read as zeros.
    Discarded,
    /// Zeros were written, because samples did not read as zeros once it was discarded.
    Zeroed,
    /// Its zones were reset.
    Reset,
}

floe_core::names! {
    Emptied {
        Freed => "freed",
        Discarded => "discarded",
        Zeroed => "zeroed",
        Reset => "reset",
    }
}

impl Claimed {
    /// Opens the device at `path` exclusively, and changes nothing. A path is one of
    /// `device.path`. Of a file, the locks of Floe and QEMU and loop devices tell whether it is
    /// in use; no other program is known.
    ///
    /// # Errors
    /// If there is none, or it is mounted or in use.
    pub fn open(path: &Path) -> Result<Self, OpenDeviceError> {
        Claimed::open_for(path, Access::Write)
    }

    /// As [`open`](Self::open), but others may use the device, and it cannot be changed.
    ///
    /// # Errors
    /// If there is none.
    pub fn open_to_look(path: &Path) -> Result<Self, OpenDeviceError> {
        Claimed::open_for(path, Access::Read)
    }

    fn open_for(path: &Path, access: Access) -> Result<Self, OpenDeviceError> {
        if is_namespace(path) {
            let (drive, file) = match access {
                Access::Read => namespace::open_to_look(path)?,
                _ => namespace::open_exclusively(path, access)?,
            };
            return Ok(Claimed {
                path: drive.path().to_owned(),
                bytes: drive.namespace().bytes(),
                reach: Reach::Namespace(Box::new(drive)),
                file,
            });
        }
        let file = open_file(path, access)?;
        let failed = |error| io_error(path, error);
        let is_block = file
            .metadata()
            .map_err(failed)?
            .file_type()
            .is_block_device();
        if access != Access::Read {
            lock(&file, path, access)?;
            if !is_block {
                lock_bytes(&file, path)?;
                if is_on_loop(Path::new("/sys/block"), &file) {
                    return Err(OpenDeviceError::InUse(path.to_owned()));
                }
            }
        }
        Ok(Claimed {
            path: path.to_owned(),
            reach: match is_block {
                true if is_host_managed(path) => Reach::ZonedBlock,
                true => Reach::Block,
                false => Reach::File,
            },
            bytes: Medium::of(&file).map_err(failed)?.len,
            file,
        })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The namespace, if it is reached by passthrough.
    pub fn drive(&self) -> Option<&Drive> {
        match &self.reach {
            Reach::Namespace(drive) => Some(drive),
            Reach::File | Reach::Block | Reach::ZonedBlock => None,
        }
    }

    /// The marks of this device.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn identity(&self) -> Result<Identity, OpenDeviceError> {
        let found = self.file.metadata().map_err(|error| self.failed(error))?;
        Ok(Identity {
            file: match self.reach {
                Reach::File => (found.dev(), found.ino()),
                _ => (found.rdev(), 0),
            },
            serial: self
                .drive()
                .map(|drive| (drive.controller().serial.clone(), drive.number())),
            bytes: self.bytes,
        })
    }

    /// Checks that a device with these settings can be opened here once it is empty.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check_fit(&self, config: &DeviceConfig) -> Result<(), OpenDeviceError> {
        match &self.reach {
            Reach::Namespace(drive) => {
                namespace::check_usable(drive)?;
                let zones = drive.zones().map_err(|error| error.at(&self.path))?;
                namespace::geometry(config, drive, &zones, None)?;
            }
            Reach::ZonedBlock => {
                self.zoned()?.shape(&self.file, &self.path, config, None)?;
            }
            Reach::File | Reach::Block => {
                let config = fitted(config, None, || whole_block(&self.file));
                config.geometry(ByteSize(self.bytes))?;
            }
        }
        Ok(())
    }

    /// A description of what the device holds, with an article; `None` if it is empty, as far
    /// as [`is_sampled`](Self::is_sampled) tells.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn contents(&self) -> Result<Option<String>, OpenDeviceError> {
        Ok(match self.look()? {
            Contents::Empty => None,
            Contents::Cache(None) => Some("a Floe cache".to_owned()),
            Contents::Cache(Some(shape)) => {
                Some(format!("a Floe cache made for {}", ByteSize(shape.size)))
            }
            Contents::Foreign { offset, what } => Some(format!("{what} (at byte {offset})")),
        })
    }

    /// True if contents are known from samples only, because no zones tell what is written.
    pub fn is_sampled(&self) -> bool {
        match &self.reach {
            Reach::Namespace(drive) => !matches!(drive.interface(), Interface::Zoned(_)),
            Reach::ZonedBlock => false,
            Reach::File | Reach::Block => true,
        }
    }

    /// True if the device holds nothing that has a name: no cache, file system or the like.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn holds_only_plain_data(&self) -> Result<bool, OpenDeviceError> {
        Ok(match self.look()? {
            Contents::Empty => true,
            Contents::Cache(_) => false,
            Contents::Foreign { what, .. } => [OTHER_DATA, OTHER_ZONE].contains(&what),
        })
    }

    fn look(&self) -> Result<Contents, OpenDeviceError> {
        let failed = |error| self.failed(error);
        match &self.reach {
            Reach::Namespace(drive) => {
                let zones = drive.zones().map_err(|error| error.at(&self.path))?;
                namespace::contents(drive, &zones, &self.file, None)
            }
            Reach::ZonedBlock => {
                let (conventional, zones) = self.all_zones()?;
                match self.look_at(conventional, true)? {
                    Contents::Empty => zoned::contents(&self.file, &zones).map_err(failed),
                    found => Ok(found),
                }
            }
            Reach::File => self.look_at(self.bytes, false),
            Reach::Block => self.look_at(self.bytes, true),
        }
    }

    /// The contents of the first `len` bytes.
    fn look_at(&self, len: u64, is_block_device: bool) -> Result<Contents, OpenDeviceError> {
        let medium = Medium {
            file: &self.file,
            len,
            is_block_device,
        };
        medium.contents(None).map_err(|error| self.failed(error))
    }

    /// Bytes of the conventional zones before the others, and the others of a zoned block
    /// device, also a smaller one at the end.
    fn all_zones(&self) -> Result<(u64, Vec<KernelZone>), OpenDeviceError> {
        // Rejects conventional zones between others.
        self.zoned()?;
        let mut zones = zoned::all_zones(&self.file).map_err(|error| self.failed(error))?;
        zones.retain(|zone| zone.state.is_some());
        Ok((zones.first().map_or(0, |zone| zone.start), zones))
    }

    fn states(&self) -> Result<Vec<ZoneState>, OpenDeviceError> {
        Ok(match &self.reach {
            Reach::Namespace(drive) => {
                let zones = drive.zones().map_err(|error| error.at(&self.path))?;
                zones.iter().map(|zone| zone.state).collect()
            }
            Reach::ZonedBlock => {
                let (_, zones) = self.all_zones()?;
                zones.iter().filter_map(|zone| zone.state).collect()
            }
            Reach::File | Reach::Block => Vec::new(),
        })
    }

    /// Zones that the drive has made read-only or offline, which stay as they are.
    ///
    /// # Errors
    /// If the zones cannot be read.
    pub fn withdrawn_zones(&self) -> Result<usize, OpenDeviceError> {
        let states = self.states()?;
        Ok(states.iter().filter(|state| state.is_unwritable()).count())
    }

    /// True if zones are open or closed, whose state opening the device as one of Floe changes.
    ///
    /// # Errors
    /// If the zones cannot be read.
    pub fn has_active_zones(&self) -> Result<bool, OpenDeviceError> {
        let is_active = |state: &ZoneState| matches!(state, ZoneState::Open | ZoneState::Closed);
        Ok(self.states()?.iter().any(is_active))
    }

    /// Empties the device for good: resets its zones, writes zeros to conventional ones that
    /// hold something, or discards all and writes zeros where samples do not read as zeros then.
    /// Zones that the drive has withdrawn stay. `progress` gets bytes done and in all.
    ///
    /// # Errors
    /// If that fails, with a part done.
    pub fn empty(&self, mut progress: impl FnMut(u64, u64)) -> Result<Emptied, OpenDeviceError> {
        match &self.reach {
            Reach::Namespace(drive) if matches!(drive.interface(), Interface::Zoned(_)) => {
                let reset = drive.change_zones(None, ZoneAction::Reset);
                reset.map_err(|error| DriveError::from(error).at(&self.path))?;
                Ok(Emptied::Reset)
            }
            Reach::ZonedBlock => {
                let (conventional, zones) = self.all_zones()?;
                if !matches!(self.look_at(conventional, true), Ok(Contents::Empty)) {
                    let zeroed = self.in_steps(conventional, zero_out, &mut progress);
                    zeroed.map_err(|error| self.failed(error))?;
                }
                for zone in zones.iter().filter(|zone| is_resettable(zone)) {
                    let reset = kernel::change(&self.file, zone.start, zone.len, Change::Reset);
                    reset.map_err(|error| self.failed(error))?;
                    progress(zone.start + zone.len, self.bytes);
                }
                Ok(Emptied::Reset)
            }
            Reach::File => self.free().map_err(|error| self.failed(error)),
            Reach::Namespace(_) | Reach::Block => {
                match self.in_steps(self.bytes, discard, &mut progress) {
                    Ok(()) if matches!(self.look(), Ok(Contents::Empty)) => {
                        return Ok(Emptied::Discarded);
                    }
                    Err(error) if !is_unsupported(&error) => return Err(self.failed(error)),
                    Ok(()) | Err(_) => {}
                }
                let zeroed = self.in_steps(self.bytes, zero_out, &mut progress);
                zeroed.map_err(|error| self.failed(error))?;
                Ok(Emptied::Zeroed)
            }
        }
    }

    /// Gives the namespace another block format, which erases it, and opens it again.
    ///
    /// # Errors
    /// If the device is no namespace by passthrough, has no such format or one that Floe
    /// cannot use, its drive may erase other namespaces too, or the command fails.
    pub fn format_blocks(self, format: u8) -> Result<Self, OpenDeviceError> {
        let unusable = |why: &str| OpenDeviceError::Unusable {
            path: self.path.clone(),
            why: why.to_owned(),
        };
        let drive = self.drive();
        let drive = drive.ok_or_else(|| unusable("only a namespace by passthrough has formats"))?;
        let unfit = drive.unfit_format(format);
        if let Some(why) = unfit.map_err(|error| error.at(&self.path))? {
            return Err(unusable(why));
        }
        let (path, before) = (self.path.clone(), self.identity()?);
        let formatted = drive.format(format);
        formatted.map_err(|error| DriveError::from(error).at(&path))?;
        let other = unusable("it was formatted, and another namespace has its path now");
        drop(self);
        let again = Claimed::open(&path)?;
        match again.identity()?.serial == before.serial {
            true => Ok(again),
            false => Err(other),
        }
    }

    fn zoned(&self) -> Result<zoned::Drive, OpenDeviceError> {
        let found = zoned::Drive::of(&self.file).map_err(|error| self.failed(error))?;
        found.map_err(|why| OpenDeviceError::Unusable {
            path: self.path.clone(),
            why,
        })
    }

    /// Frees the space of a regular file, whose length stays.
    fn free(&self) -> io::Result<Emptied> {
        if self.bytes == 0 {
            return Ok(Emptied::Freed);
        }
        match punch(&self.file, FallocateFlags::PUNCH_HOLE, 0, self.bytes) {
            Err(error) if is_unsupported(&error) => {
                self.file.set_len(0)?;
                self.file.set_len(self.bytes)?;
            }
            punched => punched?,
        }
        Ok(Emptied::Freed)
    }

    fn in_steps(
        &self,
        end: u64,
        act: impl Fn(&File, u64, u64) -> io::Result<()>,
        progress: &mut impl FnMut(u64, u64),
    ) -> io::Result<()> {
        let mut start = 0;
        while start < end {
            let len = STEP_BYTES.min(end - start);
            act(&self.file, start, len)?;
            start += len;
            progress(start, self.bytes);
        }
        Ok(())
    }

    fn failed(&self, error: io::Error) -> OpenDeviceError {
        io_error(&self.path, error)
    }
}

/// True if a loop device, of those in the kernel's folder `block`, has this file below it.
fn is_on_loop(block: &Path, file: &File) -> bool {
    let Ok(found) = file.metadata() else {
        return false;
    };
    let devices = fs::read_dir(block).into_iter().flatten().flatten();
    let backing = devices
        .filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    backing
        .filter_map(|path| fs::metadata(path.trim_end()).ok())
        .any(|backing| (backing.dev(), backing.ino()) == (found.dev(), found.ino()))
}

fn is_resettable(zone: &KernelZone) -> bool {
    let stays = [ZoneState::Empty, ZoneState::ReadOnly, ZoneState::Offline];
    zone.state.is_some_and(|state| !stays.contains(&state))
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn a_file_is_named_and_emptied_and_keeps_its_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive");
        let file = File::create(&path).unwrap();
        file.set_len(8 << 20).unwrap();
        file.write_all_at(b"XFSB", 0).unwrap();
        let claimed = Claimed::open(&path).unwrap();
        assert_eq!(
            claimed.contents().unwrap().as_deref(),
            Some("an XFS file system (at byte 0)")
        );
        assert!(matches!(
            Claimed::open(&path),
            Err(OpenDeviceError::InUse(_))
        ));
        let looked = Claimed::open_to_look(&path).unwrap();
        assert_eq!(looked.identity().unwrap(), claimed.identity().unwrap());
        assert!(!claimed.holds_only_plain_data().unwrap());
        assert_eq!(claimed.empty(|_, _| {}).unwrap(), Emptied::Freed);
        assert_eq!(claimed.contents().unwrap(), None);
        assert_eq!(file.metadata().unwrap().len(), 8 << 20);
        assert!(claimed.format_blocks(0).is_err());
    }

    #[test]
    fn a_file_below_a_loop_device_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let [mine, other] = ["mine", "other"].map(|name| {
            let path = folder.path().join(name);
            (File::create(&path).unwrap(), path)
        });
        let device = folder.path().join("block/loop0/loop");
        fs::create_dir_all(&device).unwrap();
        let block = folder.path().join("block");
        assert!(!is_on_loop(&block, &mine.0));
        let backing = format!("{}\n", mine.1.display());
        fs::write(device.join("backing_file"), backing).unwrap();
        assert!(is_on_loop(&block, &mine.0));
        assert!(!is_on_loop(&block, &other.0));
    }

    #[test]
    fn a_file_that_another_program_has_locked_is_in_use() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let other = file.reopen().unwrap();
        lock_bytes(&other, file.path()).unwrap();
        let claimed = Claimed::open(file.path());
        assert!(matches!(claimed, Err(OpenDeviceError::InUse(_))));
    }

    #[test]
    fn another_file_at_the_same_path_is_another_device() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let first = Claimed::open(&path).unwrap();
        fs::rename(&path, folder.path().join("aside")).unwrap();
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let second = Claimed::open(&path).unwrap();
        assert_ne!(first.identity().unwrap(), second.identity().unwrap());
    }

    #[test]
    fn nothing_is_known_of_a_device_that_returns_no_data() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let medium = |len| Medium {
            file: &file,
            len,
            is_block_device: true,
        };
        assert!(matches!(
            medium(1 << 20).contents(None),
            Ok(Contents::Empty)
        ));
        assert!(medium(2 << 20).contents(None).is_err());
    }
}
