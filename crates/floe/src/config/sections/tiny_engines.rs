//! `[tiny.nemo]`, `[tiny.log]`, `[tiny.set]`, `[tiny.kangaroo]`, `[tiny.fairywren]`.

use floe_core::tiny::nemo::NemoConfig;
use floe_core::tiny::{FairyWrenConfig, KangarooConfig, LogConfig, SetConfig};

use crate::config::{Choice, Key, Kind, Limits, Section};

const WRITE_BACK: &[Choice] = &[
    Choice {
        word: "off",
        doc: "None.",
    },
    Choice {
        word: "published",
        doc: "Objects that fit the set-group that is about to be flushed.",
    },
    Choice {
        word: "everywhere",
        doc: "Also the others, into the set-groups that are being filled.",
    },
];

const FILTER_KIND: &[Choice] = &[
    Choice {
        word: "bloom",
        doc: "Bloom filters, matched for 64 set-groups at a time.",
    },
    Choice {
        word: "fingerprints",
        doc: "Fingerprints of at least eight bits, in shared buckets. At most 0.3 % false positives, whatever the setting.",
    },
];

const FILTER_SIZING: &[Choice] = &[
    Choice {
        word: "measured",
        doc: "The distribution of objects in recent sets.",
    },
    Choice {
        word: "mean",
        doc: "The mean of that distribution.",
    },
    Choice {
        word: "published",
        doc: "40 objects in every set.",
    },
];

const INDEX_CACHE: &[Choice] = &[
    Choice {
        word: "fifo",
        doc: "The first to be cached.",
    },
    Choice {
        word: "clock",
        doc: "The first to be cached without a use since.",
    },
];

const POLICY: &[Choice] = &[
    Choice {
        word: "fifo",
        doc: "The oldest objects.",
    },
    Choice {
        word: "rrip",
        doc: "Objects with the most distant next use, as RRIP predicts it.",
    },
];

const SET_STORAGE: &[Choice] = &[
    Choice {
        word: "in_place",
        doc: "At fixed pages, rewritten in place; the device collects garbage. Needs a device with writes in place.",
    },
    Choice {
        word: "zoned",
        doc: "In zones; rewrites are appended, and Floe collects garbage.",
    },
];

/// A field that tests set, to fill the memory of a log sooner.
const SEGMENTS_BUFFERED: &str = "segments_buffered";

fn count(name: &'static str, least: u64, most: u64, doc: &str) -> Key {
    Key::new(name, Kind::Integer, doc).limits(Limits::between(least, most))
}

fn share(name: &'static str, doc: &str) -> Key {
    Key::new(name, Kind::Float, doc)
}

/// The sections of all engines.
pub(super) fn sections() -> Result<Vec<Section>, String> {
    Ok(vec![nemo()?, log()?, set()?, kangaroo()?, fairywren()?])
}

fn nemo() -> Result<Section, String> {
    Section::adopt(
        "tiny.nemo",
        "The engine `nemo` (docs/tiny.md).",
        &NemoConfig::default(),
        // The published preset sets them.
        &["flush_fill", "relocate", "index_cache_admit_one_in"],
        vec![
            Key::new(
                "set_group_pages",
                Kind::Integer,
                "Pages of 4 KiB of a set-group: whole zones, or a whole part of one. When not set, one zone. Part of the format.",
            )
            .limits(Limits::at_least(1)),
            count(
                "object_bytes",
                1,
                4000,
                "Approximate bytes of key and value of an object; the first filters are sized for it. Part of the format.",
            ),
            count(
                "memory_set_groups",
                1,
                16,
                "Set-groups in memory that accept objects; one more is being written.",
            ),
            share(
                "flush_threshold",
                "For experiments: evictions from full sets, per set of the set-group, after which the set-group is flushed.",
            ),
            count(
                "candidates",
                1,
                2,
                "Candidate sets of an object in a set-group: 1 as published, or 2. Part of the format.",
            ),
            Key::new(
                "write_back",
                Kind::Choice(WRITE_BACK),
                "Hot objects to write back when their set-group is evicted.",
            ),
            share(
                "write_back_share",
                "Most bytes of hot objects written back per evicted set-group, as a fraction of it.",
            ),
            Key::new(
                "filter_kind",
                Kind::Choice(FILTER_KIND),
                "The kind of filters: Bloom filters as published, or fingerprints. At the same rate of false positives fingerprints need less memory, but more CPU time.",
            ),
            Key::new(
                "filter_sizing",
                Kind::Choice(FILTER_SIZING),
                "The number of objects that filters are sized for.",
            ),
            share(
                "filter_false_positive_rate",
                "Rate of false positives of a set's filter.",
            ),
            Key::new(
                "page_filter_bits",
                Kind::Float,
                "Memory of the page filters, in bits for each object on flash, up to 16. A page filter excludes a page of the index from a lookup. With 0 there are none, as published.",
            ),
            share(
                "index_cache_share",
                "Fraction of the index on flash that is cached in memory, if there are no page filters (`page_filter_bits = 0`).",
            ),
            Key::new(
                "index_cache_eviction",
                Kind::Choice(INDEX_CACHE),
                "The filters that the index cache evicts first, if there is one (`index_cache_share`).",
            ),
            share(
                "hotness_window",
                "For experiments: fraction of a set-group's life, at its end, in which hits are recorded.",
            ),
        ],
    )
}

fn log() -> Result<Section, String> {
    Section::adopt(
        "tiny.log",
        "The engine `log`.",
        &LogConfig::default(),
        &[SEGMENTS_BUFFERED],
        vec![
            segment_pages(),
            Key::new(
                "readmit_hit",
                Kind::Bool,
                "Append used objects of the oldest zone again, which requires reading the zone.",
            ),
        ],
    )
}

fn set() -> Result<Section, String> {
    Section::adopt(
        "tiny.set",
        "The engine `set`.",
        &SetConfig::default(),
        &[],
        vec![
            count(
                "over_provisioning_percent",
                0,
                95,
                "Unused part of the flash, in percent, which reduces the device's garbage collection.",
            ),
            filter_bytes("Bytes of each set's filter in memory."),
            objects_per_set(),
            Key::new(
                "eviction",
                Kind::Choice(POLICY),
                "The objects that a full set evicts first.",
            ),
        ],
    )
}

fn objects_per_set() -> Key {
    count(
        "objects_per_set",
        1,
        1024,
        "Objects that a set is expected to hold: 4 KiB by the mean size of an object. Filters are best at this many.",
    )
}

fn kangaroo() -> Result<Section, String> {
    let mut keys = log_and_sets();
    keys.extend([
        Key::new("set_storage", Kind::Choice(SET_STORAGE), "Where sets live."),
        filter_bytes("Bytes of each set's filter in memory."),
        objects_per_set(),
    ]);
    Section::adopt(
        "tiny.kangaroo",
        "The engine `kangaroo`.",
        &KangarooConfig::default(),
        &[SEGMENTS_BUFFERED],
        keys,
    )
}

fn fairywren() -> Result<Section, String> {
    let mut keys = log_and_sets();
    keys.extend([
        count(
            "hot_free_zones_percent",
            1,
            99,
            "Part of the free zones, in percent, for the hot halves of sets. The paper does not give it; write amplification depends on it (docs/tiny.md).",
        ),
        count(
            "hot_rewrite_interval",
            1,
            1000,
            "One in this many rewrites of a set rewrites its hot half.",
        ),
        filter_bytes("Bytes of the filter in memory of each half of a set."),
        count(
            "objects_per_page",
            1,
            1024,
            "Objects that half a set is expected to hold: 4 KiB by the mean size of an object. Filters are best at this many.",
        ),
    ]);
    Section::adopt(
        "tiny.fairywren",
        "The engine `fairywren`.",
        &FairyWrenConfig::default(),
        &[SEGMENTS_BUFFERED],
        keys,
    )
}

/// The keys that `kangaroo` and `fairywren` share.
fn log_and_sets() -> Vec<Key> {
    vec![
        count(
            "log_percent",
            1,
            90,
            "The log's part of the flash, in percent.",
        ),
        count(
            "over_provisioning_percent",
            0,
            95,
            "Part of the rest, in percent, that stays free for garbage collection of sets.",
        ),
        count(
            "threshold",
            1,
            64,
            "Objects of one set in the log that cause them to move to the set.",
        ),
        count(
            "log_free_percent",
            1,
            90,
            "Free part of the log, in percent, at or below which objects move to sets.",
        ),
        count(
            "zones_free_permille",
            0,
            500,
            "Free part of the sets' zones, in thousandths, at or below which the oldest zone is collected.",
        ),
        segment_pages(),
        count("max_rewrites", 1, 1024, "Most concurrent rewrites of sets."),
    ]
}

fn segment_pages() -> Key {
    let doc = "Pages of 4 KiB of a segment: one append to the log.";
    count("segment_pages", 1, 4096, doc)
}

fn filter_bytes(doc: &str) -> Key {
    Key::new("filter_bytes", Kind::Integer, doc).limits(Limits::between(8, 512).multiple_of(8))
}
