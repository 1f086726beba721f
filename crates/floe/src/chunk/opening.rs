//! Opening a cache: options, errors, and the report.

use floe_core::chunk::ConfigError;
use floe_core::layout::{LayoutError, PlanMismatch};
use floe_device::DeviceError;

use crate::metadata_log::LogError;
use crate::slots::TableError;

/// Errors of opening a cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting is invalid on this device.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device failed.
    #[error("the cache device failed: {0}")]
    Device(#[from] DeviceError),
    /// The device holds other data than a Floe cache.
    #[error(
        "{device} holds data that Floe did not write; `floe format --force` wipes it, or choose another path or device"
    )]
    ForeignData {
        /// The device.
        device: String,
    },
    /// The device holds a Floe cache with another plan.
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
    /// Another version of Floe wrote this cache in another format.
    #[error(
        "{device} was written by another version of Floe: {source}; reformat with `floe format --force` (the cached data is lost, nothing else)"
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

/// The result of recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RecoveryReport {
    /// The device was blank and was formatted.
    pub formatted: bool,
    /// The journal was damaged, so that all values had to be discarded.
    pub journal_damaged: bool,
    /// Zones whose summaries were read.
    pub zones_from_summaries: u32,
    /// Zones that were scanned.
    pub zones_scanned: u32,
    /// Recovered records.
    pub records: u64,
    /// Records with a tombstone in the journal.
    pub dead_records: u64,
    /// Older records of keys with a newer one.
    pub superseded_records: u64,
    /// In slots: records that had been evicted, whose slots are free.
    pub evicted_records: u64,
}

/// Options of opening besides the plan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenOptions {
    /// Format the device whatever it holds.
    pub(crate) format: bool,
    /// Makes identity and hash seed deterministic, for simulations.
    pub(crate) seed: Option<u64>,
}
