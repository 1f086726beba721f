//! A file of latencies measured at an origin: written by `floe bench --origin`,
//! replayed by the rule `file`.
//!
//! ```toml
//! format = 1
//! about = "s3, https://s3.example.com/photos, 8 clients, 2026-01-01"
//!
//! [[class]]
//! at_most = "64KiB"                    # reads of up to so many bytes
//! requests = 512                       # how many were measured
//! mean_bytes = 41230                   # what they read on average
//! first_byte = [[0.0, 9.1], [1.0, 40]] # quantiles: share, ms until the first byte
//! body = [[0.0, 0.1], [1.0, 3.0]]      # ms from there to the last byte
//! whole = [[0.0, 9.4], [1.0, 41]]      # ms of the whole request; not replayed
//! ```

use std::path::Path;

use floe_core::ByteSize;
use serde::{Deserialize, Serialize};

use super::error::LatencyError;
use super::rule::{check_quantiles, sane_ms};

/// Pairs of a fraction, ascending from 0 to 1, and milliseconds.
pub type Quantiles = Vec<(f64, f64)>;

/// The version of the format.
pub const LATENCY_FILE_FORMAT: u32 = 1;

/// Measured latencies of an origin by the size of reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyFile {
    /// [`LATENCY_FILE_FORMAT`].
    pub format: u32,
    /// The source of the figures; free text.
    #[serde(default)]
    pub about: String,
    /// Size classes, ascending. A read above the last class counts as the last class.
    pub class: Vec<LatencyClass>,
}

/// Latencies of reads of similar size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyClass {
    /// Most bytes of a read.
    pub at_most: ByteSize,
    /// Requests measured.
    pub requests: u64,
    /// Mean size of their reads; the body's time is proportional to the size.
    pub mean_bytes: u64,
    /// Milliseconds until the first byte.
    pub first_byte: Quantiles,
    /// Milliseconds from the first byte to the last.
    pub body: Quantiles,
    /// Milliseconds of the whole request; for readers of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub whole: Quantiles,
}

impl LatencyFile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`LatencyError::File`]: the file cannot be read or is invalid.
    pub fn read(path: &Path) -> Result<Self, LatencyError> {
        let wrong = |why: String| LatencyError::File {
            path: path.to_owned(),
            cure: format!("{why}; `floe bench --origin` writes such files"),
        };
        let text =
            std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot be read: {e}")))?;
        let file: LatencyFile = toml::from_str(&text)
            .map_err(|error| wrong(format!("is no file of latencies: {error}")))?;
        file.validate()
            .map_err(|why| wrong(format!("cannot be used: {why}")))?;
        Ok(file)
    }

    /// The file as text.
    ///
    /// # Errors
    /// Never for what [`validate`](Self::validate) accepts.
    pub fn to_text(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// Checks the file.
    ///
    /// # Errors
    /// A description of the error.
    pub fn validate(&self) -> Result<(), String> {
        if self.format != LATENCY_FILE_FORMAT {
            return Err(format!(
                "its format is {}, and {LATENCY_FILE_FORMAT} is known",
                self.format
            ));
        }
        let ascends = |pair: &[LatencyClass]| pair[0].at_most < pair[1].at_most;
        if self.class.is_empty() || !self.class.windows(2).all(ascends) {
            return Err("it needs classes that ascend by at_most".into());
        }
        for class in &self.class {
            for (name, quantiles) in [("first_byte", &class.first_byte), ("body", &class.body)] {
                if !check_quantiles(quantiles) || !quantiles.iter().all(|q| sane_ms(q.1)) {
                    return Err(format!(
                        "{name} of at_most = {} must be pairs [share, ms] that ascend from share 0 to share 1",
                        class.at_most
                    ));
                }
            }
        }
        Ok(())
    }

    /// The class of a read of `bytes` bytes.
    pub(super) fn class(&self, bytes: u64) -> Option<&LatencyClass> {
        let fits = |class: &&LatencyClass| bytes <= class.at_most.bytes();
        self.class.iter().find(fits).or(self.class.last())
    }
}
