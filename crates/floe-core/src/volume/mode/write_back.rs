//! Write-back: the cache acknowledges a write, and cleaning or eviction writes
//! it to the backing device later. The least traffic to the backing device; a
//! lost cache device loses the dirty sectors.

use super::rules::{Read, Rules, Write};

pub(super) const RULES: Rules = Rules {
    read_hit: Read::Cache,
    read_miss: Read::BackingInsert,
    write_hit: Write::Cache,
    write_miss: Write::Cache,
};
