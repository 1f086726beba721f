//! `floe replay --volume`.

mod common;

use std::fmt::Write as _;
use std::fs;

use common::run;

/// Reads and writes of 4 KiB, scattered over 1 GiB, one per ms, in the format of
/// MSR Cambridge.
fn trace() -> String {
    let mut lines = String::new();
    for at in 0..5000_u64 {
        let block = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        let op = ["Read", "Write"][(at % 2) as usize];
        let (time, offset) = (128_166_391_024_154_329 + at * 10_000, block << 18);
        let _ = writeln!(lines, "{time},host,0,{op},{offset},4096,100");
    }
    lines
}

#[test]
fn a_replay_compares_caches_of_volumes() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("disk.csv"), trace()).unwrap();
    let caches = ["--volume", "sizes=4KiB..64KiB", "--volume", "sizes=64KiB"];
    let replay = ["replay", "disk.csv", "--format", "msr"];
    let arguments = [&replay[..], &caches].concat();
    run(folder.path(), &arguments).expect(
        0,
        &[
            "disk.csv: 5000 requests of 1 volumes in 5 s",
            "[1] sizes=4KiB..64KiB",
            "read from backing",
            "metadata per block",
            "block size",
            "to backing",
        ],
    );
    let json = [&arguments[..], &["--json"]].concat();
    let outcome = run(folder.path(), &json).expect(0, &[]);
    let result: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    let [adaptive, fixed] = [0, 1].map(|cache| &result["caches"][cache]);
    let read = |cache: &serde_json::Value| {
        let bytes = &cache["statistics"]["traffic"]["backing_reads"]["bytes"];
        bytes.as_u64().unwrap()
    };
    assert!(read(adaptive) * 8 < read(fixed), "{result}");
    assert_eq!(adaptive["requests"], 5000);
    assert!(adaptive["samples"].as_array().unwrap().len() > 10);
}

#[test]
fn wrong_settings_of_a_volume_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("disk.csv"), trace()).unwrap();
    for (volume, part) in [
        ("sizes=5KiB", "the nearest is 4KiB"),
        ("colour=red", "no setting of a volume"),
        ("capacity=1KiB", "the nearest value that works"),
    ] {
        let arguments = ["replay", "disk.csv", "--format", "msr", "--volume", volume];
        run(folder.path(), &arguments).expect(2, &[part]);
    }
}

#[test]
fn an_experiment_judges_caches_of_volumes() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("disk.csv"), trace()).unwrap();
    let experiment = r#"
name = "sizes"
title = "Sizes"
case-name = "{sizes}"
[volume]
trace = { path = "disk.csv", format = "msr" }
cache = "capacity=10%"
[[vary]]
label = "sizes"
key = "volume.settings"
names = ["adaptive", "fixed"]
values = ["sizes=4KiB..64KiB", "sizes=64KiB"]
[[published]]
kind = "goal"
case = "adaptive"
relative-to = "fixed"
metric = "backing_io"
value = 0.2
expect = "at-most"
source = "small requests cost small blocks"
tolerance = 0.0
"#;
    fs::write(folder.path().join("sizes.toml"), experiment).unwrap();
    let arguments = ["bench", "sizes.toml", "--out", "results", "--verdicts"];
    run(folder.path(), &arguments).expect(0, &["small requests cost small blocks"]);
    let rows = fs::read_to_string(
        fs::read_dir(folder.path().join("results"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path()
            .join("results.jsonl"),
    )
    .unwrap();
    for metric in ["read_hit_ratio", "metadata_mean", "new_block_mean"] {
        assert_eq!(rows.matches(&format!("\"{metric}\"")).count(), 2, "{rows}");
    }
    let curve = "[[curves]]\ntitle = \"Sizes\"\nx = \"request_size\"\ny-label = \"Share\"\n";
    fs::write(
        folder.path().join("curve.toml"),
        experiment.to_owned() + curve,
    )
    .unwrap();
    let arguments = ["bench", "curve.toml", "--out", "results", "--json"];
    run(folder.path(), &arguments).expect(0, &["\"curves\"", "4096.0"]);
}
