//! `cargo run -- bench` starts the laboratory through cargo, which reuses the
//! crates built for `floe` only if both builds give them the same features.

use std::collections::BTreeSet;
use std::process::Command;

/// Each package of a build with its features.
fn packages(manifest: &str) -> BTreeSet<String> {
    let manifest = format!("{}/../{manifest}", env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--edges", "normal,build"])
        .args(["--prefix", "none", "--no-dedupe", "--format", "{p} [{f}]"])
        .args(["--manifest-path", &manifest])
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_laboratory_shares_all_crates_with_the_server() {
    let server = packages("crates/floe-cli/Cargo.toml");
    let laboratory = packages("lab/floe-lab/Cargo.toml");
    let unshared: Vec<&String> = server.difference(&laboratory).collect();
    assert!(
        unshared.is_empty(),
        "{unshared:?}: add the laboratory's features to crates/floe-cli/Cargo.toml"
    );
}
