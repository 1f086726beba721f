//! `floe device format`, `prepare` and `bench`, on files and simulated SSDs.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use common::run;

/// A file of 64 MiB that begins as an XFS file system does.
fn foreign(folder: &Path) {
    let file = File::create(folder.join("drive")).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(b"XFSB", 0).unwrap();
}

fn begins(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("drive")).unwrap()[..4].to_vec()
}

#[test]
fn a_foreign_device_is_emptied_only_by_force() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        run(
            folder.path(),
            &[&["device", "format", "drive"], words].concat(),
        )
    };
    foreign(folder.path());
    run(&[]).expect(3, &["XFS", "nothing was changed", "--force"]);
    assert_eq!(begins(folder.path()), b"XFSB");
    run(&["--force", "--lba-format", "0"]).expect(3, &["by passthrough"]);
    assert_eq!(begins(folder.path()), b"XFSB");
    run(&["--force"]).expect(
        0,
        &["64MiB", "an XFS file system", "it is empty now: freed"],
    );
    assert_eq!(begins(folder.path()), [0; 4]);
    let again = run(&["--json"]).expect(0, &[]);
    let again: serde_json::Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!(again["held"], serde_json::Value::Null);
    assert_eq!(again["emptied"], serde_json::Value::Null);
    run(&[]).expect(0, &["nothing, by samples", "nothing was done"]);
    run(&["--lba-format", "0"]).expect(2, &["--force"]);
    assert_eq!(again["device"]["kind"], "file");
}

#[test]
fn a_device_is_prepared_and_a_dry_run_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let device = ["device", "prepare", "drive", "--state"];
        run(folder.path(), &[&device, words].concat())
    };
    foreign(folder.path());
    run(&["random", "--dry-run"])
        .expect(0, &["kernel", "an XFS file system", "nothing was changed"]);
    run(&["fresh"]).expect(3, &["XFS", "--force"]);
    assert_eq!(begins(folder.path()), b"XFSB");
    run(&["sequential", "--force", "--share", "1.5"]).expect(2, &["1.5"]);
    run(&["sequential", "--force", "--passes", "0"]).expect(2, &["0 passes"]);
    run(&["random", "--force", "--passes", "4000000000"]).expect(2, &["passes"]);
    assert_eq!(begins(folder.path()), b"XFSB");
    let done = run(&["sequential", "--force", "--share", "0.5", "--json"]).expect(0, &[]);
    let done: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(done["written"]["written_bytes"], 32 << 20);
    let content = fs::read(folder.path().join("drive")).unwrap();
    let (written, rest) = content.split_at(32 << 20);
    assert!(
        written
            .chunks(4096)
            .all(|block| block.iter().any(|&byte| byte != 0))
    );
    assert!(rest.iter().all(|&byte| byte == 0));
    run(&["random", "--force"]).expect(0, &["it is random now", "steady"]);
    run(&["fresh", "--force"]).expect(0, &["it is fresh now: 0B"]);
    assert_eq!(begins(folder.path()), [0; 4]);
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_device_is_measured_and_written_only_by_force() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| run(folder.path(), &[&["device", "bench"], words].concat());
    foreign(folder.path());
    let reads = run(&["drive", "--seconds", "0.7", "--json"]).expect(0, &[]);
    let reads = json(&reads.out);
    let loads = reads["loads"].as_array().unwrap();
    assert_eq!(loads.len(), 6, "{reads}");
    assert!(
        loads
            .iter()
            .all(|load| load["load"] == "read" && load["operations"] != 0)
    );
    assert_eq!(begins(folder.path()), b"XFSB");
    run(&["drive", "--seconds", "0"]).expect(2, &["number of seconds"]);
    run(&["drive", "--writes"]).expect(3, &["XFS", "--force"]);
    run(&["drive", "--force"]).expect(2, &["--writes"]);
    fs::write(folder.path().join("mine"), "mine").unwrap();
    run(&["drive", "--writes", "--force", "--profile", "mine"])
        .expect(3, &["cannot write the new file"]);
    assert_eq!(begins(folder.path()), b"XFSB");
    assert_eq!(fs::read(folder.path().join("mine")).unwrap(), b"mine");
    let all = run(&[
        "drive",
        "--seconds",
        "0.7",
        "--writes",
        "--force",
        "--profile",
        "sim.toml",
    ]);
    all.expect(
        0,
        &[
            "append 128KiB, depth 16",
            "read 64KiB, depth 64",
            "flush",
            "reset",
            "sim.toml",
        ],
    );
    assert_eq!(begins(folder.path()), [0; 4]);
    run(&["drive"]).expect(3, &["never written", "--writes"]);
    let profile = fs::read_to_string(folder.path().join("sim.toml")).unwrap();
    for line in [
        "read_us = ",
        "units = ",
        "write_bandwidth = ",
        "reset_us = ",
    ] {
        let line = profile.lines().find(|one| one.starts_with(line)).unwrap();
        assert!(line.ends_with("# measured"), "{profile}");
    }
    assert!(profile.contains("stripe = \"64KiB\""), "{profile}");
    assert!(profile.contains("# assumed"), "{profile}");
}

/// The settings that a bench writes give a simulated SSD with the same latencies.
#[test]
fn a_profile_describes_the_drive_that_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let bench = |words: &[&str]| {
        let fixed = ["device", "bench", "--seconds", "2", "--json"];
        json(
            &run(folder.path(), &[&fixed, words].concat())
                .expect(0, &[])
                .out,
        )
    };
    fs::write(
        folder.path().join("first.toml"),
        "[device]\nkind = \"sim\"\nsize = \"2GiB\"\nzone_size = \"16MiB\"\n\
         [device.sim]\nunits = 20\nread_us = 90.0\nreset_us = 800.0\n",
    )
    .unwrap();
    let first = bench(&["--sim", "first.toml", "--profile", "second.toml"]);
    let second = bench(&["--sim", "second.toml"]);
    let p50 = |found: &serde_json::Value| -> Vec<f64> {
        let loads = found["loads"].as_array().unwrap().iter();
        loads
            .map(|load| load["latency"]["p50_us"].as_f64().unwrap())
            .collect()
    };
    let pairs: Vec<_> = p50(&first).into_iter().zip(p50(&second)).collect();
    assert_eq!(pairs.len(), 14, "{first}");
    for (first, second) in &pairs {
        // The number of units may be off by one, of 20.
        assert!((first - second).abs() <= 0.1 * first, "{pairs:?}");
    }
    let plain = ["device", "bench", "--sim", "no-such-file"];
    run(folder.path(), &plain).expect(2, &["describes no simulated SSD"]);
}
