//! Everything is written: the default, and what the others are compared with.

use serde::{Deserialize, Serialize};

/// No settings: `{ kind = "all" }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllConfig {}

/// Admits whatever it is asked about. No memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct All;

impl All {
    pub(super) fn admit(&self) -> bool {
        true
    }
}
