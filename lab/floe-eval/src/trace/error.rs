//! Errors of traces.

use std::path::PathBuf;

use super::format::TraceFormat;

/// The reason why a trace cannot be read, or only in part.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("cannot open the trace {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The trace would be read more than once, and is no regular file.
    #[error(
        "{path} is a pipe or a device, which can be read once, and this reads its trace several times; store the trace in a file and name that"
    )]
    ReadsOnce {
        /// The pipe or device.
        path: PathBuf,
    },
    /// Reading or decompressing failed.
    #[error("cannot read the trace after byte {after_byte} of its (decompressed) content")]
    Read {
        /// The offset that reading reached.
        after_byte: u64,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Neither name nor content determines the format.
    #[error(
        "cannot tell the format of {path}: {why}; name it with --format (one of {})",
        TraceFormat::names()
    )]
    Unrecognised {
        /// The file.
        path: PathBuf,
        /// The attempt that failed.
        why: String,
    },
    /// The format has no requests to block devices.
    #[error(
        "{path} is of the format {format}, whose requests are for objects; give a block trace, or name its format with --format"
    )]
    NoBlocks {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: TraceFormat,
    },
    /// A line or record is invalid.
    #[error(
        "{unit} {number} (byte {byte}): {reason}; fix it, choose another --format, or count and skip such {unit}s with --skip-bad"
    )]
    Bad {
        /// `line` or `record`.
        unit: &'static str,
        /// Its number, from 1.
        number: u64,
        /// Its offset in the (decompressed) content.
        byte: u64,
        /// The fault.
        reason: String,
    },
}
