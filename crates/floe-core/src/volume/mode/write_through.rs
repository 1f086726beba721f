//! Write-through: a write is acknowledged when the cache and the backing device
//! have it. Reads after writes hit, and a lost cache device loses nothing.
//!
//! A write over a dirty sector of an earlier mode leaves it clean.

use super::rules::{Read, Rules, Write};

pub(super) const RULES: Rules = Rules {
    read_hit: Read::Cache,
    read_miss: Read::BackingInsert,
    write_hit: Write::Both,
    write_miss: Write::Both,
};
