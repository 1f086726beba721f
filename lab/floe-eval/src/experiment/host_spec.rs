//! Settings of the papers' hosts.

use std::path::PathBuf;

use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

use crate::hosts::{DeviceChoice, HostConfig, StartState};

/// Settings of the papers' hosts beside those of every cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct HostSpec {
    /// The simulated device.
    pub device: DeviceChoice,
    /// How it is when the run begins.
    pub start: StartState,
    /// A file that keeps this state: read if it is there, otherwise written.
    pub state: Option<PathBuf>,
    /// How many zones the cache has.
    pub zones: u32,
    /// The size that a zone counts as when there are `ratio` keys per chunk.
    pub zone_unit: ByteSize,
    /// How far a fetch may be from its mean latency, as a share.
    pub jitter: f64,
    /// Settings of the host that differ from the paper's.
    pub behaviour: toml::Table,
}

impl Default for HostSpec {
    fn default() -> Self {
        HostSpec {
            device: DeviceChoice::preset("zn540"),
            start: StartState::default(),
            state: None,
            zones: HostConfig::ZONES_512M,
            zone_unit: ByteSize::gib(1),
            jitter: 0.02,
            behaviour: toml::Table::new(),
        }
    }
}
