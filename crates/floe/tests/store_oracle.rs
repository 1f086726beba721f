//! The law for chunks, against an oracle: random operations of several clients
//! in virtual time, kills and power cuts at random moments, and faults. A
//! failing seed always fails.

mod common;

use common::{Lives, drive, in_place, power_switch, zoned};
use floe::admission::{AdmissionConfig, ProbabilisticConfig};
use floe::{Store, StoreConfig};
use floe_core::chunk::{ChunkConfig, Eviction};
use floe_core::{ByteSize, Geometry};
use floe_device::Faults;
use rand::RngExt;
use rand::rngs::StdRng;

/// Bytes that a life can write before it must free space, if space is scarce.
const SPACE_BELOW_BYTES: u64 = 25 << 20;

#[derive(Clone, Copy)]
struct Setup {
    eviction: Eviction,
    large: bool,
    native_append: bool,
    faults: bool,
    /// Appends fail often and reads flip bits.
    is_rough: bool,
    /// The power is cut instead of the process killed.
    power_loss: bool,
    /// Every third value is declined.
    declines: bool,
    /// The storage below the device is smaller than the device.
    is_full_below: bool,
}

impl Setup {
    /// With all faults.
    fn roughly(self) -> Self {
        Setup {
            power_loss: true,
            faults: true,
            is_rough: true,
            ..self
        }
    }

    fn is_slots(&self) -> bool {
        self.eviction == Eviction::Clru && !self.native_append
    }

    fn geometry(&self) -> Geometry {
        // A slot has the size of the largest value, so fewer values fit.
        let zones = match self.is_slots() && self.large || self.is_full_below {
            true => 40,
            false => 14,
        };
        match self.native_append {
            true => zoned(zones, 4 << 20),
            false => in_place(zones, 4 << 20),
        }
    }

    fn config(&self) -> StoreConfig {
        let size = match self.large {
            true => ByteSize::mib(1),
            false => ByteSize::kib(64),
        };
        let mut config = StoreConfig {
            chunk: ChunkConfig {
                size,
                eviction: self.eviction,
                write_buffer: ByteSize::mib(3),
                ..ChunkConfig::default()
            },
            seed: Some(7),
            ..StoreConfig::default()
        };
        config.ram.size = ByteSize::kib(600);
        if self.declines {
            let probability = 2.0 / 3.0;
            let policy = ProbabilisticConfig { probability };
            config.admission = AdmissionConfig::Probabilistic(policy);
        }
        config
    }

    fn faults(&self) -> Option<Faults> {
        let space_bytes = self.is_full_below.then_some(SPACE_BELOW_BYTES);
        if !self.faults {
            return space_bytes.map(|_| Faults {
                space_bytes,
                ..Faults::default()
            });
        }
        Some(Faults {
            space_bytes,
            read_errors: 0.01,
            append_errors: if self.is_rough { 0.02 } else { 0.002 },
            write_errors: 0.002,
            torn_writes: if self.is_slots() { 0.002 } else { 0.0 },
            bit_flips: if self.is_rough { 0.2 } else { 0.01 },
            ..Faults::default()
        })
    }

    fn lives(&self, count: u64, operations: u64) -> Lives {
        Lives {
            count,
            clients: 4,
            on_threads: false,
            operations,
            keys_per_client: 60,
            sizes: if self.large { large } else { small },
            power_loss: self.power_loss,
            faults: self.faults(),
        }
    }

    fn run(&self, count: u64, operations: u64) {
        let lives = self.lives(count, operations);
        let config = self.config();
        let powers = [power_switch(self.geometry())];
        let counts = lives.run(&powers, async |devices, clock| {
            Store::open(devices[0].clone(), clock, &config)
                .await
                .expect("the cache opens")
        });
        assert!(counts.hits * 10 > counts.gets, "it forgets: {counts:?}");
        assert!(counts.parts > 0 && counts.warm_hits > 0, "{counts:?}");
        assert!(counts.large_hits > 0, "{counts:?}");
    }

    /// Fewer operations than in virtual time, on a drive that is larger than the cache.
    fn run_on_drive(&self) {
        let config = self.config();
        let format = std::cell::Cell::new(true);
        let lives = self.lives(4, 1_200);
        let counts = lives.run_on_drive(&drive(ByteSize::mib(128)), async |devices, clock| {
            let config = StoreConfig {
                format: format.replace(false),
                ..config.clone()
            };
            Store::open(devices[0].clone(), clock, &config)
                .await
                .expect("the cache opens")
        });
        assert!(counts.hits > 0 && counts.warm_hits > 0, "{counts:?}");
    }
}

fn small(random: &mut StdRng) -> usize {
    match random.random_range(0..10) {
        0 => random.random_range(0..100),
        _ => random.random_range(100..65_537),
    }
}

fn large(random: &mut StdRng) -> usize {
    match random.random_range(0..10) {
        0 => random.random_range(0..100),
        1..=6 => random.random_range(100..70_000),
        _ => random.random_range(250_000..1_000_000),
    }
}

const LOG: Setup = Setup {
    eviction: Eviction::Zplru,
    large: false,
    native_append: false,
    faults: false,
    is_rough: false,
    power_loss: false,
    declines: false,
    is_full_below: false,
};

/// CLRU with host GC.
const ZNS: Setup = Setup {
    eviction: Eviction::Clru,
    native_append: true,
    ..LOG
};

/// CLRU on a device with writes in place.
const SLOTS: Setup = Setup {
    eviction: Eviction::Clru,
    ..LOG
};

#[test]
#[ignore = "needs a scratch drive in FLOE_TEST_DRIVE"]
fn on_a_drive() {
    for eviction in [
        Eviction::Zplru,
        Eviction::Fifo,
        Eviction::Sieve,
        Eviction::Clru,
    ] {
        println!("{eviction:?}");
        Setup { eviction, ..LOG }.run_on_drive();
    }
}

#[test]
fn small_values_zplru() {
    LOG.run(12, 3000);
}

#[test]
fn large_values_fifo_on_zns() {
    let setup = Setup {
        eviction: Eviction::Fifo,
        large: true,
        ..ZNS
    };
    setup.run(12, 1000);
}

#[test]
fn mixed_values_sieve_with_faults() {
    let setup = Setup {
        eviction: Eviction::Sieve,
        large: true,
        faults: true,
        ..LOG
    };
    setup.run(12, 1000);
}

#[test]
fn clru_with_host_gc_on_zns() {
    ZNS.run(12, 3000);
}

#[test]
fn clru_with_host_gc_large_values_and_faults() {
    let setup = Setup {
        large: true,
        faults: true,
        ..ZNS
    };
    setup.run(12, 1000);
}

#[test]
fn power_loss_small_values() {
    let setup = Setup {
        power_loss: true,
        ..LOG
    };
    setup.run(30, 1500);
}

#[test]
fn power_loss_small_values_and_faults() {
    let setup = Setup {
        power_loss: true,
        faults: true,
        ..LOG
    };
    setup.run(12, 1500);
}

/// The journal is read back when it changes zones, which it does after a failed append.
#[test]
fn power_loss_and_a_journal_that_reads_back_wrong() {
    LOG.roughly().run(20, 1500);
}

#[test]
fn power_loss_and_rough_reads_on_zns_with_host_gc() {
    ZNS.roughly().run(8, 1500);
}

#[test]
fn power_loss_and_rough_reads_of_large_values() {
    let setup = Setup { large: true, ..LOG };
    setup.roughly().run(8, 800);
}

#[test]
fn power_loss_on_zns_with_host_gc() {
    let setup = Setup {
        large: true,
        power_loss: true,
        ..ZNS
    };
    setup.run(30, 600);
}

#[test]
fn a_disk_that_is_full_below() {
    let setup = Setup {
        is_full_below: true,
        ..LOG
    };
    setup.run(12, 3000);
}

#[test]
fn a_disk_that_is_full_below_with_faults_and_power_losses() {
    let setup = Setup {
        large: true,
        power_loss: true,
        faults: true,
        is_full_below: true,
        ..LOG
    };
    setup.run(12, 1500);
}

#[test]
fn clru_slots_small_values() {
    SLOTS.run(8, 3000);
}

#[test]
fn clru_slots_small_values_and_power_losses() {
    let setup = Setup {
        power_loss: true,
        ..SLOTS
    };
    setup.run(20, 1500);
}

#[test]
fn clru_slots_large_values_and_power_losses() {
    let setup = Setup {
        large: true,
        power_loss: true,
        ..SLOTS
    };
    setup.run(12, 800);
}

#[test]
fn clru_slots_with_faults_and_power_losses() {
    let setup = Setup {
        faults: true,
        power_loss: true,
        ..SLOTS
    };
    setup.run(12, 1500);
}

#[test]
fn clru_slots_with_rough_reads_and_power_losses() {
    SLOTS.roughly().run(8, 1500);
}

#[test]
fn clru_slots_large_values_and_faults() {
    let setup = Setup {
        large: true,
        faults: true,
        ..SLOTS
    };
    setup.run(8, 800);
}

#[test]
fn values_kept_off_flash_and_power_losses() {
    let setup = Setup {
        power_loss: true,
        declines: true,
        ..LOG
    };
    setup.run(12, 1500);
}

#[test]
fn large_values_kept_off_flash_on_zns_with_host_gc() {
    let setup = Setup {
        large: true,
        faults: true,
        power_loss: true,
        declines: true,
        ..ZNS
    };
    setup.run(12, 800);
}

#[test]
fn large_values_kept_off_slots() {
    let setup = Setup {
        large: true,
        power_loss: true,
        declines: true,
        ..SLOTS
    };
    setup.run(12, 800);
}
