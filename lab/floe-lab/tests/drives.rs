//! The experiments that run on drives count the same on memory, on a file and on the
//! simulated drive.

mod common;

use std::fs;
use std::path::Path;

use common::run;

/// Runs an experiment of the project with some keys set; returns the folder of results.
fn bench(folder: &Path, name: &str, into: &str, set: &[&str]) -> String {
    let file = format!(
        "{}/../../experiments/{name}.toml",
        env!("CARGO_MANIFEST_DIR")
    );
    let mut arguments = vec!["bench", &file, "--quiet", "--out", into, "--wipe"];
    arguments.extend(set.iter().flat_map(|set| ["--set", *set]));
    run(folder, &arguments).expect(0, &["report: "]);
    let made = fs::read_dir(folder.join(into)).unwrap().next().unwrap();
    made.unwrap().path().to_string_lossy().into_owned()
}

/// Fails unless `set` counts what the experiment counts as it stands.
fn assert_same(name: &str, few: &[&str], drives: &[&[&str]]) {
    let folder = tempfile::tempdir().unwrap();
    let first = bench(folder.path(), name, "first", few);
    for (number, set) in drives.iter().enumerate() {
        let into = format!("drive-{number}");
        let drive = bench(folder.path(), name, &into, &[few, set].concat());
        run(folder.path(), &["report", &first, &drive, "--same", "0"]).expect(0, &[]);
    }
    // Another load is not the same.
    let other = bench(folder.path(), name, "other", &[few, &["seed=7"]].concat());
    run(folder.path(), &["report", &first, &other, "--same", "0"]).expect(5, &["counts differ"]);
}

const FILE: [&str; 2] = [
    "bench.cache.device.kind=file",
    "bench.cache.device.path=drive.flash",
];

#[test]
fn the_engine_counts_the_same_on_every_device() {
    // In virtual time, memory takes none, and the times of hits would not tell their order.
    let memory = ["bench.cache.device.kind=memory", "time=real"];
    assert_same("drives-store", &["bench.requests=1500"], &[&memory, &FILE]);
}

#[test]
fn a_drive_carries_out_what_the_hosts_do() {
    // A zoned one, whose limits count.
    let zoned = [
        "bench.cache.device.kind=sim",
        "bench.cache.device.max_open_zones=4",
        "bench.cache.device.max_active_zones=6",
        "bench.cache.device.max_append=\"128KiB\"",
    ];
    assert_same("drives-hosts", &["bench.requests=1500"], &[&zoned, &FILE]);
}

#[test]
fn storage_is_wiped_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("drive.flash"), "precious").unwrap();
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../experiments/drives-store.toml"
    );
    let arguments = ["bench", file, "--quiet", "--set", FILE[0], "--set", FILE[1]];
    run(folder.path(), &arguments).expect(2, &["drive.flash permanently", "--wipe"]);
    assert_eq!(
        fs::read(folder.path().join("drive.flash")).unwrap(),
        b"precious"
    );
    assert!(!folder.path().join("results").exists());
    run(folder.path(), &["bench", file, "--set", "bench"]).expect(2, &["bench.requests=100"]);
    run(folder.path(), &["bench", file, "--set", "bench.request=1"]).expect(2, &["request"]);
}

#[test]
fn tiny_engines_count_the_same_on_a_file() {
    let file = [
        "tiny.device.drive.kind=file",
        "tiny.device.drive.path=drive.flash",
    ];
    assert_same(
        "drives-tiny",
        &["tiny.flash-size=36MiB", "tiny.measured=0.25"],
        &[&file],
    );
}
