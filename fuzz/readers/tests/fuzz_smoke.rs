//! The lists of targets agree, and every target survives its seeds and their
//! mutations. `cargo xtask fuzz-smoke` runs them for longer.

use std::time::Duration;

use floe_fuzz_readers::READERS;

/// Seconds for all targets together.
const SECONDS: &str = "FLOE_FUZZ_SECONDS";
const SECONDS_DEFAULT: u64 = 4;

#[test]
fn every_target_has_its_driver() {
    assert_eq!(READERS.check_drivers(), Ok(()));
}

#[test]
fn every_target_has_and_takes_seeds() {
    for target in READERS.targets {
        assert!(!(target.seeds)().is_empty(), "{} has no seeds", target.name);
    }
    let seconds = match std::env::var(SECONDS) {
        Ok(text) => text.parse().expect("a whole number of seconds"),
        Err(_) => SECONDS_DEFAULT,
    };
    assert_eq!(READERS.smoke(Duration::from_secs(seconds), 7), Ok(0));
}
