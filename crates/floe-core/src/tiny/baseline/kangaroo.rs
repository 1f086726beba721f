//! `kangaroo`: a small log in front of many sets, after Kangaroo (McAllister
//! et al., SOSP '21).
//!
//! Objects stay in the log until several of one set have gathered or the log
//! needs room. Then they join their set together. An object without such
//! company is evicted, or appended to the log again if it was used. RRIParoo
//! decides which objects stay in a set.
//!
//! On a device with random writes, sets are rewritten in place, and the device
//! collects garbage. On zones the host does ([`SetStorage::Zoned`]): each
//! rewrite is appended, and valid sets in the oldest zone are moved unchanged.
//! This is the Kangaroo that Nemo's authors ran on a ZNS drive (Nemo §3.1, case
//! 3.1; §5.1). The amplifications of its two steps multiply.
//!
//! Deviations from the published code, and why:
//! * Filters are larger by default: 24 bytes per set instead of 8, which has 17
//!   % false positives at 16 objects per set.
//! * An object that is evicted, deleted or expires in the log never leaves an
//!   older copy in its set. The published code has no deletes.
//! * On zones, nothing is kept free beyond the needs of collection. FairyWREN's
//!   code keeps 1.5 % free (`zones_free_permille`), which would be a third of
//!   the 5 % of over-provisioning. Nothing indicates that Nemo's Kangaroo did
//!   so.
//! * All sets share one log instead of 64 partitions: see the log's index.

use serde::{Deserialize, Serialize};

pub use super::hier::Front;
use super::hier::{Hierarchy, HierarchyPlan};
use super::shape::{self, LogShape};
use crate::hash::KeyHash;
use crate::tiny::engine::{Engine, Found, Insert, Outcome, Search, Step, Task, TaskId};
use crate::tiny::object::{Flash, Object};
use crate::tiny::plan::{PlanError, check_in_place};
use crate::tiny::statistics::{Memory, Statistics};

/// The storage of Kangaroo's sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetStorage {
    /// Sets have fixed pages, which are rewritten in place. The device collects
    /// garbage.
    #[default]
    InPlace,
    /// Rewritten sets are appended to zones. The host collects garbage.
    Zoned,
}

crate::parse_by_name!(SetStorage);

/// Settings of `kangaroo`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KangarooConfig {
    /// The log's share of the flash, in percent.
    pub log_percent: u32,
    /// Share of the rest, in percent, that sets leave free for garbage
    /// collection.
    pub over_provisioning_percent: u32,
    /// The storage of sets.
    pub set_storage: SetStorage,
    /// Objects of a set that the log must hold for them to join the set.
    pub threshold: u32,
    /// Free share of the log, in percent, at or below which its oldest zone is
    /// emptied.
    pub log_free_percent: u32,
    /// Pages of a segment, the unit of appends to the log. 64 pages are 256
    /// KiB.
    pub segment_pages: u32,
    /// Most segments of the log in memory.
    pub segments_buffered: u32,
    /// Bytes of each set's filter: a multiple of 8, up to 512.
    pub filter_bytes: u32,
    /// Expected objects in a set, which filters are optimized for.
    pub objects_per_set: u32,
    /// Zoned: free share of the sets' zones, in thousandths, at or below which
    /// the oldest zone is collected. Free zones count towards
    /// `over_provisioning_percent`. 0 keeps one zone free, which collection
    /// writes to.
    pub zones_free_permille: u32,
    /// Most concurrent rewrites of sets.
    pub max_rewrites: u32,
}

impl Default for KangarooConfig {
    fn default() -> Self {
        KangarooConfig {
            log_percent: 5,
            over_provisioning_percent: 5,
            set_storage: SetStorage::InPlace,
            threshold: 2,
            log_free_percent: 10,
            segment_pages: 64,
            segments_buffered: 4,
            filter_bytes: 24,
            objects_per_set: 16,
            zones_free_permille: 0,
            max_rewrites: 16,
        }
    }
}

impl KangarooConfig {
    /// The published size of filters: 8 bytes per set.
    pub fn published() -> Self {
        KangarooConfig {
            filter_bytes: 8,
            ..KangarooConfig::default()
        }
    }
}

/// A validated configuration of `kangaroo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KangarooPlan(HierarchyPlan);

impl KangarooPlan {
    /// Checks `config` against `flash`.
    ///
    /// # Errors
    /// [`PlanError`] names the setting that does not fit and the nearest value
    /// that does.
    pub fn new(config: &KangarooConfig, flash: &Flash) -> Result<KangarooPlan, PlanError> {
        let log = LogShape {
            settings: &shape::KANGAROO,
            percent: config.log_percent,
            free_percent: config.log_free_percent,
            segment_pages: config.segment_pages,
            segments_buffered: config.segments_buffered,
            threshold: config.threshold,
            filter_bytes: config.filter_bytes,
            objects_per_page: config.objects_per_set,
            max_rewrites: config.max_rewrites,
            zones_free_permille: config.zones_free_permille,
        };
        if config.set_storage == SetStorage::InPlace {
            let cure = "use set_storage = \"zoned\"";
            check_in_place(flash, "tiny.kangaroo.set_storage", "in_place", cure)?;
        }
        let plan = match config.set_storage {
            SetStorage::InPlace => shape::in_place(&log, config.over_provisioning_percent, flash)?,
            SetStorage::Zoned => shape::zoned(&log, config.over_provisioning_percent, 1, 0, flash)?,
        };
        Ok(KangarooPlan(plan))
    }

    /// Number of sets.
    pub fn sets(&self) -> u32 {
        self.0.sets
    }
}

/// The engine.
#[derive(Debug)]
pub struct Kangaroo(Hierarchy);

impl Kangaroo {
    /// An engine on empty flash.
    pub fn new(plan: KangarooPlan) -> Self {
        Kangaroo(Hierarchy::new(plan.0))
    }
}

super::hier::delegate_engine!(Kangaroo);
