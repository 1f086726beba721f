//! A zoned drive rejects the commands that a real one rejects.

use super::*;
use proptest::prelude::*;

const ZONE: u64 = 2 << 20;
const ZONE_CAPACITY: u64 = 1536 << 10;

fn submit(ssd: &mut Ssd, command: Command) -> Result<(), Rejection> {
    let now = Tick(ssd.now);
    let outcome = ssd.submit(now, CommandId(0), command);
    settle(ssd);
    outcome
}

fn append(zone: u32, bytes: u64) -> Command {
    Command::Append { zone, bytes }
}

fn condition(ssd: &Ssd, zone: u32) -> ZoneCondition {
    ssd.zone(zone).unwrap().condition
}

#[test]
fn writes_go_to_the_write_pointer_only() {
    let mut ssd = Ssd::new(small_zoned(), 0).unwrap();
    let write = |offset, bytes| Command::Write {
        offset,
        bytes,
        handle: 0,
    };
    assert_eq!(
        submit(&mut ssd, write(4096, 4096)),
        Err(Rejection::ZoneInvalidWrite)
    );
    assert_eq!(
        condition(&ssd, 0),
        ZoneCondition::Empty,
        "a rejection changes nothing"
    );
    assert_eq!(submit(&mut ssd, write(0, 4096)), Ok(()));
    assert_eq!(
        submit(&mut ssd, write(0, 4096)),
        Err(Rejection::ZoneInvalidWrite)
    );
    assert_eq!(submit(&mut ssd, write(4096, 8192)), Ok(()));
    assert_eq!(
        submit(&mut ssd, write(12288, ZONE_CAPACITY)),
        Err(Rejection::ZoneBoundary)
    );
    assert_eq!(
        submit(&mut ssd, append(0, ZONE_CAPACITY)),
        Err(Rejection::InvalidField)
    );
    assert_eq!(submit(&mut ssd, append(0, 1 << 20)), Ok(()));
    assert_eq!(
        submit(&mut ssd, append(0, 1 << 20)),
        Err(Rejection::ZoneBoundary)
    );
    let rest = ZONE_CAPACITY - 12288 - (1 << 20);
    assert_eq!(submit(&mut ssd, append(0, rest)), Ok(()));
    assert_eq!(condition(&ssd, 0), ZoneCondition::Full);
    assert_eq!(submit(&mut ssd, append(0, 4096)), Err(Rejection::ZoneFull));
    assert_eq!(
        submit(&mut ssd, append(8, 4096)),
        Err(Rejection::OutOfRange)
    );
    let across = Command::Read {
        offset: ZONE - 4096,
        bytes: 8192,
    };
    assert_eq!(submit(&mut ssd, across), Err(Rejection::ZoneBoundary));
    assert_eq!(Rejection::ZoneBoundary.status(), (1, 0xb8));
}

#[test]
fn limits_of_open_and_active_zones() {
    let mut ssd = Ssd::new(small_zoned(), 0).unwrap();
    for zone in 0..3 {
        assert_eq!(submit(&mut ssd, append(zone, 4096)), Ok(()));
    }
    // At most two may be open: the zone that a write opened first was closed.
    assert_eq!(condition(&ssd, 0), ZoneCondition::Closed);
    assert_eq!(condition(&ssd, 2), ZoneCondition::ImplicitlyOpen);
    assert_eq!(
        submit(&mut ssd, append(3, 4096)),
        Err(Rejection::TooManyActiveZones)
    );
    assert_eq!(
        submit(&mut ssd, Command::Open { zone: 3 }),
        Err(Rejection::TooManyActiveZones)
    );
    for zone in [0, 1] {
        assert_eq!(submit(&mut ssd, Command::Open { zone }), Ok(()));
    }
    // Both open zones are explicitly open: neither can be closed for the third.
    assert_eq!(
        submit(&mut ssd, append(2, 4096)),
        Err(Rejection::TooManyOpenZones)
    );
    assert_eq!(submit(&mut ssd, Command::Close { zone: 0 }), Ok(()));
    assert_eq!(submit(&mut ssd, append(2, 4096)), Ok(()));
    assert_eq!(
        submit(&mut ssd, Command::Close { zone: 5 }),
        Err(Rejection::InvalidTransition)
    );
    assert_eq!(submit(&mut ssd, Command::Finish { zone: 1 }), Ok(()));
    assert_eq!(
        submit(&mut ssd, Command::Open { zone: 1 }),
        Err(Rejection::InvalidTransition)
    );
    assert_eq!(
        submit(&mut ssd, Command::Close { zone: 1 }),
        Err(Rejection::InvalidTransition)
    );
    assert_eq!(
        submit(&mut ssd, Command::Finish { zone: 1 }),
        Ok(()),
        "full stays full"
    );
    assert_eq!(
        submit(&mut ssd, append(3, 4096)),
        Ok(()),
        "a finished zone is not active"
    );
}

#[test]
fn finishing_pads_and_resetting_forgets() {
    let mut ssd = Ssd::new(small_zoned(), 0).unwrap();
    assert_eq!(submit(&mut ssd, append(0, 100 << 12)), Ok(()));
    assert_eq!(ssd.stored(0).unwrap().generation, Some(0));
    assert_eq!(ssd.stored(100 << 12).unwrap().generation, None);
    assert_eq!(submit(&mut ssd, Command::Finish { zone: 0 }), Ok(()));
    let programmed = ssd.statistics().programmed;
    assert_eq!(programmed.host_bytes, 100 << 12);
    assert_eq!(programmed.total_bytes(), ZONE_CAPACITY);
    assert_eq!(
        flash(&ssd).buffer_used(),
        0,
        "padding releases what it completes"
    );
    let before = Tick(ssd.now);
    assert_eq!(submit(&mut ssd, Command::Reset { zone: 0 }), Ok(()));
    assert!(
        Tick(ssd.now).since(before).as_millis() >= 5,
        "dies are erased"
    );
    assert_eq!(ssd.stored(0).unwrap().generation, None);
    assert_eq!(ssd.zone(0).unwrap().resets, 1);
    assert_eq!(submit(&mut ssd, append(0, 4096)), Ok(()));
    assert_eq!(ssd.stored(0).unwrap().generation, Some(1));
    // A reset drops data that is only in the buffer.
    assert_eq!(submit(&mut ssd, Command::Reset { zone: 0 }), Ok(()));
    assert_eq!(flash(&ssd).buffer_used(), 0);
    assert_eq!(ssd.statistics().discarded_bytes, 4096);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(u32, u64),
    Reset(u32),
    Finish(u32),
    Open(u32),
    Close(u32),
    Read(u32, u64),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let zone = 0..8u32;
    prop_oneof![
        8 => (zone.clone(), 1..250u64).prop_map(|(zone, blocks)| Step::Append(zone, blocks * 4096)),
        2 => zone.clone().prop_map(Step::Reset),
        1 => zone.clone().prop_map(Step::Finish),
        1 => zone.clone().prop_map(Step::Open),
        1 => zone.clone().prop_map(Step::Close),
        3 => (zone, 1..384u64).prop_map(|(zone, blocks)| Step::Read(zone, blocks * 4096)),
        2 => (0..10_000_000u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Limits hold at every moment, every accepted command completes, appends
    /// are contiguous, and bytes are conserved.
    #[test]
    fn zones_keep_their_promises(steps in proptest::collection::vec(step(), 1..300)) {
        let mut ssd = Ssd::new(small_zoned(), 0).unwrap();
        let (mut accepted, mut now) = (0u64, Tick::ZERO);
        let mut done = Vec::new();
        let mut pointers = [0u64; 8];
        for step in steps {
            let command = match step {
                Step::Wait(ns) => {
                    now = now + std::time::Duration::from_nanos(ns);
                    ssd.advance(now, &mut done);
                    continue;
                }
                Step::Append(zone, bytes) => append(zone, bytes),
                Step::Reset(zone) => Command::Reset { zone },
                Step::Finish(zone) => Command::Finish { zone },
                Step::Open(zone) => Command::Open { zone },
                Step::Close(zone) => Command::Close { zone },
                Step::Read(zone, bytes) => {
                    Command::Read { offset: u64::from(zone) * ZONE, bytes }
                }
            };
            accepted += 1;
            match (ssd.submit(now, CommandId(accepted), command), command) {
                (Err(_), _) => accepted -= 1,
                (Ok(()), Command::Append { zone, bytes }) => pointers[zone as usize] += bytes,
                (Ok(()), Command::Reset { zone }) => pointers[zone as usize] = 0,
                _ => {}
            }
            let zones: Vec<_> = (0..8).filter_map(|zone| ssd.zone(zone)).collect();
            prop_assert!(zones.iter().filter(|z| z.condition.is_open()).count() <= 2);
            prop_assert!(zones.iter().filter(|z| z.condition.is_active()).count() <= 3);
            for (zone, pointer) in zones.iter().zip(pointers) {
                prop_assert_eq!(zone.write_pointer, pointer);
            }
        }
        done.extend(settle(&mut ssd));
        prop_assert_eq!(done.len() as u64, accepted);
        let statistics = ssd.statistics();
        prop_assert_eq!(
            statistics.host_written_bytes,
            statistics.programmed.host_bytes
                + statistics.buffered.host_bytes
                + statistics.discarded_bytes
        );
        prop_assert_eq!(flash(&ssd).buffer_used(), statistics.buffered.host_bytes);
        for zone in 0..8u32 {
            let written = pointers[zone as usize];
            if let Some(last) = written.checked_sub(4096) {
                let stored = ssd.stored(u64::from(zone) * ZONE + last).unwrap();
                prop_assert_eq!(stored.generation, Some(ssd.zone(zone).unwrap().resets));
            }
        }
    }
}
