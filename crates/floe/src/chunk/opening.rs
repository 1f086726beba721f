//! Opening a cache: options, errors, and the report.

use floe_core::chunk::ConfigError;
use floe_core::layout::{LayoutError, PlanMismatch};
use floe_device::DeviceError;

use crate::metadata_log::LogError;
use crate::slots::TableError;

/// Why a cache could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting cannot work on this device.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device failed.
    #[error("the cache device failed: {0}")]
    Device(#[from] DeviceError),
    /// The device holds something that is not a Floe cache.
    #[error(
        "{device} holds data that Floe did not write; `floe format --force` wipes it, or choose another path or device"
    )]
    ForeignData {
        /// The device.
        device: String,
    },
    /// The device holds a Floe cache of another shape.
    #[error(
        "{device} holds a Floe cache of another plan: {mismatch}; change the setting back, or reformat with `floe format` (the cached data is lost, nothing else)"
    )]
    OtherPlan {
        /// The device.
        device: String,
        /// The difference.
        mismatch: PlanMismatch,
    },
    /// The device holds a Floe cache of tiny objects.
    #[error(
        "{device} holds a Floe cache of tiny objects, not of chunks; `floe format --force` wipes it, or choose another path or device"
    )]
    OtherKind {
        /// The device.
        device: String,
    },
    /// Another version of Floe wrote this cache, in a format of its own.
    #[error(
        "{device} was written by another version of Floe: {source}; reformat with `floe format --force` (the cached data is lost, nothing else)"
    )]
    OtherFormat {
        /// The device.
        device: String,
        /// The versions.
        source: LayoutError,
    },
    /// The metadata zones could not be written.
    #[error("the cache's metadata could not be written: {0}")]
    Metadata(String),
}

impl From<LogError> for OpenError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Device(error) => OpenError::Device(error),
            other => OpenError::Metadata(other.to_string()),
        }
    }
}

impl From<TableError> for OpenError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Device(error) => OpenError::Device(error),
            other => OpenError::Metadata(other.to_string()),
        }
    }
}

/// The findings of an opening.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RecoveryReport {
    /// The device was blank and was formatted.
    pub formatted: bool,
    /// The journal was damaged: to be safe everything was forgotten.
    pub journal_damaged: bool,
    /// Zones whose summaries were read.
    pub zones_from_summaries: u32,
    /// Zones that were scanned.
    pub zones_scanned: u32,
    /// Records that are served again.
    pub records: u64,
    /// Records that were found dead in the journal.
    pub dead_records: u64,
    /// Older records of keys that had a newer one.
    pub superseded_records: u64,
    /// Over slots: records that had been evicted, and whose slots are free.
    pub evicted_records: u64,
}

/// Options of an opening besides the plan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenOptions {
    /// Wipe whatever the device holds.
    pub(crate) format: bool,
    /// Makes identity and hash seed deterministic, for simulations.
    pub(crate) seed: Option<u64>,
}
