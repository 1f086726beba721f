//! `[chunk]`.

use floe_core::chunk::ChunkConfig;
use serde::{Deserialize, Serialize};

use super::admission::AdmissionSettings;
use crate::config::{Choice, Key, Kind, Limits, Section};

/// The chunk engine, and its admission policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChunkSettings {
    /// Layout and eviction.
    #[serde(flatten)]
    pub engine: ChunkConfig,
    /// Admission to flash.
    #[serde(flatten)]
    pub admission: AdmissionSettings,
}

const EVICTION: &[Choice] = &[
    Choice {
        word: "zplru",
        doc: "The zone that was read longest ago.",
    },
    Choice {
        word: "fifo",
        doc: "The zone that was written longest ago.",
    },
    Choice {
        word: "sieve",
        doc: "The first zone, in the order they were written, that was not read since the hand last passed.",
    },
    Choice {
        word: "clru",
        doc: "Single chunks, the one read longest ago first. Reuses chunk slots in place where the device allows it; elsewhere moves live chunks together.",
    },
];

const CLRU_LAYOUT: &[Choice] = &[
    Choice {
        word: "auto",
        doc: "Slots where the device takes writes in place, a log elsewhere.",
    },
    Choice {
        word: "log",
        doc: "A log of batches; live chunks are moved together to free zones.",
    },
    Choice {
        word: "slots",
        doc: "Slots of one chunk each, written again in place. Every value takes a whole slot, however short it is.",
    },
];

const LARGE_READS: &[Choice] = &[
    Choice {
        word: "first",
        doc: "At once: hits are fast, and values on their way in wait for flash.",
    },
    Choice {
        word: "in_turn",
        doc: "After the values before them have begun to stream in: hits and misses take about as long, and the slowest are faster.",
    },
];

pub(super) const DURABILITY: &[Choice] = &[
    Choice {
        word: "power",
        doc: "A loss of power: the device is flushed before the acknowledgement.",
    },
    Choice {
        word: "process",
        doc: "The end of the process, by any signal; not a loss of power.",
    },
];

pub(super) fn section() -> Result<Section, String> {
    let key = Key::new;
    let count = |name, doc| Key::new(name, Kind::Integer, doc);
    let [admission, probability, bytes_per_day] = AdmissionSettings::keys();
    Section::adopt(
        "chunk",
        "The chunk engine: layout of values on flash, and eviction.",
        &ChunkSettings::default(),
        &[],
        vec![
            key(
                "size",
                Kind::Size,
                "The piece in which objects are cached; where chunks are rewritten in place (`chunk.eviction` `clru`), also the largest value. Part of the format: changing it needs a reformat.",
            )
            .limits(Limits::between(64 << 10, 1 << 30)),
            key(
                "eviction",
                Kind::Choice(EVICTION),
                "The order of eviction when flash is full. Changing to or from `clru` may need a reformat.",
            ),
            count(
                "open_zones",
                "Zones written at once. When not set, derived from the number of zones and what the device allows.",
            )
            .limits(Limits::at_least(1)),
            count(
                "reclaim_start_free_zones",
                "Reclaim starts when at most so many zones are free. When not set, derived from the number of zones.",
            )
            .limits(Limits::at_least(1)),
            count(
                "reclaim_stop_free_zones",
                "Reclaim stops when so many zones are free. When not set, derived from the number of zones.",
            )
            .limits(Limits::at_least(1)),
            count(
                "gc_garbage_percent",
                "With `clru` where chunks cannot be rewritten in place: the share of a zone's bytes, in percent, that must be garbage before it is collected while free zones are not scarce.",
            )
            .limits(Limits::between(0, 100)),
            key(
                "clru_layout",
                Kind::Choice(CLRU_LAYOUT),
                "How `clru` lays zones out. Part of the format: changing it needs a reformat.",
            ),
            key(
                "durability",
                Kind::Choice(DURABILITY),
                "What an acknowledged delete or overwrite survives.",
            ),
            key(
                "write_buffer",
                Kind::Size,
                "Most memory for values on their way to flash. When it is full, writers wait.",
            ),
            count(
                "shards",
                "Number of parts of the index with a lock of their own; 1 is a single coarse lock. When not set, derived from the capacity.",
            )
            .limits(Limits::between(1, 4096)),
            count(
                "flush_delay_ms",
                "How long a small value may wait, in milliseconds, for others to be written with it.",
            )
            .limits(Limits::between(0, 60_000)),
            count("write_depth", "Appends in flight at once.").limits(Limits::between(1, 1024)),
            key(
                "large_reads",
                Kind::Choice(LARGE_READS),
                "The order of reads of values of more than 256 KiB while others stream in.",
            ),
            key(
                "read_ahead",
                Kind::Size,
                "Most memory for parts of values of more than 256 KiB that are read ahead, over all readers; each may use 2 MiB of it. A reader that gets none reads 256 KiB at a time.",
            ),
            admission,
            probability,
            bytes_per_day,
        ],
    )
}
