//! The law for tiny objects, against an oracle, for each of the five engines:
//! random operations of several clients in virtual time, kills and power cuts
//! at random moments, and faults. A failing seed always fails.

mod common;

use std::cell::Cell;

use common::{Lives, drive, in_place, power_switch, zoned};
use floe::Tiny;
use floe::tiny::{TinyConfig, TinyDurability, TinyEngine};
use floe_core::tiny::nemo::{FilterKind, NemoConfig};
use floe_core::tiny::{KangarooConfig, LogConfig, SetConfig, SetPolicy, SetStorage};
use floe_core::{ByteSize, Geometry};
use floe_device::power::PowerSwitch;
use floe_device::{DeviceConfig, Faults};
use rand::RngExt;

const OPERATIONS: u64 = 14_000;

/// Zones of the smallest device with valid set-groups.
const ZONES: u32 = 26;
const ZONE: u64 = 256 << 10;

fn lives() -> Lives {
    Lives {
        count: 6,
        clients: 4,
        on_threads: false,
        operations: OPERATIONS,
        keys_per_client: 2_000,
        sizes: |random| random.random_range(16..600),
        power_loss: false,
        faults: None,
    }
}

fn power_losses() -> Lives {
    Lives {
        count: 16,
        operations: OPERATIONS / 2,
        power_loss: true,
        ..lives()
    }
}

fn faults() -> Faults {
    Faults {
        read_errors: 0.01,
        append_errors: 0.001,
        bit_flips: 0.01,
        ..Faults::default()
    }
}

fn config(engine: TinyEngine) -> TinyConfig {
    TinyConfig {
        engine,
        seed: Some(7),
        ram: ByteSize::kib(64),
        ..TinyConfig::default()
    }
}

/// A device whose power can be cut in the middle of a set-group.
fn powered(geometry: Geometry) -> PowerSwitch {
    power_switch(Geometry {
        max_append_bytes: 64 << 10,
        ..geometry
    })
}

/// Runs `lives` and expects this hit percentage.
fn run(lives: &Lives, geometry: Geometry, config: TinyConfig, hits_per_100: u64) {
    let counts = lives.run(&[powered(geometry)], async |devices, clock| {
        Tiny::open(devices[0].clone(), clock, &config)
            .await
            .expect("the cache opens")
    });
    assert!(
        counts.hits * 100 > counts.gets * hits_per_100,
        "it forgets too much: {counts:?}"
    );
    let goes_well = lives.faults.is_none() && !lives.power_loss;
    assert!(!goes_well || counts.turned_away == 0, "{counts:?}");
    let is_nemo = config.engine == TinyEngine::Nemo;
    assert_eq!(counts.warm_hits > 0, is_nemo, "{counts:?}");
}

/// Nemo, which alone is warm after a restart.
#[test]
#[ignore = "needs a scratch drive in FLOE_TEST_DRIVE"]
fn on_a_drive() {
    let lives = Lives {
        count: 5,
        operations: 3_000,
        keys_per_client: 300,
        ..lives()
    };
    let format = Cell::new(true);
    let counts = lives.run_on_drive(&drive(ByteSize::mib(128)), async |devices, clock| {
        let config = TinyConfig {
            format: format.replace(false),
            nemo: NemoConfig {
                set_group_pages: Some(16),
                ..NemoConfig::default()
            },
            ..config(TinyEngine::Nemo)
        };
        Tiny::open(devices[0].clone(), clock, &config)
            .await
            .expect("the cache opens")
    });
    assert!(counts.hits > 0 && counts.warm_hits > 0, "{counts:?}");
}

/// Sixteen clients on as many threads. `FLOE_FULL` runs more than a hundred times as many
/// operations, ten million in both tests.
fn on_threads() -> Lives {
    let is_full = std::env::var_os("FLOE_FULL").is_some();
    Lives {
        count: 10,
        clients: 16,
        on_threads: true,
        operations: if is_full { 800_000 } else { 8_000 },
        keys_per_client: 1_000,
        ..lives()
    }
}

/// Instances that several threads use at once.
fn instances() -> TinyConfig {
    TinyConfig {
        instances: Some(3),
        ..config(TinyEngine::Nemo)
    }
}

#[test]
fn killed_on_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = DeviceConfig {
        zone_size: Some(ByteSize::kib(512)),
        ..DeviceConfig::file(folder.path().join("tiny"), ByteSize::mib(48))
    };
    let counts = on_threads().run_on_drive(&file, async |devices, clock| {
        let store = Tiny::open(devices[0].clone(), clock, &instances()).await;
        store.expect("the cache opens")
    });
    assert!(counts.hits > 0 && counts.warm_hits > 0, "{counts:?}");
}

#[test]
fn power_loss_on_threads() {
    let lives = Lives {
        count: 30,
        operations: on_threads().operations / 2,
        power_loss: true,
        ..on_threads()
    };
    let power = powered(in_place(96, 512 << 10));
    let counts = lives.run_on_threads(&[power], async |devices, clock| {
        let store = Tiny::open(devices[0].clone(), clock, &instances()).await;
        store.expect("the cache opens")
    });
    assert!(counts.hits > 0 && counts.warm_hits > 0, "{counts:?}");
}

mod nemo {
    use super::*;

    fn ours() -> TinyConfig {
        config(TinyEngine::Nemo)
    }

    fn with(nemo: NemoConfig) -> TinyConfig {
        TinyConfig { nemo, ..ours() }
    }

    #[test]
    fn killed() {
        run(&lives(), in_place(ZONES, ZONE), ours(), 20);
    }

    /// So small and so often overwritten that fences reach their limit.
    fn smallest(instances: u32) -> (Lives, Geometry, TinyConfig) {
        let lives = Lives {
            sizes: |random| random.random_range(1..4),
            keys_per_client: 4_000,
            ..lives()
        };
        let config = TinyConfig {
            instances: Some(instances),
            ..ours()
        };
        (lives, in_place(34, 64 << 10), config)
    }

    #[test]
    fn killed_with_the_smallest_objects() {
        let (lives, geometry, config) = smallest(1);
        run(&lives, geometry, config, 20);
    }

    #[test]
    fn power_loss_with_the_smallest_objects_on_instances() {
        let (lives, geometry, config) = smallest(3);
        let lives = Lives {
            count: 12,
            power_loss: true,
            ..lives
        };
        run(&lives, geometry, config, 20);
    }

    #[test]
    fn killed_as_published() {
        let config = with(NemoConfig::published());
        run(&lives(), in_place(ZONES, ZONE), config, 20);
    }

    /// With objects this small, few set-groups share a page of filters.
    fn with_fingerprints() -> TinyConfig {
        let (_, _, config) = smallest(1);
        let nemo = NemoConfig {
            filter_kind: FilterKind::Fingerprints,
            object_bytes: 20,
            ..config.nemo
        };
        TinyConfig { nemo, ..config }
    }

    #[test]
    fn killed_with_fingerprints() {
        let (lives, geometry, _) = smallest(1);
        run(&lives, geometry, with_fingerprints(), 20);
    }

    #[test]
    fn power_loss_with_fingerprints() {
        let (lives, geometry, _) = smallest(1);
        let lives = Lives {
            count: 12,
            power_loss: true,
            ..lives
        };
        run(&lives, geometry, with_fingerprints(), 20);
    }

    #[test]
    fn killed_with_several_set_groups_in_a_zone_and_two_instances() {
        let config = TinyConfig {
            instances: Some(2),
            ..with(NemoConfig {
                set_group_pages: Some(16),
                ..NemoConfig::default()
            })
        };
        run(&lives(), in_place(ZONES, ZONE), config, 20);
    }

    #[test]
    fn killed_on_zns_with_set_groups_of_two_zones() {
        let config = with(NemoConfig {
            set_group_pages: Some(96),
            ..NemoConfig::default()
        });
        run(&lives(), zoned(ZONES, ZONE), config, 10);
    }

    /// A life without fences leaves nothing behind unless it was closed, as each third one is.
    #[test]
    fn every_other_life_without_fences() {
        let killed = Lives {
            count: 26,
            operations: OPERATIONS / 2,
            ..lives()
        };
        for lives in [killed, power_losses()] {
            let (life, warm) = (Cell::new(0), Cell::new(false));
            let power = powered(in_place(ZONES, ZONE));
            let counts = lives.run(&[power], async |devices, clock| {
                let before = life.replace(life.get() + 1);
                let config = TinyConfig {
                    durability: match life.get() % 2 {
                        0 => TinyDurability::None,
                        _ => TinyDurability::Power,
                    },
                    instances: Some(2),
                    ..ours()
                };
                let store = Tiny::open(devices[0].clone(), clock, &config).await;
                let store = store.expect("the cache opens");
                let unclosed = store.recovery().unclosed;
                match (before % 2, before % 3) {
                    (1, _) => assert!(!unclosed, "it had fences"),
                    (_, 0) => warm.set(warm.get() || before > 0 && !unclosed),
                    _ => assert_eq!(unclosed, before > 0, "life {before}"),
                }
                store
            });
            assert!(warm.get() || lives.power_loss, "{counts:?}");
            assert!(counts.hits > 0 && counts.warm_hits > 0, "{counts:?}");
        }
    }

    #[test]
    fn power_loss() {
        run(&power_losses(), in_place(ZONES, ZONE), ours(), 5);
    }

    #[test]
    fn power_loss_on_zns() {
        run(&power_losses(), zoned(ZONES, ZONE), ours(), 5);
    }

    #[test]
    fn a_disk_that_is_full_below() {
        let space = Faults {
            space_bytes: Some(u64::from(ZONES / 3) * ZONE),
            ..Faults::default()
        };
        for lives in [lives(), power_losses()] {
            let lives = Lives {
                faults: Some(space.clone()),
                ..lives
            };
            run(&lives, in_place(ZONES, ZONE), ours(), 2);
        }
        let lives = Lives {
            faults: Some(Faults {
                reset_errors: 0.01,
                flush_errors: 0.0005,
                ..space
            }),
            ..power_losses()
        };
        run(&lives, in_place(ZONES, ZONE), ours(), 2);
    }

    #[test]
    fn faults_and_power_loss() {
        let lives = Lives {
            faults: Some(Faults {
                torn_writes: 0.002,
                reset_errors: 0.01,
                flush_errors: 0.0005,
                finish_errors: 0.01,
                ..faults()
            }),
            ..power_losses()
        };
        run(&lives, in_place(ZONES, ZONE), ours(), 2);
        run(&lives, zoned(ZONES, ZONE), ours(), 2);
    }
}

/// The volatile engines, on a device so small that each life overwrites it several times.
mod volatile {
    use super::*;

    const SMALL_ZONE: u64 = 64 << 10;

    fn small() -> Geometry {
        in_place(ZONES, SMALL_ZONE)
    }

    fn small_zoned() -> Geometry {
        zoned(ZONES, SMALL_ZONE)
    }

    /// All faults of a running process.
    fn all_faults() -> Faults {
        Faults {
            write_errors: 0.002,
            torn_writes: 0.002,
            lost_writes: 0.02,
            reset_errors: 0.002,
            ..faults()
        }
    }

    /// Kills and power cuts, each with and without faults.
    fn every_end(geometry: &Geometry, config: &TinyConfig) {
        let killed = Lives {
            count: 3,
            ..lives()
        };
        let power_losses = Lives {
            count: 5,
            ..power_losses()
        };
        for lives in [killed, power_losses] {
            run(&lives, geometry.clone(), config.clone(), 5);
            let lives = Lives {
                faults: Some(all_faults()),
                ..lives
            };
            run(&lives, geometry.clone(), config.clone(), 2);
        }
    }

    #[test]
    fn log() {
        every_end(&small(), &config(TinyEngine::Log));
    }

    #[test]
    fn log_on_zns_with_hot_objects_appended_again() {
        let config = TinyConfig {
            log: LogConfig {
                readmit_hit: true,
                segment_pages: 5,
                ..LogConfig::default()
            },
            instances: Some(2),
            ..config(TinyEngine::Log)
        };
        every_end(&small_zoned(), &config);
    }

    #[test]
    fn set() {
        every_end(&small(), &config(TinyEngine::Set));
    }

    #[test]
    fn set_in_blocks_of_512_bytes_by_use() {
        let geometry = Geometry {
            block_size: 512,
            ..small()
        };
        let config = TinyConfig {
            set: SetConfig {
                eviction: SetPolicy::Rrip,
                over_provisioning_percent: 10,
                ..SetConfig::default()
            },
            ..config(TinyEngine::Set)
        };
        every_end(&geometry, &config);
    }

    #[test]
    fn kangaroo() {
        every_end(&small(), &config(TinyEngine::Kangaroo));
    }

    #[test]
    fn kangaroo_on_zns() {
        let config = TinyConfig {
            kangaroo: KangarooConfig {
                set_storage: SetStorage::Zoned,
                over_provisioning_percent: 20,
                ..KangarooConfig::default()
            },
            ..config(TinyEngine::Kangaroo)
        };
        every_end(&small_zoned(), &config);
    }

    #[test]
    fn fairywren() {
        let mut config = config(TinyEngine::FairyWren);
        config.fairywren.over_provisioning_percent = 40;
        every_end(&small(), &config);
    }

    #[test]
    fn fairywren_on_zns() {
        let mut config = config(TinyEngine::FairyWren);
        config.fairywren.over_provisioning_percent = 40;
        every_end(&small_zoned(), &config);
    }
}
