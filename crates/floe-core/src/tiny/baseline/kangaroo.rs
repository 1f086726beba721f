//! `kangaroo`: a small log in front of many sets, after Kangaroo (McAllister
//! et al., SOSP '21).
//!
//! Objects wait in the log until several of one set have gathered, or it needs
//! room. Then they join their set together; a lonely one is forgotten, or goes
//! to the log's end if it was used. What stays in a set is decided by RRIParoo.
//!
//! Where a page may be rewritten in place, sets are, and the device collects
//! garbage. On zones the host does ([`SetStorage::Zoned`]): each rewrite is
//! appended, and the sets that still are in the oldest zone are moved as they
//! are. That is the Kangaroo that Nemo's authors ran on a ZNS drive (Nemo
//! §3.1, case 3.1; §5.1), whose amplifications of the two steps multiply.
//!
//! Deviations from the published code, and why:
//! * Filters are larger by default: 24 bytes per set where it has 8, which
//!   costs 17 % false positives at 16 objects per set.
//! * An object that is dropped from the log, or is deleted or expires there,
//!   never leaves an older copy of itself behind in its set; the published
//!   code has no deletes.
//! * On zones nothing is kept free beyond what collection needs. FairyWREN's
//!   code keeps 1.5 % free, and taken over from there (`zones_free_permille`)
//!   that was a third of the 5 % that there are to spare; nothing says that
//!   Nemo's Kangaroo had it.
//! * One log for all sets instead of 64 partitions: see the log's index.

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
    /// At fixed pages, which are rewritten in place. The device collects garbage.
    #[default]
    InPlace,
    /// In zones; rewrites are appended. The host collects garbage.
    Zoned,
}

crate::parse_by_name!(SetStorage);

/// Settings of `kangaroo`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KangarooConfig {
    /// Share of the flash, in percent, that the log has.
    pub log_percent: u32,
    /// Share of the rest, in percent, that sets leave free for garbage collection.
    pub over_provisioning_percent: u32,
    /// The storage of sets.
    pub set_storage: SetStorage,
    /// Objects of one set that must have gathered in the log to join it.
    pub threshold: u32,
    /// Share of the log, in percent, at or below which it is emptied.
    pub log_free_percent: u32,
    /// Pages of a segment: one append to the log. 64 pages are 256 KiB.
    pub segment_pages: u32,
    /// Segments of the log that may be in memory.
    pub segments_buffered: u32,
    /// Bytes of each set's filter; a multiple of 8, up to 512.
    pub filter_bytes: u32,
    /// Objects that a set is expected to hold; filters are best at this many.
    pub objects_per_set: u32,
    /// Zoned: share of the sets' zones, in thousandths, at or below which the
    /// oldest zone is collected. What is kept free comes out of `over_provisioning_percent`;
    /// with 0 it is the one zone that collection writes to.
    pub zones_free_permille: u32,
    /// Rewrites of sets that may be under way at a time.
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
    /// With the published filters: 8 bytes per set.
    pub fn published() -> Self {
        KangarooConfig {
            filter_bytes: 8,
            ..KangarooConfig::default()
        }
    }
}

/// A `kangaroo` that can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KangarooPlan(HierarchyPlan);

impl KangarooPlan {
    /// Checks `config` against `flash`.
    ///
    /// # Errors
    /// Names the setting that cannot work and the nearest value that does.
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
            let cure = "sets = \"zoned\" works";
            check_in_place(flash, "tiny.kangaroo.set_storage", "in_place", cure)?;
        }
        let plan = match config.set_storage {
            SetStorage::InPlace => shape::in_place(&log, config.over_provisioning_percent, flash)?,
            SetStorage::Zoned => shape::zoned(&log, config.over_provisioning_percent, 1, 0, flash)?,
        };
        Ok(KangarooPlan(plan))
    }

    /// Sets that the flash is divided into.
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
