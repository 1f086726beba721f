//! A file, block device or namespace that no other process uses.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use floe_core::ByteSize;
use rustix::fs::FallocateFlags;

use crate::config::OpenDeviceError;
use crate::contract::ZoneState;
use crate::file::contents::{Contents, Medium};
use crate::file::opening::{Access, io_error, lock, open_file};
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
    /// It was discarded, and reads as zeros.
    Discarded,
    /// Zeros were written, because it does not read as zeros once it is discarded.
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
    /// `device.path`.
    ///
    /// # Errors
    /// If there is none, or it is mounted or otherwise in use.
    pub fn open(path: &Path) -> Result<Self, OpenDeviceError> {
        if is_namespace(path) {
            let (drive, file) = namespace::open_exclusively(path, Access::Write)?;
            return Ok(Claimed {
                path: drive.path().to_owned(),
                bytes: drive.namespace().bytes(),
                reach: Reach::Namespace(Box::new(drive)),
                file,
            });
        }
        let file = open_file(path, Access::Write)?;
        lock(&file, path, Access::Write)?;
        let failed = |error| io_error(path, error);
        let kind = file.metadata().map_err(failed)?.file_type();
        Ok(Claimed {
            path: path.to_owned(),
            reach: match kind.is_block_device() {
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

    /// A description of what the device holds, with an article; `None` if it is empty.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn contents(&self) -> Result<Option<String>, OpenDeviceError> {
        let contents = match &self.reach {
            Reach::Namespace(drive) => {
                let zones = drive.zones().map_err(|error| error.at(&self.path))?;
                namespace::contents(drive, &zones, &self.file, None)?
            }
            Reach::ZonedBlock => {
                let drive = self.zoned()?;
                drive.contents(&self.file).map_err(|e| self.failed(e))?
            }
            Reach::File | Reach::Block => {
                let medium = Medium::of(&self.file).map_err(|e| self.failed(e))?;
                medium.contents(None).map_err(|e| self.failed(e))?
            }
        };
        Ok(match contents {
            Contents::Empty => None,
            Contents::Cache(None) => Some("a Floe cache".to_owned()),
            Contents::Cache(Some(shape)) => {
                Some(format!("a Floe cache made for {}", ByteSize(shape.size)))
            }
            Contents::Foreign { offset, what } => Some(format!("{what} (at byte {offset})")),
        })
    }

    /// Empties the device for good: resets its zones, or discards all of it and writes zeros
    /// where that does not read as zeros. Zones that the drive has withdrawn stay, as do
    /// conventional zones of a drive that has others. `progress` gets bytes done and in all.
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
                let zones = self.zoned()?.zones;
                for zone in zones.iter().filter(|zone| is_resettable(zone)) {
                    let reset = kernel::change(&self.file, zone.start, zone.len, Change::Reset);
                    reset.map_err(|error| self.failed(error))?;
                    progress(zone.start + zone.len, self.bytes);
                }
                Ok(Emptied::Reset)
            }
            Reach::File => self.free().map_err(|error| self.failed(error)),
            Reach::Namespace(_) | Reach::Block => {
                let discarded = self.in_steps(discard, &mut progress);
                match discarded {
                    Ok(()) if self.contents()?.is_none() => return Ok(Emptied::Discarded),
                    Err(error) if !is_unsupported(&error) => return Err(self.failed(error)),
                    Ok(()) | Err(_) => {}
                }
                let zeroed = self.in_steps(zero_out, &mut progress);
                zeroed.map_err(|error| self.failed(error))?;
                Ok(Emptied::Zeroed)
            }
        }
    }

    /// Gives the namespace another block format, which erases it, and opens it again.
    ///
    /// # Errors
    /// If the device is no namespace by passthrough, has no such format or one that Floe
    /// cannot use, or the command fails.
    pub fn format_blocks(self, format: u8) -> Result<Self, OpenDeviceError> {
        let unusable = |why: &str| OpenDeviceError::Unusable {
            path: self.path.clone(),
            why: why.to_owned(),
        };
        let drive = self.drive();
        let drive = drive.ok_or_else(|| unusable("only a namespace by passthrough has formats"))?;
        let found = drive.namespace().formats.get(usize::from(format));
        match found.map(|found| (found.block_bytes >= 512, found.metadata_bytes)) {
            Some((true, 0)) => {}
            Some((true, _)) => return Err(unusable("blocks of this format have metadata")),
            _ => {
                return Err(unusable(
                    "it has no such format; `floe device info` lists them",
                ));
            }
        }
        let formatted = drive.format(format);
        formatted.map_err(|error| DriveError::from(error).at(&self.path))?;
        let path = self.path.clone();
        drop(self);
        Claimed::open(&path)
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
        act: impl Fn(&File, u64, u64) -> io::Result<()>,
        progress: &mut impl FnMut(u64, u64),
    ) -> io::Result<()> {
        let mut start = 0;
        while start < self.bytes {
            let len = STEP_BYTES.min(self.bytes - start);
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
        assert_eq!(claimed.empty(|_, _| {}).unwrap(), Emptied::Freed);
        assert_eq!(claimed.contents().unwrap(), None);
        assert_eq!(file.metadata().unwrap().len(), 8 << 20);
        assert!(claimed.format_blocks(0).is_err());
    }
}
