//! Errors of settings.

use std::fmt;

/// A setting of a policy that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} = {value} cannot work: {limit}; the nearest value that works is {nearest}")]
pub struct PolicyConfigError {
    /// The setting, below the table that holds the policy.
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// The limit that it breaks.
    pub limit: String,
    /// The nearest value that works.
    pub nearest: String,
}

/// Checks that `value` lies between `least` and `most`.
pub(in crate::policy) fn check_range<T: PartialOrd + fmt::Display>(
    setting: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), PolicyConfigError> {
    if (&least..=&most).contains(&&value) {
        return Ok(());
    }
    Err(PolicyConfigError {
        setting,
        value: value.to_string(),
        limit: format!("it must be from {least} to {most}"),
        nearest: if value > most { most } else { least }.to_string(),
    })
}
