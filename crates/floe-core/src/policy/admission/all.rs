//! Admits every value: the default, and the baseline for the other policies.

use serde::{Deserialize, Serialize};

/// No settings: `{ kind = "all" }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllConfig {}

/// Admits every value. No memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct All;

impl All {
    pub(super) fn admit(&self) -> bool {
        true
    }
}
