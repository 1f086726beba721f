//! Every mode with every policy of promotion and of cleaning and every fill, under
//! requests that overlap.

use std::time::Duration;

use floe_device::{Faults, Faulty, virtual_time};

use super::seeds::{each_seed, is_full};
use super::workload::cleaning;
use super::*;
use crate::volume::table::Boot;

const CACHE_BYTES: u64 = (1 << 20) + (640 << 10);

/// Not a multiple of any block of the cache.
const BACKING_BYTES: u64 = (1 << 20) + 5 * 512;

const BOOT: Boot = Boot([5; 16]);

/// Runs requests between clean stops, and checks every answer and what is left.
/// Returns the bytes of reads that the cache answered.
async fn pass(
    clock: Clock,
    settings: VolumeCacheConfig,
    mode: Mode,
    (seed, requests): (u64, usize),
) -> u64 {
    let slow = |bytes, seed| {
        let below = MemoryBlocks::new(ByteSize(bytes), 512).expect("whole blocks");
        let faults = Faults {
            delays: 0.7,
            delay_max: Duration::from_micros(400),
            ..Faults::default()
        };
        let device: SharedBlockDevice =
            Arc::new(Faulty::new(Arc::new(below), clock.clone(), seed, faults));
        device
    };
    let (device, backing) = (slow(CACHE_BYTES, seed), slow(BACKING_BYTES, !seed));
    let mut oracle = Oracle::new(BACKING_BYTES, seed).slowed_by(&clock);
    let mut hit_bytes = 0;
    for round in 0..3 {
        let (on, now) = (Arc::clone(&device), clock.clone());
        let cache = VolumeCache::open_as(on, None, now, &settings, BOOT, ([1; 16], seed));
        let cache = cache.await.expect("it opens");
        let config = of_mode(mode);
        let volume = cache.attach("disk", Arc::clone(&backing), &config).await;
        let volume = volume.expect("it attaches");
        if round < 2 {
            oracle.run(&volume, requests, 16).await;
        }
        oracle.verify(&volume).await;
        if round == 2 {
            volume.clean().await.expect("all can be written back");
            oracle.verify_backing(&backing).await;
        }
        hit_bytes += cache.stats().counts.traffic.cache_hits.bytes;
        assert_eq!(cache.stats().checksum_errors, 0);
        cache.close().await.expect("it closes");
    }
    hit_bytes
}

#[test]
fn every_policy_in_every_mode_returns_the_newest_write() {
    let requests = if is_full() { 1000 } else { 100 };
    let fills = [Fill::Fetch, Fill::Sector];
    each_seed(1, 20, |seed| {
        for mode in Mode::ALL {
            let mut hit_bytes = 0;
            for promotion in ["always", "nhit-2", "smq", "sketch-2"] {
                for number in 0..12 {
                    let settings = VolumeCacheConfig {
                        promotion: promotion.parse().expect("a policy"),
                        cleaning: cleaning(1 + number % 3),
                        read_miss: fills[number / 3 % 2],
                        write_miss: fills[number / 6],
                        checksums: number % 2 == 1,
                        ..config(Fill::Fetch)
                    };
                    let run = || {
                        virtual_time::run(seed, |clock| {
                            pass(clock, settings.clone(), mode, (seed, requests))
                        })
                    };
                    match std::panic::catch_unwind(run) {
                        Ok(more) => hit_bytes += more,
                        Err(panic) => {
                            eprintln!("{mode}, seed {seed}, {settings:?}");
                            std::panic::resume_unwind(panic);
                        }
                    }
                }
            }
            assert_eq!(hit_bytes > 0, mode != Mode::PassThrough, "{mode}");
        }
    });
}
