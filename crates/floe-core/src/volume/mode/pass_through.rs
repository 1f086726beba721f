//! Pass-through: the cache takes no part. Reads come from the backing device,
//! unless a dirty sector of an earlier mode is newer; writes invalidate, so that
//! no stale sector remains for a later mode.

use super::rules::{Read, Rules, Write};

pub(super) const RULES: Rules = Rules {
    read_hit: Read::Backing,
    read_miss: Read::Backing,
    write_hit: Write::BackingInvalidate,
    write_miss: Write::Backing,
};
