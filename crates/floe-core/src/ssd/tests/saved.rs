//! Saving and loading of states.

use proptest::prelude::*;

use super::*;

/// A command of any kind, somewhere on either of the small devices.
fn command() -> impl Strategy<Value = Command> {
    let place = (0..6144u64, 1..48u64);
    prop_oneof![
        6 => (place.clone(), 0..4u16).prop_map(|((block, blocks), handle)| Command::Write {
            offset: block * 4096,
            bytes: blocks * 4096,
            handle,
        }),
        6 => (0..8u32, 1..48u64).prop_map(|(zone, blocks)| Command::Append { zone, bytes: blocks * 4096 }),
        2 => place.clone().prop_map(|(block, blocks)| Command::Read {
            offset: block * 4096,
            bytes: blocks * 4096,
        }),
        1 => place.prop_map(|(block, blocks)| Command::Trim {
            offset: block * 4096,
            bytes: blocks * 4096,
        }),
        1 => (0..8u32).prop_map(|zone| Command::Finish { zone }),
        1 => (0..8u32).prop_map(|zone| Command::Reset { zone }),
        1 => (0..8u32).prop_map(|zone| Command::Open { zone }),
        1 => (0..4u16).prop_map(|handle| Command::UpdateHandle { handle }),
    ]
}

fn config(kind: u8) -> SsdConfig {
    match kind {
        0 => small_config(1),
        1 => small_config(2),
        2 => small_zoned(),
        _ => SsdConfig::hdd_array(),
    }
}

/// Submits commands from `from` on, and lets the accepted ones complete.
/// Returns the completions, with times since `from`.
fn drive(ssd: &mut Ssd, from: Tick, commands: &[Command]) -> Vec<(u64, u64, Option<u64>)> {
    let mut done = Vec::new();
    let mut now = from;
    for (number, &command) in commands.iter().enumerate() {
        // A rejected command has no effect.
        let _ = ssd.submit(now, CommandId(number as u64), command);
        now = now + std::time::Duration::from_micros(300);
        while let Some(at) = ssd.next_wakeup().filter(|&at| at <= now) {
            ssd.advance(at, &mut done);
        }
    }
    done.extend(settle(ssd));
    let seen = |c: Completion| (c.id.0, c.at.since(from).as_nanos() as u64, c.appended_at);
    done.into_iter().map(seen).collect()
}

/// The bytes of a state with a valid checksum.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let body = bytes.split_off(24);
    bytes.truncate(12);
    bytes.extend(crate::layout::crc32c([body.as_slice()]).to_le_bytes());
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(body);
    bytes
}

proptest! {
    /// A loaded device behaves as the saved one.
    #[test]
    fn a_state_comes_back_as_it_was(
        kind in 0..4u8,
        precondition in any::<bool>(),
        before in proptest::collection::vec(command(), 0..200),
        after in proptest::collection::vec(command(), 0..80),
    ) {
        let mut ssd = Ssd::new(config(kind), 7).unwrap();
        if precondition {
            ssd.precondition();
        }
        drive(&mut ssd, Tick::ZERO, &before);
        let saved = ssd.save().expect("at rest");
        let mut loaded = Ssd::load(config(kind), &saved).expect("a state");
        prop_assert_eq!(loaded.save().expect("at rest"), saved);
        if let Device::Flash(flash) = &loaded.device {
            flash.audit();
        }
        let start = Tick(1_800_000_000_000);
        prop_assert_eq!(drive(&mut loaded, Tick::ZERO, &after), drive(&mut ssd, start, &after));
        let (now, then) = (loaded.statistics(), ssd.statistics());
        prop_assert_eq!(now.programmed, then.programmed);
        prop_assert_eq!(now.buffered, then.buffered);
        prop_assert_eq!(now.wear, then.wear);
        prop_assert_eq!(now.dies, then.dies);
        prop_assert_eq!(loaded.free_superblocks(), ssd.free_superblocks());
    }

    /// Random bytes are rejected, or give a device that works.
    #[test]
    fn bad_states_are_rejected_or_harmless(
        kind in 0..4u8,
        before in proptest::collection::vec(command(), 0..120),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0..3u8), 1..6),
        after in proptest::collection::vec(command(), 0..40),
    ) {
        let mut ssd = Ssd::new(config(kind), 7).unwrap();
        drive(&mut ssd, Tick::ZERO, &before);
        let mut bytes = ssd.save().expect("at rest");
        for (place, value, how) in changes {
            let place = 24 + place.index(bytes.len() - 24);
            match how {
                0 => bytes[place] = value,
                1 => bytes.insert(place, value),
                _ => bytes[place] ^= 1,
            }
        }
        prop_assume!(bytes != ssd.save().expect("at rest"));
        prop_assert_eq!(Ssd::load(config(kind), &bytes).err(), Some(StateFault::Damaged));
        if let Ok(mut loaded) = Ssd::load(config(kind), &sealed(bytes)) {
            if let Device::Flash(flash) = &loaded.device {
                flash.audit();
            }
            drive(&mut loaded, Tick::ZERO, &after);
        }
    }

    #[test]
    fn anything_is_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Ssd::load(small_zoned(), &bytes).is_err());
    }
}

#[test]
fn faults_name_their_cause() {
    let mut ssd = Ssd::new(small_config(1), 7).unwrap();
    ssd.precondition();
    let saved = ssd.save().expect("at rest");
    let load = |bytes: &[u8]| Ssd::load(small_config(1), bytes).err();
    assert_eq!(load(b"FLOE"), Some(StateFault::NotAState));
    assert_eq!(load(&saved[..saved.len() - 1]), Some(StateFault::Damaged));
    assert_eq!(load(&saved[..14]), Some(StateFault::Damaged));
    let mut newer = saved.clone();
    newer[8] = 9;
    assert_eq!(load(&newer), Some(StateFault::Version(9)));
    let mut other = small_config(1);
    other.host.command_overhead_ns += 1;
    let rejected = Ssd::load(other, &saved).err();
    assert_eq!(rejected, Some(StateFault::OtherDevice("SN540".into())));
    let mut longer = saved.clone();
    longer.push(0);
    let wrong = StateFault::Malformed("something follows the state");
    assert_eq!(load(&sealed(longer)), Some(wrong));

    let write = Command::Write {
        offset: 0,
        bytes: 65536,
        handle: 0,
    };
    ssd.submit(Tick::ZERO, CommandId(1), write).unwrap();
    assert_eq!(ssd.save().err(), Some(Busy));
    settle(&mut ssd);
    assert!(ssd.save().is_ok());
}
