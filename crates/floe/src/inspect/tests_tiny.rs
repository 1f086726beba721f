//! Inspects a small cache of tiny objects, written by hand.

use std::sync::Arc;

use floe_core::hash::{HashSeed, KeyHash};
use floe_core::layout::tiny::{
    Fence, IndexHead, PageId, PageKind, TinyEngine, TinyFormatPlan, TinyNote, TinySuperblock,
    TrailerHead, encode_objects, encode_trailer, record, seal_index,
};
use floe_core::layout::{CacheId, JournalChain, JournalRecord as _, Structure};
use floe_core::tiny::nemo::PageFilterShape;
use floe_core::tiny::{Expiry, Object, PAGE_BYTES};
use floe_core::{ByteSize, ZoneId};
use floe_device::{Address, DeviceConfig, IoBuf, MemoryDevice, Placement, SharedDevice};

use super::*;

const ZONE: u64 = 64 << 10;
const ZONES: u32 = 6;
const ID: CacheId = CacheId([9; 16]);
const SEED: HashSeed = HashSeed(42);
/// One of an extent's 16 pages is for filters or the head.
const SETS: u32 = 15;
const ROWS: u32 = 40;
const COLUMNS: u32 = 16;

async fn put(device: &SharedDevice, zone: u32, page: u32, bytes: &[u8]) {
    let data = IoBuf::copy_of(bytes, bytes.len().next_multiple_of(PAGE_BYTES)).freeze();
    let at = Address::new(ZoneId(zone), u64::from(page) * PAGE_BYTES as u64);
    device.write(at, data, Placement(0)).await.unwrap();
}

fn object(key: &str) -> Object {
    Object {
        record: record(key.as_bytes(), b"value"),
        expires: Expiry(60),
        ..Object::sized(KeyHash::of(SEED, key.as_bytes()), key.len() as u32 + 5)
    }
}

async fn set_group(device: &SharedDevice, zone: u32, sequence: u64, oldest_live: u64) {
    for number in 0..SETS {
        let objects = [
            object(&format!("key {number}")),
            Object::tombstone(KeyHash(u64::from(number))),
        ];
        let id = PageId {
            kind: PageKind::Objects,
            sequence,
            number,
        };
        let mut page = vec![0; PAGE_BYTES];
        encode_objects(ID, id, &objects, &mut page).unwrap();
        put(device, zone, number, &page).await;
    }
    let head = TrailerHead {
        sequence,
        oldest_live,
        objects: u64::from(SETS),
        sets: SETS,
        columns: COLUMNS,
        rows: ROWS,
        probes: 3,
        has_filters: true,
    };
    let pages = encode_trailer(ID, &head, &[0x55; 75]);
    put(device, zone, SETS, &pages[0]).await;
}

async fn index_group(device: &SharedDevice, zone: u32, sequence: u64) {
    for number in 0..SETS {
        let id = PageId {
            kind: PageKind::Index,
            sequence,
            number,
        };
        let mut page = vec![0x33; PAGE_BYTES];
        seal_index(ID, id, &mut page).unwrap();
        put(device, zone, number, &page).await;
    }
    let head = IndexHead {
        sequence,
        oldest_live: 4,
        sets: SETS,
        columns: COLUMNS,
        rows: ROWS,
        probes: 3,
        page_filter: PageFilterShape::NONE,
    };
    let mut page = vec![0; PAGE_BYTES];
    head.encode(ID, &mut page).unwrap();
    put(device, zone, SETS, &page).await;
}

/// Zone 2 has an evicted set-group, zone 3 a live one, zone 4 an index group, zone 5 nothing.
async fn cache() -> SharedDevice {
    let device = blank();
    superblock(&device, TinyEngine::Nemo).await;
    set_group(&device, 2, 3, 1).await;
    set_group(&device, 3, 6, 4).await;
    index_group(&device, 4, 0).await;
    device
}

fn blank() -> SharedDevice {
    let config = DeviceConfig {
        zone_size: Some(ByteSize(ZONE)),
        ..DeviceConfig::memory(ByteSize(ZONE * u64::from(ZONES)))
    };
    Arc::new(MemoryDevice::open(&config).unwrap())
}

/// A superblock of epoch 3, and three fences.
async fn superblock(device: &SharedDevice, engine: TinyEngine) {
    let is_nemo = engine == TinyEngine::Nemo;
    let superblock = TinySuperblock {
        cache_id: ID,
        seed: SEED,
        formatted_at: 1_700_000_000,
        epoch: 3,
        plan: TinyFormatPlan {
            engine,
            block_size: 4096,
            zone_count: ZONES,
            zone_size: ZONE,
            zone_capacity: ZONE,
            set_group_pages: if is_nemo { SETS + 1 } else { 0 },
            sets: SETS,
            candidates: 2,
            instances: 1,
        },
    };
    let mut bytes = vec![0; 4096];
    superblock.encode(&mut bytes).unwrap();
    put(device, 0, 0, &bytes).await;
    let mut chain = JournalChain::new(ID, 3);
    let fence = TinyNote::Fence(Fence {
        hash: KeyHash(1),
        below: 5,
    });
    let written = TinyNote::Written {
        instance: 0,
        below: 5,
    };
    let end = TinyNote::checkpoint_end(2);
    for (page, notes) in [
        (1, &[written, fence, end][..]),
        (2, &[fence][..]),
        (3, &[fence][..]),
    ] {
        chain.encode(4096, notes, &mut bytes).unwrap();
        put(device, 0, page, &bytes).await;
    }
}

#[tokio::test]
async fn writes_without_fences_are_reported() {
    let device = cache().await;
    let mut bytes = vec![0; 4096];
    let mut chain = JournalChain::new(ID, 3);
    let notes = [TinyNote::Unfenced, TinyNote::checkpoint_end(1)];
    chain.encode(4096, &notes, &mut bytes).unwrap();
    put(&device, 0, 1, &bytes).await;
    let (_, findings) = look(&device, Scope::EVERYTHING).await;
    let is_unfenced = |finding: &Finding| {
        let Finding::Fences { unfenced, .. } = finding else {
            return false;
        };
        *unfenced
    };
    assert!(findings.iter().any(is_unfenced), "{findings:?}");
}

async fn look(device: &SharedDevice, scope: Scope) -> (Totals, Vec<Finding>) {
    let mut findings = Vec::new();
    let totals = inspect(device, scope, |finding| findings.push(finding.clone()))
        .await
        .unwrap();
    (totals, findings)
}

async fn flip(device: &SharedDevice, zone: u32, page: u32, at: usize) {
    let address = Address::new(ZoneId(zone), u64::from(page) * PAGE_BYTES as u64);
    let mut bytes = device
        .read(address, IoBuf::zeroed(PAGE_BYTES))
        .await
        .unwrap();
    bytes[at] ^= 0x40;
    put(device, zone, page, &bytes).await;
}

#[tokio::test]
async fn a_sound_cache_is_reported_in_full() {
    let device = cache().await;
    let (totals, findings) = look(&device, Scope::EVERYTHING).await;
    assert_eq!(totals.damage, 0, "{findings:?}");
    assert_eq!((totals.extents_used, totals.extents_empty), (3, 1));
    let sets = u64::from(SETS);
    assert_eq!((totals.records, totals.dead_records), (4 * sets, 2 * sets));
    assert_eq!((totals.intact, totals.value_bytes), (2 * sets, 10 * sets));
    assert!(findings.iter().any(|finding| matches!(
        finding,
        Finding::TinySuperblock { current: true, engine, .. } if engine == "nemo"
    )));
    assert!(findings.iter().any(|finding| matches!(
        finding,
        Finding::Fences {
            blocks: 3,
            fences: 3,
            unfenced: false,
            complete: true,
            end_offset: 16384,
            ..
        }
    )));
    let groups: Vec<(u32, u64, bool)> = findings
        .iter()
        .filter_map(|finding| match finding {
            Finding::SetGroup {
                zone,
                sequence,
                live,
                ..
            }
            | Finding::IndexGroup {
                zone,
                sequence,
                live,
                ..
            } => Some((*zone, *sequence, *live)),
            _ => None,
        })
        .collect();
    assert_eq!(groups, [(2, 3, false), (3, 6, true), (4, 0, true)]);
    assert!(findings.iter().any(|finding| matches!(
        finding,
        Finding::Object { key, expiry_unix_s: 1_700_000_060, tombstone: false, .. } if key == "key 3"
    )));
    let (quick, _) = look(&device, Scope::DESCRIPTIONS).await;
    assert_eq!((quick.records, quick.extents_used), (0, 3));
    let one = Scope {
        zone: Some(ZoneId(3)),
        ..Scope::EVERYTHING
    };
    assert_eq!(look(&device, one).await.0.extents_used, 1);
}

#[tokio::test]
async fn remains_of_an_engine_without_set_groups_are_listed_as_no_damage() {
    let device = blank();
    superblock(&device, TinyEngine::Set).await;
    let zone_pages = (ZONE / PAGE_BYTES as u64) as u32;
    // Pages of this life, of the life before, of another place, and a torn one.
    for (number, life, of) in [(0, 3, 0), (1, 2, 1), (2, 3, 7), (3, 3, 3)] {
        let id = PageId {
            kind: PageKind::Objects,
            sequence: life << 32 | 1,
            number: zone_pages + of,
        };
        let mut page = vec![0; PAGE_BYTES];
        encode_objects(ID, id, &[object("a key")], &mut page).unwrap();
        put(&device, 3, number, &page).await;
    }
    flip(&device, 3, 3, 30).await;
    let (totals, findings) = look(&device, Scope::EVERYTHING).await;
    assert_eq!(totals.damage, 0, "{findings:?}");
    assert_eq!(
        (totals.records, totals.zones_used, totals.zones_empty),
        (1, 1, 3)
    );
    assert!(findings.iter().any(|finding| matches!(
        finding,
        Finding::TinyPages {
            zone: 3,
            pages: 1,
            objects: 1,
            other_pages: 3,
            ..
        }
    )));
    let (quick, _) = look(&device, Scope::DESCRIPTIONS).await;
    assert_eq!((quick.records, quick.zones_used), (0, 0));
}

#[tokio::test]
async fn damage_is_located() {
    for (zone, page, what, damage) in [
        (3, 4, "page of objects", 1),
        (4, 7, "page of index", 1),
        (0, 2, "fence block", 1),
        // Without its filters a set-group does not exist.
        (3, SETS, "", 0),
    ] {
        let device = cache().await;
        flip(&device, zone, page, 30).await;
        let (totals, findings) = look(&device, Scope::EVERYTHING).await;
        assert_eq!(totals.damage, damage, "{what}: {findings:?}");
        let found = findings.iter().any(|finding| {
            matches!(finding, Finding::Damage { zone: z, offset, what: w, .. }
                if *z == zone && *offset == u64::from(page) * PAGE_BYTES as u64 && w == what)
        });
        assert_eq!(found, damage > 0, "{what}: {findings:?}");
    }
}

#[tokio::test]
async fn a_device_of_another_shape_and_a_lost_superblock_are_errors() {
    let device = cache().await;
    flip(&device, 0, 0, 60).await;
    let lost = inspect(&device, Scope::EVERYTHING, |_| {}).await;
    assert!(matches!(lost, Err(InspectError::NoCache { .. })));
}

#[tokio::test]
async fn a_superblock_has_the_shape_of_its_device() {
    let device = cache().await;
    let head = || device.read(Address::new(ZoneId(0), 0), IoBuf::zeroed(PAGE_BYTES));
    let expected = Shape {
        block_size: 4096,
        zone_count: ZONES,
        zone_size: ZONE,
        zone_capacity: ZONE,
    };
    assert_eq!(shape(&head().await.unwrap()), Ok(expected));
    flip(&device, 0, 0, 60).await;
    let damaged = shape(&head().await.unwrap());
    assert_eq!(damaged, Err(LayoutError::BadChecksum));
    let other = Err(LayoutError::Unexpected(Structure::Fences));
    let fences = device.read(Address::new(ZoneId(0), 4096), IoBuf::zeroed(PAGE_BYTES));
    assert_eq!(shape(&fences.await.unwrap()), other);
    assert_eq!(shape(&[0x55; 512]), Err(LayoutError::Foreign));
    assert_eq!(shape(&[0; 512]), Err(LayoutError::Blank));
}
