//! Tests of the tiny layouts. Written structures can be read back; damaged,
//! foreign or misplaced ones are rejected; nothing panics.

mod damage;
mod round_trips;

use proptest::prelude::*;

use super::*;
use crate::hash::{HashSeed, KeyHash};
use crate::layout::{CacheId, JournalChain, JournalRecord, LayoutError};
use crate::tiny::nemo::PageFilterShape;
use crate::tiny::{Expiry, Object, PAGE_BYTES, PAGE_HEADER_BYTES, PAGE_ROOM_BYTES, PREDICTION_MAX};

const CACHE: CacheId = CacheId(*b"floe tiny layout");
const OTHER_CACHE: CacheId = CacheId(*b"another cache id");
const SEED: HashSeed = HashSeed(5);

const OBJECTS: PageId = PageId {
    kind: PageKind::Objects,
    sequence: 77,
    number: 3,
};
const INDEX: PageId = PageId {
    kind: PageKind::Index,
    ..OBJECTS
};

fn object(key: &[u8], value: &[u8], expires: Expiry, prediction: u8) -> Object {
    Object {
        expires,
        prediction,
        record: record(key, value),
        ..Object::sized(KeyHash::of(SEED, key), (key.len() + value.len()) as u32)
    }
}

fn objects(value_bytes_max: usize) -> impl Strategy<Value = Object> {
    let bytes = |max| prop::collection::vec(any::<u8>(), 0..=max);
    let expiry = prop_oneof![Just(0), any::<u32>()].prop_map(Expiry);
    let dead = (any::<u64>(), 0..=PREDICTION_MAX).prop_map(|(hash, prediction)| Object {
        prediction,
        ..Object::tombstone(KeyHash(hash))
    });
    let alive = (
        bytes(KEY_BYTES_MAX),
        bytes(value_bytes_max),
        expiry,
        0..=PREDICTION_MAX,
    )
        .prop_map(|(key, value, expires, prediction)| object(&key, &value, expires, prediction));
    prop_oneof![1 => dead, 4 => alive]
}

/// As many of `objects` as a page holds.
fn that_fit(objects: Vec<Object>) -> Vec<Object> {
    let mut room = PAGE_ROOM_BYTES;
    let fits = |object: &Object| match room.checked_sub(object.stored_bytes()) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    objects.into_iter().filter(fits).collect()
}

fn page_ids() -> impl Strategy<Value = PageId> {
    (0usize..4, any::<u64>(), any::<u32>()).prop_map(|(kind, sequence, number)| PageId {
        kind: PageKind::ALL[kind],
        sequence,
        number,
    })
}

fn trailer_heads() -> impl Strategy<Value = TrailerHead> {
    (
        any::<[u64; 2]>(),
        any::<u64>(),
        1u32..200,
        1u32..=512,
        1u32..=20,
        any::<u32>(),
    )
        .prop_map(|(sequences, objects, sets, columns, probes, rows)| {
            let rows_max = PAGE_ROOM_BYTES as u32 / columns.div_ceil(8);
            TrailerHead {
                sequence: sequences[0].max(sequences[1]),
                oldest_live: sequences[0].min(sequences[1]),
                objects,
                sets,
                columns,
                rows: rows % rows_max + 1,
                probes,
                has_filters: true,
            }
        })
        .prop_filter("rows that fit", |head| {
            head.columns.div_ceil(8) * head.rows <= PAGE_ROOM_BYTES as u32
        })
}

/// The head of an index group with such filters, and with page filters where there is room.
fn index_head(filters: &TrailerHead) -> IndexHead {
    let rows = u64::from(filters.columns.div_ceil(8)) * u64::from(filters.rows);
    let room = (PAGE_ROOM_BYTES as u64).saturating_sub(rows);
    let page_filter = match (room / 64) as u32 {
        0 => PageFilterShape::NONE,
        lines => PageFilterShape { lines, probes: 7 },
    };
    IndexHead {
        sequence: filters.sequence,
        oldest_live: filters.oldest_live,
        sets: filters.sets,
        columns: filters.columns,
        rows: filters.rows,
        probes: filters.probes,
        page_filter,
    }
}

/// Filters of the right length, from a repeated pattern.
fn bits(head: &TrailerHead, pattern: &[u8]) -> Vec<u8> {
    let len = trailer_body_bytes(head.sets, head.rows) as usize;
    let mut bits: Vec<u8> = pattern.iter().copied().cycle().take(len).collect();
    let used = head.sets * head.rows % 8;
    if let Some(last) = bits.last_mut()
        && used > 0
    {
        *last &= (1 << used) - 1;
    }
    bits
}

fn superblocks() -> impl Strategy<Value = TinySuperblock> {
    (
        any::<[u8; 16]>(),
        any::<[u64; 3]>(),
        9u32..=12,
        (3u32..1 << 20, 0usize..5, 1u32..=2),
        (8u64..1 << 20, 0u64..1 << 10),
        (1u32..1 << 20, 0u32..1 << 10),
        any::<u32>(),
    )
        .prop_map(
            |(id, numbers, block_log2, (zones, engine, candidates), blocks, sets, instances)| {
                let block_size = 1u32 << block_log2;
                TinySuperblock {
                    cache_id: CacheId(id),
                    seed: HashSeed(numbers[0]),
                    formatted_at: numbers[1],
                    epoch: numbers[2],
                    plan: TinyFormatPlan {
                        engine: TinyEngine::ALL[engine],
                        block_size,
                        zone_count: zones,
                        zone_size: (blocks.0 + blocks.1) * u64::from(block_size),
                        zone_capacity: blocks.0 * u64::from(block_size),
                        set_group_pages: sets.0 + sets.1,
                        sets: sets.0,
                        candidates,
                        instances: instances % (zones - 2) + 1,
                    },
                }
            },
        )
}

fn notes() -> impl Strategy<Value = TinyNote> {
    let fence = |hash, below| {
        TinyNote::Fence(Fence {
            hash: KeyHash(hash),
            below,
        })
    };
    (0..6, any::<u64>(), any::<u32>(), 0u64..1 << 56).prop_map(
        move |(kind, word, instance, below)| match kind {
            0 => fence(word, below),
            1 => TinyNote::Gone { instance, below },
            2 => TinyNote::Written { instance, below },
            3 => TinyNote::Sealing {
                instance,
                page: word as u32,
                sequence: below,
            },
            4 => TinyNote::Unfenced,
            _ => TinyNote::checkpoint_end(word),
        },
    )
}
