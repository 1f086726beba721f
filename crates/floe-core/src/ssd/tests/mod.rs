//! The device as a host sees it.

mod ftl;
mod saved;
mod zones;

use std::time::Duration;

use super::*;
use crate::ByteSize;

/// A drive so small that it collects garbage all the time: 24 superblocks of
/// 1.5 MiB, 16 of them visible to the host, and units of 64 KiB.
fn small_config(handles: u16) -> SsdConfig {
    let mut config = SsdConfig::sn540();
    config.host.buffer = ByteSize::mib(8);
    if let Some(flash) = config.flash_mut() {
        flash.superblock = ByteSize::kib(1536);
        flash.superblocks = 24 + 3 * u32::from(handles);
        flash.nand.dies = 8;
        if let Interface::Conventional(ftl) = &mut flash.interface {
            ftl.capacity = ByteSize::kib(16 * 1536);
            ftl.mapping_unit = ByteSize::kib(64);
            ftl.handles = handles;
            ftl.collect_below = 3 + u32::from(handles);
            ftl.throttle_at = 1 + u32::from(handles);
            ftl.collect_window = ByteSize::mib(1);
        }
    }
    config
}

/// A zoned drive of eight zones of 1.5 MiB, at most two open and three active.
fn small_zoned() -> SsdConfig {
    let mut config = SsdConfig::zn540();
    if let Some(flash) = config.flash_mut() {
        flash.superblock = ByteSize::kib(1536);
        flash.superblocks = 8;
        flash.nand.dies = 8;
        if let Interface::Zoned(zoned) = &mut flash.interface {
            zoned.zones = 8;
            zoned.zone_size = ByteSize::mib(2);
            zoned.open_max = 2;
            zoned.active_max = 3;
        }
    }
    config
}

/// Advances until the device is idle; panics if that takes more than a virtual
/// hour.
fn settle(ssd: &mut Ssd) -> Vec<Completion> {
    let mut done = Vec::new();
    while let Some(at) = ssd.next_wakeup() {
        assert!(
            at < Tick(3_600_000_000_000),
            "the device never comes to rest"
        );
        ssd.advance(at, &mut done);
    }
    done
}

fn flash(ssd: &Ssd) -> &Flash {
    match &ssd.device {
        Device::Flash(flash) => flash,
        Device::InPlace(_) => panic!("not a flash device"),
    }
}

#[test]
fn every_preset_makes_a_device() {
    for name in SsdConfig::PRESETS {
        let config = SsdConfig::preset(name).unwrap();
        assert_eq!(config.validate(), Ok(()), "{name}");
        for smaller in [config.clone().scaled(128), config.clone().shrunk(16)] {
            let smaller = smaller.unwrap();
            assert!(
                smaller.capacity_bytes() <= config.capacity_bytes(),
                "{name}"
            );
            assert!(Ssd::new(smaller, 1).is_ok(), "{name}");
        }
    }
    assert_eq!(SsdConfig::preset("floppy"), None);
}

#[test]
fn a_write_is_answered_from_the_buffer_and_a_read_by_the_dies() {
    let mut ssd = Ssd::new(SsdConfig::zn540().scaled(16).unwrap(), 1).unwrap();
    let bytes = 384 << 10;
    let append = Command::Append { zone: 0, bytes };
    ssd.submit(Tick::ZERO, CommandId(1), append).unwrap();
    let mut done = Vec::new();
    let at = ssd.advance_to_completion(Tick::MAX, &mut done);
    // 384 KiB at 3.2 GB/s in two pieces, and 55 µs.
    assert_eq!(at.0 / 1000, 122 + 55);
    settle(&mut ssd);
    let start = Tick(1_000_000_000);
    let read = Command::Read {
        offset: 0,
        bytes: 65536,
    };
    ssd.submit(start, CommandId(2), read).unwrap();
    done.clear();
    let at = ssd.advance_to_completion(Tick::MAX, &mut done);
    // A page on each of four dies, then four pages over the link.
    assert_eq!(at.since(start).as_micros(), 175 + 20 + 55);
    assert_eq!(done.len(), 1);
}

/// The latency of a read that arrives while its die is programming.
fn read_during_program(suspends_per_program: u32) -> Duration {
    let mut config = SsdConfig::zn540().scaled(16).unwrap();
    if let Some(flash) = config.flash_mut() {
        flash.nand.suspends_per_program = suspends_per_program;
    }
    let mut ssd = Ssd::new(config, 1).unwrap();
    let append = |zone: u32| Command::Append {
        zone,
        bytes: 384 << 10,
    };
    for zone in 0..2 {
        ssd.submit(Tick::ZERO, CommandId(zone.into()), append(zone))
            .unwrap();
    }
    settle(&mut ssd);
    // Zone 0 is programmed. Other zones are being programmed on the same dies
    // when the read arrives.
    let start = Tick(1_000_000_000);
    for zone in 2..10 {
        ssd.submit(start, CommandId(zone.into()), append(zone))
            .unwrap();
    }
    let begin = start + Duration::from_millis(2);
    ssd.advance(begin, &mut Vec::new());
    let read = Command::Read {
        offset: 0,
        bytes: 65536,
    };
    ssd.submit(begin, CommandId(99), read).unwrap();
    let mut reads = settle(&mut ssd);
    reads.retain(|done| done.id.0 == 99);
    assert_eq!(reads.len(), 1);
    reads[0].at.since(begin)
}

#[test]
fn a_read_suspends_a_program_or_waits_for_its_end() {
    let suspending = read_during_program(1);
    assert!(suspending.as_micros() <= 300, "{suspending:?}");
    let waiting = read_during_program(0);
    assert!((500..2_800).contains(&waiting.as_micros()), "{waiting:?}");
}

#[test]
fn media_in_place_seek_and_stream() {
    let mut ssd = Ssd::new(SsdConfig::hdd_array(), 1).unwrap();
    let mut done = Vec::new();
    let read = |offset| Command::Read {
        offset,
        bytes: 256 << 10,
    };
    ssd.submit(Tick::ZERO, CommandId(1), read(1 << 40)).unwrap();
    let first = ssd.advance_to_completion(Tick::MAX, &mut done);
    assert!((12..16).contains(&first.since(Tick::ZERO).as_millis()));
    let next = (1 << 40) + 12 * (256 << 10);
    ssd.submit(first, CommandId(2), read(next)).unwrap();
    let second = ssd.advance_to_completion(Tick::MAX, &mut done);
    assert!(second.since(first).as_micros() < 1200, "no seek");
    let append = Command::Append {
        zone: 0,
        bytes: 4096,
    };
    assert_eq!(
        ssd.submit(second, CommandId(3), append),
        Err(Rejection::InvalidOpcode)
    );
}
