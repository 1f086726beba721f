//! The outcome of opening: errors, and the result of recovery.

use floe_core::layout::{LayoutError, PlanMismatch};
use floe_core::tiny::PlanError;
use floe_device::DeviceError;

use crate::metadata_log::LogError;

/// Errors of opening a tiny store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenTinyError {
    /// A setting is invalid on this device.
    #[error(transparent)]
    Config(#[from] PlanError),
    /// The device failed.
    #[error("the cache device failed: {0}")]
    Device(#[from] DeviceError),
    /// The device holds other data than a cache of tiny objects.
    #[error(
        "{device} does not hold a cache of tiny objects ({source}); `floe format --tiny --force` wipes it, or choose another path or device"
    )]
    ForeignData {
        /// The device.
        device: String,
        /// Its content, as far as it is recognised.
        source: LayoutError,
    },
    /// The device holds a cache with another plan.
    #[error(
        "{device} holds a cache of another plan: {mismatch}; change the setting back, or reformat with `floe format --tiny --force` (the cached data is lost, nothing else)"
    )]
    OtherPlan {
        /// The device.
        device: String,
        /// The difference.
        mismatch: PlanMismatch,
    },
    /// Another version of Floe wrote this cache.
    #[error(
        "{device} was written by another version of Floe: {source}; reformat with `floe format --tiny --force` (the cached data is lost, nothing else)"
    )]
    OtherFormat {
        /// The device.
        device: String,
        /// The versions.
        source: LayoutError,
    },
    /// Writing the metadata zones failed.
    #[error("the cache's metadata could not be written: {0}")]
    Metadata(String),
    /// The journal has more fences in force than memory has room for.
    #[error(
        "the journal has more fences than set-groups in memory have room for; set tiny.nemo.memory_set_groups to what it was, or reformat with `floe format --tiny --force`"
    )]
    TooManyFences,
}

impl From<LogError> for OpenTinyError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Device(error) => OpenTinyError::Device(error),
            other => OpenTinyError::Metadata(other.to_string()),
        }
    }
}

/// The result of recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TinyRecovery {
    /// The device was blank and was formatted.
    pub formatted: bool,
    /// An existing cache was discarded: its engine is volatile, its journal was damaged, or it
    /// made no fences and was not closed.
    pub cold: bool,
    /// It made no fences and was not closed, so that all objects had to be discarded.
    pub unclosed: bool,
    /// The journal was damaged, so that all objects had to be discarded.
    pub journal_damaged: bool,
    /// Recovered set-groups.
    pub set_groups: u64,
    /// Objects in them, superseded ones included.
    pub objects: u64,
    /// Rejected summaries.
    pub rejected: u64,
    /// Keys whose copies on flash are superseded, although the newer copy was lost.
    pub fences: u64,
}

impl TinyRecovery {
    /// True if no earlier object was recovered.
    pub fn begins_empty(&self) -> bool {
        self.formatted || self.cold
    }
}
