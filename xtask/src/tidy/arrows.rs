//! Allowed dependencies between crates (ARCHITECTURE.md, "Code map").

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::violation::Violation;
use crate::project;

/// A package of the workspace.
pub(super) struct Package {
    pub(super) name: String,
    /// Its directory, relative to the project's root.
    pub(super) folder: PathBuf,
    dependencies: Vec<Dependency>,
    pub(super) targets: Vec<Target>,
}

struct Dependency {
    name: String,
    development: bool,
}

/// A crate root.
pub(super) struct Target {
    /// Relative to the project's root.
    pub(super) root_file: PathBuf,
    /// A test, bench or example: rules for shipped code do not apply.
    pub(super) test: bool,
}

/// Each crate, the project's crates that it may depend on, and the packages
/// that it must not link.
const HOUSE: &[(&str, &[&str], &[&str])] = &[
    (
        "floe-core",
        &[],
        &[
            "tokio",
            "futures",
            "async-trait",
            "async-std",
            "smol",
            "libc",
            "rustix",
            "nix",
            "io-uring",
            "object_store",
            "parking_lot",
            "crossbeam",
            "rayon",
            "tracing",
            "log",
            "axum",
            "hyper",
            "s3s",
            "clap",
            "time",
            "chrono",
            "tempfile",
            "reqwest",
            "dashmap",
        ],
    ),
    (
        "floe-device",
        &["floe-core"],
        &[
            "object_store",
            "quick_cache",
            "moka",
            "axum",
            "hyper",
            "s3s",
            "clap",
            "prometheus-client",
        ],
    ),
    (
        "floe",
        &["floe-core", "floe-device"],
        // `hyper` is its client of S3; servers are above it.
        &["io-uring", "axum", "s3s", "clap", "prometheus-client"],
    ),
    (
        "floe-object-store",
        &["floe"],
        &[
            "axum",
            "hyper",
            "s3s",
            "clap",
            "reqwest",
            "prometheus-client",
        ],
    ),
    (
        "floe-server",
        &["floe-core", "floe-device", "floe"],
        &["io-uring", "quick_cache", "moka", "clap"],
    ),
    (
        "floe-eval",
        &["floe-core", "floe-device", "floe"],
        &["axum", "s3s", "clap", "io-uring"],
    ),
    (
        "floe-cli",
        &["floe-core", "floe-device", "floe", "floe-server"],
        &["io-uring"],
    ),
    (
        "floe-lab",
        &["floe-core", "floe-device", "floe", "floe-cli", "floe-eval"],
        &["io-uring", "axum", "s3s"],
    ),
    (
        "floe-fuzz-readers",
        &["floe", "floe-server", "floe-eval"],
        &["io-uring"],
    ),
    ("xtask", &[], &[]),
];

/// Only `lab/peers/`, its own workspace, links other caches.
const RIVALS: &[&str] = &[
    "foyer",
    "foyer-storage",
    "foyer-memory",
    "cachelib",
    "moka",
    "opendal",
];

pub(super) fn packages(root: &Path) -> Result<Vec<Package>> {
    let text = project::output(project::cargo().current_dir(root).args([
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--offline",
    ]))?;
    let metadata: Value = serde_json::from_str(&text).context("reading `cargo metadata`")?;
    let list = metadata["packages"]
        .as_array()
        .context("`cargo metadata` lists no packages")?;
    list.iter().map(|package| parse(root, package)).collect()
}

fn parse(root: &Path, package: &Value) -> Result<Package> {
    let relative = |path: &Value| -> Result<PathBuf> {
        let path = Path::new(
            path.as_str()
                .context("a path of `cargo metadata` is no string")?,
        );
        Ok(path.strip_prefix(root).unwrap_or(path).to_path_buf())
    };
    let manifest = relative(&package["manifest_path"])?;
    let mut targets = Vec::new();
    for target in package["targets"].as_array().into_iter().flatten() {
        let kinds: Vec<&str> = target["kind"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        targets.push(Target {
            root_file: relative(&target["src_path"])?,
            test: kinds
                .iter()
                .any(|kind| matches!(*kind, "test" | "bench" | "example")),
        });
    }
    let dependencies = package["dependencies"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|dependency| {
            Some(Dependency {
                name: dependency["name"].as_str()?.to_owned(),
                development: dependency["kind"] == "dev",
            })
        })
        .collect();
    Ok(Package {
        name: package["name"]
            .as_str()
            .context("a package has no name")?
            .to_owned(),
        folder: manifest.parent().unwrap_or(Path::new("")).to_path_buf(),
        dependencies,
        targets,
    })
}

pub(super) fn check(root: &Path, packages: &[Package]) -> Vec<Violation> {
    let names: Vec<&str> = packages.iter().map(|p| p.name.as_str()).collect();
    let mut violations = Vec::new();
    for package in packages {
        let manifest = package.folder.join("Cargo.toml");
        let text = std::fs::read_to_string(root.join(&manifest)).unwrap_or_default();
        let Some((_, below, banned)) = HOUSE.iter().find(|(name, ..)| *name == package.name) else {
            violations.push(Violation::new(
                &manifest,
                1,
                format!(
                    "the crate `{}` has no place in the house: add it to HOUSE in \
                     xtask/src/tidy/arrows.rs and to ARCHITECTURE.md, or make it a module",
                    package.name
                ),
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let why = if names.contains(&name) && !below.contains(&name) && name != package.name {
                format!(
                    "an arrow that the house does not have: `{}` must not depend on `{name}`",
                    package.name
                )
            } else if banned.contains(&name) && !dependency.development {
                format!(
                    "`{}` must not depend on `{name}` (ARCHITECTURE.md, \"Code map\")",
                    package.name
                )
            } else if RIVALS.contains(&name) {
                format!("the peer `{name}` belongs in the workspace `lab/peers/`")
            } else {
                continue;
            };
            violations.push(Violation::new(&manifest, line_of(&text, name), why));
        }
    }
    violations
}

fn line_of(manifest: &str, dependency: &str) -> usize {
    manifest
        .lines()
        .position(|line| {
            line.trim_start()
                .strip_prefix(dependency)
                .is_some_and(|rest| rest.trim_start().starts_with(['=', '.']))
        })
        .map_or(1, |index| index + 1)
}
