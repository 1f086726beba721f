use proptest::prelude::*;

use super::*;

const ZONES: u32 = 5;
const CAPACITY: u64 = 10 * 4096;

fn table(max_open: u32, max_active: u32) -> ZoneTable {
    let geometry = Geometry {
        block_size: 4096,
        zone_size: CAPACITY,
        zone_capacity: CAPACITY,
        zone_count: ZONES,
        max_open_zones: Some(max_open),
        max_active_zones: Some(max_active),
        max_append_bytes: 4096 * 4,
        random_writes: false,
        native_append: true,
        placement_handles: 0,
    };
    ZoneTable::new(&geometry, ZoneState::Empty)
}

#[derive(Clone, Debug)]
enum Step {
    Append(u32, u64),
    WriterDone(u32),
    Reset(u32),
    ResetDone(u32),
    Finish(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let zone = 0..ZONES;
    prop_oneof![
        4 => (zone.clone(), 1..5_u64).prop_map(|(zone, blocks)| Step::Append(zone, blocks * 4096)),
        3 => zone.clone().prop_map(Step::WriterDone),
        1 => zone.clone().prop_map(Step::Reset),
        1 => zone.clone().prop_map(Step::ResetDone),
        1 => zone.prop_map(Step::Finish),
    ]
}

/// The expected state of a zone.
#[derive(Clone, Copy, Default)]
struct Model {
    pointer: u64,
    finished: bool,
    writers: u32,
    resetting: bool,
    waiting: u32,
}

impl Model {
    fn is_open(&self) -> bool {
        self.pointer > 0 && !self.is_full()
    }

    fn is_full(&self) -> bool {
        self.finished || (self.pointer == CAPACITY && self.writers == 0)
    }

    fn start_waiting(&mut self) -> bool {
        let start = self.writers == 0 && !self.resetting && self.waiting > 0;
        if start {
            self.waiting -= 1;
            self.resetting = true;
        }
        start
    }
}

proptest! {
    #[test]
    fn states_limits_and_resets_follow_the_model(
        max_open in 1..4_u32,
        max_active in 1..4_u32,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut table = table(max_open, max_active);
        let mut model = [Model::default(); ZONES as usize];
        for step in steps {
            let open = model.iter().filter(|zone| zone.is_open()).count() as u32;
            match step {
                Step::Append(zone, len) => {
                    let found = table.reserve(ZoneId(zone), len);
                    let zone = &mut model[zone as usize];
                    let left = if zone.finished { 0 } else { CAPACITY - zone.pointer };
                    if zone.resetting || zone.waiting > 0 {
                        prop_assert!(matches!(found, Err(DeviceErrorKind::Invalid(_))));
                    } else if len > left {
                        let is_full = matches!(found, Err(DeviceErrorKind::ZoneFull { left: l, .. }) if l == left);
                        prop_assert!(is_full);
                    } else if !zone.is_open() && open >= max_open.min(max_active) {
                        prop_assert!(matches!(found, Err(DeviceErrorKind::TooManyZones(_))));
                    } else {
                        prop_assert_eq!(found.ok(), Some(zone.pointer));
                        zone.pointer += len;
                        zone.writers += 1;
                    }
                }
                Step::WriterDone(zone) if model[zone as usize].writers > 0 => {
                    let started = table.writer_done(ZoneId(zone));
                    let zone = &mut model[zone as usize];
                    zone.writers -= 1;
                    prop_assert_eq!(started, zone.start_waiting());
                }
                Step::Reset(zone) => {
                    let turn = table.reset_start(ZoneId(zone)).ok();
                    let zone = &mut model[zone as usize];
                    if zone.writers > 0 || zone.resetting {
                        zone.waiting += 1;
                        prop_assert_eq!(turn, Some(Turn::Later));
                    } else {
                        zone.resetting = true;
                        prop_assert_eq!(turn, Some(Turn::Now));
                    }
                }
                Step::ResetDone(zone) if model[zone as usize].resetting => {
                    let started = table.reset_done(ZoneId(zone), true);
                    let zone = &mut model[zone as usize];
                    (zone.pointer, zone.finished, zone.resetting) = (0, false, false);
                    prop_assert_eq!(started, zone.start_waiting());
                }
                Step::Finish(zone) => {
                    let finished = table.finish(ZoneId(zone)).is_ok();
                    let zone = &mut model[zone as usize];
                    prop_assert_eq!(finished, !zone.resetting && zone.waiting == 0);
                    zone.finished |= finished;
                }
                Step::WriterDone(_) | Step::ResetDone(_) => {}
            }
            for (report, zone) in table.report().iter().zip(&model) {
                let expected = match zone.pointer {
                    _ if zone.is_full() => ZoneState::Full,
                    0 => ZoneState::Empty,
                    _ => ZoneState::Open,
                };
                prop_assert_eq!(report.state, expected);
                prop_assert_eq!(report.write_pointer, zone.pointer);
            }
        }
    }
}

#[test]
fn a_suspect_zone_takes_nothing_until_it_is_inspected() {
    let (mut table, zone) = (table(2, 2), ZoneId(1));
    for _ in 0..2 {
        table.reserve(zone, 4096).unwrap();
    }
    table.suspect(zone);
    assert!(table.reserve(zone, 4096).is_err());
    assert!(!table.starts_inspection(zone), "another writer is left");
    table.writer_done(zone);
    assert!(table.starts_inspection(zone) && !table.starts_inspection(zone));
    assert_eq!(table.reset_start(zone).ok(), Some(Turn::Later));
    table.inspected(zone, Some((ZoneState::Open, 4096)));
    assert!(table.writer_done(zone), "the reset may start");
    assert!(!table.reset_done(zone, true));
    assert_eq!(table.reserve(zone, 4096).ok(), Some(0));
    table.writer_done(zone);

    // A finish waits until the inspection has ended.
    table.reserve(zone, 4096).unwrap();
    table.suspect(zone);
    assert!(table.starts_inspection(zone));
    assert_eq!(table.finish_start(zone).ok(), Some(Some(Turn::Later)));
    table.inspected(zone, Some((ZoneState::Open, 4096)));
    assert!(table.writer_done(zone), "the finish may start");
    table.finish_done(zone, false);
    assert!(table.starts_inspection(zone), "inspected after the failure");
    table.inspected(zone, Some((ZoneState::Offline, 0)));
    table.writer_done(zone);
    assert_eq!(table.state(zone).0, ZoneState::Offline);
    assert!(table.reserve(zone, 4096).is_err() && table.reset_start(zone).is_err());
}

#[test]
fn a_zone_being_finished_counts_as_open_and_takes_no_more() {
    let (mut table, zone) = (table(1, 1), ZoneId(0));
    table.reserve(zone, 4096).unwrap();
    table.writer_done(zone);
    assert_eq!(table.finish_start(zone).ok(), Some(Some(Turn::Now)));
    let full = table.reserve(zone, 4096);
    assert!(matches!(
        full,
        Err(DeviceErrorKind::ZoneFull { left: 0, .. })
    ));
    assert!(table.reserve(ZoneId(1), 4096).is_err(), "still active");
    table.finish_done(zone, true);
    table.writer_done(zone);
    assert_eq!(table.finish_start(zone).ok(), Some(None), "full already");
    assert_eq!(table.reserve(ZoneId(1), 4096).ok(), Some(0));
}

#[test]
fn a_finish_starts_after_the_appends_before_it_and_before_a_later_reset() {
    let (mut table, zone) = (table(1, 1), ZoneId(0));
    table.reserve(zone, 4096).unwrap();
    table.reserve(zone, 4096).unwrap();
    for _ in 0..2 {
        assert_eq!(table.finish_start(zone).ok(), Some(Some(Turn::Later)));
    }
    assert!(
        table.reserve(zone, 4096).is_err(),
        "nothing follows a finish"
    );
    assert_eq!(table.reset_start(zone).ok(), Some(Turn::Later));
    assert!(table.finish_start(zone).is_err(), "nothing follows a reset");
    assert!(!table.writer_done(zone), "an append is in flight");
    for _ in 0..2 {
        assert!(table.writer_done(zone), "the next change starts");
        assert_eq!(table.state(zone).0, ZoneState::Open);
        table.finish_done(zone, true);
        table.set_state(zone, ZoneState::Open);
    }
    assert!(table.writer_done(zone) && table.is_being_reset(zone));
    assert!(!table.reset_done(zone, true), "nothing waits");
    assert_eq!(table.reserve(zone, 4096).ok(), Some(0));
}
