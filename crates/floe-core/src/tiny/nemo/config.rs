//! Nemo's settings, and the plan that follows from them.

use serde::{Deserialize, Serialize};

use super::filters::{
    Shape, columns_with, filter_bits, mean, objects_for, page_filters_with, rows_with,
};
use super::fingerprints;
use super::page_filter::PageFilterShape;
use crate::tiny::engine::Durability;
use crate::tiny::object::{
    Flash, OBJECT_BYTES_MAX, OBJECT_HEADER_BYTES, PAGE_BYTES, PAGE_ROOM_BYTES,
};
use crate::tiny::plan::{PlanError, check_flash, check_range, nearest};

/// The kind of the sets' filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterKind {
    /// Bloom filters, as published (§4.3).
    #[default]
    Bloom,
    /// Fingerprints of objects, which share the room of a page. At the same
    /// false-positive rate they take less room and a little more time to probe.
    /// Each object has at least one byte, so the rate is at most 0.3 %,
    /// whatever is configured.
    Fingerprints,
}

/// The number of objects per set that filters are sized for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterSizing {
    /// For the measured distribution of objects over recent sets, so that the
    /// average false-positive rate over these sets is the configured one. Where
    /// lengths vary, some sets hold far more objects than others.
    #[default]
    Measured,
    /// For the mean number of objects in recent sets.
    Mean,
    /// For 40 objects in every set, as published (§5.1). At 246 bytes a set has
    /// 14 objects, so each takes 41 bits.
    Published,
}

/// The hot objects that are written back when their set-group is evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteBack {
    /// None.
    Off,
    /// Those that fit the set-group that is about to be flushed (§4.2).
    Published,
    /// Those, and the rest into the open set-groups, up to `write_back_share`
    /// of a set-group.
    #[default]
    Everywhere,
}

/// The eviction policy of the index cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexCache {
    /// The oldest first, as published (§5.1).
    #[default]
    Fifo,
    /// The oldest that was not probed since it was cached or last spared: a
    /// second chance.
    Clock,
}

/// Nemo's settings. The defaults are Floe's own; [`NemoConfig::published`] has
/// the paper's (Table 3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NemoConfig {
    /// Pages of a set-group with its summary: whole zones or an equal part of
    /// one. `None` is one zone.
    pub set_group_pages: Option<u32>,
    /// Expected bytes of key and value of an object. The first filters are
    /// sized for it. A summary has room for the filters of twice as many
    /// objects as that gives. If sets hold more, the summary has no filters,
    /// and a restart reads the objects instead, which takes longer.
    pub object_bytes: u32,
    /// Open set-groups: those in memory that take in objects.
    pub memory_set_groups: u32,
    /// Objects that are evicted from full sets before a set-group is flushed,
    /// per set: 4,096 of 275,712 in the paper (§4.2, "probabilistic flushing",
    /// as a count).
    pub flush_threshold: f64,
    /// Fill rate from which on a set-group is flushed without such evictions.
    /// With two candidates and relocation, sets are fuller than that when an
    /// object finds no room, unless lengths vary widely: then the evictions
    /// keep a few long objects from flushing set-groups early.
    pub flush_fill: f64,
    /// Candidate sets per object: 1 as published, or 2.
    pub candidates: u32,
    /// With two candidates: whether an object in memory may move from a full
    /// set to its other one.
    pub relocate: bool,
    /// The hot objects that are written back when their set-group is evicted.
    pub write_back: WriteBack,
    /// Most bytes written back per evicted set-group, as a share of its size.
    pub write_back_share: f64,
    /// The kind of filters.
    pub filter_kind: FilterKind,
    /// The number of objects per set that filters are sized for.
    pub filter_sizing: FilterSizing,
    /// False-positive rate of a set's filter.
    pub filter_false_positive_rate: f64,
    /// Memory of the page filters, in bits for each object on flash, up to 16. A page filter
    /// excludes a page of the index from a search. Zero for none, as published.
    pub page_filter_bits: f64,
    /// Share of the index on flash that is cached in memory, if there are no page filters.
    pub index_cache_share: f64,
    /// The eviction policy of that cache.
    pub index_cache_eviction: IndexCache,
    /// One in this many sets whose filters were read from flash is cached. The
    /// others cost no copy and evict nothing.
    pub index_cache_admit_one_in: u32,
    /// Share of a set-group's life, at its end, in which hits are recorded.
    pub hotness_window: f64,
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
            page_filter_bits: 7.0,
            index_cache_share: 0.0,
            index_cache_eviction: IndexCache::Fifo,
            index_cache_admit_one_in: 16,
            hotness_window: 0.15,
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
            page_filter_bits: 0.0,
            index_cache_share: 0.5,
            index_cache_admit_one_in: 1,
            hotness_window: 0.3,
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
    /// Most bits of a filter that fit a summary. Longer filters are left out of
    /// it.
    pub(super) rows_max: u32,
    /// Sets of a set-group.
    pub(super) sets: u32,
    /// Objects evicted from full sets before a set-group is flushed.
    pub(super) early_evictions_max: u32,
    /// Stored bytes from which on a set-group is flushed without further
    /// evictions.
    pub(super) flush_bytes: u64,
}

/// Objects per set that the published filters are sized for.
const PUBLISHED_OBJECTS_PER_SET: f64 = 40.0;

/// Set-groups of one index group, as published.
const PUBLISHED_INDEX_GROUP: u32 = 50;

/// Most bits of page filters for each object: a key sets seven at most, so more help little.
const PAGE_FILTER_BITS_MAX: f64 = 16.0;

/// Upper bound of the bytes of a summary besides its filters.
const SUMMARY_HEAD_BYTES: u64 = 128;

/// A summary has room for the filters of this many times the expected objects.
const FILTER_SLACK: f64 = 2.0;

/// Fewest pages of an extent.
const EXTENT_PAGES_MIN: u32 = 2;

/// Pages of a summary for `sets` sets with filters of `rows` bits.
fn summary_pages(sets: u64, rows: u32) -> u64 {
    let filter_bytes = (sets * u64::from(rows)).div_ceil(8);
    (SUMMARY_HEAD_BYTES + filter_bytes).div_ceil(PAGE_ROOM_BYTES as u64)
}

/// Sets that fit an extent beside their summary.
fn sets_of(extent_pages: u32, rows: u32) -> Option<u32> {
    let pages = u64::from(extent_pages);
    let mut sets = pages.checked_sub(summary_pages(pages, rows))?;
    while sets + 1 + summary_pages(sets + 1, rows) <= pages {
        sets += 1;
    }
    u32::try_from(sets).ok().filter(|sets| *sets > 0)
}

/// Fewest set-groups on flash. With fewer, one eviction would drop too large a
/// share of the cache.
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
            FilterSizing::Published => rows_with(PUBLISHED_INDEX_GROUP, PageFilterShape::NONE),
            FilterSizing::Measured | FilterSizing::Mean => {
                let bits = filter_bits(objects * FILTER_SLACK, config.filter_false_positive_rate);
                rows_with(columns_with(bits), PageFilterShape::NONE)
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
            "tiny.nemo.page_filter_bits",
            config.page_filter_bits,
            0.0,
            PAGE_FILTER_BITS_MAX,
        )?;
        check_range(
            "tiny.nemo.index_cache_share",
            config.index_cache_share,
            0.0,
            1.0,
        )?;
        if config.page_filter_bits > 0.0 && config.index_cache_share > 0.0 {
            return Err(PlanError::new(
                "tiny.nemo.index_cache_share",
                config.index_cache_share,
                "needs tiny.nemo.page_filter_bits = 0: pages are cached only where there are no \
                 page filters",
                nearest(0),
            ));
        }
        check_range(
            "tiny.nemo.index_cache_admit_one_in",
            config.index_cache_admit_one_in,
            1,
            1024,
        )?;
        check_range("tiny.nemo.hotness_window", config.hotness_window, 0.0, 1.0)?;
        Ok(NemoPlan {
            flush_bytes: (config.flush_fill * f64::from(sets) * PAGE_ROOM_BYTES as f64) as u64,
            early_evictions_max: (config.flush_threshold * f64::from(sets)).round() as u32,
            config: config.clone(),
            flash: *flash,
            extent_pages,
            rows_max,
            sets,
        })
    }

    /// Pages of a summary whose filters take `filter_bytes`. If the extent
    /// shares its zone, the summary takes the rest of the extent, so that the
    /// next one follows without a gap.
    pub(super) fn summary_pages(&self, filter_bytes: usize) -> u32 {
        if self.extent_pages < self.flash.zone_pages {
            return self.extent_pages - self.sets;
        }
        let bytes = SUMMARY_HEAD_BYTES as usize + filter_bytes;
        bytes.div_ceil(PAGE_ROOM_BYTES) as u32
    }

    /// True if filters of `filter_bytes` fit a summary.
    pub(super) fn summary_holds(&self, filter_bytes: usize) -> bool {
        let room = (self.extent_pages - self.sets) as usize * PAGE_ROOM_BYTES;
        SUMMARY_HEAD_BYTES as usize + filter_bytes <= room
    }

    /// Sets of a set-group; its summary begins that many pages into its extent.
    pub fn sets(&self) -> u32 {
        self.sets
    }

    /// A restart recovers set-groups. Recovery relies on one task at a time.
    pub fn durability(&self) -> Durability {
        Durability::Persistent { ordered: true }
    }

    /// Open set-groups.
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

    /// Set-groups of an index group whose filters are sized for `objects` objects per set, with
    /// `page_filter_bits` bits of page filters for each of them.
    fn columns(&self, objects: f64, page_filter_bits: f64) -> u32 {
        let rate = self.config.filter_false_positive_rate;
        match (self.config.filter_sizing, self.config.filter_kind) {
            (FilterSizing::Published, _) => PUBLISHED_INDEX_GROUP,
            (_, FilterKind::Bloom) => {
                let bits = filter_bits(objects, rate) + objects.max(1.0) * page_filter_bits;
                columns_with(bits)
            }
            (_, FilterKind::Fingerprints) => {
                fingerprints::columns_with(objects, rate, page_filter_bits)
            }
        }
    }

    /// The layout of an index group whose filters are sized for sets of
    /// `objects` objects.
    pub(super) fn shape_for(&self, objects: f64) -> Shape {
        let bits = self.config.page_filter_bits;
        let columns = self.columns(objects, bits);
        let page_filter = page_filters_with(columns, objects, bits);
        match self.config.filter_kind {
            FilterKind::Bloom => Shape::new(columns, objects, page_filter),
            FilterKind::Fingerprints => Shape::of_fingerprints(columns, objects, page_filter),
        }
    }

    /// Objects per set that the first filters are sized for.
    pub(super) fn expected_objects(&self) -> f64 {
        match self.config.filter_sizing {
            FilterSizing::Published => PUBLISHED_OBJECTS_PER_SET,
            FilterSizing::Measured | FilterSizing::Mean => expected_objects(&self.config),
        }
    }

    /// Objects per set that filters are sized for. `counts` has the number of sets of a recent
    /// set-group with as many objects as the index says.
    pub(super) fn filter_objects(&self, counts: &[u32]) -> f64 {
        match self.config.filter_sizing {
            FilterSizing::Published => PUBLISHED_OBJECTS_PER_SET,
            FilterSizing::Mean => mean(counts),
            FilterSizing::Measured => match self.config.filter_kind {
                FilterKind::Bloom => objects_for(counts, self.config.filter_false_positive_rate),
                // Sets of a stripe share its room, so only the mean matters.
                FilterKind::Fingerprints => mean(counts),
            },
        }
    }
}

/// The expected costs of an engine once its flash is full of objects of the configured size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Costs {
    /// Most bytes of the set-groups in memory, with their objects.
    pub buffer_bytes: u64,
    /// Most bytes of page filters or cached filters, and of filters that are not on flash yet.
    pub filter_bytes: u64,
    /// Bytes of the hits that are recorded.
    pub hotness_bytes: u64,
    /// Flash pages that a lookup of a stored object reads.
    pub reads_per_hit: f64,
    /// Flash pages that a lookup of another object reads.
    pub reads_per_miss: f64,
}

impl Costs {
    /// Bytes of memory in all.
    pub fn memory_bytes(&self) -> u64 {
        self.buffer_bytes + self.filter_bytes + self.hotness_bytes
    }
}

/// Bytes that an object takes in memory besides key and value: its entry in a set, and what the
/// allocator adds.
const OBJECT_OVERHEAD_BYTES: f64 = 80.0;

/// Bytes of a set in memory besides its objects.
const SET_OVERHEAD_BYTES: f64 = 100.0;

impl NemoPlan {
    /// The expected costs.
    pub fn costs(&self) -> Costs {
        let config = &self.config;
        let (sets, extents) = (f64::from(self.sets), f64::from(self.extents()));
        let objects = expected_objects(config);
        let shape = self.shape_for(self.expected_objects());
        let columns = f64::from(shape.columns);
        let set_groups = extents * columns / (columns + 1.0);
        let of_object = f64::from(config.object_bytes) + OBJECT_OVERHEAD_BYTES;
        let in_memory = f64::from(config.memory_set_groups) + 1.0;
        let pages = sets * PAGE_BYTES as f64;
        let groups = set_groups / columns;
        // The filters of a whole group are not on flash when the group is full.
        let open = (PAGE_BYTES - shape.page_filter.bytes()) as f64 * sets;
        let kept = match shape.page_filter.exists() {
            true => self.page_filter_bytes() as f64,
            false => config.index_cache_share * groups.ceil() * pages,
        };
        let homes = f64::from(config.candidates);
        let rate = config.filter_false_positive_rate;
        // The youngest group is half full, and in memory.
        let closed = (groups - 0.5).max(0.0);
        // Index pages that a hit and a miss read, and their false positives.
        let (index_hit, index_miss) = match shape.page_filter.exists() {
            true => {
                let rate = shape.page_filter.false_positives(columns * objects);
                // The filters of a group stay until all of its set-groups are evicted.
                let in_vain = homes * groups * rate;
                ((closed / groups).min(1.0) + in_vain, in_vain)
            }
            false => {
                let uncached = homes * closed * (1.0 - config.index_cache_share);
                (uncached, uncached)
            }
        };
        let false_pages = |index_pages: f64| match shape.page_filter.exists() {
            true => index_pages * columns * rate,
            false => homes * set_groups * rate,
        };
        Costs {
            buffer_bytes: (in_memory * sets * (objects * of_object + SET_OVERHEAD_BYTES)) as u64,
            filter_bytes: (open + kept) as u64,
            hotness_bytes: (config.hotness_window * set_groups * sets * objects / 8.0) as u64,
            // The newest copy is as likely in any set-group.
            reads_per_hit: index_hit + 1.0 + false_pages(index_hit) / 2.0,
            reads_per_miss: index_miss + false_pages(index_miss),
        }
    }

    /// Most bytes of the page filters of all index groups on flash and of the one that is being
    /// filled, if sets hold as many objects as expected.
    pub(super) fn page_filter_bytes(&self) -> u64 {
        let shape = self.shape_for(self.expected_objects());
        let groups = self.extents().div_ceil(shape.columns + 1) + 1;
        u64::from(groups) * u64::from(self.sets) * shape.page_filter.bytes() as u64
    }
}

/// Objects in a set of objects of the configured size.
fn expected_objects(config: &NemoConfig) -> f64 {
    let bytes = OBJECT_HEADER_BYTES as f64 + f64::from(config.object_bytes);
    (PAGE_ROOM_BYTES as f64 / bytes).max(1.0)
}
