//! Write-invalidate: the backing device takes every write, and the cache forgets
//! its sectors. The cache device wears by fills only.

use super::rules::{Read, Rules, Write};

pub(super) const RULES: Rules = Rules {
    read_hit: Read::Cache,
    read_miss: Read::BackingInsert,
    write_hit: Write::BackingInvalidate,
    write_miss: Write::Backing,
};
