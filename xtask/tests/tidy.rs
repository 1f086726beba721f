//! The house rules hold: `cargo test` says so, not only CI.

use xtask::{project, tidy};

#[test]
fn every_house_rule_holds() {
    let violations = tidy::check(&project::root()).expect("tidy runs");
    let shown: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(shown.is_empty(), "\n{}", shown.join("\n"));
}
