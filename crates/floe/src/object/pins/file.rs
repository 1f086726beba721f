//! The file of pins: JSON, replaced as a whole.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Most bytes of a file of pins; those of as many pins as there may be are fewer.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A pin as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedPin {
    pub(super) bucket: String,
    pub(super) prefix: String,
    /// Without it the limit of all pins counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cap_bytes: Option<u64>,
}

/// The pins in a file; none if there is no file.
///
/// # Errors
/// It cannot be read, or holds something else ([`io::ErrorKind::InvalidData`]).
pub(super) fn load(path: &Path) -> io::Result<Vec<SavedPin>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
        Ok(file) if file.len() > FILE_BYTES_MAX => {
            let error = format!("it has {} bytes", file.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Ok(_) => {}
    }
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Replaces the file durably: after a crash it has the old pins or these.
pub(super) fn save(path: &Path, pins: &[SavedPin]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec_pretty(pins)?)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        Some(parent) => File::open(parent)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}
