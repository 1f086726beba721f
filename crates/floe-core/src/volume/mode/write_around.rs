//! Write-around: writes miss the cache unless it has their sectors. Data that is
//! written once and never read does not displace data that is read.
//!
//! OCF invalidates the cached part of a write that hits in part; here each
//! sector is decided on its own, so the cached part is updated.

use super::rules::{Read, Rules, Write};

pub(super) const RULES: Rules = Rules {
    read_hit: Read::Cache,
    read_miss: Read::BackingInsert,
    write_hit: Write::Both,
    write_miss: Write::Backing,
};
