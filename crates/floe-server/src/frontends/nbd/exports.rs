//! The exports of a server, by name.

use std::sync::Arc;

use floe::volume::Volume;
use floe_device::{MemoryBlocks, OpenDeviceError};

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

/// All exports.
#[derive(Debug)]
pub(super) struct Exports {
    served: Vec<Arc<Served>>,
    default: String,
    payload_bytes_max: u32,
}

impl Exports {
    /// Opens the exports of `config`, after those of `volumes`.
    ///
    /// # Errors
    /// An export in memory has an invalid size.
    pub(super) fn open(config: &NbdConfig, volumes: &[Volume]) -> Result<Self, OpenDeviceError> {
        let of_volume = |volume: &Volume| {
            let export = Export::Volume(volume.clone());
            Served::new(volume.name(), export, volume.is_read_only())
        };
        let read_bytes_max = config.payload_bytes_max();
        let open = |export: &ExportConfig| {
            let opened = open(export, read_bytes_max)?;
            Ok(Served::new(&export.name, opened, export.read_only))
        };
        let mut served: Vec<_> = volumes.iter().map(of_volume).collect();
        for export in &config.exports {
            served.push(open(export)?);
        }
        Ok(Exports::new(config, served))
    }

    pub(super) fn new(config: &NbdConfig, served: Vec<Arc<Served>>) -> Self {
        Exports {
            served,
            default: config.default_export.clone(),
            payload_bytes_max: config.payload_bytes_max(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.iter()
    }

    /// The export of this name; the default one if the name is empty.
    pub(super) fn find(&self, name: &str) -> Option<&Arc<Served>> {
        let name = match name {
            "" if self.default.is_empty() => return self.served.first(),
            "" => &self.default,
            name => name,
        };
        self.served.iter().find(|served| served.name == name)
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
