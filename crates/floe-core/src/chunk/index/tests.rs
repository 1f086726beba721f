use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::layout::SlotUse;

const BLOCK: u64 = 4096;

fn geometry() -> Geometry {
    Geometry::in_place(1024, 1 << 20)
}

fn entry(number: u64) -> Entry {
    let block = number % (1024 << 8);
    Entry {
        place: Place::new(ZoneId((block >> 8) as u32), (block & 255) * BLOCK),
        len: (number % 5000) as u32,
        checksum: number as u32,
        expiry_unix_s: 0,
    }
}

/// A third of the keys share the hash bits that tags are made of.
fn hash(key: u64) -> KeyHash {
    let spread = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) & HASH_MASK;
    KeyHash(if key.is_multiple_of(3) {
        spread & !0xFFFF
    } else {
        spread
    })
}

#[test]
fn the_index_agrees_with_a_map_while_numbers_outgrow_their_bits() {
    let mut index = ShardIndex::new(&geometry(), false);
    let mut oracle = BTreeMap::new();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    for step in 0..600_000_u64 {
        let key = random.random_range(0..200_000);
        if random.random_range(0..8) == 0 {
            let removed = index.remove(hash(key));
            assert_eq!(removed.map(Found::entry), oracle.remove(&hash(key).0));
        } else {
            let replaced = index.insert(hash(key), entry(step)).expect("there is room");
            let before = oracle.insert(hash(key).0, entry(step));
            assert_eq!(replaced.map(Found::entry), before);
        }
        // Dead entries keep their numbers until their zone is reset.
        if step % 50_000 == 49_999 {
            let zone = ZoneId(random.random_range(0..1024));
            index.begin_evict(zone);
            index.end_evict(zone);
            oracle.retain(|_, entry| entry.place.zone != zone);
        }
    }
    assert!(index.entries() > 1 << 18, "numbers took more bits twice");
    assert_eq!(index.live(), oracle.len());
    for key in 0..200_000 {
        let found = index.get(hash(key)).map(Found::entry);
        assert_eq!(found.as_ref(), oracle.get(&hash(key).0));
    }
}

/// Reported uses follow recency, including the ages set by recovery.
#[test]
fn uses_are_reported_in_order_of_eviction() {
    let mut index = ShardIndex::over_slots(&geometry());
    for number in 0..800 {
        // The first records are the least recently used.
        let age = 200 - (number / 4) as u16;
        index.insert_aged(hash(number), entry(number), age).unwrap();
    }
    for number in 0..100 {
        assert!(index.touch(hash(number)));
    }
    assert!(!index.touch(hash(0)));
    index.ghost(hash(799));
    let bounds = index.use_bounds().unwrap();
    let mut uses = BTreeMap::new();
    let mut next = Some(0);
    while let Some(from) = next {
        next = index.for_each_use(bounds, from, |place, slot_use| {
            uses.insert(place, slot_use);
        });
    }
    assert_eq!(uses.len(), 799);
    let of = |number| uses.get(&entry(number).place).copied();
    assert_eq!(of(799), None);
    for (numbers, expected) in [
        (0..100, SlotUse::Hot),
        (100..195, SlotUse::Cold),
        (205..490, SlotUse::Warm),
        (505..799, SlotUse::Hot),
    ] {
        for number in numbers {
            assert_eq!(of(number), Some(expected), "{number}");
        }
    }
    let mut evicted = Vec::new();
    index.evict_least_recent_records(95, |entry| evicted.push(entry.place));
    for place in evicted {
        assert_eq!(uses[&place], SlotUse::Cold);
    }
}

/// Host GC does not copy the records that would be evicted next.
#[test]
fn only_the_oldest_eighth_is_cold() {
    let geometry = geometry();
    let mut index = ShardIndex::new(&geometry, true);
    let in_zone = |number: u64| Entry {
        place: Place::new(ZoneId((number % 4) as u32), 4096 * (number / 4 + 1)),
        len: 1000,
        checksum: 0,
        expiry_unix_s: 0,
    };
    for number in 0..800 {
        index.insert(hash(number), in_zone(number)).unwrap();
    }
    // All records of zone 1 but the oldest are used again.
    for number in (0..800).filter(|n| n % 4 == 1 && *n > 40) {
        index.touch(hash(number));
    }
    let warm = index.warm_bytes(ZoneId(2));
    assert!((150_000..180_000).contains(&warm), "{warm} of 200000");
    let used_again = index.warm_bytes(ZoneId(1));
    assert!((185_000..=195_000).contains(&used_again), "{used_again}");
    assert_eq!(index.warm_bytes(ZoneId(9)), 0);
    let mut evicted = Vec::new();
    index.evict_cold(ZoneId(2), |entry| evicted.push(entry));
    assert_eq!(evicted.len() as u64, 200 - warm / 1000);
    assert!(evicted.iter().all(|entry| entry.place.zone == ZoneId(2)));
    assert_eq!(index.live(), 800 - evicted.len());
    assert!(index.warm_bytes(ZoneId(2)) <= warm);
    for number in 0..20 {
        let cold = number % 4 == 2;
        assert_eq!(
            matches!(index.get(hash(number)), Some(Found::Ghost(_))),
            cold
        );
    }
}
