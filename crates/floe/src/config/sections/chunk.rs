//! `[chunk]`.

use floe_core::chunk::ChunkConfig;
use serde::{Deserialize, Serialize};

use super::admission::AdmissionSettings;
use crate::config::{Choice, Key, Kind, Limits, Section};

/// The chunk engine and its admission policy.
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
        doc: "The least recently read zone.",
    },
    Choice {
        word: "fifo",
        doc: "The oldest zone.",
    },
    Choice {
        word: "sieve",
        doc: "The first zone, in write order, without a read since the hand last passed it.",
    },
    Choice {
        word: "clru",
        doc: "Single chunks, the least recently read first. Rewrites chunk slots in place if the device allows it; otherwise host GC moves live chunks to free zones.",
    },
];

const CLRU_LAYOUT: &[Choice] = &[
    Choice {
        word: "auto",
        doc: "Slots if the device supports writes in place, otherwise a log.",
    },
    Choice {
        word: "log",
        doc: "A log of batches; host GC moves live chunks to free zones.",
    },
    Choice {
        word: "slots",
        doc: "Slots of one chunk each, rewritten in place. Even a short value takes a whole slot.",
    },
];

const LARGE_READS: &[Choice] = &[
    Choice {
        word: "first",
        doc: "Reads go first: hits are fast, and streams of new values wait for flash.",
    },
    Choice {
        word: "in_turn",
        doc: "Reads wait until earlier values have begun to stream in: hits and misses take about as long, and the slowest are faster.",
    },
];

pub(super) const POWER: Choice = Choice {
    word: "power",
    doc: "A power loss: it is on stable media before the acknowledgement.",
};

pub(super) const PROCESS: Choice = Choice {
    word: "process",
    doc: "The end of the process, by any signal, but not a power loss.",
};

const DURABILITY: &[Choice] = &[POWER, PROCESS];

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
                "Bytes of a typical value, which the index and zones are sized by; chunks of objects have `object.chunk_size`. In slots (`chunk.clru_layout`), also the size of the largest value. Part of the format: changing it needs a reformat.",
            )
            .limits(Limits::between(64 << 10, 1 << 30)),
            key(
                "eviction",
                Kind::Choice(EVICTION),
                "The order of eviction when flash is full. Changing to or from `clru` may need a reformat.",
            ),
            count(
                "open_zones",
                "Zones that are written concurrently. When not set, derived from the number of zones and the device's limits.",
            )
            .limits(Limits::at_least(1)),
            count(
                "reclaim_start_free_zones",
                "Reclaim starts when at most this many zones are free. When not set, derived from the number of zones.",
            )
            .limits(Limits::at_least(1)),
            count(
                "reclaim_stop_free_zones",
                "Reclaim stops when this many zones are free. When not set, derived from the number of zones.",
            )
            .limits(Limits::at_least(1)),
            count(
                "gc_garbage_percent",
                "With `clru` in a log: the garbage, in percent of a zone's bytes, from which on host GC collects the zone while free zones are not scarce.",
            )
            .limits(Limits::between(0, 100)),
            key(
                "clru_layout",
                Kind::Choice(CLRU_LAYOUT),
                "The layout of zones with `clru`. Part of the format: changing it needs a reformat.",
            ),
            key(
                "durability",
                Kind::Choice(DURABILITY),
                "The failure that an acknowledged delete or overwrite survives.",
            ),
            key(
                "write_buffer",
                Kind::Size,
                "Most memory for values on their way to flash. When it is full, writers wait.",
            ),
            count(
                "flush_delay_ms",
                "How long a small value may wait, in milliseconds, for others to fill its batch.",
            )
            .limits(Limits::between(0, 60_000)),
            key(
                "large_reads",
                Kind::Choice(LARGE_READS),
                "For experiments: the order of reads of values of more than 256 KiB while others stream in.",
            ),
            key(
                "read_ahead",
                Kind::Size,
                "Bytes of memory for reading ahead in values of more than 256 KiB, over all readers; each uses at most 2 MiB. A reader without a share reads 256 KiB at a time.",
            ),
            admission,
            probability,
            bytes_per_day,
        ],
    )
}
