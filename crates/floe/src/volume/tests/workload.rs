//! Workloads by seed: the shape of the devices, the settings of the cache, and the
//! requests.

use std::ops::Range;

use floe_core::policy::cleaning::{AcpConfig, AlruConfig, CleaningConfig, LazyConfig};
use floe_core::volume::sequential::CutOff;
use floe_core::volume::{Level, Replacement};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::oracle::Mix;
use super::*;
use crate::volume::layout;

/// Addresses of one bit of write intent.
const AREA_BYTES: u64 = 4 << 20;

/// A cache, its volumes, and the requests to them.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) seed: u64,
    pub(super) settings: VolumeCacheConfig,
    pub(super) cache_bytes: u64,
    pub(super) cache_block: u32,
    pub(super) volumes: Vec<Disk>,
    /// Requests to each volume, and those of them that run at once.
    pub(super) requests: usize,
    pub(super) depth: usize,
    /// Records of unused areas fill the log.
    pub(super) fills_log: bool,
}

/// A volume of a workload.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) mode: Mode,
    pub(super) bytes: u64,
    pub(super) block: u32,
    /// The bytes that are in use.
    pub(super) used: Range<u64>,
    /// The end of the bytes that are written.
    pub(super) written_end: u64,
    pub(super) mix: Mix,
}

impl Workload {
    /// A workload whose parts are all chosen by `seed`.
    pub(super) fn random(seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let random = &mut random;
        let settings = settings(random);
        let cache_block = pick(random, [512, 512, 512, 4096]);
        let least = layout::plan(0, cache_block, &settings);
        let Err(OpenVolumesError::TooSmall { needed, .. }) = least else {
            unreachable!("a device of no bytes is too small");
        };
        let volumes = pick(random, [1, 1, 2, 3]);
        let switches = pick(random, [false, false, false, true]);
        Workload {
            seed,
            settings,
            cache_bytes: needed + (random.random_range(4..64) << 12),
            cache_block,
            volumes: (0..volumes)
                .map(|_| Disk::random(random, cache_block, switches))
                .collect(),
            requests: 240 / volumes,
            depth: random.random_range(1..9),
            fills_log: pick(random, [false, false, false, true]),
        }
    }
}

impl Disk {
    fn random(random: &mut Xoshiro256PlusPlus, cache_block: u32, switches: bool) -> Self {
        let block = pick(random, [512, 512, 512, 4096]);
        // Requests begin and end at these.
        let unit = u64::from(block.max(cache_block));
        // The end is seldom the end of a block of the cache.
        let blocks = (AREA_BYTES + (1 << 20)) / u64::from(block);
        let bytes = (blocks + random.random_range(0..9)) * u64::from(block);
        let len = random.random_range(16..64) << 13;
        let start = match random.random_range(0..4) {
            0 => 0,
            1 => bytes - len,
            _ => AREA_BYTES - len / 2,
        };
        let used = start / unit * unit..(start + len).min(bytes) / unit * unit;
        let written_end = match random.random_range(0..2) {
            0 => used.end,
            // Clean blocks of an area that is not written survive an unclean stop.
            _ => AREA_BYTES.clamp(used.start, used.end),
        };
        let written_end = if written_end == used.start {
            used.end
        } else {
            written_end
        };
        Disk {
            mode: match random.random_range(0..4) {
                0 | 1 => Mode::WriteBack,
                2 => Mode::WriteThrough,
                _ => pick(random, Mode::ALL),
            },
            bytes,
            block,
            used,
            written_end,
            mix: Mix {
                discards: pick(random, [0, 1, 4]),
                zeroes: pick(random, [0, 1, 4]),
                flushes: pick(random, [0, 1, 1, 6]),
                durable: pick(random, [0, 1, 4]),
                switches: u32::from(switches),
                writes: pick(random, [8, 16, 24]),
            },
        }
    }
}

fn settings(random: &mut Xoshiro256PlusPlus) -> VolumeCacheConfig {
    let sizes = pick(
        random,
        [
            "4KiB..16KiB",
            "4KiB..16KiB",
            "4KiB",
            "8KiB..32KiB",
            "4KiB,16KiB",
            "4KiB..64KiB",
        ],
    );
    let promotion = pick(random, ["always", "always", "nhit-2", "smq", "sketch-2"]);
    let mut settings = VolumeCacheConfig {
        sizes: sizes.parse().expect("sizes"),
        promotion: promotion.parse().expect("a policy"),
        cleaning: cleaning(random.random_range(0..4)),
        read_miss: pick(random, [Fill::Fetch, Fill::Sector]),
        write_miss: pick(random, [Fill::Fetch, Fill::Sector]),
        level: pick(
            random,
            [Level::Both, Level::Both, Level::Block, Level::Group],
        ),
        block_replacement: pick(random, Replacement::ALL),
        group_replacement: pick(random, Replacement::ALL),
        shards: match sizes {
            // Shards of blocks of one size have 64 of them at least.
            "4KiB" => 1,
            _ => pick(random, [1, 1, 2]),
        },
        checksums: random.random(),
        ..VolumeCacheConfig::default()
    };
    settings.sequential.cut_off = pick(random, [CutOff::Never, CutOff::Full, CutOff::Always]);
    settings.sequential.threshold = ByteSize::kib(64);
    settings
}

/// A cleaning policy that is in a hurry.
pub(super) fn cleaning(number: usize) -> CleaningConfig {
    match number {
        0 => CleaningConfig::None,
        1 => CleaningConfig::Lazy(LazyConfig { idle_ms: 10 }),
        2 => CleaningConfig::Alru(AlruConfig {
            wake_up_seconds: 1,
            staleness_seconds: 1,
            activity_threshold_ms: 0,
            ..AlruConfig::default()
        }),
        _ => CleaningConfig::Acp(AcpConfig::default()),
    }
}

fn pick<T: Copy, const N: usize>(random: &mut Xoshiro256PlusPlus, of: [T; N]) -> T {
    of[random.random_range(0..N)]
}
