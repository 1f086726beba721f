use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// Three zones of two table blocks, with fifteen and five slots.
const ZONES: u32 = 3;

fn geometry() -> SlotGeometry {
    let geometry = SlotGeometry::new(512 * (1 + 2 + 20 * 8), 512, 4096).unwrap();
    assert_eq!(
        (
            geometry.slots,
            geometry.entries_per_block,
            geometry.table_blocks
        ),
        (20, 14, 2)
    );
    geometry
}

fn map() -> SlotMap {
    let mut map = SlotMap::new(geometry(), ZONES);
    for zone in 0..ZONES {
        map.open(ZoneId(zone));
    }
    map
}

fn id(zone: u32, slot: u32) -> SlotId {
    SlotId {
        zone: ZoneId(zone),
        slot,
    }
}

#[test]
fn runs_come_from_the_block_with_the_most_room_and_never_cross_one() {
    let mut map = map();
    assert_eq!(map.take_run(10).unwrap().slots, 0..10);
    // Zone 0's first block has four slots left, zone 1's fourteen.
    let run = map.take_run(100).unwrap();
    assert_eq!((run.zone, run.slots), (ZoneId(1), 0..14));
    assert_eq!(map.take_run(100).unwrap().zone, ZoneId(2));
    // Now each zone's last block has six free slots.
    assert_eq!(map.take_run(6).unwrap().slots, 14..20);
    assert_eq!(map.free(), 4 + 6 + 6);
}

#[test]
fn the_longest_run_serves_requests_beyond_it() {
    let mut map = SlotMap::new(geometry(), 1);
    map.open(ZoneId(0));
    while map.take_run(20).is_some() {}
    for slot in [1, 3, 4, 5, 7, 8] {
        assert!(map.give_back(id(0, slot)));
    }
    assert_eq!(map.take_run(2).unwrap().slots, 3..5);
    assert_eq!(map.take_run(9).unwrap().slots, 7..9);
}

#[test]
fn failed_slots_are_not_taken_again() {
    let mut map = SlotMap::new(geometry(), 1);
    map.open(ZoneId(0));
    let run = map.take_run(2).unwrap();
    map.withdraw(id(0, 0));
    map.withdraw_block(ZoneId(0), 0);
    map.withdraw_block(ZoneId(0), 0);
    assert_eq!((map.free(), map.withdrawn(), map.usable()), (6, 13, 7));
    assert_eq!(run.slots, 0..2);
    assert!(!map.give_back(id(0, 1)));
    assert_eq!((map.free(), map.withdrawn(), map.usable()), (6, 14, 6));
    while let Some(run) = map.take_run(1) {
        assert!(run.slots.start >= 14);
    }
}

#[test]
fn a_place_identifies_its_slot() {
    let geometry = geometry();
    for slot in 0..geometry.slots {
        for offset in [geometry.slot_offset(slot), geometry.payload_offset(slot)] {
            let place = Address::new(ZoneId(2), offset);
            assert_eq!(slot_at(&geometry, place), Some(id(2, slot)));
        }
    }
    assert_eq!(slot_at(&geometry, Address::new(ZoneId(2), 0)), None);
    let behind = Address::new(ZoneId(2), geometry.slot_offset(geometry.slots));
    assert_eq!(slot_at(&geometry, behind), None);
}

#[derive(Clone, Debug)]
enum Step {
    TakeRun(u32),
    GiveBack(prop::sample::Index),
    Withdraw(prop::sample::Index),
    WithdrawBlock(u32, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..20u32).prop_map(Step::TakeRun),
        8 => any::<prop::sample::Index>().prop_map(Step::GiveBack),
        1 => any::<prop::sample::Index>().prop_map(Step::Withdraw),
        1 => (0..ZONES, 0..2u32).prop_map(|(zone, block)| Step::WithdrawBlock(zone, block)),
    ]
}

proptest! {
    /// Compares the map with a model of sets: no slot is taken twice, none is
    /// lost, and the counts agree.
    #[test]
    fn it_agrees_with_sets(
        recovered in prop::collection::vec(any::<bool>(), 60),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let geometry = geometry();
        let mut map = SlotMap::new(geometry, ZONES);
        for zone in 0..ZONES {
            map.open_with(ZoneId(zone), &recovered[zone as usize * 20..][..20]);
        }
        let all = (0..ZONES).flat_map(|z| (0..20).map(move |s| id(z, s)));
        let (held, free): (Vec<_>, Vec<_>) = all.zip(recovered).partition(|(_, taken)| *taken);
        let mut held: Vec<SlotId> = held.into_iter().map(|(slot, _)| slot).collect();
        let mut free: BTreeSet<SlotId> = free.into_iter().map(|(slot, _)| slot).collect();
        let mut gone: BTreeMap<(ZoneId, u32), ()> = BTreeMap::new();
        for step in steps {
            match step {
                Step::TakeRun(most) => match map.take_run(most) {
                    None => prop_assert!(free.is_empty()),
                    Some(run) => {
                        prop_assert!(!run.slots.is_empty() && run.slots.len() <= most as usize);
                        let block = geometry.table_block_of(run.slots.start);
                        for slot in run.ids() {
                            prop_assert!(free.remove(&slot));
                            prop_assert_eq!(geometry.table_block_of(slot.slot), block);
                            held.push(slot);
                        }
                    }
                },
                Step::GiveBack(index) if !held.is_empty() => {
                    let slot = held.swap_remove(index.index(held.len()));
                    let block = (slot.zone, geometry.table_block_of(slot.slot));
                    let back = !gone.contains_key(&block);
                    prop_assert_eq!(map.give_back(slot), back);
                    if back {
                        free.insert(slot);
                    }
                }
                Step::Withdraw(index) if !held.is_empty() => {
                    map.withdraw(held.swap_remove(index.index(held.len())));
                }
                Step::WithdrawBlock(zone, block) => {
                    map.withdraw_block(ZoneId(zone), block);
                    gone.insert((ZoneId(zone), block), ());
                    free.retain(|s| s.zone != ZoneId(zone) || geometry.table_block_of(s.slot) != block);
                }
                Step::GiveBack(_) | Step::Withdraw(_) => {}
            }
            prop_assert_eq!(map.free(), free.len() as u64);
            prop_assert_eq!(map.usable(), (free.len() + held.len()) as u64);
            for zone in 0..ZONES {
                let count = free.iter().filter(|s| s.zone == ZoneId(zone)).count();
                prop_assert_eq!(map.free_in(ZoneId(zone)), count as u32);
            }
        }
    }
}
