//! The address of a backing device, as text.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

use super::emulated::{EmulatedConfig, EmulatedError};
use super::nbd::{NbdAddress, NbdAddressError};

/// A backing device: the path of a file or block device; the address of an NBD export;
/// or `emulated:` and the description of an emulated one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct BackingAddress {
    text: String,
    /// The device.
    pub target: BackingTarget,
}

/// The kinds of backing devices.
#[derive(Clone, Debug, PartialEq)]
pub enum BackingTarget {
    /// A file or block device that exists.
    File(PathBuf),
    /// An export of an NBD server.
    Nbd(NbdAddress),
    /// Memory as slow as some storage, for tries. Its data is forgotten at the end.
    Emulated(Box<EmulatedConfig>),
}

/// Why a text is no backing device.
#[derive(Debug, thiserror::Error)]
pub enum BackingAddressError {
    /// The address of an NBD export is malformed.
    #[error(transparent)]
    Nbd(#[from] NbdAddressError),
    /// The description of an emulated device is malformed.
    #[error(transparent)]
    Emulated(#[from] EmulatedError),
    /// No path looks like that.
    #[error("`{0}` is no backing device; write a path, nbd://… or emulated:PRESET")]
    Scheme(String),
}

impl FromStr for BackingAddress {
    type Err = BackingAddressError;

    fn from_str(text: &str) -> Result<Self, BackingAddressError> {
        let target = match text.strip_prefix("emulated:") {
            Some(preset) => BackingTarget::Emulated(Box::new(preset.parse()?)),
            None if text.starts_with("nbd") && text.contains("://") => {
                BackingTarget::Nbd(text.parse()?)
            }
            None if text.is_empty() || text.contains("://") => {
                return Err(BackingAddressError::Scheme(text.to_owned()));
            }
            None => BackingTarget::File(text.into()),
        };
        Ok(BackingAddress {
            text: text.to_owned(),
            target,
        })
    }
}

impl Serialize for BackingAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl TryFrom<String> for BackingAddress {
    type Error = BackingAddressError;

    fn try_from(text: String) -> Result<Self, BackingAddressError> {
        text.parse()
    }
}

impl fmt::Display for BackingAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing::EmulatedPreset;

    #[test]
    fn an_address_is_a_path_an_export_or_a_preset() {
        let target = |text: &str| text.parse::<BackingAddress>().map(|address| address.target);
        let file = target("disks/a.img").expect("a path");
        assert_eq!(file, BackingTarget::File("disks/a.img".into()));
        let export = target("nbd://h/x").expect("an export");
        assert!(matches!(export, BackingTarget::Nbd(_)));
        let preset = EmulatedConfig::from(EmulatedPreset::Nvdimm);
        let emulated = target("emulated:nvdimm").expect("a preset");
        assert_eq!(emulated, BackingTarget::Emulated(Box::new(preset)));
        for text in [
            "",
            "http://h/x",
            "nbdx://h",
            "emulated:tape",
            "nbd+unix:///x",
        ] {
            assert!(target(text).is_err(), "{text}");
        }
    }
}
