//! The exports of a server, by name.

use std::sync::{Arc, Weak};

use floe::volume::{Volume, VolumeCache};
use floe_device::{MemoryBlocks, OpenDeviceError};
use parking_lot::Mutex;

use super::config::{ExportConfig, ExportKind, NbdConfig};
use super::export::Export;
use super::protocol::request::Terms;
use super::sessions::Sessions;

/// An export with its name and its connections.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) name: String,
    pub(super) export: Export,
    pub(super) is_read_only: bool,
    pub(super) sessions: Arc<Sessions>,
}

impl Served {
    pub(super) fn new(name: &str, export: Export, is_read_only: bool) -> Arc<Self> {
        Arc::new(Served {
            name: name.to_owned(),
            export,
            is_read_only,
            sessions: Arc::default(),
        })
    }
}

/// All exports: the volumes that are attached, then those in memory.
#[derive(Debug)]
pub(super) struct Exports {
    cache: Option<VolumeCache>,
    /// Those that have connections. A detached volume must not be kept open.
    volumes: Mutex<Vec<Weak<Served>>>,
    in_memory: Vec<Arc<Served>>,
    default: String,
    payload_bytes_max: u32,
}

impl Exports {
    /// Opens the exports of `config`, after the volumes of `cache`.
    ///
    /// # Errors
    /// An export in memory has an invalid size.
    pub(super) fn open(
        config: &NbdConfig,
        cache: Option<VolumeCache>,
    ) -> Result<Self, OpenDeviceError> {
        let read_bytes_max = config.payload_bytes_max();
        let open = |export: &ExportConfig| {
            let opened = open(export, read_bytes_max)?;
            Ok(Served::new(&export.name, opened, export.read_only))
        };
        let in_memory: Result<_, _> = config.exports.iter().map(open).collect();
        Ok(Exports {
            cache,
            ..Exports::new(config, in_memory?)
        })
    }

    pub(super) fn new(config: &NbdConfig, in_memory: Vec<Arc<Served>>) -> Self {
        Exports {
            cache: None,
            volumes: Mutex::default(),
            in_memory,
            default: config.default_export.clone(),
            payload_bytes_max: config.payload_bytes_max(),
        }
    }

    /// All of them, as the volumes are now.
    pub(super) fn all(&self) -> Vec<Arc<Served>> {
        let attached = self.cache.as_ref().map(VolumeCache::volumes);
        let mut volumes = self.volumes.lock();
        let known: Vec<_> = volumes.iter().filter_map(Weak::upgrade).collect();
        let served = |volume: Volume| {
            let known = known.iter().find(|served| served.export.is_of(&volume));
            known.map_or_else(|| of_volume(&volume), Arc::clone)
        };
        let mut all: Vec<_> = attached.into_iter().flatten().map(served).collect();
        *volumes = all.iter().map(Arc::downgrade).collect();
        all.extend(self.in_memory.iter().cloned());
        all
    }

    /// The export of this name; the default one if the name is empty.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Served>> {
        let mut all = self.all().into_iter();
        let name = match name {
            "" if self.default.is_empty() => return all.next(),
            "" => &self.default,
            name => name,
        };
        all.find(|served| served.name == name)
    }

    /// The facts of an export before anything is negotiated.
    pub(super) fn terms(&self, served: &Served) -> Terms {
        Terms {
            size_bytes: served.export.size_bytes(),
            block_bytes: served.export.block_bytes(),
            payload_bytes_max: self.payload_bytes_max,
            is_read_only: served.is_read_only,
            zeroes_fast: served.export.zeroes_fast(),
            structured: false,
            has_allocation: false,
        }
    }
}

fn of_volume(volume: &Volume) -> Arc<Served> {
    let export = Export::Volume(volume.clone());
    Served::new(volume.name(), export, volume.is_read_only())
}

/// Bytes of a block of an export in memory: any client knows these.
const BLOCK_BYTES: u32 = 512;

fn open(config: &ExportConfig, read_bytes_max: u32) -> Result<Export, OpenDeviceError> {
    Ok(match config.kind {
        ExportKind::Null => Export::null(config.size.bytes(), read_bytes_max),
        ExportKind::Memory => {
            Export::Memory(Arc::new(MemoryBlocks::new(config.size, BLOCK_BYTES)?))
        }
    })
}
