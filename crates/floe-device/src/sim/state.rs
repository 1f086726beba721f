//! Saves states of simulated SSDs in files, which several runs can use.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use floe_core::ssd::{Busy, ConfigFault, Ssd, SsdConfig, StateFault, ZoneCondition};

/// The reason why no SSD could be created from a state file.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// The file is not a state of this device.
    #[error("`{path}`: {fault}; delete it or choose another file to create it again")]
    Bad {
        /// The file.
        path: PathBuf,
        /// The fault in the file.
        fault: StateFault,
    },
    /// The file cannot be read or written.
    #[error("`{path}` cannot be read or written: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error from the operating system.
        source: std::io::Error,
    },
    /// Zones are written in this state.
    #[error(
        "`{0}`: zones are written in this state, whose data is unknown; create one of a drive with empty zones"
    )]
    ZonesAreWritten(PathBuf),
    /// The device is not idle.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigFault),
}

/// The SSD of this configuration in the state from the file at `path`. If there
/// is no such file, `make` prepares a new SSD and its state is written there,
/// through a temporary file that is renamed, so that a concurrent reader finds
/// all of it or nothing.
///
/// # Errors
/// If the file is damaged or of another device, or cannot be read or written.
pub fn kept_ssd(
    path: &Path,
    config: SsdConfig,
    make: impl FnOnce(SsdConfig) -> Result<Ssd, ConfigFault>,
) -> Result<Ssd, StateFileError> {
    let failed = |source| StateFileError::File {
        path: path.to_owned(),
        source,
    };
    let ssd = match std::fs::read(path) {
        Ok(bytes) => Ssd::load(config, &bytes).map_err(|fault| StateFileError::Bad {
            path: path.to_owned(),
            fault,
        })?,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let ssd = make(config)?;
            write_beside(path, &ssd.save()?).map_err(failed)?;
            ssd
        }
        Err(error) => return Err(failed(error)),
    };
    let mut zones = (0..).map_while(|zone| ssd.zone(zone));
    match zones.all(|zone| zone.condition == ZoneCondition::Empty) {
        true => Ok(ssd),
        false => Err(StateFileError::ZonesAreWritten(path.to_owned())),
    }
}

fn write_beside(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = std::fs::File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written
        .and_then(|()| std::fs::rename(&beside, path))
        .inspect_err(|_| {
            // A partial file is harmless if it cannot be removed.
            let _ = std::fs::remove_file(&beside);
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> SsdConfig {
        SsdConfig::sn540().shrunk(1024).expect("a device")
    }

    fn made(config: SsdConfig) -> Result<Ssd, ConfigFault> {
        let mut ssd = Ssd::new(config, 42)?;
        ssd.precondition();
        Ok(ssd)
    }

    #[test]
    fn a_state_is_made_once_and_then_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("drive.ssd");
        let first = kept_ssd(&path, config(), made).expect("made");
        let again = kept_ssd(&path, config(), |_| panic!("made again")).expect("read");
        assert_eq!(first.save(), again.save());
        assert_eq!(again.free_superblocks(), first.free_superblocks());
        assert_eq!(std::fs::read_dir(folder.path()).expect("it").count(), 1);
    }

    #[test]
    fn bad_files_are_rejected_with_a_cure() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("drive.ssd");
        std::fs::write(&path, b"nothing of the kind").expect("written");
        let rejected = kept_ssd(&path, config(), made).expect_err("no state");
        assert!(rejected.to_string().contains("delete it"), "{rejected}");
        std::fs::remove_file(&path).expect("removed");
        kept_ssd(&path, config(), made).expect("made");
        let other = SsdConfig::sn540().shrunk(512).expect("a device");
        let rejected = kept_ssd(&path, other, made).expect_err("another device");
        assert!(rejected.to_string().contains("another configuration"));
        let nowhere = folder.path().join("none/drive.ssd");
        let rejected = kept_ssd(&nowhere, config(), made).expect_err("no folder");
        assert!(matches!(rejected, StateFileError::File { .. }));
    }
}
