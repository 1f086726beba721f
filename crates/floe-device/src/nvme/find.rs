//! The NVMe namespaces of this machine, by path or by serial number.
//!
//! The numbers in `/dev/ng0n1` follow the order in which controllers were found, which
//! varies. A serial number does not.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::config::OpenDeviceError;

/// The prefix of a device path that names a drive by its serial number:
/// `nvme:SERIAL` or `nvme:SERIAL:NAMESPACE`.
const BY_SERIAL: &str = "nvme:";

/// A namespace of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its character device.
    pub path: PathBuf,
    /// Its block device, if the kernel offers one.
    pub block_path: Option<PathBuf>,
    /// The drive's serial number.
    pub serial: String,
    /// The drive's model.
    pub model: String,
    /// The namespace's number on its drive, or zero if only the drive tells it.
    pub namespace: u32,
}

/// Lists the namespaces of this machine, by path. Empty if there are none.
///
/// # Errors
/// From the operating system.
pub fn list() -> io::Result<Vec<Found>> {
    list_in(Path::new("/sys/class"))
}

/// As [`list`], from the kernel's classes in `classes`.
pub(super) fn list_in(classes: &Path) -> io::Result<Vec<Found>> {
    let entries = match fs::read_dir(classes.join("nvme-generic")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = |file: &str| {
            let text = fs::read_to_string(entry.path().join("device").join(file));
            text.map(|text| text.trim().to_owned()).unwrap_or_default()
        };
        let block = block_device_of(classes, &entry.path(), &name)?;
        let number = block
            .as_ref()
            .and_then(|block| fs::read_to_string(block.join("nsid")).ok())
            .and_then(|text| text.trim().parse().ok());
        all.push(Found {
            path: Path::new("/dev").join(&name),
            block_path: block.and_then(|block| Some(Path::new("/dev").join(block.file_name()?))),
            serial: text("serial"),
            model: text("model"),
            namespace: number.unwrap_or(0),
        });
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(all)
}

/// The block device of the character device `name`: it has the same controller or
/// subsystem, and the same number there. The numbers of the two may differ before that.
fn block_device_of(classes: &Path, character: &Path, name: &str) -> io::Result<Option<PathBuf>> {
    let parent = |entry: &Path| fs::canonicalize(entry.join("device")).ok();
    let number = |name: &str| Some(name.rsplit_once('n')?.1.to_owned());
    let (of_character, wanted) = (parent(character), number(name));
    let entries = match fs::read_dir(classes.join("block")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let block = entry.file_name().to_string_lossy().into_owned();
        let is_hidden = || {
            let hidden = fs::read_to_string(entry.path().join("hidden"));
            hidden.is_ok_and(|text| text.trim() == "1")
        };
        if block.starts_with("nvme")
            && number(&block) == wanted
            && of_character.is_some()
            && parent(&entry.path()) == of_character
            && !is_hidden()
        {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// True if `path` names an NVMe namespace for passthrough: a character device or a serial
/// number.
pub fn is_namespace(path: &Path) -> bool {
    by_serial(path).is_some() || is_character_device(path)
}

/// The block device of the namespace that `path` names, if it names one of this machine.
pub fn block_device(path: &Path) -> Option<PathBuf> {
    resolve(path).ok()?.block_path
}

/// True if `path` is the character device of an NVMe namespace.
fn is_character_device(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else {
        return false;
    };
    let device = metadata.rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let class = fs::read_link(format!("/sys/dev/char/{major}:{minor}/subsystem"));
    metadata.file_type().is_char_device()
        && class.is_ok_and(|class| class.ends_with("nvme-generic"))
}

/// The serial number, and the namespace if it is given.
fn by_serial(path: &Path) -> Option<(&str, Option<u32>)> {
    let name = path.to_str()?.strip_prefix(BY_SERIAL)?;
    match name.rsplit_once(':') {
        Some((serial, number)) => Some((serial, Some(number.parse().ok()?))),
        None => Some((name, None)),
    }
}

/// The namespace that `path` names: a character device, the block device of a
/// namespace, or a serial number.
pub(super) fn resolve(path: &Path) -> Result<Found, OpenDeviceError> {
    let all = list().map_err(|source| OpenDeviceError::Io {
        path: path.to_owned(),
        source,
    })?;
    resolve_among(path, all)
}

pub(super) fn resolve_among(path: &Path, all: Vec<Found>) -> Result<Found, OpenDeviceError> {
    let found: Vec<_> = match by_serial(path) {
        Some((serial, number)) => {
            let is_it = |found: &Found| {
                found.serial == serial && number.is_none_or(|number| found.namespace == number)
            };
            all.into_iter().filter(is_it).collect()
        }
        None => {
            // Links such as those in /dev/disk/by-id lead to the device.
            let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let is_it =
                |found: &Found| found.path == target || found.block_path.as_ref() == Some(&target);
            all.into_iter().filter(is_it).collect()
        }
    };
    let count = found.len();
    let mut found = found.into_iter();
    match (found.next(), count) {
        (Some(found), 1) => Ok(found),
        (Some(_), _) => Err(OpenDeviceError::SeveralNamespaces(path.to_owned())),
        (None, _) => Err(OpenDeviceError::NotNvme(path.to_owned())),
    }
}
