//! Random requests against the model.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::model::Model;
use crate::ByteSize;
use crate::volume::mode::Mode;
use crate::volume::sequential::CutOff;
use crate::volume::{
    ByteRange, Config, Fill, Level, Operation, Plan, Replacement, SECTOR_BYTES, VolumeBounds,
    WhenDirty,
};

/// Bytes of each volume: not a multiple of any block size.
const VOLUME_BYTES: u64 = (3 << 20) + 5 * SECTOR_BYTES;

const VOLUMES: u16 = 2;

/// Requests of each test, or ten times as many if `FLOE_FULL` is set.
fn requests() -> u32 {
    if std::env::var_os("FLOE_FULL").is_some() {
        100_000
    } else {
        10_000
    }
}

fn config(sizes: &str, capacity_kib: u64) -> Config {
    let volume = |volume| VolumeBounds {
        volume,
        size: Some(ByteSize(VOLUME_BYTES)),
        minimum: ByteSize(0),
        maximum: None,
    };
    Config {
        sizes: sizes.parse().unwrap(),
        volumes: (0..VOLUMES).map(volume).collect(),
        ..Config::adacache(ByteSize::kib(capacity_kib))
    }
}

fn random_request(random: &mut Xoshiro256PlusPlus, model: &mut Model) {
    let mut below = |n: u64| random.next_u64() % n;
    let sectors = VOLUME_BYTES / SECTOR_BYTES;
    // Half of the requests go to an eighth of the volume.
    let first = if below(2) == 0 {
        below(sectors / 8)
    } else {
        below(sectors)
    };
    let len = if below(4) == 0 {
        1 + below(800)
    } else {
        1 + below(64)
    };
    let aligned = [1, 8, 64][below(3) as usize];
    let (first, len) = (first / aligned * aligned, len.div_ceil(aligned) * aligned);
    let range = ByteRange::at(first * SECTOR_BYTES, len * SECTOR_BYTES);
    let range = range.intersection(ByteRange::at(0, VOLUME_BYTES));
    let operation = match below(40) {
        0 => Operation::Trim,
        1 => Operation::WriteZeroes,
        2 => Operation::Flush,
        3..20 => Operation::Write,
        _ => Operation::Read,
    };
    model.request(below(u64::from(VOLUMES)) as u16, operation, range);
}

fn run(config: &Config, seed: u64, mut between: impl FnMut(u32, &mut Model)) {
    let plan = Plan::new(config).unwrap();
    let mut model = Model::new(&plan, VOLUMES, VOLUME_BYTES);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for number in 0..requests() {
        between(number, &mut model);
        random_request(&mut random, &mut model);
    }
    model.finish();
}

/// Every mode under every policy of promotion and of cleaning. Cut-off and
/// bypass take turns.
fn every_policy_keeps_the_newest_version(read_miss: Fill, write_miss: Fill) {
    let mut number = 0;
    for mode in Mode::ALL {
        for promotion in ["always", "nhit-2", "smq", "smq-adaptive", "sketch-2"] {
            for cleaning in ["none", "lazy", "alru", "acp"] {
                number += 1;
                let mut config = Config {
                    mode,
                    promotion: promotion.parse().unwrap(),
                    cleaning: cleaning.parse().unwrap(),
                    read_miss,
                    write_miss,
                    when_dirty: [WhenDirty::Evict, WhenDirty::Bypass][number / 3 % 2],
                    ..config("8KiB..64KiB", 640)
                };
                config.sequential.cut_off =
                    [CutOff::Never, CutOff::Full, CutOff::Always][number % 3];
                config.sequential.threshold = ByteSize::kib(64);
                config.reserve = [ByteSize(0), ByteSize::kib(64)][number / 2 % 2];
                run(&config, number as u64, |at, model| {
                    if at % 1500 == 1499 {
                        model.restart();
                    }
                });
            }
        }
    }
}

#[test]
fn whole_blocks_keep_the_newest_version() {
    every_policy_keeps_the_newest_version(Fill::Fetch, Fill::Fetch);
}

#[test]
fn sectors_keep_the_newest_version() {
    every_policy_keeps_the_newest_version(Fill::Sector, Fill::Sector);
}

#[test]
fn sectors_of_reads_keep_the_newest_version() {
    every_policy_keeps_the_newest_version(Fill::Sector, Fill::Fetch);
}

#[test]
fn sectors_of_writes_keep_the_newest_version() {
    every_policy_keeps_the_newest_version(Fill::Fetch, Fill::Sector);
}

#[test]
fn every_order_keeps_the_newest_version() {
    for level in [Level::Both, Level::Block, Level::Group] {
        for (number, replacement) in Replacement::ALL.into_iter().enumerate() {
            let config = Config {
                level,
                block_replacement: replacement,
                group_replacement: Replacement::ALL[(number + 1) % Replacement::ALL.len()],
                write_miss: Fill::Sector,
                ..config("4KiB,16KiB,32KiB", 512)
            };
            run(&config, 2, |_, _| {});
            let reserve = ByteSize::kib(96);
            let config = Config { reserve, ..config };
            run(&config, 2, |_, _| {});
        }
    }
}

#[test]
fn every_set_of_sizes_keeps_the_newest_version() {
    for (sizes, kib) in [
        ("4KiB", 100),
        ("32KiB", 500),
        ("256KiB", 1024),
        ("32KiB,256KiB", 1024),
        ("4KiB..1MiB", 2048),
        ("32KiB..256KiB", 256),
    ] {
        run(&config(sizes, kib), 3, |_, _| {});
        let mut config = config(sizes, kib);
        config.reserve = ByteSize::kib(kib / 4);
        run(&config, 3, |number, model| {
            if number % 1000 == 999 {
                model.restart();
            }
        });
    }
}

#[test]
fn shards_that_grow_and_change_modes_keep_the_newest_version() {
    let config = Config {
        shards: 3,
        read_miss: Fill::Sector,
        reserve: ByteSize::kib(96),
        ..config("4KiB..32KiB", 400)
    };
    run(&config, 4, |number, model| {
        if number % 500 == 0 {
            model.cache.set_mode(Mode::ALL[number as usize / 500 % 6]);
        }
        if number == 5000 {
            model.grow(ByteSize::kib(777));
        }
    });
    let mut cut = self::config("4KiB", 90);
    cut.mode = Mode::WriteThrough;
    run(&cut, 5, |number, model| {
        if number == 5000 {
            model.grow(ByteSize::kib(1000));
        }
    });
}

#[test]
fn volumes_keep_their_minimum_and_stay_below_their_maximum() {
    let mut config = config("8KiB..32KiB", 640);
    config.volumes[0].minimum = ByteSize::kib(320);
    config.volumes[1].maximum = Some(ByteSize::kib(160));
    for replacement in [Replacement::Lru, Replacement::Clock] {
        config.block_replacement = replacement;
        config.group_replacement = replacement;
        run(&config, 6, |_, _| {});
    }
}
