//! Settings of an origin that cannot be used.

use std::fmt;

use super::kind::OriginKind;

/// Why an origin's configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OriginConfigError {
    /// A setting is needed and not there.
    #[error("origin.{key} is missing: set it to {meaning}")]
    Missing {
        /// The setting.
        key: &'static str,
        /// What it says.
        meaning: &'static str,
    },
    /// A setting has no meaning for this kind of origin.
    #[error(
        "origin.{key} has no meaning for an origin of kind {kind:?}; remove it, or change origin.kind"
    )]
    NotForKind {
        /// The setting.
        key: &'static str,
        /// The kind.
        kind: OriginKind,
    },
    /// A setting's value cannot be used.
    #[error("origin.{key} = {value} {cure}")]
    Invalid {
        /// The setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is wrong and what would work.
        cure: String,
    },
    /// The origin cannot be opened with these settings.
    #[error("the origin cannot be opened: {0}")]
    Open(String),
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
