//! Two threads on two instances of Nemo, beside one thread on both: how throughput grows, beside
//! that of a loop that shares nothing.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use floe_core::tiny::model::Model;
use floe_core::tiny::nemo::{Nemo, NemoConfig, NemoPlan};
use floe_core::tiny::{Expiry, Flash, PAGE_BYTES};
use rustix::time::ClockId;
use serde_json::json;

use crate::mix::{Mix, Request, scatter};
use crate::{FITS, NOW, Options, ask, median, seconds_of};

const THREADS: usize = 2;

/// Requests that are drawn ahead, and made in turns.
const DRAWN: usize = 1 << 21;

/// Operations between two looks at the clock.
const STRIDE: usize = 1 << 8;

/// Instances, each with the keys of one value of a bit, as the driver has them.
type Instances = Vec<Mutex<Model<Nemo>>>;

fn instance_of(request: &Request) -> usize {
    (request.hash.0 >> 63) as usize
}

/// Operations a second of all of `threads` threads, each of which does `work` with its number.
fn throughput(
    threads: usize,
    time: Duration,
    work: impl Fn(usize, &AtomicBool) -> u64 + Sync,
) -> f64 {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = seconds_of(ClockId::Monotonic);
    std::thread::scope(|scope| {
        for number in 0..threads {
            let (stop, done, work) = (&stop, &done, &work);
            scope.spawn(move || done.fetch_add(work(number, stop), Relaxed));
        }
        std::thread::sleep(time);
        stop.store(true, Relaxed);
    });
    done.load(Relaxed) as f64 / (seconds_of(ClockId::Monotonic) - began)
}

/// Requests of the mix, from another place on for each thread and round.
fn engine(instances: &Instances, requests: &[Request], first: usize, stop: &AtomicBool) -> u64 {
    let mut operations = 0;
    for request in requests.iter().cycle().skip(first) {
        let model = &instances[instance_of(request)];
        let mut model = model.lock().expect("no thread panics");
        operations += ask(&mut model, std::slice::from_ref(request)) as u64;
        drop(model);
        if operations % STRIDE as u64 == 0 && stop.load(Relaxed) {
            break;
        }
    }
    operations
}

fn null_loop(number: usize, stop: &AtomicBool) -> u64 {
    let (mut state, mut turns) = (number as u64, 0);
    while !stop.load(Relaxed) {
        for _ in 0..STRIDE {
            state = scatter(black_box(state));
        }
        turns += 1;
    }
    black_box(state);
    turns
}

pub(crate) fn threads(options: &Options) {
    let flash = Flash {
        zones: options.flash.zones / THREADS as u32,
        ..options.flash
    };
    let flash_bytes = options.flash.pages() * PAGE_BYTES as u64;
    let instance = || {
        let plan = NemoPlan::new(&NemoConfig::default(), &flash).expect(FITS);
        Mutex::new(Model::new(Nemo::new(plan), flash))
    };
    let instances: Instances = (0..THREADS).map(|_| instance()).collect();
    let mut mix = Mix::new(flash_bytes);
    let mut requests = Vec::with_capacity(DRAWN);
    let written = |instances: &Instances| {
        let bytes = |model: &Mutex<Model<Nemo>>| {
            let model = model.lock().expect("no thread panics");
            model.statistics().bytes_in
        };
        instances.iter().map(bytes).sum::<u64>()
    };
    while written(&instances) < (options.warm_up * flash_bytes as f64) as u64 {
        requests.clear();
        mix.fill(&mut requests, STRIDE * STRIDE);
        for request in requests.iter().filter(|request| !request.is_get) {
            let model = &instances[instance_of(request)];
            let mut model = model.lock().expect("no thread panics");
            model.put(request.hash, request.bytes, Expiry::NEVER, NOW);
        }
    }
    requests.clear();
    mix.fill(
        &mut requests,
        if options.is_quick { DRAWN / 16 } else { DRAWN },
    );
    let (time, rounds) = match options.is_quick {
        true => (Duration::from_millis(100), 2),
        false => (Duration::from_millis(500), 15),
    };
    let (mut scaling, mut null_scaling) = (Vec::new(), Vec::new());
    let mut rates = Vec::new();
    for round in 0..rounds {
        let of = |threads| {
            throughput(threads, time, |number, stop| {
                let first = (round * THREADS + number) * requests.len() / (rounds * THREADS);
                engine(&instances, &requests, first, stop)
            })
        };
        let null = |threads| throughput(threads, time, null_loop);
        let (one, two, null_one, null_two) = (of(1), of(THREADS), null(1), null(THREADS));
        rates.push((one, two));
        scaling.push(two / one);
        null_scaling.push(null_two / null_one);
    }
    let (one, two) = rates.into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
    let (scaling, null_scaling) = (median(scaling), median(null_scaling));
    options.show(&json!({
        "threads": "two, on two instances of nemo",
        "operations_per_second_of_one": median(one).round(),
        "operations_per_second_of_two": median(two).round(),
        "scaling": scaling,
        "scaling_of_a_null_loop": null_scaling,
        "of_that": scaling / null_scaling,
    }));
}
