//! Shards and volumes that share a pool.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::policy::promotion::{NhitConfig, PromotionConfig};
use crate::volume::{
    ByteRange, Cache, Config, ConfigError, Extent, Operation, Plan, Request, VolumeBounds, VolumeId,
};
use crate::{ByteSize, Tick};

fn read(volume: u16, page: u64, pages: u64) -> Request {
    Request {
        volume: VolumeId(volume),
        operation: Operation::Read,
        range: ByteRange::at(page << 12, pages << 12),
    }
}

/// The hit ratio of skewed reads of 1 to 32 pages.
fn hit_ratio(shards: u32) -> f64 {
    let config = Config {
        shards,
        ..Config::adacache(ByteSize::mib(512))
    };
    let mut cache = Cache::new(&Plan::new(&config).unwrap());
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut steps = Vec::new();
    for _ in 0..150_000 {
        let uniform = random.next_u64() as f64 / u64::MAX as f64;
        // An odd factor scatters the hot extents over the volume.
        let extent = (uniform.powi(3) * 65536.0) as u64 * 40503 % 65536;
        let pages = 1 << (extent % 6);
        steps.clear();
        cache.request(&read(0, extent * 32, pages), Tick::ZERO, &mut steps);
    }
    cache.statistics().reads.hit_ratio()
}

#[test]
fn shards_cost_less_than_half_a_point_of_the_hit_ratio() {
    let exact = hit_ratio(1);
    assert!((0.3..0.9).contains(&exact), "{exact}");
    for shards in [4, 16] {
        let sharded = hit_ratio(shards);
        assert!(
            (exact - sharded).abs() < 0.005,
            "{shards}: {sharded} and {exact}"
        );
    }
}

/// Bytes of the first `pages` pages of `volume` that are cached.
fn cached_bytes(cache: &Cache, volume: u16, pages: u64) -> u64 {
    let mut bytes = 0;
    let range = ByteRange::at(0, pages << 12);
    let extent = Extent {
        volume: VolumeId(volume),
        range,
    };
    cache.lookup(extent, |piece| bytes += piece.extent.range.len());
    bytes
}

/// Volume 1 keeps 2 MiB under the load of volume 2, which has 1 MiB at most, and
/// of volume 3 without bounds.
#[test]
fn a_volume_keeps_its_minimum_and_has_its_maximum() {
    let bounds = |volume, minimum, maximum| VolumeBounds {
        volume,
        size: None,
        minimum: ByteSize::mib(minimum),
        maximum,
    };
    let config = Config {
        volumes: vec![bounds(1, 2, None), bounds(2, 0, Some(ByteSize::mib(1)))],
        ..Config::adacache(ByteSize::mib(8))
    };
    let mut cache = Cache::new(&Plan::new(&config).unwrap());
    let mut steps = Vec::new();
    let pages = 16 << 8;
    for volume in [1, 2, 3] {
        for page in 0..pages {
            steps.clear();
            cache.request(&read(volume, page, 1), Tick::ZERO, &mut steps);
        }
    }
    assert_eq!(cached_bytes(&cache, 1, pages), 2 << 20);
    assert_eq!(
        cached_bytes(&cache, 2, pages) + cached_bytes(&cache, 3, pages),
        6 << 20
    );
    assert!(cached_bytes(&cache, 2, pages) <= 1 << 20);
    // Volume 1 takes back all that others may not keep.
    for page in 0..pages {
        steps.clear();
        cache.request(&read(1, page, 1), Tick::ZERO, &mut steps);
    }
    assert_eq!(cached_bytes(&cache, 1, pages), 8 << 20);
}

#[test]
fn errors_of_invalid_settings_name_a_valid_value() {
    let mib = |mib| Some(ByteSize::mib(mib));
    let bounds = |minimum, maximum| {
        vec![VolumeBounds {
            volume: 0,
            size: None,
            minimum: ByteSize::mib(minimum),
            maximum,
        }]
    };
    let nhit_once = PromotionConfig::Nhit(NhitConfig {
        threshold: 1,
        ..NhitConfig::default()
    });
    let base = || Config::adacache(ByteSize::mib(8));
    for (config, setting, nearest) in [
        (
            Config {
                shards: 0,
                ..base()
            },
            "shards",
            "1",
        ),
        (
            Config {
                shards: 64,
                ..base()
            },
            "capacity",
            "16MiB",
        ),
        (
            Config {
                capacity: ByteSize::gib(9000),
                ..base()
            },
            "shards",
            "2",
        ),
        (
            Config {
                volumes: bounds(8, None),
                ..base()
            },
            "volumes.minimum",
            "7936KiB",
        ),
        (
            Config {
                volumes: bounds(0, mib(0)),
                ..base()
            },
            "volumes.maximum",
            "256KiB",
        ),
        (
            Config {
                volumes: bounds(4, mib(2)),
                ..base()
            },
            "volumes.maximum",
            "4MiB",
        ),
        (
            Config {
                promotion: nhit_once,
                ..base()
            },
            "threshold",
            "2",
        ),
    ] {
        let error: ConfigError = Plan::new(&config).expect_err(setting);
        assert_eq!(
            (error.setting, error.nearest.as_str()),
            (setting, nearest),
            "{error}"
        );
    }
    let grown = Plan::new(&base()).unwrap().grown_to(ByteSize::mib(4));
    assert_eq!(grown.map(|_| ()).unwrap_err().nearest, "8MiB");
}
