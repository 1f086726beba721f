use std::sync::Arc;

use floe_core::hash::{HashSeed, KeyHash};
use floe_core::layout::{
    CacheId, FormatPlan, Generation, JournalChain, LargeDescriptor, NewRecord, Note, PieceHeader,
    RecordFlags, Sequence, SmallBatchEncoder, SmallBatchPlan, Structure, SummaryEntry, Superblock,
    ValueKind, ZoneHeader, ZoneLayout, ZoneLife, encode_piece_header, encode_summary,
    summary_bytes, unit_checksum,
};
use floe_core::{ByteSize, ZoneId};
use floe_device::{Address, DeviceConfig, IoBuf, MemoryDevice, Placement, SharedDevice};
use proptest::prelude::*;

use super::*;

const BLOCK: u32 = 4096;
const ZONE: u64 = 1 << 20;
const ZONES: u32 = 6;
const ID: CacheId = CacheId([7; 16]);
const SEED: HashSeed = HashSeed(42);
const PIECE: u32 = 64 << 10;
const LARGE: u64 = 150_000;

/// A small cache, written by hand: zone 2 is full, zone 3 open, zone 4 has a
/// large value, zone 5 is empty.
struct Cache {
    device: SharedDevice,
    /// The offset of zone 2's first value.
    first_value: u64,
    summary: u64,
    large_payload: u64,
    large_descriptor: u64,
}

fn superblock() -> Superblock {
    Superblock {
        id: ID,
        hash_seed: SEED,
        created_unix_s: 1_700_000_000,
        epoch: 3,
        plan: FormatPlan {
            block_size: BLOCK,
            zone_count: ZONES,
            zone_size: ZONE,
            zone_capacity: ZONE,
            chunk_bytes: 512 << 10,
            piece_bytes: PIECE,
            layout: ZoneLayout::Log,
        },
    }
}

async fn put(device: &SharedDevice, zone: u32, offset: u64, bytes: &[u8]) {
    let len = bytes.len().next_multiple_of(BLOCK as usize);
    let data = IoBuf::copy_of(bytes, len).freeze();
    let at = Address::new(ZoneId(zone), offset);
    device.write(at, data, Placement(0)).await.unwrap();
}

async fn flip(device: &SharedDevice, zone: u32, offset: u64) {
    let block = offset - offset % u64::from(BLOCK);
    let at = Address::new(ZoneId(zone), block);
    let mut bytes = device
        .read(at, IoBuf::zeroed(BLOCK as usize))
        .await
        .unwrap();
    bytes[(offset - block) as usize] ^= 0x40;
    put(device, zone, block, &bytes).await;
}

/// A batch of small records and their summary entries.
fn batch(
    life: ZoneLife,
    offset: u64,
    first: u64,
    values: &[(&str, Vec<u8>)],
) -> (Vec<u8>, Vec<SummaryEntry>) {
    let mut plan = SmallBatchPlan::new(BLOCK, 1 << 20);
    for (key, value) in values {
        assert!(plan.try_add(key.len(), value.len()));
    }
    let mut bytes = vec![0; plan.batch_bytes()];
    let mut encoder = SmallBatchEncoder::new(&plan, ID, life, &mut bytes).unwrap();
    let mut entries = Vec::new();
    for (index, (key, value)) in values.iter().enumerate() {
        let record = NewRecord {
            hash: KeyHash::of(SEED, key.as_bytes()),
            sequence: Sequence(first + index as u64),
            expiry_unix_s: 0,
            flags: RecordFlags::default(),
            key: key.as_bytes(),
            payload: value,
        };
        let placed = encoder.push(&record).unwrap();
        entries.push(SummaryEntry {
            hash: record.hash,
            sequence: record.sequence,
            block: ((offset + u64::from(placed.payload_offset)) / u64::from(BLOCK)) as u32,
            value_bytes: value.len() as u32,
            checksum: placed.checksum,
            expiry_unix_s: 0,
            kind: ValueKind::Small,
            key_bytes: key.len() as u16,
        });
    }
    encoder.finish().unwrap();
    (bytes, entries)
}

async fn open_zone(device: &SharedDevice, life: ZoneLife) {
    let header = ZoneHeader {
        life,
        layout: ZoneLayout::Log,
        opened_sequence: Sequence(1),
    };
    let mut bytes = vec![0; ZoneHeader::encoded_bytes(BLOCK)];
    header.encode(ID, BLOCK, &mut bytes).unwrap();
    put(device, life.zone.0, 0, &bytes).await;
}

async fn large_value(device: &SharedDevice, life: ZoneLife) -> (u64, u64) {
    let hash = KeyHash::of(SEED, b"large");
    let sequence = Sequence(20);
    let value: Vec<u8> = (0..LARGE).map(|i| (i % 251) as u8).collect();
    let mut offset = u64::from(BLOCK);
    let mut piece_blocks = Vec::new();
    for (number, payload) in value.chunks(PIECE as usize).enumerate() {
        let piece = PieceHeader {
            hash,
            sequence,
            number: number as u32,
            payload_bytes: payload.len() as u32,
        };
        let mut bytes = vec![0; BLOCK as usize];
        encode_piece_header(ID, life, piece, BLOCK, &mut bytes).unwrap();
        bytes.extend_from_slice(payload);
        put(device, life.zone.0, offset, &bytes).await;
        piece_blocks.push((offset / u64::from(BLOCK)) as u32 + 1);
        offset += bytes.len().next_multiple_of(BLOCK as usize) as u64;
    }
    let units = value.chunks(64 << 10).enumerate();
    let descriptor = LargeDescriptor {
        hash,
        sequence,
        stream: sequence,
        key: b"large".to_vec(),
        value_bytes: LARGE,
        expiry_unix_s: 0,
        flags: RecordFlags::default(),
        piece_bytes: PIECE,
        piece_blocks,
        unit_checksums: units
            .map(|(unit, bytes)| unit_checksum(life.generation, hash, sequence, unit as u32, bytes))
            .collect(),
    };
    let mut bytes = vec![0; descriptor.encoded_bytes(BLOCK)];
    descriptor.encode(ID, life, BLOCK, &mut bytes).unwrap();
    put(device, life.zone.0, offset, &bytes).await;
    (2 * u64::from(BLOCK), offset)
}

impl Cache {
    async fn new() -> Self {
        let config = DeviceConfig {
            zone_size: Some(ByteSize(ZONE)),
            ..DeviceConfig::memory(ByteSize(ZONE * u64::from(ZONES)))
        };
        let device: SharedDevice = Arc::new(MemoryDevice::open(&config).unwrap());
        let life = |zone| ZoneLife::new(ZoneId(zone), Generation(zone + 10));
        let block = u64::from(BLOCK);

        let mut bytes = vec![0; Superblock::encoded_bytes(BLOCK)];
        superblock().encode(&mut bytes).unwrap();
        put(&device, 1, 0, &bytes).await;

        open_zone(&device, life(2)).await;
        let (first, mut entries) = batch(
            life(2),
            block,
            1,
            &[
                ("a", vec![1; 5000]),
                ("b", vec![2; 4096]),
                ("dead", vec![3; 10]),
            ],
        );
        let first_value = u64::from(entries[0].block) * block;
        put(&device, 2, block, &first).await;
        let second_at = block + first.len() as u64;
        let (second, more) = batch(life(2), second_at, 10, &[("c", vec![4; 100])]);
        put(&device, 2, second_at, &second).await;
        entries.extend(more);
        let summary = second_at + second.len() as u64;
        let mut bytes = vec![0; summary_bytes(entries.len(), BLOCK)];
        encode_summary(ID, life(2), BLOCK, &entries, &mut bytes).unwrap();
        put(&device, 2, summary, &bytes).await;

        open_zone(&device, life(3)).await;
        let (bytes, _) = batch(life(3), block, 30, &[("d", vec![5; 3])]);
        put(&device, 3, block, &bytes).await;

        open_zone(&device, life(4)).await;
        let (large_payload, large_descriptor) = large_value(&device, life(4)).await;

        let notes = [
            Note::ZoneFull {
                life: life(2),
                summary_offset: summary,
                records: entries.len() as u32,
            },
            Note::CheckpointEnd { notes: 1 },
            Note::Tombstone {
                life: life(2),
                hash: KeyHash::of(SEED, b"dead"),
                sequence: Sequence(3),
            },
        ];
        let mut chain = JournalChain::new(ID, 3);
        let mut offset = block;
        for notes in notes.chunks(2) {
            let mut bytes = vec![0; JournalChain::encoded_bytes(notes, BLOCK)];
            chain.encode(BLOCK, notes, &mut bytes).unwrap();
            put(&device, 1, offset, &bytes).await;
            offset += bytes.len() as u64;
        }
        Cache {
            device,
            first_value,
            summary,
            large_payload,
            large_descriptor,
        }
    }

    async fn inspect(&self) -> (Totals, Vec<Finding>) {
        let mut findings = Vec::new();
        let totals = inspect(&self.device, Scope::EVERYTHING, |f| {
            findings.push(f.clone())
        })
        .await
        .unwrap();
        (totals, findings)
    }
}

fn damage(findings: &[Finding]) -> Vec<(u32, u64)> {
    findings
        .iter()
        .filter_map(|finding| match finding {
            Finding::Damage { zone, offset, .. } => Some((*zone, *offset)),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn a_sound_cache_is_described_and_has_no_damage() {
    let cache = Cache::new().await;
    let (totals, findings) = cache.inspect().await;
    assert_eq!(damage(&findings), []);
    assert_eq!(
        totals,
        Totals {
            extents_used: 0,
            extents_empty: 0,
            zones_used: 3,
            zones_empty: 1,
            records: 6,
            dead_records: 1,
            intact: 6,
            unverifiable: 0,
            value_bytes: 5000 + 4096 + 10 + 100 + 3 + LARGE,
            gaps: 0,
            damage: 0,
        }
    );
    let keys: Vec<(&str, RecordState)> = findings
        .iter()
        .filter_map(|finding| match finding {
            Finding::Record { key, state, .. } => Some((key.as_str(), *state)),
            _ => None,
        })
        .collect();
    assert!(keys.contains(&("dead", RecordState::Dead)), "{keys:?}");
    assert!(keys.contains(&("large", RecordState::Present)), "{keys:?}");
    assert!(findings.iter().any(|finding| matches!(
        finding,
        Finding::Journal {
            notes: 3,
            full_zones: 1,
            tombstones: 1,
            complete: true,
            ..
        }
    )));
}

#[tokio::test]
async fn every_flipped_bit_is_located() {
    let sound = Cache::new().await;
    let block = u64::from(BLOCK);
    for (what, zone, offset, reported_at) in [
        ("zone header", 2, 30, 0),
        ("batch header", 2, block + 30, block),
        ("batch body", 2, block + 80, block),
        ("value", 2, sound.first_value + 4999, sound.first_value),
        ("summary", 2, sound.summary + 50, sound.summary),
        ("open zone's batch header", 3, block + 20, block),
        ("open zone's value", 3, 2 * block, 2 * block),
        (
            "large payload",
            4,
            sound.large_payload + 7,
            sound.large_descriptor,
        ),
        (
            "large descriptor",
            4,
            sound.large_descriptor + 90,
            sound.large_descriptor,
        ),
        ("journal", 1, block + 60, block),
    ] {
        let cache = Cache::new().await;
        flip(&cache.device, zone, offset).await;
        let (totals, findings) = cache.inspect().await;
        assert!(totals.damage > 0, "{what}");
        assert!(
            damage(&findings).contains(&(zone, reported_at)),
            "{what}: {:?}",
            damage(&findings)
        );
    }
}

#[tokio::test]
async fn remains_of_another_cache_are_no_damage() {
    let cache = Cache::new().await;
    put(&cache.device, 5, 0, &[0x5a; 9000]).await;
    let (totals, findings) = cache.inspect().await;
    assert_eq!((totals.damage, totals.zones_empty), (0, 1), "{findings:?}");
    let leftover = |finding: &Finding| matches!(finding, Finding::Leftover { zone: 5, .. });
    assert!(findings.iter().any(leftover));
    // The next batch reveals an open zone's lost magic.
    flip(&cache.device, 3, 2).await;
    let (_, findings) = cache.inspect().await;
    assert_eq!(damage(&findings), [(3, 0)]);
}

#[tokio::test]
async fn a_dead_value_may_be_torn() {
    let cache = Cache::new().await;
    // The third value follows two blocks of the first and one of the second.
    flip(&cache.device, 2, cache.first_value + 3 * u64::from(BLOCK)).await;
    let (totals, _) = cache.inspect().await;
    assert_eq!((totals.damage, totals.intact), (0, 5));
}

#[tokio::test]
async fn the_error_of_a_device_without_a_cache_has_the_reason() {
    let cache = Cache::new().await;
    put(&cache.device, 1, 0, &[0x55; 4096]).await;
    let error = inspect(&cache.device, Scope::EVERYTHING, |_| {})
        .await
        .unwrap_err();
    assert!(error.to_string().contains("not written by Floe"), "{error}");
}

#[tokio::test]
async fn a_single_zone_can_be_inspected() {
    let cache = Cache::new().await;
    let scope = Scope {
        zone: Some(ZoneId(3)),
        payloads: false,
    };
    let totals = inspect(&cache.device, scope, |_| {}).await.unwrap();
    assert_eq!(
        (totals.zones_used, totals.records, totals.intact),
        (1, 1, 0)
    );
}

#[test]
fn keys_are_printable() {
    assert_eq!(key_text(b"a b\\\n\xff"), "a b\\\\\\x0a\\xff");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// An inspection of any bytes ends without a panic.
    #[test]
    fn garbage_is_survived(
        spots in proptest::collection::vec((0..ZONES, 0..ZONE / 4096, any::<u16>(), any::<u8>()), 1..24),
        magic in 0usize..7,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let cache = Cache::new().await;
            for (zone, block, at, byte) in spots {
                let offset = block * 4096;
                let address = Address::new(ZoneId(zone), offset);
                let mut bytes = cache.device.read(address, IoBuf::zeroed(4096)).await.unwrap();
                if let Some(structure) = Structure::ALL.get(magic) {
                    bytes[..8].copy_from_slice(&structure.magic());
                }
                bytes[usize::from(at) % 4096] = byte;
                put(&cache.device, zone, offset, &bytes).await;
            }
            let _ = inspect(&cache.device, Scope::EVERYTHING, |_| {}).await;
        });
    }
}
