//! `fairywren`: a small log in front of sets in zones, after FairyWREN
//! (McAllister et al., OSDI '24) as Nemo's authors ran it (§3, §5.1).
//!
//! A set is two pages. New objects join the cold one; what was used moves to
//! the hot one, which is rewritten one time in five. Each half has a ring of
//! zones of its own, and a map says where each set's halves are. Collecting a
//! zone and emptying the log are one operation: a set that must move takes
//! along its objects from the log.
//!
//! Deviations from the published code, and why:
//! * Each half has a filter of its own, of 24 bytes, where the code has one of
//!   8 bytes per set; that has 60 % false positives at 33 objects. A search
//!   reads one half then, not both.
//! * The code turns the hot half over "every fifth rewrite" by a counter per
//!   set; here every fifth rewrite of any set does, which is as often and
//!   takes no memory.
//! * A hot zone's collection moves hot halves alone. Taking their sets' objects
//!   along from the log would rewrite the cold halves, too, and fill the cold
//!   ring, whose collection then fills the hot one.
//! * Only passive rewrites count towards the hot half's turn, for the same reason.
//! * The papers do not say how the rings share the free zones. Here they have
//!   as many each ([`FairyWrenConfig::hot_free_zones_percent`]). With 40, 50 and 65 %
//!   for the hot ring amplification is 12.7, 12.3 and 12.1 where the paper has
//!   15.2 (`experiments/nemo-fig12.toml`).
//! * What leaves the cold half while an older copy may be in the hot half
//!   leaves a tombstone, until both are rewritten together.
//! * One log for all sets instead of partitions: see the log's index.

use serde::{Deserialize, Serialize};

pub use super::hier::Front;
use super::hier::{Hierarchy, HierarchyPlan};
use super::shape::{self, LogShape};
use crate::hash::KeyHash;
use crate::tiny::engine::{Engine, Found, Insert, Outcome, Search, Step, Task, TaskId};
use crate::tiny::object::{Flash, Object};
use crate::tiny::plan::{PlanError, check_range};
use crate::tiny::statistics::{Memory, Statistics};

/// Settings of `fairywren`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FairyWrenConfig {
    /// Share of the flash, in percent, that the log has.
    pub log_percent: u32,
    /// Share of the rest, in percent, that sets leave free for garbage collection.
    pub over_provisioning_percent: u32,
    /// Share of the free zones, in percent, that belongs to the hot halves.
    pub hot_free_zones_percent: u32,
    /// The hot half is rewritten one time in so many.
    pub hot_rewrite_interval: u32,
    /// Objects of one set that must have gathered in the log to join it.
    pub threshold: u32,
    /// Share of the log, in percent, at or below which it is emptied.
    pub log_free_percent: u32,
    /// Share of each ring's zones, in thousandths, at or below which its
    /// oldest is collected.
    pub zones_free_permille: u32,
    /// Pages of a segment: one append to the log. 64 pages are 256 KiB.
    pub segment_pages: u32,
    /// Segments of the log that may be in memory.
    pub segments_buffered: u32,
    /// Bytes of the filter of each half of a set; a multiple of 8, up to 512.
    pub filter_bytes: u32,
    /// Objects that half a set is expected to hold; filters are best at this many.
    pub objects_per_page: u32,
    /// Rewrites of sets that may be under way at a time.
    pub max_rewrites: u32,
}

impl Default for FairyWrenConfig {
    fn default() -> Self {
        FairyWrenConfig {
            log_percent: 5,
            over_provisioning_percent: 5,
            hot_free_zones_percent: 50,
            hot_rewrite_interval: 5,
            threshold: 1,
            log_free_percent: 15,
            zones_free_permille: 15,
            segment_pages: 64,
            segments_buffered: 4,
            filter_bytes: 24,
            objects_per_page: 16,
            max_rewrites: 16,
        }
    }
}

impl FairyWrenConfig {
    /// With filters as small as the published ones: 8 bytes, here for each half
    /// of a set, there for both together.
    pub fn published() -> Self {
        FairyWrenConfig {
            filter_bytes: 8,
            ..FairyWrenConfig::default()
        }
    }
}

/// A `fairywren` that can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FairyWrenPlan(HierarchyPlan);

impl FairyWrenPlan {
    /// Checks `config` against `flash`.
    ///
    /// # Errors
    /// Names the setting that cannot work and the nearest value that does.
    pub fn new(config: &FairyWrenConfig, flash: &Flash) -> Result<FairyWrenPlan, PlanError> {
        check_range(
            "tiny.fairywren.hot_rewrite_interval",
            config.hot_rewrite_interval,
            1,
            1000,
        )?;
        check_range(
            "tiny.fairywren.hot_free_zones_percent",
            config.hot_free_zones_percent,
            1,
            99,
        )?;
        let log = LogShape {
            settings: &shape::FAIRYWREN,
            percent: config.log_percent,
            free_percent: config.log_free_percent,
            segment_pages: config.segment_pages,
            segments_buffered: config.segments_buffered,
            threshold: config.threshold,
            filter_bytes: config.filter_bytes,
            objects_per_page: config.objects_per_page,
            max_rewrites: config.max_rewrites,
            zones_free_permille: config.zones_free_permille,
        };
        let mut plan = shape::zoned(
            &log,
            config.over_provisioning_percent,
            2,
            config.hot_free_zones_percent,
            flash,
        )?;
        plan.collection_merges = true;
        plan.hot_rewrite_interval = config.hot_rewrite_interval;
        Ok(FairyWrenPlan(plan))
    }

    /// Sets of two pages that the flash is divided into.
    pub fn sets(&self) -> u32 {
        self.0.sets
    }

    /// Pages of the log (N_Log in Nemo's equations).
    pub fn log_pages(&self) -> u64 {
        u64::from(self.0.log_zones) * u64::from(self.0.flash.zone_pages)
    }

    /// Share of the log that is in use on average: some is kept free, and half
    /// of the zone that is written and half of that which is emptied are free.
    pub fn log_full_share(&self) -> f64 {
        let kept_free = f64::from(self.0.log_free_percent) / 100.0;
        (1.0 - kept_free - 1.0 / f64::from(self.0.log_zones)).max(0.0)
    }
}

/// The engine.
#[derive(Debug)]
pub struct FairyWren(Hierarchy);

impl FairyWren {
    /// An engine on empty flash.
    pub fn new(plan: FairyWrenPlan) -> Self {
        FairyWren(Hierarchy::new(plan.0))
    }
}

super::hier::delegate_engine!(FairyWren);
