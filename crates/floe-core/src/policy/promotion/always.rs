//! Inserts every missing granule: the default of OCF, EnhanceIO and bcache.

use super::request::Verdict;

pub(super) const fn see() -> Verdict {
    Verdict::All
}
