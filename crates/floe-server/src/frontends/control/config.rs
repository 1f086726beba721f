//! `[control]`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::{Section, ServerConfigError};

/// Commands of operators to the running server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// Path of a Unix socket. An existing stale socket is replaced; any other file is an
    /// error.
    pub path: PathBuf,
    /// The server starts without the socket if it cannot be bound.
    #[serde(skip)]
    pub is_optional: bool,
}

impl Section for ControlConfig {
    fn validate(&self) -> Result<(), ServerConfigError> {
        Ok(())
    }
}
