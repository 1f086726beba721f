//! Why a tiny engine's configuration cannot run.

use std::fmt::Display;

/// A setting that does not fit the others or the device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} = {value} {limit}; {nearest} works")]
pub struct PlanError {
    /// The setting's name.
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// What it breaks.
    pub limit: String,
    /// The nearest value that works, or what to do instead.
    pub nearest: String,
}

impl PlanError {
    /// `setting` = `value` breaks `limit`; `nearest` works.
    pub fn new(
        setting: &'static str,
        value: impl Display,
        limit: impl Into<String>,
        nearest: impl Display,
    ) -> Self {
        PlanError {
            setting,
            value: value.to_string(),
            limit: limit.into(),
            nearest: nearest.to_string(),
        }
    }
}
