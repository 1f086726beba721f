//! Records the commit of the build, if it is known.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=FLOE_BUILD_COMMIT");
    let commit = std::env::var("FLOE_BUILD_COMMIT")
        .ok()
        .or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    let version = env!("CARGO_PKG_VERSION");
    println!(
        "cargo:rustc-env=BUILD_COMMIT={}",
        commit.as_deref().unwrap_or_default()
    );
    let version = match commit.filter(|text| !text.is_empty()) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    };
    println!("cargo:rustc-env=BUILD_VERSION={version}");
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    println!("cargo:rerun-if-changed=build.rs");
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
