//! How a client treats its server.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How a client treats its server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NbdConfig {
    /// Connections, if the server allows several.
    pub connections: u32,
    /// Seconds after which a request without an answer ends its connection.
    pub timeout_seconds: f64,
    /// Seconds after which requests fail if the server cannot be reached.
    pub retry_seconds: f64,
    /// Seconds in which a server has ended the requests of a dead connection, counted from
    /// its first answers on the next one. Changes of the bytes that these requests change
    /// wait so long.
    pub fence_seconds: f64,
}

impl Default for NbdConfig {
    fn default() -> Self {
        NbdConfig {
            connections: 2,
            timeout_seconds: 30.0,
            retry_seconds: 60.0,
            fence_seconds: 2.0,
        }
    }
}

impl NbdConfig {
    pub(super) fn timeout(&self) -> Duration {
        Duration::try_from_secs_f64(self.timeout_seconds).unwrap_or(Duration::MAX)
    }

    pub(super) fn fence(&self) -> Duration {
        Duration::try_from_secs_f64(self.fence_seconds).unwrap_or(Duration::MAX)
    }
}
