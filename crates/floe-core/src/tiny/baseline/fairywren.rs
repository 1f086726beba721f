//! `fairywren`: a small log in front of sets in zones, after FairyWREN
//! (McAllister et al., OSDI '24) as Nemo's authors ran it (§3, §5.1).
//!
//! A set is two pages. New objects join the cold one. Used objects move to the
//! hot one, which is rewritten one time in five. Each half has its own ring of
//! zones, and a map has the page of each half. Collecting a zone and emptying
//! the log are one operation: a set that moves takes its objects in the log
//! along.
//!
//! Deviations from the published code, and why:
//! * Each half has its own filter of 24 bytes. The code has one of 8 bytes per
//!   set, which has 60 % false positives at 33 objects. With two, a search
//!   reads one half instead of both.
//! * The code counts rewrites per set and includes the hot half every fifth
//!   time. Here every fifth rewrite of any set includes it, which is as often
//!   and needs no memory.
//! * The collection of a hot zone moves hot halves only. Taking their sets'
//!   objects in the log along would rewrite the cold halves, too, and fill the
//!   cold ring, whose collection then fills the hot one.
//! * Only passive rewrites count towards the fifth, for the same reason.
//! * The papers do not say how the rings share the free zones. Here each has
//!   half of them ([`FairyWrenConfig::hot_free_zones_percent`]). With 40, 50
//!   and 65 % for the hot ring, the amplification is 12.7, 12.3 and 12.1, where
//!   the paper has 15.2 (`experiments/nemo-fig12.toml`).
//! * An object that leaves the cold half while the hot half may hold an older
//!   copy leaves a tombstone, until both halves are rewritten together.
//! * All sets share one log instead of partitions: see the log's index.

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
    /// The log's share of the flash, in percent.
    pub log_percent: u32,
    /// Share of the rest, in percent, that sets leave free for garbage
    /// collection.
    pub over_provisioning_percent: u32,
    /// The hot halves' share of the free zones, in percent.
    pub hot_free_zones_percent: u32,
    /// One in this many rewrites includes the hot half.
    pub hot_rewrite_interval: u32,
    /// Objects of a set that the log must hold for them to join the set.
    pub threshold: u32,
    /// Free share of the log, in percent, at or below which its oldest zone is
    /// emptied.
    pub log_free_percent: u32,
    /// Free share of a ring's zones, in thousandths, at or below which its
    /// oldest zone is collected.
    pub zones_free_permille: u32,
    /// Pages of a segment, the unit of appends to the log. 64 pages are 256
    /// KiB.
    pub segment_pages: u32,
    /// Most segments of the log in memory.
    pub segments_buffered: u32,
    /// Bytes of the filter of each half of a set: a multiple of 8, up to 512.
    pub filter_bytes: u32,
    /// Expected objects in half a set, which filters are optimized for.
    pub objects_per_page: u32,
    /// Most concurrent rewrites of sets.
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
    /// The published size of filters: 8 bytes, here for each half of a set,
    /// there for both together.
    pub fn published() -> Self {
        FairyWrenConfig {
            filter_bytes: 8,
            ..FairyWrenConfig::default()
        }
    }
}

/// A validated configuration of `fairywren`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FairyWrenPlan(HierarchyPlan);

impl FairyWrenPlan {
    /// Checks `config` against `flash`.
    ///
    /// # Errors
    /// [`PlanError`] names the setting that does not fit and the nearest value
    /// that does.
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

    /// Number of sets, of two pages each.
    pub fn sets(&self) -> u32 {
        self.0.sets
    }

    /// Pages of the log (N_Log in Nemo's equations).
    pub fn log_pages(&self) -> u64 {
        u64::from(self.0.log_zones) * u64::from(self.0.flash.zone_pages)
    }

    /// Mean share of the log in use. Some zones are kept free, and on average
    /// half of the zone being written and half of the zone being emptied are
    /// free.
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
