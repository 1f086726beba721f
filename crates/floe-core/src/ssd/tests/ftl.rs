//! Mapping and garbage collection under random commands.

use super::*;
use proptest::prelude::*;

const UNIT: u64 = 64 << 10;
const CAPACITY: u64 = (16 * 1536) << 10;

#[derive(Clone, Copy, Debug)]
enum Step {
    Write {
        offset: u64,
        bytes: u64,
        handle: u16,
    },
    Read {
        offset: u64,
        bytes: u64,
    },
    Trim {
        offset: u64,
        bytes: u64,
    },
    UpdateHandle(u16),
    Wait(u64),
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    let units = CAPACITY / UNIT;
    let whole = (0..units, 1..8u64)
        .prop_map(move |(unit, count)| (unit * UNIT, count.min(units - unit) * UNIT));
    let blocks = CAPACITY / 4096;
    let any = (0..blocks, 1..40u64)
        .prop_map(move |(block, count)| (block * 4096, count.min(blocks - block) * 4096));
    prop_oneof![3 => whole, 1 => any]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (range(), 0..4u16).prop_map(|((offset, bytes), handle)| Step::Write { offset, bytes, handle }),
        3 => range().prop_map(|(offset, bytes)| Step::Read { offset, bytes }),
        1 => range().prop_map(|(offset, bytes)| Step::Trim { offset, bytes }),
        1 => (0..2u16).prop_map(Step::UpdateHandle),
        2 => (0..20_000_000u64).prop_map(Step::Wait),
    ]
}

/// Each unit's number of writes, and whether the host has trimmed it since.
/// Valid while no command is under way.
struct Expected {
    writes: Vec<u32>,
    is_stored: Vec<bool>,
}

impl Expected {
    fn write(&mut self, offset: u64, bytes: u64) {
        for unit in offset / UNIT..(offset + bytes).div_ceil(UNIT) {
            self.writes[unit as usize] += 1;
            self.is_stored[unit as usize] = true;
        }
    }

    fn trim(&mut self, offset: u64, bytes: u64) {
        for unit in offset.div_ceil(UNIT)..(offset + bytes) / UNIT {
            self.is_stored[unit as usize] = false;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No mapping is lost or stale, bytes are conserved and every command
    /// completes. That holds for any commands in any order, preconditioned or
    /// not, with any number of handles.
    #[test]
    fn a_translation_layer_never_lies(
        steps in proptest::collection::vec(step(), 1..400),
        handles in 1..3u16,
        precondition: bool,
        persistent: bool,
        short_superblocks: bool,
    ) {
        let mut config = small_config(handles);
        if short_superblocks {
            shorten_superblocks(&mut config, 8);
        }
        if persistent && let Some(flash) = config.flash_mut()
            && let Interface::Conventional(ftl) = &mut flash.interface
        {
            ftl.isolation = Isolation::Persistent;
            flash.superblocks += 4;
        }
        let mut ssd = Ssd::new(config, 7).unwrap();
        if precondition {
            ssd.precondition();
        }
        let units = (CAPACITY / UNIT) as usize;
        let mut expected = Expected {
            writes: vec![u32::from(precondition); units],
            is_stored: vec![precondition; units],
        };
        let (mut now, mut submitted, mut done) = (Tick::ZERO, 0u64, Vec::new());
        for step in steps {
            let command = match step {
                Step::Wait(ns) => {
                    now = now + std::time::Duration::from_nanos(ns);
                    ssd.advance(now, &mut done);
                    continue;
                }
                Step::Read { offset, bytes } => Command::Read { offset, bytes },
                Step::Write { offset, bytes, handle } => Command::Write { offset, bytes, handle },
                Step::Trim { offset, bytes } => {
                    // Writes under way would take effect after the trim.
                    done.extend(settle(&mut ssd));
                    Command::Trim { offset, bytes }
                }
                Step::UpdateHandle(handle) if handle < handles => Command::UpdateHandle { handle },
                Step::UpdateHandle(_) => continue,
            };
            now = now.max(ssd_now(&ssd));
            submitted += 1;
            prop_assert_eq!(ssd.submit(now, CommandId(submitted), command), Ok(()));
            match command {
                Command::Write { offset, bytes, .. } => expected.write(offset, bytes),
                Command::Trim { offset, bytes } => expected.trim(offset, bytes),
                _ => {}
            }
        }
        done.extend(settle(&mut ssd));
        prop_assert_eq!(done.len() as u64, submitted);
        prop_assert!(done.is_sorted_by_key(|completion| completion.at));
        flash(&ssd).audit();
        for unit in 0..units {
            let stored = ssd.stored(unit as u64 * UNIT).unwrap();
            let generation = expected.is_stored[unit].then_some(expected.writes[unit]);
            match generation {
                // A unit that is written in several pieces counts each piece.
                Some(writes) => prop_assert!(
                    stored.generation.is_some_and(|seen| seen >= writes),
                    "unit {} holds {:?}, written {} times", unit, stored.generation, writes
                ),
                None => prop_assert_eq!(stored.generation, None),
            }
        }
        conserves_bytes(&ssd);
    }
}

/// Divides each superblock into `parts`; the capacity stays.
fn shorten_superblocks(config: &mut SsdConfig, parts: u32) {
    if let Some(flash) = config.flash_mut() {
        flash.nand.program_unit = ByteSize::kib(64);
        flash.nand.stripe_dies = 1;
        flash.superblock = ByteSize(flash.superblock.bytes() / u64::from(parts));
        flash.superblocks *= parts;
    }
}

fn ssd_now(ssd: &Ssd) -> Tick {
    Tick(ssd.now)
}

/// Every byte that the host wrote is programmed, buffered or dropped, and the
/// buffer holds exactly the unprogrammed bytes.
fn conserves_bytes(ssd: &Ssd) {
    let statistics = ssd.statistics();
    let host = statistics.programmed.host_bytes + statistics.buffered.host_bytes;
    assert_eq!(
        statistics.host_written_bytes,
        host + statistics.discarded_bytes
    );
    assert_eq!(
        flash(ssd).buffer_used(),
        statistics.buffered.host_bytes + statistics.buffered.rewritten_bytes
    );
    assert!(flash(ssd).buffer_used() <= ssd.config().host.buffer.bytes() + UNIT);
}

/// A write takes any number of superblocks, also if each is a single unit.
#[test]
fn a_write_may_be_larger_than_superblocks() {
    for parts in [6, 8, 12, 24] {
        let mut config = small_config(1);
        shorten_superblocks(&mut config, parts);
        let mut ssd = Ssd::new(config, 3).unwrap();
        for number in 0..200u64 {
            let write = Command::Write {
                offset: number * 7 * 4096,
                bytes: 1 << 20,
                handle: 0,
            };
            ssd.submit(ssd_now(&ssd), CommandId(number), write).unwrap();
            settle(&mut ssd);
        }
        flash(&ssd).audit();
        conserves_bytes(&ssd);
    }
}

#[test]
fn random_overwrites_amplify_and_throttle() {
    let mut ssd = Ssd::new(small_config(1), 3).unwrap();
    ssd.precondition();
    let mut state = 1u64;
    let mut done = Vec::new();
    let mut now = Tick::ZERO;
    for number in 0..4000u64 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let offset = (state >> 33) % (CAPACITY / UNIT) * UNIT;
        let write = Command::Write {
            offset,
            bytes: UNIT,
            handle: 0,
        };
        ssd.submit(now, CommandId(number), write).unwrap();
        now = ssd.advance_to_completion(Tick::MAX, &mut done);
    }
    settle(&mut ssd);
    flash(&ssd).audit();
    conserves_bytes(&ssd);
    let statistics = ssd.statistics();
    let amplification = statistics.write_amplification().unwrap();
    assert!((1.3..4.0).contains(&amplification), "{amplification}");
    assert!(statistics.throttled_ns > 0);
    assert!(statistics.collection.victims > 100);
    assert!(statistics.wear.erases_min > 0, "{:?}", statistics.wear);
    // Collection erases every superblock in turn, cold or hot.
    assert!(statistics.wear.erases_max < 6 * statistics.wear.erases_min.max(4));
    let fdp = ssd.fdp_statistics();
    assert_eq!(fdp.host_bytes_written, 4000 * UNIT);
    assert!(fdp.media_bytes_written > fdp.host_bytes_written);
}

#[test]
fn handles_keep_lifetimes_apart() {
    // Two writers overwrite a half each in sequence, at different paces. With a
    // handle each, data that dies together lies together.
    let amplification = |handles: u16| {
        let mut config = small_config(2);
        if let Some(flash) = config.flash_mut()
            && let Interface::Conventional(ftl) = &mut flash.interface
        {
            ftl.handles = handles;
        }
        let mut ssd = Ssd::new(config, 3).unwrap();
        let half = CAPACITY / UNIT / 2;
        let mut done = Vec::new();
        let (mut now, mut slow, mut fast) = (Tick::ZERO, 0u64, 0u64);
        for number in 0..6000u64 {
            let (unit, handle) = if number % 8 == 0 {
                slow += 1;
                (half + slow % half, 1)
            } else {
                fast += 1;
                (fast % half, 0)
            };
            let write = Command::Write {
                offset: unit * UNIT,
                bytes: UNIT,
                handle,
            };
            ssd.submit(now, CommandId(number), write).unwrap();
            now = ssd.advance_to_completion(Tick::MAX, &mut done);
        }
        settle(&mut ssd);
        flash(&ssd).audit();
        ssd.statistics().write_amplification().unwrap()
    };
    let (mixed, apart) = (amplification(1), amplification(2));
    assert!(apart <= 1.02, "{apart}");
    assert!(mixed > apart + 0.02, "{mixed} against {apart}");
}

#[test]
fn parts_of_a_unit_merge_in_the_buffer() {
    let mut ssd = Ssd::new(small_config(1), 3).unwrap();
    ssd.precondition();
    let mut done = Vec::new();
    let mut now = Tick::ZERO;
    for block in 0..64u64 {
        let write = Command::Write {
            offset: block * 4096,
            bytes: 4096,
            handle: 0,
        };
        ssd.submit(now, CommandId(block), write).unwrap();
        now = ssd.advance_to_completion(Tick::MAX, &mut done);
    }
    settle(&mut ssd);
    let statistics = ssd.statistics();
    assert_eq!(
        statistics.buffered.rewritten_bytes + statistics.programmed.rewritten_bytes,
        0
    );
    // Parts of distant units make the device rewrite the rest of each unit.
    for number in 0..64u64 {
        let write = Command::Write {
            offset: number * 5 * UNIT,
            bytes: 4096,
            handle: 0,
        };
        ssd.submit(now, CommandId(number), write).unwrap();
        now = ssd.advance_to_completion(Tick::MAX, &mut done);
    }
    settle(&mut ssd);
    let statistics = ssd.statistics();
    let rewritten = statistics.buffered.rewritten_bytes + statistics.programmed.rewritten_bytes;
    assert!(rewritten >= 40 * (UNIT - 4096), "{rewritten}");
    flash(&ssd).audit();
    conserves_bytes(&ssd);
}

#[test]
fn the_same_commands_give_the_same_completions() {
    let run = |mut ssd: Ssd| {
        let mut done = Vec::new();
        for number in 0..500u64 {
            let offset = number * 7919 % (CAPACITY / UNIT) * UNIT;
            let command = match number % 3 {
                0 => Command::Read {
                    offset,
                    bytes: UNIT,
                },
                _ => Command::Write {
                    offset,
                    bytes: UNIT,
                    handle: 0,
                },
            };
            ssd.submit(Tick(number * 1000), CommandId(number), command)
                .unwrap();
        }
        done.extend(settle(&mut ssd));
        (done, ssd.statistics())
    };
    let mut first = Ssd::new(small_config(1), 3).unwrap();
    first.precondition();
    let clone = first.clone();
    assert_eq!(run(first), run(clone));
}

#[test]
fn invalid_devices_are_rejected() {
    let mut config = small_config(1);
    if let Some(flash) = config.flash_mut() {
        flash.superblocks = 17;
    }
    let fault = Ssd::new(config, 0).unwrap_err();
    assert!(fault.to_string().contains("too few"), "{fault}");
    let mut config = small_config(1);
    config.host.buffer = ByteSize::kib(64);
    assert!(Ssd::new(config, 0).is_err());
    let mut ssd = Ssd::new(small_config(1), 0).unwrap();
    for (command, rejection) in [
        (
            Command::Read {
                offset: 0,
                bytes: 0,
            },
            Rejection::InvalidField,
        ),
        (
            Command::Read {
                offset: 1,
                bytes: 4096,
            },
            Rejection::InvalidField,
        ),
        (
            Command::Write {
                offset: CAPACITY,
                bytes: 4096,
                handle: 0,
            },
            Rejection::OutOfRange,
        ),
        (
            Command::Read {
                offset: u64::MAX - 4095,
                bytes: 4096,
            },
            Rejection::OutOfRange,
        ),
        (Command::Reset { zone: 0 }, Rejection::InvalidOpcode),
        (
            Command::Append {
                zone: 0,
                bytes: 4096,
            },
            Rejection::InvalidOpcode,
        ),
        (Command::UpdateHandle { handle: 1 }, Rejection::InvalidField),
    ] {
        assert_eq!(
            ssd.submit(Tick::ZERO, CommandId(0), command),
            Err(rejection),
            "{command:?}"
        );
    }
}
