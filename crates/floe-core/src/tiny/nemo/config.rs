//! Nemo's settings, and the plan that follows from them.

use serde::{Deserialize, Serialize};

use super::filters::{Shape, columns_shape_rows, columns_with, filter_bits, mean, objects_for};
use super::fingerprints;
use crate::tiny::engine::Durability;
use crate::tiny::object::{Flash, OBJECT_BYTES_MAX, OBJECT_HEADER_BYTES, PAGE_ROOM_BYTES};
use crate::tiny::plan::{PlanError, check_flash, check_range, nearest};

/// The kind of filters of sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterKind {
    /// Bloom filters, as published (§4.3).
    #[default]
    Bloom,
    /// Fingerprints of objects that share the room of a page: less of it for
    /// filters that are as rarely wrong, and some more time to ask them. Of
    /// each object there is a byte at least, so that they are wrong in 0.3 %
    /// at most, whatever is asked for.
    Fingerprints,
}

/// How filters are sized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterSizing {
    /// For the objects that sets of late really held: so that filters are
    /// wrong as often as they may be on average over these sets, of which
    /// some hold far more than others where lengths vary.
    #[default]
    Measured,
    /// For as many objects as those sets held on average.
    Mean,
    /// For 40 objects in every set, as published (§5.1): at 246 bytes an
    /// object that is 41 bits for each of the 14 that there are.
    Published,
}

/// The hot objects that outlive their set-group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteBack {
    /// None.
    Off,
    /// Those that still fit the set-group that is about to be flushed (§4.2).
    Published,
    /// Those, and the rest into the set-groups that are still being filled,
    /// up to `write_back_share` of a set-group.
    #[default]
    Everywhere,
}

/// The choice of sets whose filters leave the cache of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexCache {
    /// Those that came first, as published (§5.1).
    #[default]
    Fifo,
    /// Those that came first and were not asked since: a second chance.
    Clock,
}

/// Nemo's settings. The defaults are Floe's own; [`NemoConfig::published`] are
/// the paper's (Table 3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NemoConfig {
    /// Pages of a set-group, which are its sets: whole zones or a whole part
    /// of one. `None` is one zone.
    pub set_group_pages: Option<u32>,
    /// Bytes of key and value of an object, about: the first filters are made
    /// for it, and set-groups leave room for the filters of twice as many
    /// objects. Where there are more, these filters are not written behind the
    /// set-group, and a restart reads the objects instead: more slowly.
    pub object_bytes: u32,
    /// Set-groups in memory that take in objects.
    pub memory_set_groups: u32,
    /// Objects that are turned out of full sets before a set-group is
    /// flushed, per set of a set-group: 4,096 of 275,712 in the paper (§4.2,
    /// "probabilistic flushing", as a count).
    pub flush_threshold: f64,
    /// Share of a set-group from which on it is flushed and nothing turned
    /// out. With two candidates and relocation sets are fuller than that when
    /// an object finds no room, unless lengths vary widely: then a few long
    /// objects would have set-groups flushed that are not full.
    pub flush_fill: f64,
    /// Sets that an object may lie in: 1 as published, or 2.
    pub candidates: u32,
    /// With two candidates: whether an object in a full set may move to its
    /// other one, while in memory, to make room.
    pub relocate: bool,
    /// The hot objects that outlive their set-group.
    pub write_back: WriteBack,
    /// Most bytes written back per set-group evicted, as a share of it.
    pub write_back_share: f64,
    /// The kind of filters.
    pub filter_kind: FilterKind,
    /// How filters are sized.
    pub filter_sizing: FilterSizing,
    /// Share of the filters of sets without an object that say it is there.
    pub filter_false_positive_rate: f64,
    /// Share of the index on flash that is cached in memory.
    pub index_cache_share: f64,
    /// The choice of sets whose filters leave that cache.
    pub index_cache_eviction: IndexCache,
    /// Of the sets whose filters had to be read, one in so many is cached.
    /// What is not cached need not be copied, and displaces nothing.
    pub index_cache_admit_one_in: u32,
    /// Share of a set-group's life, at its end, in which hits are noted.
    pub hotness_window: f64,
    /// Hotness fades each time this share of the flash has been written.
    pub cooling_period: f64,
}

impl Default for NemoConfig {
    fn default() -> Self {
        NemoConfig {
            set_group_pages: None,
            object_bytes: 246,
            memory_set_groups: 2,
            flush_threshold: 4096.0 / 275_712.0,
            flush_fill: 0.95,
            candidates: 2,
            relocate: true,
            write_back: WriteBack::Everywhere,
            write_back_share: 0.2,
            filter_kind: FilterKind::Bloom,
            filter_sizing: FilterSizing::Measured,
            filter_false_positive_rate: 0.003,
            index_cache_share: 0.5,
            index_cache_eviction: IndexCache::Fifo,
            index_cache_admit_one_in: 16,
            hotness_window: 0.3,
            cooling_period: 0.1,
        }
    }
}

impl NemoConfig {
    /// The paper's settings (Table 3).
    pub fn published() -> Self {
        NemoConfig {
            flush_fill: 1.0,
            candidates: 1,
            relocate: false,
            write_back: WriteBack::Published,
            write_back_share: 1.0,
            filter_kind: FilterKind::Bloom,
            filter_sizing: FilterSizing::Published,
            filter_false_positive_rate: 0.001,
            index_cache_share: 0.5,
            index_cache_admit_one_in: 1,
            ..NemoConfig::default()
        }
    }
}

/// A configuration that fits the flash.
#[derive(Clone, Debug, PartialEq)]
pub struct NemoPlan {
    pub(super) config: NemoConfig,
    pub(super) flash: Flash,
    /// Pages of an extent: sets and the summary behind them.
    pub(super) extent_pages: u32,
    /// Bits of a filter that a summary has room for. Filters of more bits are
    /// left out of it.
    pub(super) rows_max: u32,
    /// Sets of a set-group.
    pub(super) sets: u32,
    /// Objects turned out before a flush.
    pub(super) turned_out_max: u32,
    /// Bytes of objects from which on a set-group is flushed before that.
    pub(super) flush_bytes: u64,
}

/// Objects in a set that the published filters are made for.
const PUBLISHED_OBJECTS_PER_SET: f64 = 40.0;

/// Set-groups of one index group, as published.
const PUBLISHED_INDEX_GROUP: u32 = 50;

/// Bytes of a summary besides its filters, more than enough.
const SUMMARY_HEAD_BYTES: u64 = 128;

/// How many times the objects that are expected in a set summaries have room
/// for the filters of.
const FILTER_SLACK: f64 = 2.0;

/// Fewest pages of an extent.
const EXTENT_PAGES_MIN: u32 = 2;

/// Pages of a summary for so many sets with filters of so many bits.
fn summary_pages(sets: u64, rows: u32) -> u64 {
    let filter_bytes = (sets * u64::from(rows)).div_ceil(8);
    (SUMMARY_HEAD_BYTES + filter_bytes).div_ceil(PAGE_ROOM_BYTES as u64)
}

/// Sets of an extent of so many pages, the rest of which is the summary's.
fn sets_of(extent_pages: u32, rows: u32) -> Option<u32> {
    let pages = u64::from(extent_pages);
    let mut sets = pages.checked_sub(summary_pages(pages, rows))?;
    while sets + 1 + summary_pages(sets + 1, rows) <= pages {
        sets += 1;
    }
    u32::try_from(sets).ok().filter(|sets| *sets > 0)
}

/// Fewest set-groups on flash that make a cache: with fewer, one eviction
/// takes too much.
const SET_GROUPS_MIN: u32 = 4;

impl NemoPlan {
    /// Checks `config` against `flash`.
    ///
    /// # Errors
    /// [`PlanError`] names the setting that does not fit and a value that does.
    pub fn new(config: &NemoConfig, flash: &Flash) -> Result<Self, PlanError> {
        check_flash(flash, 1)?;
        let extent_pages = config.set_group_pages.unwrap_or(flash.zone_pages);
        let whole = extent_pages > 0
            && (extent_pages.is_multiple_of(flash.zone_pages)
                || flash.zone_pages.is_multiple_of(extent_pages));
        if !whole {
            return Err(PlanError::new(
                "tiny.nemo.set_group_pages",
                extent_pages,
                format!(
                    "must be a multiple or a whole part of a zone's {} pages",
                    flash.zone_pages
                ),
                nearest(flash.zone_pages),
            ));
        }
        let extents = flash.pages() / u64::from(extent_pages);
        if extents < u64::from(SET_GROUPS_MIN) {
            return Err(PlanError::new(
                "tiny.nemo.set_group_pages",
                extent_pages,
                format!(
                    "leaves {extents} set-groups on {} pages of flash; {SET_GROUPS_MIN} are needed",
                    flash.pages()
                ),
                nearest(flash.pages() / u64::from(SET_GROUPS_MIN)),
            ));
        }
        check_range(
            "tiny.nemo.object_bytes",
            config.object_bytes,
            1,
            OBJECT_BYTES_MAX as u32,
        )?;
        check_range(
            "tiny.nemo.filter_false_positive_rate",
            config.filter_false_positive_rate,
            1e-6,
            0.5,
        )?;
        let objects = expected_objects(config);
        let rows_max = match config.filter_sizing {
            FilterSizing::Published => columns_shape_rows(PUBLISHED_INDEX_GROUP),
            FilterSizing::Measured | FilterSizing::Mean => {
                let bits = filter_bits(objects * FILTER_SLACK, config.filter_false_positive_rate);
                columns_shape_rows(columns_with(bits))
            }
        };
        let sets = sets_of(extent_pages, rows_max).ok_or_else(|| {
            PlanError::new(
                "tiny.nemo.set_group_pages",
                extent_pages,
                "leaves no page for sets beside the summary",
                nearest(EXTENT_PAGES_MIN),
            )
        })?;
        check_range(
            "tiny.nemo.memory_set_groups",
            config.memory_set_groups,
            1,
            16,
        )?;
        check_range("tiny.nemo.candidates", config.candidates, 1, 2)?;
        check_range(
            "tiny.nemo.flush_threshold",
            config.flush_threshold,
            0.0,
            16.0,
        )?;
        check_range("tiny.nemo.flush_fill", config.flush_fill, 0.0, 1.0)?;
        check_range(
            "tiny.nemo.write_back_share",
            config.write_back_share,
            0.0,
            1.0,
        )?;
        check_range(
            "tiny.nemo.index_cache_share",
            config.index_cache_share,
            0.0,
            1.0,
        )?;
        check_range(
            "tiny.nemo.index_cache_admit_one_in",
            config.index_cache_admit_one_in,
            1,
            1024,
        )?;
        check_range("tiny.nemo.hotness_window", config.hotness_window, 0.0, 1.0)?;
        check_range(
            "tiny.nemo.cooling_period",
            config.cooling_period,
            0.001,
            1.0,
        )?;
        Ok(NemoPlan {
            flush_bytes: (config.flush_fill * f64::from(sets) * PAGE_ROOM_BYTES as f64) as u64,
            turned_out_max: (config.flush_threshold * f64::from(sets)).round() as u32,
            config: config.clone(),
            flash: *flash,
            extent_pages,
            rows_max,
            sets,
        })
    }

    /// Pages of a summary whose filters take `filter_bytes`; the rest of the
    /// extent where it shares a zone with others, so that they follow on.
    pub(super) fn summary_pages(&self, filter_bytes: usize) -> u32 {
        if self.extent_pages < self.flash.zone_pages {
            return self.extent_pages - self.sets;
        }
        let bytes = SUMMARY_HEAD_BYTES as usize + filter_bytes;
        bytes.div_ceil(PAGE_ROOM_BYTES) as u32
    }

    /// Whether a summary has room for filters of so many bytes.
    pub(super) fn summary_holds(&self, filter_bytes: usize) -> bool {
        let room = (self.extent_pages - self.sets) as usize * PAGE_ROOM_BYTES;
        SUMMARY_HEAD_BYTES as usize + filter_bytes <= room
    }

    /// Where in an extent its summary begins: this many pages from its start,
    /// which are its sets.
    pub fn sets(&self) -> u32 {
        self.sets
    }

    /// A restart finds set-groups again. One task at a time makes that sound.
    pub fn durability(&self) -> Durability {
        Durability::Persistent { ordered: true }
    }

    /// Set-groups in memory that take in objects.
    pub fn memory_set_groups(&self) -> u32 {
        self.config.memory_set_groups
    }

    /// Pages of an extent: a set-group with its summary, or an index group.
    pub fn extent_pages(&self) -> u32 {
        self.extent_pages
    }

    /// Set-groups and index groups that fit on flash.
    pub fn extents(&self) -> u32 {
        (self.flash.pages() / u64::from(self.extent_pages)) as u32
    }

    /// Set-groups whose filters share an index group, when they are made for
    /// sets of `objects_per_set` objects.
    pub(super) fn index_group_columns(&self, objects_per_set: f64) -> u32 {
        match self.config.filter_sizing {
            FilterSizing::Published => PUBLISHED_INDEX_GROUP,
            FilterSizing::Measured | FilterSizing::Mean => {
                let wrong = self.config.filter_false_positive_rate;
                match self.config.filter_kind {
                    FilterKind::Bloom => columns_with(filter_bits(objects_per_set, wrong)),
                    FilterKind::Fingerprints => fingerprints::columns_with(objects_per_set, wrong),
                }
            }
        }
    }

    /// How the filters of an index group are laid out that are made for sets of
    /// `objects` objects.
    pub(super) fn shape_for(&self, objects: f64) -> Shape {
        let columns = self.index_group_columns(objects);
        match self.config.filter_kind {
            FilterKind::Bloom => Shape::new(columns, objects),
            FilterKind::Fingerprints => Shape::of_fingerprints(columns, objects),
        }
    }

    /// Objects in a set that filters are made for before anything is known.
    pub(super) fn expected_objects(&self) -> f64 {
        match self.config.filter_sizing {
            FilterSizing::Published => PUBLISHED_OBJECTS_PER_SET,
            FilterSizing::Measured | FilterSizing::Mean => expected_objects(&self.config),
        }
    }

    /// Objects in a set that filters are made for, when sets hold so many.
    pub(super) fn filter_objects(&self, objects: impl Iterator<Item = usize> + Clone) -> f64 {
        match self.config.filter_sizing {
            FilterSizing::Published => PUBLISHED_OBJECTS_PER_SET,
            FilterSizing::Mean => mean(objects),
            FilterSizing::Measured => match self.config.filter_kind {
                FilterKind::Bloom => objects_for(objects, self.config.filter_false_positive_rate),
                // Sets that hold more share the room of those that hold less.
                FilterKind::Fingerprints => mean(objects),
            },
        }
    }
}

/// Objects in a set, before anything is known.
fn expected_objects(config: &NemoConfig) -> f64 {
    let bytes = OBJECT_HEADER_BYTES as f64 + f64::from(config.object_bytes);
    (PAGE_ROOM_BYTES as f64 / bytes).max(1.0)
}
