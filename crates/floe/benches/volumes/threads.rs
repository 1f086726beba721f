//! Two threads beside one: hits of 4 KiB with fine and with coarse locks.
//!
//! Other work on the machine slows two threads more than one, and nothing makes them
//! faster: rates are those of the best of many short slices.

use std::sync::Barrier;
use std::time::Duration;

use floe::volume::{LockGranularity, VolumeCacheConfig};
use floe_device::baseline::{Cost, Stopwatch};

use super::{Case, Options, ROOM, VOLUME, cached, fill, median, memory, runtime, sharded};

/// Slices of each case.
const TURNS: u32 = 60;

const GOALS: [(&str, &str); 2] = [
    ("read hit, fine locks", "at least 0.9 of the null loop"),
    ("read hit, coarse locks", "at most 0.8 of the null loop"),
];

pub(super) fn scale(options: &Options) {
    let runtime = runtime();
    let with = |locks| VolumeCacheConfig {
        locks,
        ..sharded(16)
    };
    let open = |locks| runtime.block_on(cached(memory(ROOM), &with(locks)));
    let (fine_cache, fine) = open(LockGranularity::Fine);
    let (coarse_cache, coarse) = open(LockGranularity::Coarse);
    let device = memory(VOLUME);
    runtime.block_on(fill(&device));
    let bytes = vec![1; VOLUME.bytes() as usize];
    let cases: [(&str, Case<'_>); 4] = [
        ("null loop: copies of 4 KiB", Case::Copy(&bytes)),
        ("the device alone, read", Case::Device(&device)),
        (GOALS[0].0, Case::Read(&fine)),
        (GOALS[1].0, Case::Read(&coarse)),
    ];
    let mut runs: [[Runs; 2]; 4] = Default::default();
    for seed in 0..TURNS {
        for ((_, case), runs) in cases.iter().zip(&mut runs) {
            for (threads, runs) in (1..).zip(runs) {
                let all = together(threads, *case, options.slice / 5, u64::from(seed));
                runs.rate = runs.rate.max(all.0);
                runs.cpu_ns.push(all.1);
            }
        }
    }
    let mut of_null = f64::NAN;
    for ((name, _), [one, two]) in cases.iter().zip(runs) {
        let scaling = two.rate / one.rate;
        let (one, two) = (median(one.cpu_ns), median(two.cpu_ns));
        if of_null.is_nan() {
            of_null = scaling;
        }
        let goal = GOALS.iter().find(|(case, _)| case == name);
        let row = serde_json::json!({
            "threads": name,
            "two_per_one": (scaling * 100.0).round() / 100.0,
            "of_null_loop": (scaling / of_null * 100.0).round() / 100.0,
            "cpu_ns_of_one": one.round(),
            "cpu_ns_of_two": two.round(),
            "goal": goal.map(|(_, goal)| goal),
        });
        let text = format!(
            "{name:40} two threads {scaling:.2} × one, {:.2} of the null loop; {one:.0} and {two:.0} ns of CPU",
            scaling / of_null
        );
        options.show(&row, &text);
    }
    runtime.block_on(async {
        fine_cache.close().await.expect("it closes");
        coarse_cache.close().await.expect("it closes");
    });
}

/// The slices of a case with so many threads.
#[derive(Default)]
struct Runs {
    /// Requests a second in the best slice.
    rate: f64,
    cpu_ns: Vec<f64>,
}

/// Runs a case on so many threads at once. Returns requests a second, and the
/// nanoseconds of processor time of each.
fn together(threads: u64, case: Case<'_>, time: Duration, seed: u64) -> (f64, f64) {
    let start = Barrier::new(threads as usize);
    let stopwatch = Stopwatch::start();
    let costs: Vec<Cost> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let start = &start;
                scope.spawn(move || {
                    let runtime = runtime();
                    start.wait();
                    runtime.block_on(case.run(time, seed ^ thread << 32))
                })
            })
            .collect();
        let costs = running.into_iter().map(|one| one.join().expect("it runs"));
        costs.collect()
    });
    let all = stopwatch.stop(costs.iter().map(|cost| cost.count).sum());
    let rate = costs.iter().map(Cost::rate).sum();
    (rate, all.cpu_per_operation().as_nanos() as f64)
}
