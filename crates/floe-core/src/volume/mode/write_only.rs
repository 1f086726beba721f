//! Write-only: writes as in write-back, and reads are served from the cache where
//! it has the sectors, but never inserted. All room serves write bursts.

use super::rules::{Read, Rules, Write};

pub(super) const RULES: Rules = Rules {
    read_hit: Read::Cache,
    read_miss: Read::Backing,
    write_hit: Write::Cache,
    write_miss: Write::Cache,
};
