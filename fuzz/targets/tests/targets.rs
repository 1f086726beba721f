//! The lists of targets agree, and every target takes its seeds and a first
//! thousand changed ones.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use floe_fuzz_targets::{Mutator, TARGETS};

#[test]
fn every_target_has_its_driver() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let names: BTreeSet<String> = TARGETS.iter().map(|t| t.name.to_owned()).collect();
    assert_eq!(names.len(), TARGETS.len(), "two targets share a name");

    let mut drivers = BTreeSet::new();
    for entry in fs::read_dir(fuzz.join("fuzz_targets")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains(&format!("\"{name}\"")),
            "{name}.rs runs another target"
        );
        drivers.insert(name);
    }
    assert_eq!(drivers, names, "fuzz_targets/ and TARGETS differ");

    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for name in &names {
        let path = format!("path = \"fuzz_targets/{name}.rs\"");
        assert!(
            manifest.contains(&path),
            "fuzz/Cargo.toml has no [[bin]] for {name}"
        );
    }
}

#[test]
fn every_target_takes_its_seeds_and_what_becomes_of_them() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        for seed in &seeds {
            (target.run)(seed);
        }
        let mut mutator = Mutator::new(7);
        for _ in 0..1000 {
            (target.run)(&mutator.input(&seeds));
        }
    }
}
