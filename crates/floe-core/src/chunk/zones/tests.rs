//! What happens to zones where the space below the device ends.

use super::*;
use crate::Geometry;
use crate::chunk::ChunkConfig;

const ZONES: u32 = 16;

fn table() -> ZoneTable {
    let geometry = Geometry {
        block_size: 4096,
        zone_size: 4 << 20,
        zone_capacity: 4 << 20,
        zone_count: ZONES,
        max_open_zones: None,
        max_active_zones: None,
        max_append_bytes: 1 << 20,
        random_writes: true,
        native_append: false,
        placement_handles: 0,
    };
    let plan = Plan::new(&ChunkConfig::default(), &geometry).unwrap();
    ZoneTable::new(&plan, Generation(1), ZonePolicy::Zplru, 0)
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

#[test]
fn without_space_free_zones_wait_and_the_others_go_on() {
    let mut zones = table();
    let first = open_one(&mut zones);
    let free = zones.free_zones();
    assert_eq!(zones.out_of_space(Some(first)), free as usize);
    assert_eq!(zones.info(first).phase, ZonePhase::Closing);
    assert_eq!(zones.free_zones(), 0);
    assert!(!zones.is_dead(), "the zone that was written is still there");

    // It is closed, evicted and written again like any other.
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
fn a_zone_without_space_for_its_header_is_not_tried_again_at_once() {
    let mut zones = table();
    let Placed::AfterOpening(zone, _) = zones.place(4096, 1) else {
        panic!("no zone to open");
    };
    zones.done(zone);
    zones.out_of_space(Some(zone));
    assert_eq!(zones.info(zone).phase, ZonePhase::Retired);
    assert!(zones.is_dead(), "nothing has space, so nobody waits");
    assert_eq!(zones.place(4096, 1), Placed::Wait);
    assert_eq!(zones.restore_withdrawn() as u32, ZONES - METADATA_ZONES);
    assert!(!zones.is_dead());
    // Many times over: a full disk is not the zone's fault.
    for _ in 0..10 {
        let zone = open_one(&mut zones);
        zones.out_of_space(Some(zone));
        for zone in zones.take_closable() {
            zones.closed(zone);
            zones.begin_evict(zone);
            zones.end_evict(zone);
        }
        zones.restore_withdrawn();
    }
    assert_eq!(zones.free_zones(), ZONES - METADATA_ZONES);
}
