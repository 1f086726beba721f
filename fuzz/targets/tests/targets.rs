//! The lists of targets agree, and every target survives its seeds and their
//! mutations.

use std::time::Duration;

use floe_fuzz_targets::LAYOUTS;

#[test]
fn every_target_has_its_driver() {
    assert_eq!(LAYOUTS.check_drivers(), Ok(()));
}

#[test]
fn every_target_has_and_takes_seeds() {
    for target in LAYOUTS.targets {
        assert!(!(target.seeds)().is_empty(), "{} has no seeds", target.name);
    }
    assert_eq!(LAYOUTS.smoke(Duration::from_secs(3), 7), Ok(0));
}
