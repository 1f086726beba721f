//! Crashes: the power of cache and backing device fails in one instant, or the process
//! dies.

use floe_device::{PowerGroup, virtual_time};

use super::seeds::each_seed;
use super::*;
use crate::volume::table::Boot;

/// A workload that is interrupted.
#[derive(Clone, Copy, Debug)]
struct Workload {
    seed: u64,
    mode: Mode,
    fill: Fill,
    /// The power of both devices fails; otherwise the process dies.
    loses_power: bool,
}

/// Runs the workload, again and again until the power fails or the process dies, and
/// checks every sector after each restart.
async fn crash_often(clock: Clock, workload: Workload) {
    let Workload {
        seed,
        mode,
        fill,
        loses_power,
    } = workload;
    let power = PowerGroup::default();
    let device = power.add(ByteSize::mib(4), 512).expect("a device");
    let backing = power.add(ByteSize::mib(8), 512).expect("a device");
    let (mut device, mut backing) = (device, backing);
    let mut oracle = Oracle::with_power_loss(8 << 20, seed).slowed_by(&clock);
    for round in 0..6_u8 {
        let boot = Boot([if loses_power { round } else { 0 }; 16]);
        let settings = VolumeCacheConfig {
            checksums: seed % 2 == 1,
            ..config(fill)
        };
        let identity = ([seed as u8; 16], seed);
        let (on, now) = (Arc::clone(&device), clock.clone());
        let cache = VolumeCache::open_as(on, None, now, &settings, boot, identity).await;
        let cache = cache.expect("it opens");
        let config = VolumeConfig {
            mode,
            ..VolumeConfig::default()
        };
        let volume = cache.attach("disk", Arc::clone(&backing), &config).await;
        let volume = volume.expect("it attaches");
        oracle.verify(&volume).await;
        let (number, depth) = (seed * 6 + u64::from(round), 1 + seed as usize % 16);
        if loses_power {
            power.crash_after(100 + number * 377 % 5000, number);
            assert!(oracle.run(&volume, 100_000, depth).await);
        } else {
            let requests = 50 + number as usize * 37 % 600;
            oracle.run_and_leave(&volume, requests, depth).await;
        }
        oracle.crash(loses_power);
        cache.abandon();
        assert_eq!(cache.stats().checksum_errors, 0);
        let devices = power.restart();
        [device, backing] = devices.try_into().expect("two devices");
    }
}

/// Workloads of each mode and fill, or many more if `FLOE_FULL` is set.
fn crash_all(loses_power: bool) {
    each_seed(2, 200, |seed| {
        for mode in Mode::ALL {
            for fill in [Fill::Fetch, Fill::Sector] {
                let workload = Workload {
                    seed,
                    mode,
                    fill,
                    loses_power,
                };
                let run = || virtual_time::run(seed, |clock| crash_often(clock, workload));
                if let Err(panic) = std::panic::catch_unwind(run) {
                    eprintln!("{workload:?}");
                    std::panic::resume_unwind(panic);
                }
            }
        }
    });
}

#[test]
fn a_power_loss_keeps_what_was_flushed() {
    crash_all(true);
}

#[test]
fn the_death_of_the_process_keeps_what_was_acknowledged() {
    crash_all(false);
}
