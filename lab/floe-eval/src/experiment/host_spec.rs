//! Settings of the papers' hosts.

use std::path::PathBuf;

use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

use crate::hosts::{DeviceChoice, HostConfig, StartState};

/// Settings of the papers' hosts besides those of every cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct HostSpec {
    /// The simulated device.
    pub device: DeviceChoice,
    /// The state of the device when the run begins.
    pub start: StartState,
    /// A file with this state: read if it exists, otherwise written.
    pub state: Option<PathBuf>,
    /// Number of zones of the cache.
    pub zones: u32,
    /// The nominal size of a zone from which `ratio` gives the number of keys.
    pub zone_unit: ByteSize,
    /// Largest deviation of a fetch from its mean latency, as a share of it.
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
