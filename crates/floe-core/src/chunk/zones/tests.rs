//! Zones when the device runs out of space, and when host GC needs zones.

use super::*;
use crate::Geometry;
use crate::chunk::{ChunkConfig, ClruLayout, WaterMarks};

const ZONES: u32 = 16;

fn table() -> ZoneTable {
    table_with_reserve(0)
}

fn table_with_reserve(gc_reserve: u32) -> ZoneTable {
    let geometry = Geometry::in_place(ZONES, 4 << 20);
    let plan = Plan::new(&ChunkConfig::default(), &geometry).unwrap();
    ZoneTable::new(&plan, Generation(1), ZonePolicy::Zplru, gc_reserve)
}

/// Opens a zone for a few bytes and writes them.
fn open_one(zones: &mut ZoneTable) -> ZoneId {
    let Placed::AfterOpening(zone, _) = zones.place(4 << 20 >> 1, 1) else {
        panic!("no zone to open");
    };
    zones.opened(zone);
    zones.done(zone);
    zone
}

/// Closes and resets all closable zones.
fn evict_closable(zones: &mut ZoneTable) {
    for zone in zones.take_closable() {
        zones.closed(zone);
        zones.begin_evict(zone);
        zones.end_evict(zone);
    }
}

#[test]
fn a_shortage_withdraws_unwritten_zones_only() {
    let mut zones = table();
    let first = open_one(&mut zones);
    let free = zones.free_zones();
    assert_eq!(zones.out_of_space(Some(first)), free as usize);
    assert_eq!(zones.info(first).phase, ZonePhase::Closing);
    assert_eq!(zones.free_zones(), 0);
    assert!(!zones.is_dead(), "the written zone stays in use");

    // It is closed, evicted and written again like any other zone.
    assert_eq!(zones.take_closable(), vec![first]);
    zones.closed(first);
    assert_eq!(zones.choose_victim(|_| 0, |_| 1), Some(first));
    zones.begin_evict(first);
    zones.end_evict(first);
    assert_eq!(open_one(&mut zones), first);

    assert!(zones.any_withdrawn());
    assert_eq!(zones.restore_withdrawn(), free as usize);
    assert_eq!(zones.free_zones(), free);
    assert!(!zones.any_withdrawn());
    open_one(&mut zones);
}

#[test]
fn a_zone_without_space_for_its_header_is_withdrawn() {
    let mut zones = table();
    let Placed::AfterOpening(zone, _) = zones.place(4096, 1) else {
        panic!("no zone to open");
    };
    zones.done(zone);
    zones.out_of_space(Some(zone));
    assert_eq!(zones.info(zone).phase, ZonePhase::Retired);
    assert!(zones.is_dead(), "nothing has space, so no write waits");
    assert_eq!(zones.place(4096, 1), Placed::Wait);
    assert_eq!(zones.restore_withdrawn() as u32, ZONES - METADATA_ZONES);
    assert!(!zones.is_dead());
    // Repeated failures do not retire it: a full disk is not the zone's fault.
    for _ in 0..10 {
        let zone = open_one(&mut zones);
        zones.out_of_space(Some(zone));
        evict_closable(&mut zones);
        zones.restore_withdrawn();
    }
    assert_eq!(zones.free_zones(), ZONES - METADATA_ZONES);
}

#[test]
fn a_shortage_takes_one_of_the_zones_that_gave_space_back() {
    let mut zones = table();
    for _ in 0..4 {
        let zone = open_one(&mut zones);
        zones.failed(zone);
        evict_closable(&mut zones);
    }
    // The four zones that were reset are queued behind the ones that were never
    // written.
    let open = open_one(&mut zones);
    let never = zones.free_zones() as usize - 4;
    assert_eq!(zones.out_of_space(Some(open)), never + 1);
    assert_eq!(zones.free_zones(), 3);
    // Another failed write to the same zone changes nothing; one of the
    // metadata log does.
    assert_eq!(zones.out_of_space(Some(open)), 0);
    assert_eq!(zones.out_of_space(None), 1);
    assert_eq!(zones.free_zones(), 2);
}

#[test]
fn a_shortage_without_a_free_zone_takes_the_next_that_is_emptied() {
    let mut zones = table();
    let open = [open_one(&mut zones), open_one(&mut zones)];
    zones.out_of_space(Some(open[0]));
    assert_eq!(zones.free_zones(), 0);
    evict_closable(&mut zones);
    assert_eq!(zones.free_zones(), 0, "one zone less is in use");
    // The last zone is tried again.
    zones.out_of_space(Some(open[1]));
    evict_closable(&mut zones);
    assert_eq!(zones.free_zones(), 1);
    assert!(!zones.is_dead());
}

#[test]
fn few_usable_zones_are_not_kept_free_for_a_water_mark() {
    let mut zones = table();
    let marks = WaterMarks { high: 8, low: 10 };
    assert_eq!(zones.water(marks), marks);
    zones.retire(ZoneId(2));
    assert_eq!(zones.water(marks), WaterMarks { high: 8, low: 9 });
    for zone in 3..12 {
        zones.retire(ZoneId(zone));
        zones.retire(ZoneId(zone));
    }
    // For the four zones left.
    assert_eq!(zones.water(marks), WaterMarks { high: 1, low: 2 });
    for zone in 12..16 {
        zones.retire(ZoneId(zone));
    }
    assert!(zones.is_dead());
    assert_eq!(zones.water(marks), WaterMarks { high: 0, low: 1 });
}

#[test]
fn users_leave_host_gc_the_zone_it_opened_while_zones_are_short() {
    const WHOLE: u64 = (4 << 20) - 4096;
    let mut zones = table_with_reserve(1);
    loop {
        match zones.place(WHOLE, 1) {
            Placed::AfterOpening(zone, _) => {
                zones.opened(zone);
                zones.done(zone);
            }
            Placed::Wait => {
                let ready = zones.take_closable();
                if ready.is_empty() {
                    break;
                }
                ready.into_iter().for_each(|zone| zones.closed(zone));
            }
            Placed::In(..) => panic!("no zone has room for another"),
        }
    }
    assert_eq!(zones.free_zones(), 1, "the reserve");
    let Placed::AfterOpening(of_gc, _) = zones.place_for_gc(1 << 20, 1) else {
        panic!("host GC may use the reserve");
    };
    zones.opened(of_gc);
    assert_eq!(
        zones.place(1 << 20, 1),
        Placed::Wait,
        "the open zone is host GC's"
    );
    assert!(matches!(zones.place_for_gc(1 << 20, 1), Placed::In(zone, _) if zone == of_gc));

    // With enough zones, users may use host GC's zone.
    for victim in zones.full_zones().take(2).collect::<Vec<_>>() {
        zones.begin_evict(victim);
        zones.end_evict(victim);
    }
    assert!(matches!(zones.place(1 << 20, 1), Placed::In(zone, _) if zone == of_gc));
}

/// On a device with placement handles, moved values have one zone beside those of new ones.
/// Neither side closes a zone of the other, however many claims come before headers are
/// written.
#[test]
fn moved_values_have_one_zone_beside_those_of_new_ones() {
    let geometry = Geometry {
        placement_handles: 8,
        ..Geometry::in_place(64, 4 << 20)
    };
    let config = ChunkConfig {
        eviction: Eviction::Clru,
        clru_layout: ClruLayout::Log,
        open_zones: Some(4),
        ..ChunkConfig::default()
    };
    let plan = Plan::new(&config, &geometry).unwrap();
    let mut zones = ZoneTable::new(&plan, Generation(1), ZonePolicy::Zplru, 2);
    // Four zones that are half full.
    let new: Vec<ZoneId> = (0..4).map(|_| open_one(&mut zones)).collect();
    let free = zones.free_zones();

    let Placed::AfterOpening(moved, _) = zones.place_for_gc(1 << 20, 1) else {
        panic!("no zone to open");
    };
    assert_eq!(zones.stream(moved), Stream::Moved);
    let elsewhere = |zones: &mut ZoneTable| match zones.place_for_gc(1 << 20, 1) {
        Placed::In(zone, _) => assert!(new.contains(&zone), "rather than in a second zone"),
        placed => panic!("{placed:?}"),
    };
    (0..3).for_each(|_| elsewhere(&mut zones));
    assert_eq!(zones.free_zones(), free - 1);
    zones.opened(moved);
    assert!(matches!(zones.place_for_gc(1 << 20, 1), Placed::In(zone, _) if zone == moved));

    // New values that fit none of their zones have one opened, and the next ones go to the
    // zone of moved values until that is done.
    let large = 2 << 20;
    let Placed::AfterOpening(opened, _) = zones.place(large, 1) else {
        panic!("no zone to open");
    };
    assert_eq!(zones.info(moved).phase, ZonePhase::Open);
    assert!(matches!(zones.stream(opened), Stream::New(_)));
    assert!(matches!(zones.place(1 << 20, 1), Placed::In(..)));
    assert_eq!(zones.info(moved).phase, ZonePhase::Open);
    assert_eq!(zones.free_zones(), free - 2);
}
