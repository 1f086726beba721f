//! Opening the device that a configuration describes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::array::{Array, ArrayOptions, Candidate};
use crate::clock::Clock;
use crate::config::{DeviceConfig, DeviceKind, OpenDeviceError};
use crate::contract::SharedDevice;
use crate::file::FileDevice;
use crate::memory::MemoryDevice;
use crate::nvme::{self, NvmeDevice};
use crate::sim::SimDevice;
use crate::zoned::{ZonedDevice, is_host_managed};

/// Opens the device of `config.path`, or the array of `config.paths`.
///
/// # Errors
/// See [`OpenDeviceError`]; nothing was changed on the media, except as [`open`] and
/// [`Array::open`] say.
pub async fn open_drives(
    config: &DeviceConfig,
    clock: &Clock,
) -> Result<SharedDevice, OpenDeviceError> {
    if config.paths.is_empty() {
        return open(config, clock);
    }
    if config.path.is_some() || !config.kind.is_storage() {
        return Err(OpenDeviceError::PathAndPaths);
    }
    // A file that is missing beside others is not created: it may be on a disk that is not
    // mounted.
    let is_file = |path: &Path| config.kind == DeviceKind::File && !nvme::is_namespace(path);
    let is_new = config.paths.iter().all(|path| !path.exists());
    let candidate = |path: &PathBuf| Candidate {
        name: path.display().to_string(),
        opened: match !is_new && is_file(path) && !path.exists() {
            true => Err(OpenDeviceError::NotFound(path.clone())),
            false => open(
                &DeviceConfig {
                    path: Some(path.clone()),
                    paths: Vec::new(),
                    ..config.clone()
                },
                clock,
            ),
        },
    };
    let options = ArrayOptions {
        format: config.accept_foreign,
        read_only: config.read_only,
        seed: None,
    };
    let candidates = config.paths.iter().map(candidate).collect();
    Ok(Arc::new(Array::open(candidates, options, clock).await?))
}

/// Opens one device.
///
/// # Errors
/// See [`OpenDeviceError`]; nothing was changed on the medium, except that a
/// file that is empty or a Floe cache may have been created or extended.
pub fn open(config: &DeviceConfig, clock: &Clock) -> Result<SharedDevice, OpenDeviceError> {
    Ok(match config.kind {
        kind if clock.is_virtual() && kind.is_storage() => {
            return Err(OpenDeviceError::VirtualTime);
        }
        DeviceKind::File if config.path.as_deref().is_some_and(nvme::is_namespace) => {
            Arc::new(NvmeDevice::open(config)?)
        }
        DeviceKind::File if config.path.as_deref().is_some_and(is_host_managed) => {
            Arc::new(ZonedDevice::open(config)?)
        }
        DeviceKind::File => Arc::new(FileDevice::open(config)?),
        DeviceKind::Zns | DeviceKind::Fdp | DeviceKind::Nvme => Arc::new(NvmeDevice::open(config)?),
        DeviceKind::Memory => Arc::new(MemoryDevice::open(config)?),
        DeviceKind::Sim => Arc::new(SimDevice::open(config, clock)?),
    })
}
