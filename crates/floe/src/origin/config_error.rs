//! Errors of an origin's settings.

use std::fmt;

use super::kind::OriginKind;
use crate::latency::LatencyError;

/// An invalid setting of an origin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OriginConfigError {
    /// A required setting is missing.
    #[error("origin.{key} is missing: set it to {meaning}")]
    Missing {
        /// The setting.
        key: &'static str,
        /// The setting's meaning.
        meaning: &'static str,
    },
    /// The setting does not apply to this kind of origin.
    #[error(
        "origin.{key} has no meaning for an origin of kind {kind:?}; remove it, or change origin.kind"
    )]
    NotForKind {
        /// The setting.
        key: &'static str,
        /// The kind.
        kind: OriginKind,
    },
    /// The value is invalid.
    #[error("origin.{key} = {value} {cure}")]
    Invalid {
        /// The setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// The error and its remedy.
        cure: String,
    },
    /// The origin cannot be opened with these settings.
    #[error("the origin cannot be opened: {0}")]
    Open(String),
}

impl From<LatencyError> for OriginConfigError {
    fn from(error: LatencyError) -> Self {
        match error {
            LatencyError::Rule { value, cure } => invalid("emulated.latency", value, cure),
            LatencyError::File { path, cure } => {
                invalid("emulated.latency.path", path.display(), &cure)
            }
        }
    }
}

pub(crate) fn missing(key: &'static str, meaning: &'static str) -> OriginConfigError {
    OriginConfigError::Missing { key, meaning }
}

pub(crate) fn invalid(
    key: &'static str,
    value: impl fmt::Display,
    cure: &str,
) -> OriginConfigError {
    OriginConfigError::Invalid {
        key,
        value: value.to_string(),
        cure: cure.to_owned(),
    }
}
