//! Divides flash between a log and sets.

use super::hier::{HierarchyPlan, LOG_PAGES_MAX};
use super::set::check_filter;
use crate::tiny::object::Flash;
use crate::tiny::plan::{PlanError, check_flash, check_range};

/// The settings that `kangaroo` and `fairywren` share.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogShape {
    pub(super) settings: &'static Settings,
    pub(super) percent: u32,
    pub(super) free_percent: u32,
    pub(super) segment_pages: u32,
    pub(super) segments_buffered: u32,
    pub(super) threshold: u32,
    pub(super) filter_bytes: u32,
    pub(super) objects_per_page: u32,
    pub(super) max_rewrites: u32,
    pub(super) zones_free_permille: u32,
}

/// The names of these settings in one engine.
#[derive(Debug)]
pub(super) struct Settings {
    over_provisioning_percent: &'static str,
    log_percent: &'static str,
    log_free_percent: &'static str,
    segment_pages: &'static str,
    segments_buffered: &'static str,
    threshold: &'static str,
    filter_bytes: &'static str,
    objects_per_page: &'static str,
    max_rewrites: &'static str,
    zones_free_permille: &'static str,
}

macro_rules! settings {
    ($engine:literal, $objects_per_page:literal) => {
        Settings {
            over_provisioning_percent: concat!($engine, ".over_provisioning_percent"),
            log_percent: concat!($engine, ".log_percent"),
            log_free_percent: concat!($engine, ".log_free_percent"),
            segment_pages: concat!($engine, ".segment_pages"),
            segments_buffered: concat!($engine, ".segments_buffered"),
            threshold: concat!($engine, ".threshold"),
            filter_bytes: concat!($engine, ".filter_bytes"),
            objects_per_page: concat!($engine, $objects_per_page),
            max_rewrites: concat!($engine, ".max_rewrites"),
            zones_free_permille: concat!($engine, ".zones_free_permille"),
        }
    };
}

pub(super) static KANGAROO: Settings = settings!("tiny.kangaroo", ".objects_per_set");
pub(super) static FAIRYWREN: Settings = settings!("tiny.fairywren", ".objects_per_page");

/// Fewest zones of a log: one being written, one being emptied, one free.
const LOG_ZONES_LEAST: u32 = 3;

/// Fewest zones of a ring besides those that its sets fill: one being written,
/// one reserved for collection, one that collection gains.
const RING_SPARE_LEAST: u32 = 3;

/// Plans a log in front of sets in place.
pub(super) fn in_place(
    log: &LogShape,
    over_provisioning_percent: u32,
    flash: &Flash,
) -> Result<HierarchyPlan, PlanError> {
    let log_zones = log_zones(log, flash, 1)?;
    check_range(
        log.settings.over_provisioning_percent,
        over_provisioning_percent,
        0,
        95,
    )?;
    let pages = u64::from(flash.zones - log_zones) * u64::from(flash.zone_pages);
    let sets = (pages * u64::from(100 - over_provisioning_percent) / 100).max(1) as u32;
    Ok(HierarchyPlan {
        in_place: true,
        ..plan(log, flash, log_zones, sets)
    })
}

/// Plans a log in front of sets of one or two parts, each in a ring of zones.
/// The second part has `hot_free_zones_percent` of the zones that sets do not
/// fill.
pub(super) fn zoned(
    log: &LogShape,
    over_provisioning_percent: u32,
    parts: u32,
    hot_free_zones_percent: u32,
    flash: &Flash,
) -> Result<HierarchyPlan, PlanError> {
    let setting = log.settings.over_provisioning_percent;
    let log_zones = log_zones(log, flash, parts * (RING_SPARE_LEAST + 1))?;
    check_range(setting, over_provisioning_percent, 1, 95)?;
    let set_zones = flash.zones - log_zones;
    let zones_each = |percent: u32| {
        let pages = u64::from(set_zones) * u64::from(flash.zone_pages);
        let sets = (pages * u64::from(100 - percent) / 100 / u64::from(parts)).max(1);
        (sets as u32, (sets as u32).div_ceil(flash.zone_pages))
    };
    let enough = |percent: &u32| parts * (zones_each(*percent).1 + RING_SPARE_LEAST) <= set_zones;
    if !enough(&over_provisioning_percent) {
        let cure = match (over_provisioning_percent..=95).find(enough) {
            Some(percent) => format!("the nearest that works is {percent}"),
            None => "use smaller zones or a larger device".into(),
        };
        return Err(PlanError::new(
            setting,
            over_provisioning_percent,
            format!("each of the {parts} rings of sets needs {RING_SPARE_LEAST} zones to spare"),
            cure,
        ));
    }
    let (sets, filled) = zones_each(over_provisioning_percent);
    let spare = set_zones - parts * filled;
    let hot_spare = if parts == 1 {
        0
    } else {
        (spare * hot_free_zones_percent / 100).clamp(RING_SPARE_LEAST, spare - RING_SPARE_LEAST)
    };
    let hot_zones = if parts == 1 { 0 } else { filled + hot_spare };
    let cold = log_zones..flash.zones - hot_zones;
    let hot = flash.zones - hot_zones..flash.zones;
    // With one zone less, collection would have no zone to write to.
    let collect_at = |zones: u32| (zones * log.zones_free_permille).div_ceil(1000).max(1);
    let limit = |collect_at: u32, spare: u32| collect_at.min(spare - RING_SPARE_LEAST + 1);
    Ok(HierarchyPlan {
        parts: parts as usize,
        collect_at: [
            limit(collect_at(cold.len() as u32), cold.len() as u32 - filled),
            if parts == 1 {
                0
            } else {
                limit(collect_at(hot_zones), hot_spare)
            },
        ],
        rings: [cold, hot],
        ..plan(log, flash, log_zones, sets)
    })
}

fn plan(log: &LogShape, flash: &Flash, log_zones: u32, sets: u32) -> HierarchyPlan {
    HierarchyPlan {
        flash: *flash,
        log_zones,
        segment_pages: log.segment_pages.min(flash.zone_pages),
        segments_buffered: log.segments_buffered,
        log_free_percent: log.free_percent,
        threshold: log.threshold,
        sets,
        parts: 1,
        in_place: false,
        rings: [0..0, 0..0],
        collect_at: [0, 0],
        collection_merges: false,
        hot_rewrite_interval: 1,
        filter_bytes: log.filter_bytes,
        objects_per_page: log.objects_per_page,
        merges_max: log.max_rewrites,
    }
}

/// Checks the log's settings; returns its number of zones.
fn log_zones(log: &LogShape, flash: &Flash, others_least: u32) -> Result<u32, PlanError> {
    check_flash(flash, LOG_ZONES_LEAST + others_least)?;
    let names = log.settings;
    check_range(names.log_percent, log.percent, 1, 90)?;
    check_range(names.log_free_percent, log.free_percent, 1, 90)?;
    check_range(names.segment_pages, log.segment_pages, 1, 4096)?;
    check_range(names.segments_buffered, log.segments_buffered, 2, 1024)?;
    check_range(names.threshold, log.threshold, 1, 64)?;
    check_range(names.objects_per_page, log.objects_per_page, 1, 1024)?;
    check_range(names.max_rewrites, log.max_rewrites, 1, 1024)?;
    check_range(names.zones_free_permille, log.zones_free_permille, 0, 500)?;
    check_filter(names.filter_bytes, log.filter_bytes)?;
    let wanted = (u64::from(flash.zones) * u64::from(log.percent)).div_ceil(100) as u32;
    let zones = wanted.clamp(LOG_ZONES_LEAST, flash.zones - others_least);
    let pages = u64::from(zones) * u64::from(flash.zone_pages);
    if pages > LOG_PAGES_MAX {
        return Err(PlanError::new(
            names.log_percent,
            log.percent,
            format!("the log's index can address at most {LOG_PAGES_MAX} pages"),
            format!(
                "the nearest that works is {}",
                LOG_PAGES_MAX * 100 / flash.pages()
            ),
        ));
    }
    Ok(zones)
}
