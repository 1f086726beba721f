//! The seeds of tests that are short in every run and long with `FLOE_FULL`.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// True if `FLOE_FULL` is set, so that a test runs all of its seeds, points and requests.
pub(super) fn is_full() -> bool {
    std::env::var_os("FLOE_FULL").is_some()
}

/// Runs `run` with each of the first `few` seeds, or of the first `many` on all cores if
/// `FLOE_FULL` is set.
///
/// # Panics
///
/// If one of the runs does, once the other cores end.
pub(super) fn each_seed(few: u64, many: u64, run: impl Fn(u64) + Sync) {
    if !is_full() {
        return (0..few).for_each(run);
    }
    let next = AtomicU64::new(0);
    let run_some = || {
        let seeds = std::iter::repeat_with(|| next.fetch_add(1, Relaxed));
        seeds.take_while(|seed| *seed < many).for_each(&run);
    };
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(run_some);
        }
    });
}
