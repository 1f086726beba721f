//! A project with one violation per rule, and one without violations.

use std::fs;
use std::path::Path;

use super::check;

struct Project(tempfile::TempDir);

impl Project {
    /// A workspace with the crate `floe-core` and no violation.
    fn new() -> Self {
        let project = Project(tempfile::tempdir().expect("a temporary folder"));
        project.write(
            "Cargo.toml",
            "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n",
        );
        project.package("floe-core", "");
        project.write("crates/floe-core/src/lib.rs", "pub fn nothing() {}\n");
        project
    }

    fn package(&self, name: &str, dependencies: &str) {
        self.write(
            &format!("crates/{name}/Cargo.toml"),
            &format!(
                "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
                 [dependencies]\n{dependencies}"
            ),
        );
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.path().join(file);
        fs::create_dir_all(path.parent().expect("files lie in folders")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    fn core(text: &str) -> Vec<String> {
        let project = Project::new();
        project.write("crates/floe-core/src/lib.rs", text);
        project.broken()
    }

    /// Exactly one rule is violated, at `place`, with this word in its text.
    #[track_caller]
    fn assert_one(&self, place: &str, word: &str) {
        assert_one(&self.broken(), place, word);
    }

    fn broken(&self) -> Vec<String> {
        let root: &Path = self.0.path();
        check(root)
            .expect("tidy runs")
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}

/// `text` in the core violates one rule, on this line, with this word in its text.
#[track_caller]
fn assert_core(text: &str, line: usize, word: &str) {
    let place = format!("crates/floe-core/src/lib.rs:{line}:");
    assert_one(&Project::core(text), &place, word);
}

#[track_caller]
fn assert_one(broken: &[String], place: &str, word: &str) {
    assert_eq!(broken.len(), 1, "{broken:#?}");
    assert!(broken[0].starts_with(place), "{broken:#?}");
    assert!(broken[0].contains(word), "{broken:#?}");
}

#[test]
fn a_clean_project_passes() {
    assert_eq!(Project::new().broken(), Vec::<String>::new());
}

#[test]
fn arrows_point_down_only() {
    let project = Project::new();
    project.package("floe-device", "");
    project.write("crates/floe-device/src/lib.rs", "");
    project.package("floe-core", "floe-device = { path = \"../floe-device\" }\n");
    project.assert_one("crates/floe-core/Cargo.toml:7", "must not depend on");
}

#[test]
fn modules_import_from_lower_layers_only() {
    let project = Project::new();
    project.package("floe", "");
    let root = "mod error;\nmod store;\nmod value;\npub(crate) use store::Store;\n";
    project.write("crates/floe/src/lib.rs", root);
    project.write("crates/floe/src/error.rs", "pub(crate) struct E;\n");
    project.write("crates/floe/src/store.rs", "use crate::value::Value;\n");
    project.write("crates/floe/src/value.rs", "use crate::error::E;\n");
    assert_eq!(project.broken(), Vec::<String>::new());

    // A re-export is followed to the module that defines the name.
    project.write("crates/floe/src/value.rs", "\nfn f(_: crate::Store) {}\n");
    let broken = project.broken();
    assert_one(&broken[..1], "crates/floe/src/store.rs:1", "circle");
    assert_one(&broken[1..2], "crates/floe/src/value.rs:2", "no lower");
    assert_one(&broken[2..], "crates/floe/src/value.rs:2", "circle");
}

#[test]
fn files_that_import_each_other_are_a_circle() {
    let project = Project::new();
    project.write("crates/floe-core/src/lib.rs", "mod tick;\n");
    let parent = "mod child;\npub use child::B;\npub struct A;\n";
    project.write("crates/floe-core/src/tick.rs", parent);
    let child = "use super::A;\npub struct B(A);\n";
    project.write("crates/floe-core/src/tick/child.rs", child);
    assert_eq!(project.broken(), Vec::<String>::new());

    project.write(
        "crates/floe-core/src/tick.rs",
        &format!("{parent}struct C(B);\n"),
    );
    let broken = project.broken();
    assert_one(
        &broken[..1],
        "crates/floe-core/src/tick/child.rs:1",
        "2 files",
    );
    assert_one(&broken[1..], "crates/floe-core/src/tick.rs:4", "2 files");
}

#[test]
fn a_crate_outside_the_map_is_a_violation() {
    let project = Project::new();
    project.package("floe-common", "");
    project.write("crates/floe-common/src/lib.rs", "");
    project.assert_one("crates/floe-common/Cargo.toml:1", "no place in the house");
}

#[test]
fn cores_read_no_clock_and_do_no_io() {
    assert_core("use std::time::{Duration, Instant};\n", 1, "Instant");
    assert_core("\nfn f() { std::thread::yield_now(); }\n", 2, "std::thread");
    assert_core("use std::{fs, fmt};\n", 1, "std::fs");
    assert!(Project::core("use std::time::Duration;\n").is_empty());
    assert!(Project::core("#[cfg(test)]\nmod tests { use std::fs; }\n").is_empty());
}

#[test]
fn cores_use_no_randomly_seeded_map() {
    let random = "fn f() -> std::collections::HashMap<u8, u8> { Default::default() }\n";
    assert_core(random, 1, "HashMap");
    let made = "use std::collections::HashSet;\nfn f() { let _ = HashSet::<u8>::new(); }\n";
    assert_core(made, 2, "HashSet");
    let hashed = "struct S;\nstruct A(std::collections::HashMap<u8, u8, S>);\n";
    assert!(Project::core(hashed).is_empty());
}

#[test]
fn drivers_wait_through_the_clock() {
    let project = Project::new();
    project.package("floe", "");
    project.write(
        "crates/floe/src/lib.rs",
        "async fn f() { tokio::time::sleep(D).await }\n",
    );
    assert_one(&project.broken(), "crates/floe/src/lib.rs:1", "Clock");
}

#[test]
fn unsafe_code_has_one_crate_and_a_proof() {
    assert_core(
        "// SAFETY: no.\nunsafe impl Send for X {}\n",
        2,
        "outside floe-device",
    );
    let project = Project::new();
    project.package("floe-device", "");
    let text = "fn a() {\n    // SAFETY: nothing happens.\n    unsafe {}\n}\n\n\n\n\nfn b() { unsafe {} }\n";
    project.write("crates/floe-device/src/lib.rs", text);
    project.assert_one("crates/floe-device/src/lib.rs:9", "SAFETY");
}

#[test]
fn dead_files_are_found() {
    let project = Project::new();
    project.write("crates/floe-core/src/lib.rs", "mod hash;\n");
    project.write("crates/floe-core/src/hash.rs", "mod inner { mod deep; }\n");
    project.write("crates/floe-core/src/hash/inner/deep.rs", "");
    project.write("crates/floe-core/src/dead.rs", "");
    project.write("crates/floe-core/tests/it.rs", "mod common;\n");
    project.write("crates/floe-core/tests/common/mod.rs", "");
    project.assert_one("crates/floe-core/src/dead.rs:1", "dead file");
}

#[test]
fn a_failure_is_an_error_or_has_a_proof() {
    assert_core("fn f() { None::<u8>.unwrap(); }\n", 1, "unwrap");
    assert_core("fn f() { drop(vec![x.unwrap()]); }\n", 1, "unwrap");
    assert_core("fn f() { None::<u8>.expect(\"some\"); }\n", 1, "expect");
    assert_core("fn f() { panic!(); }\n", 1, "message");
    assert_core("fn f() { todo!(); }\n", 1, "committed");
    assert!(Project::core("fn f() { None::<u8>.expect(\"was checked above\"); }\n").is_empty());
    assert!(Project::core("#[test]\nfn f() { None::<u8>.unwrap(); }\n").is_empty());
}

#[test]
fn public_errors_derive_thiserror() {
    assert_core("#[derive(Debug)]\npub enum BadError {}\n", 2, "thiserror");
    assert!(
        Project::core("#[derive(Debug, thiserror::Error)]\npub enum GoodError {}\n").is_empty()
    );
}

#[test]
fn leftovers_and_machine_names_are_found() {
    let word = concat!("// TO", "DO: later\n");
    assert_core(word, 1, "finish it");
    let place = concat!("//! See /ho", "me/user/notes.\n");
    assert_core(place, 1, "one machine only");
}

#[test]
fn links_lead_to_files_and_headings() {
    let project = Project::new();
    let links = "# The *first* `a.b`, again\n# X\n# X\n[b](b.md)\n[web](https://example.com#y) \
                 [here](#the-first-ab-again) [twice](#x-1)\n[up](../README.md#x)\n";
    project.write("docs/a.md", links);
    project.write("README.md", "```\n# x\n[not a link](nowhere)\n```\n");
    let broken = project.broken();
    assert_one(&broken[..1], "docs/a.md:4", "b.md");
    assert_one(&broken[1..], "docs/a.md:6", "README.md#x");
}

#[test]
fn paths_in_documents_exist() {
    let project = Project::new();
    project.write(
        "README.md",
        "`crates/floe-core/src/{lib,main}.rs`, `gone.rs`, `lab/*.rs`\n",
    );
    assert_one(&project.broken(), "README.md:1", "floe-core/src/main.rs");
    project.write("README.md", "");
    project.write(
        "ARCHITECTURE.md",
        "`src/lib.rs` `src/`\n`gone.rs`\n`gone/`\n",
    );
    let broken = project.broken();
    assert_one(&broken[..1], "ARCHITECTURE.md:2", "gone.rs");
    assert_one(&broken[1..], "ARCHITECTURE.md:3", "gone/");
}

#[test]
fn experiments_parse_and_locks_name_crates_io() {
    let project = Project::new();
    project.write("experiments/a.toml", "ok = 1\nnot ok\n");
    assert_one(&project.broken(), "experiments/a.toml:2", "TOML");
    let project = Project::new();
    project.write(
        "lab/peers/Cargo.lock",
        "source = \"git+https://example.com/x\"\n",
    );
    assert_one(&project.broken(), "lab/peers/Cargo.lock:1", "crates.io");
}
