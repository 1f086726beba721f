//! The law on an array of three drives: drives fail, are missing at a start, come back and
//! are replaced, while processes are killed and power is cut. In virtual time, so a failing
//! seed always fails.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use common::{Lives, Subject, in_place, power_switch, zoned};
use floe::tiny::TinyConfig;
use floe::{Store, StoreConfig, Tiny};
use floe_core::chunk::{ChunkConfig, Eviction};
use floe_core::{ByteSize, Geometry};
use floe_device::array::{ArrayOptions, Candidate, DriveStanding};
use floe_device::{Array, Clock, Device, Faults, Faulty, OpenDeviceError, SharedDevice};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const DRIVES: usize = 3;

/// So many that every event happens.
const LIVES: u64 = 16;

/// Longer than the work of most lives.
const BREAKS_WITHIN: Duration = Duration::from_millis(600);

/// Events of the drives.
#[derive(Debug, Default)]
struct Events {
    degraded: AtomicU64,
    replaced: AtomicU64,
    missing: AtomicU64,
    refused: AtomicU64,
    formatted: AtomicU64,
}

fn count(event: &AtomicU64) {
    event.fetch_add(1, Relaxed);
}

/// Resets every zone, as a new drive.
async fn empty(drive: &Faulty) {
    for zone in drive.geometry().zones() {
        drive.reset(zone).await.expect("the drive works");
    }
    drive.flush().await.expect("the drive works");
}

async fn assemble(
    drives: &[Arc<Faulty>],
    missing: Option<usize>,
    format: bool,
    clock: &Clock,
) -> Result<Array, OpenDeviceError> {
    let candidate = |(number, drive): (usize, &Arc<Faulty>)| Candidate {
        name: number.to_string(),
        opened: match missing == Some(number) {
            true => Err(OpenDeviceError::NotFound(number.to_string().into())),
            false => Ok(drive.clone()),
        },
    };
    let options = ArrayOptions {
        format,
        seed: Some(clock.now().0),
        ..ArrayOptions::default()
    };
    let candidates = drives.iter().enumerate().map(candidate).collect();
    Array::open(candidates, options, clock).await
}

/// Opens the array as an operator would: with the drives that are there, or all, or anew.
async fn open_array(drives: &[Arc<Faulty>], clock: &Clock, events: &Events) -> SharedDevice {
    let mut random = StdRng::seed_from_u64(clock.now().0);
    let missing = random
        .random_bool(0.15)
        .then(|| random.random_range(0..DRIVES));
    let mut opened = assemble(drives, missing, false, clock).await;
    count(match missing {
        Some(_) => &events.missing,
        None => &events.degraded,
    });
    if opened.is_err() {
        count(&events.refused);
        opened = assemble(drives, None, false, clock).await;
    }
    if let Ok(array) = &opened {
        let stale: Vec<_> = (array.drives().into_iter())
            .filter(|drive| drive.standing == DriveStanding::Dropped)
            .filter_map(|drive| drive.name.parse::<usize>().ok())
            .filter(|number| missing != Some(*number))
            .collect();
        if !stale.is_empty() && random.random_bool(0.5) {
            count(&events.replaced);
            for number in stale {
                empty(&drives[number]).await;
            }
            opened = assemble(drives, missing, false, clock).await;
        }
    }
    let array = match opened {
        Ok(array) => array,
        Err(_) => {
            count(&events.formatted);
            let formatted = assemble(drives, None, true, clock).await;
            formatted.expect("drives that work make an array")
        }
    };
    if random.random_bool(0.5) {
        let drive = Arc::clone(&drives[random.random_range(0..DRIVES)]);
        let after = BREAKS_WITHIN.mul_f64(random.random::<f64>());
        let clock = clock.clone();
        tokio::spawn(async move {
            clock.sleep(after).await;
            drive.set(Faults {
                fail_after: Some(0),
                ..Faults::default()
            });
        });
    }
    Arc::new(array)
}

fn lives(power_loss: bool, sizes: fn(&mut StdRng) -> usize) -> Lives {
    Lives {
        count: LIVES,
        clients: 4,
        on_threads: false,
        operations: 2_000,
        keys_per_client: 60,
        sizes,
        power_loss,
        faults: None,
    }
}

fn run<S: Subject>(
    lives: &Lives,
    geometry: Geometry,
    open: impl AsyncFn(SharedDevice, Clock) -> S,
) {
    let powers = [(); DRIVES].map(|()| power_switch(geometry.clone()));
    let events = Events::default();
    let counts = lives.run(&powers, async |devices, clock| {
        let array = open_array(&devices, &clock, &events).await;
        open(array, clock).await
    });
    println!("{events:?}");
    assert!(counts.hits > 1000 && counts.warm_hits > 0, "{counts:?}");
    let happened = [&events.replaced, &events.missing, &events.refused];
    assert!(
        happened.iter().all(|event| event.load(Relaxed) > 0),
        "{events:?}"
    );
}

fn chunks(geometry: Geometry, eviction: Eviction, power_loss: bool) {
    let config = StoreConfig {
        chunk: ChunkConfig {
            size: ByteSize::kib(64),
            write_buffer: ByteSize::mib(3),
            eviction,
            ..ChunkConfig::default()
        },
        seed: Some(7),
        ..StoreConfig::default()
    };
    let sizes = |random: &mut StdRng| random.random_range(100..65_537);
    run(&lives(power_loss, sizes), geometry, async |array, clock| {
        let store = Store::open(array, clock, &config).await;
        store.expect("the cache opens")
    });
}

#[test]
fn chunks_in_a_log() {
    chunks(in_place(9, 4 << 20), Eviction::Zplru, false);
    chunks(in_place(9, 4 << 20), Eviction::Sieve, true);
}

#[test]
fn chunks_in_slots_and_on_zoned_drives() {
    chunks(in_place(9, 4 << 20), Eviction::Clru, true);
    chunks(zoned(9, 4 << 20), Eviction::Clru, false);
}

#[test]
fn tiny_objects_and_power_losses() {
    let geometry = Geometry {
        max_append_bytes: 64 << 10,
        ..in_place(12, 256 << 10)
    };
    let config = TinyConfig {
        seed: Some(7),
        ram: ByteSize::kib(64),
        ..TinyConfig::default()
    };
    let lives = Lives {
        operations: 8_000,
        keys_per_client: 1_000,
        ..lives(true, |random| random.random_range(16..600))
    };
    run(&lives, geometry, async |array, clock| {
        let tiny = Tiny::open(array, clock, &config).await;
        tiny.expect("the cache opens")
    });
}
