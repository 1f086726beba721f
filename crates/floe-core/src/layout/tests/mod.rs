//! Tests of the layouts. Written structures can be read back; damaged, foreign
//! or stale ones are rejected; nothing panics.

mod damage;
mod format_document;
mod large_values;
mod round_trips;

use proptest::prelude::*;

use super::*;
use crate::geometry::ZoneId;
use crate::hash::{HashSeed, KeyHash};

const ID: CacheId = CacheId(*b"floe layout test");
const OTHER_ID: CacheId = CacheId(*b"another cache id");
const LIFE: ZoneLife = ZoneLife {
    zone: ZoneId(7),
    generation: Generation(3),
};

/// A record with owned bytes.
#[derive(Clone, Debug)]
struct Record {
    hash: u64,
    sequence: u64,
    expiry_unix_s: u32,
    void: bool,
    key: Vec<u8>,
    payload: Vec<u8>,
}

impl Record {
    fn as_new(&self) -> NewRecord<'_> {
        NewRecord {
            hash: KeyHash(self.hash),
            sequence: Sequence(self.sequence),
            expiry_unix_s: self.expiry_unix_s,
            flags: RecordFlags { void: self.void },
            key: &self.key,
            payload: &self.payload,
        }
    }
}

fn records(payload_bytes_max: usize) -> impl Strategy<Value = Record> {
    let bytes = |max| prop::collection::vec(any::<u8>(), 0..=max);
    (
        any::<u64>(),
        any::<u64>(),
        any::<u32>(),
        any::<bool>(),
        bytes(64),
        bytes(payload_bytes_max),
    )
        .prop_map(
            |(hash, sequence, expiry_unix_s, void, key, payload)| Record {
                hash,
                sequence,
                expiry_unix_s,
                void,
                key,
                payload,
            },
        )
}

/// Encodes records that fit one batch, into a buffer with old contents.
fn small_batch(records: &[Record], block_size: u32) -> Vec<u8> {
    let mut plan = SmallBatchPlan::new(block_size, u32::MAX);
    for record in records {
        assert!(plan.try_add(record.key.len(), record.payload.len()));
    }
    let mut out = vec![0xee; plan.batch_bytes()];
    let mut encoder = SmallBatchEncoder::new(&plan, ID, LIFE, &mut out).unwrap();
    for record in records {
        encoder.push(&record.as_new()).unwrap();
    }
    assert_eq!(encoder.finish(), Ok(out.len()));
    out
}

fn superblocks() -> impl Strategy<Value = Superblock> {
    (
        any::<[u8; 16]>(),
        any::<[u64; 3]>(),
        9u32..17,
        3u32..1 << 20,
        (1u64..1 << 20, 0u64..1 << 10),
        1u64..=LARGE_MAX_BYTES,
        1u32..=64,
        any::<bool>(),
    )
        .prop_map(
            |(id, numbers, block_log2, zone_count, (blocks, gap), chunk_bytes, units, slots)| {
                let block_size = 1u32 << block_log2;
                Superblock {
                    id: CacheId(id),
                    hash_seed: HashSeed(numbers[0]),
                    created_unix_s: numbers[1],
                    epoch: numbers[2],
                    plan: FormatPlan {
                        block_size,
                        zone_count,
                        zone_size: (blocks + gap) * u64::from(block_size),
                        zone_capacity: blocks * u64::from(block_size),
                        chunk_bytes,
                        piece_bytes: units * UNIT_BYTES,
                        layout: if slots {
                            ZoneLayout::Slots
                        } else {
                            ZoneLayout::Log
                        },
                    },
                }
            },
        )
}

fn array_labels() -> impl Strategy<Value = ArrayLabel> {
    let drives = prop::collection::vec(prop::option::of(1u64..), 1..=ARRAY_DRIVES_MAX);
    (
        any::<[u8; 16]>(),
        any::<[u64; 3]>(),
        1u64..,
        9u32..17,
        drives,
    )
        .prop_map(
            |(array, [sequence, parent, epoch], id, block_log2, mut slots)| {
                let own = id as usize % slots.len();
                slots[own] = Some(id);
                ArrayLabel {
                    array,
                    sequence,
                    id: id ^ 1 << 63 | 1,
                    parent,
                    epoch,
                    block_size: 1 << block_log2,
                    zone_count: 9,
                    zone_size: 3 << block_log2,
                    zone_capacity: 2 << block_log2,
                    drive: id,
                    slots,
                }
            },
        )
}

fn kinds() -> impl Strategy<Value = ValueKind> {
    prop_oneof![Just(ValueKind::Small), Just(ValueKind::Large)]
}

fn summary_entries() -> impl Strategy<Value = SummaryEntry> {
    (any::<[u64; 2]>(), any::<[u32; 4]>(), kinds(), any::<u16>()).prop_map(
        |(longs, words, kind, key_bytes)| SummaryEntry {
            hash: KeyHash(longs[0]),
            sequence: Sequence(longs[1]),
            block: words[0],
            value_bytes: words[1],
            checksum: words[2],
            expiry_unix_s: words[3],
            kind,
            key_bytes,
        },
    )
}

fn slot_entries() -> impl Strategy<Value = SlotEntry> {
    summary_entries().prop_map(|entry| SlotEntry {
        hash: entry.hash,
        sequence: entry.sequence,
        value_bytes: entry.value_bytes,
        checksum: entry.checksum,
        expiry_unix_s: entry.expiry_unix_s,
        kind: entry.kind,
        key_bytes: entry.key_bytes,
    })
}

fn spans() -> impl Strategy<Value = Span> {
    prop_oneof![
        Just(Span::All),
        Just(Span::Group),
        (1u16..).prop_map(Span::Prefix),
        Just(Span::Name),
    ]
}

fn notes() -> impl Strategy<Value = Note> {
    let life =
        (any::<u32>(), 1u32..).prop_map(|(zone, g)| ZoneLife::new(ZoneId(zone), Generation(g)));
    prop_oneof![
        (life.clone(), any::<u64>(), any::<u32>()).prop_map(|(life, summary_offset, records)| {
            Note::ZoneFull {
                life,
                summary_offset,
                records,
            }
        }),
        (life.clone(), any::<u64>())
            .prop_map(|(life, end_offset)| Note::ZoneClosed { life, end_offset }),
        life.clone().prop_map(|life| Note::ZoneDropped { life }),
        (spans(), any::<[u64; 3]>()).prop_map(|(span, [group, id, number])| {
            Note::Mark(Mark {
                span,
                group,
                id,
                number,
            })
        }),
        (life.clone(), any::<u32>(), any::<u64>(), any::<u64>()).prop_map(
            |(life, first_slot, low, high)| Note::SlotUse {
                life,
                first_slot,
                uses: SlotUses { low, high },
            }
        ),
        any::<u64>().prop_map(|sequence| Note::UseNoted {
            sequence: Sequence(sequence)
        }),
        (life, any::<u64>(), any::<u64>()).prop_map(|(life, hash, sequence)| Note::Tombstone {
            life,
            hash: KeyHash(hash),
            sequence: Sequence(sequence),
        }),
        any::<u64>().prop_map(|notes| Note::CheckpointEnd { notes }),
        any::<u32>().prop_map(|g| Note::GenerationFloor {
            generation: Generation(g)
        }),
    ]
}

/// A valid descriptor of a value with these bytes.
fn large_descriptor(value: &[u8], key: &[u8], piece_bytes: u32) -> LargeDescriptor {
    let (hash, sequence, stream) = (KeyHash(11), Sequence(13), Sequence(12));
    let pieces = value.len().div_ceil(piece_bytes as usize) as u32;
    let units = value.chunks(unit_bytes(piece_bytes) as usize);
    LargeDescriptor {
        hash,
        sequence,
        stream,
        key: key.to_vec(),
        value_bytes: value.len() as u64,
        expiry_unix_s: 17,
        flags: RecordFlags::default(),
        piece_bytes,
        // The pieces are neither adjacent nor in order.
        piece_blocks: (0..pieces).rev().map(|i| 1000 * (i + 1)).collect(),
        unit_checksums: (0..)
            .zip(units)
            .map(|(i, bytes)| unit_checksum(LIFE.generation, hash, stream, i, bytes))
            .collect(),
    }
}

proptest! {
    #[test]
    fn slot_uses_keep_each_slots_use(set in proptest::collection::vec((0..SLOTS_PER_NOTE, 0..4u8), 0..200)) {
        let kinds = [SlotUse::Evicted, SlotUse::Cold, SlotUse::Warm, SlotUse::Hot];
        let mut uses = SlotUses::default();
        let mut expected = [SlotUse::Evicted; SLOTS_PER_NOTE as usize];
        for (slot, kind) in set {
            let slot_use = kinds[usize::from(kind)];
            uses.set(slot, slot_use);
            expected[slot as usize] = slot_use;
        }
        for (slot, expected) in (0..).zip(expected) {
            prop_assert_eq!(uses.get(slot), expected);
        }
    }
}
