//! `floe bench`, `floe replay`, `floe report`.

mod common;

use std::fs;

use common::{SMALL_CACHE, run};

const MEMORY: [&str; 6] = [
    "--device-kind",
    "memory",
    "--device-size",
    "32MiB",
    "--device-zone-size",
    "2MiB",
];

#[test]
fn the_help_names_files_that_exist() {
    let folder = tempfile::tempdir().unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for arguments in [&["--help"][..], &["bench", "--help"], &["replay", "--help"]] {
        let help = run(folder.path(), arguments).expect(0, &["Examples:"]).out;
        let words = help.split_whitespace();
        for file in words.filter(|word| word.starts_with("experiments/")) {
            assert!(fs::exists(format!("{root}/{file}")).unwrap(), "{file}");
        }
    }
}

#[test]
fn completions_and_manual_pages_list_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["completions", "bash"]).expect(0, &["replay", "chunk-size"]);
    run(folder.path(), &["man", "--dir", "man1"]).expect(0, &["man1/floe-lab-bench.1"]);
}

#[test]
fn a_bench_leaves_rows_and_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        &["bench", "--requests", "400", "--clients", "4", "--verify"][..],
        &[
            "--ram-size",
            "1MiB",
            "--chunk-write-buffer",
            "8MiB",
            "--out",
            "results",
        ],
        &MEMORY,
    ]
    .concat();
    run(folder.path(), &arguments).expect(
        0,
        &[
            "400 requests",
            "hit ratio",
            "p99.99",
            "compared with the origin's, all right",
        ],
    );
    let rows = fs::read_to_string(folder.path().join("results/results.jsonl")).unwrap();
    let row: serde_json::Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
    for field in [
        "experiment",
        "case",
        "metric",
        "unit",
        "measured",
        "commit",
        "seed",
        "machine",
    ] {
        assert!(row.get(field).is_some(), "{field} in {row}");
    }
    fs::remove_file(folder.path().join("results/report.html")).unwrap();
    run(folder.path(), &["report", "results"]).expect(0, &["results/report.html"]);
    assert!(folder.path().join("results/report.html").exists());
}

#[test]
fn virtual_time_gives_the_same_figures_every_time() {
    let folder = tempfile::tempdir().unwrap();
    let virtual_time = ["bench", "--clock", "virtual", "--device-kind", "sim"];
    let load = [
        "--requests",
        "300",
        "--clients",
        "4",
        "--origin-latency",
        "64KiB",
        "--verify",
        "--quiet",
    ];
    let arguments = [&virtual_time[..], &SMALL_CACHE, &load].concat();
    let first = run(folder.path(), &arguments).expect(0, &["300 requests", "miss"]);
    let second = run(folder.path(), &arguments).expect(0, &[]);
    let figures = |out: &str| -> Vec<String> {
        // Memory is the machine's.
        let lines = out.lines().filter(|line| !line.starts_with("cost:"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(figures(&first.out), figures(&second.out));
    run(
        folder.path(),
        &["bench", "--virtual-time", "--requests", "1"],
    )
    .expect(2, &["virtual time"]);
}

#[test]
fn a_bench_on_a_file_removes_it() {
    let folder = tempfile::tempdir().unwrap();
    let bench = ["bench", "--target", "object", "--json"];
    let load = ["--requests", "50", "--clients", "2"];
    let arguments = [&bench[..], &load, &SMALL_CACHE].concat();
    let outcome = run(folder.path(), &arguments).expect(0, &["hit_ratio"]);
    let rows: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    assert!(rows.as_array().unwrap().len() > 10);
    assert!(!folder.path().join("floe-data/bench/cache.flash").exists());
}

#[test]
fn a_bench_does_not_overwrite_an_existing_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    fs::write(&path, b"precious data").unwrap();
    run(
        folder.path(),
        &["bench", "--device-path", "precious", "--requests", "1"],
    )
    .expect(2, &["`precious` holds data", "--wipe"]);
    assert_eq!(fs::read(&path).unwrap(), b"precious data");
}

#[test]
fn invalid_runs_are_usage_errors() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, parts) in [
        (
            &["bench", "--object-size", "1MiB"][..],
            &["do not fit chunks of 64KiB"][..],
        ),
        (&["bench", "absent.toml"], &["cannot read absent.toml"]),
        (
            &["bench", "absent.toml", "--clients", "3"],
            &["`clients` has no effect"],
        ),
        (&["bench", "--duration", "soon"], &["no length of time"]),
        (
            &["bench", "--origin-latency", "slow"],
            &["no latency", "256MiB"],
        ),
        (
            &["bench", "--rate", "10", "--clients", "2"],
            &["cannot be used with"],
        ),
        (&["replay", "absent"], &["absent"]),
        (
            &["replay", "absent", "--format", "excel"],
            &["not a trace format", "oracle-general"],
        ),
        (
            &["replay", "absent", "--policies", "mru"],
            &["not an eviction policy", "s3fifo"],
        ),
        (&["replay", "absent", "--unit", "page"], &["no unit"]),
        (&["report", "absent"], &["absent/data.json"]),
    ] {
        run(folder.path(), arguments).expect(2, parts);
    }
    fs::write(folder.path().join("bad.toml"), "name = 3\n").unwrap();
    run(folder.path(), &["bench", "bad.toml"]).expect(2, &["bad.toml"]);
}

#[test]
fn a_replay_counts_misses() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("keys.trace"), "1\n2\n1\n3\n1\n2\n").unwrap();
    let arguments = [
        "replay",
        "keys.trace",
        "--format",
        "lirs",
        "--policies",
        "lru,fifo",
        "--sizes",
        "2",
    ];
    run(folder.path(), &arguments).expect(0, &["6 requests", "lru", "fifo", "66.667"]);
    let arguments = [&arguments[..], &["--json"]].concat();
    let outcome = run(folder.path(), &arguments).expect(0, &[]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&outcome.out).unwrap();
    let misses = |case: &str| {
        let row = rows
            .iter()
            .find(|row| row["case"] == case && row["metric"] == "misses");
        row.unwrap_or_else(|| panic!("no {case} in {rows:?}"))["measured"].as_f64()
    };
    // With room for two, LRU keeps 1 when 3 arrives, and FIFO does not.
    assert_eq!(misses("lru 2"), Some(4.0));
    assert_eq!(misses("fifo 2"), Some(5.0));
}

#[test]
fn an_experiment_runs_from_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = r#"
name = "tiny"
title = "Tiny"
time = "virtual"

[bench]
requests = 100
ratio = 2.0
pacing = { mode = "closed", clients = 2 }
workload = { kind = "uniform" }

[bench.cache]
device = { kind = "memory", size = "32MiB", zone_size = "2MiB" }
chunk = { write_buffer = "8MiB" }
ram = { size = "0" }
"#;
    fs::write(folder.path().join("tiny.toml"), experiment).unwrap();
    let arguments = ["bench", "tiny.toml", "--quiet", "--out", "here"];
    let outcome = run(folder.path(), &arguments).expect(0, &["report: here/tiny-"]);
    let page = outcome.out.trim().trim_start_matches("report: ");
    assert!(folder.path().join(page).exists(), "{page}");

    // The report shows published values beside the measured ones.
    let published = r#"
[[published]]
kind = "published"
case = "tiny"
metric = "hit_ratio"
value = 0.5
source = "Nothing, Table 1"
expect = "at-most"
"#;
    fs::write(
        folder.path().join("tiny.toml"),
        format!("{experiment}{published}"),
    )
    .unwrap();
    let expected = [
        "published: Nothing, Table 1",
        "measured",
        "published",
        "published: all of 1 judged figures hold.",
    ];
    let outcome = run(folder.path(), &arguments).expect(0, &expected);
    let (_, page) = outcome.out.trim().rsplit_once("report: ").unwrap();
    let again = page.trim_end_matches("/report.html");
    run(folder.path(), &["report", again]).expect(0, &expected);
    let json = run(folder.path(), &[&arguments[..], &["--json"]].concat()).expect(0, &[]);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["published"][0]["source"], "Nothing, Table 1");
    assert_eq!(json["goals"], serde_json::json!([]));
}

#[test]
fn an_unexpected_verdict_is_exit_status_5() {
    let folder = tempfile::tempdir().unwrap();
    let experiment = |value: &str| {
        let text = format!(
            r#"
name = "judged"
title = "Judged"
time = "virtual"

[bench]
requests = 100
ratio = 2.0
pacing = {{ mode = "closed", clients = 2 }}
workload = {{ kind = "uniform" }}

[bench.cache]
device = {{ kind = "memory", size = "32MiB", zone_size = "2MiB" }}
chunk = {{ write_buffer = "8MiB" }}
ram = {{ size = "0" }}

[[published]]
kind = "goal"
case = "judged"
metric = "hit_ratio"
value = {value}
source = "Hits"
expect = "at-least"
"#
        );
        fs::write(folder.path().join("judged.toml"), text).unwrap();
    };
    let bench = ["bench", "judged.toml", "--quiet", "--out", "here"];
    let judged = [&bench[..], &["--verdicts"]].concat();
    experiment("0.99");
    let outcome = run(folder.path(), &bench).expect(0, &["goal: 0 of 1 judged figures hold"]);
    let (_, page) = outcome.out.trim().rsplit_once("report: ").unwrap();
    let results = page.trim_end_matches("/report.html");
    let unlisted = [
        "judged, hit_ratio (Hits)",
        "is not listed as known to differ",
    ];
    run(folder.path(), &judged).expect(5, &unlisted);
    run(folder.path(), &["report", results, "--verdicts"]).expect(5, &unlisted);
    let known = r#"
[[known]]
experiment = "judged"
metrics = ["hit_ratio"]
cases = ["judged"]
reason = "half of the keys do not fit"
"#;
    fs::write(folder.path().join("known-to-differ.toml"), known).unwrap();
    let expected = [
        "1 differ, of which 1 are known to",
        "half of the keys do not fit",
    ];
    run(folder.path(), &judged).expect(0, &expected);
    experiment("0.001");
    let listed = ["judged, hit_ratio (Hits)", "is listed as known to differ"];
    run(folder.path(), &judged).expect(5, &listed);
}

/// A workload written to files and read again gives the run and the series of
/// the flags.
#[test]
fn workload_files_and_series_have_the_formats_of_the_papers() {
    let folder = tempfile::tempdir().unwrap();
    let requests = ["--requests", "500", "--items", "300", "--unscrambled"];
    let write = [&["bench", "--write-workload", "w.bin"][..], &requests].concat();
    run(folder.path(), &write).expect(0, &["500 requests of 300 objects"]);
    let file = fs::read(folder.path().join("w.bin")).unwrap();
    let ids: Vec<u32> = file
        .as_chunks::<4>()
        .0
        .iter()
        .map(|id| u32::from_le_bytes(*id))
        .collect();
    assert_eq!((file.len(), ids.len()), (2000, 500));
    assert!(ids.iter().all(|&id| id < 300));
    let share = |id| ids.iter().filter(|&&other| other == id).count();
    assert!(share(0) > share(100), "the lowest ids are the popular ones");

    let cache = [
        "--clients",
        "2",
        "--ram-size",
        "0",
        "--chunk-write-buffer",
        "8MiB",
        "--origin-latency",
        "5",
        "--bin",
        "100ms",
        "--virtual-time",
    ];
    let drawn = [&["bench", "--quiet"][..], &requests, &cache, &MEMORY].concat();
    let read = [
        &["bench", "--quiet", "--workload-file", "w.bin"][..],
        &["--out", "results"],
        &cache,
        &MEMORY,
    ]
    .concat();
    let figures = |out: &str| -> Vec<String> {
        let own = |line: &&str| !line.starts_with("cost:") && !line.starts_with("report:");
        let lines = out.lines().filter(own).filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    };
    let drawn = run(folder.path(), &drawn).expect(0, &["500 requests"]);
    let read = run(folder.path(), &read).expect(0, &["500 requests"]);
    assert_eq!(figures(&drawn.out), figures(&read.out));

    // Without fonts no figures are drawn, but the series are written.
    run(folder.path(), &["report", "results", "--export", "files"]);
    let series = folder.path().join("files/series");
    let csv = fs::read_to_string(series.join("bench.zncache.csv")).unwrap();
    assert!(csv.contains(",GETLATENCY,") && csv.lines().count() > 10);
    let json = fs::read_to_string(series.join("bench.oxcache.json")).unwrap();
    assert!(json.contains("\"bytes_total\""));

    let endless = ["bench", "--write-workload", "w.bin"];
    run(folder.path(), &endless).expect(2, &["--requests"]);
    let large = [
        &["bench", "--write-workload", "w.bin", "--requests", "100"][..],
        &["--workload", "uniform", "--items", "8589934592"],
    ]
    .concat();
    run(folder.path(), &large).expect(2, &["fewer items"]);
}

/// The device, and what it did, stand in the text and in the rows.
#[test]
fn a_bench_records_the_device_of_a_file_and_of_a_simulated_ssd() {
    let folder = tempfile::tempdir().unwrap();
    let drive = folder.path().join("drive").display().to_string();
    let sim = ["--device-kind", "sim", "--clock", "virtual"];
    let file = ["--device-path", drive.as_str(), "--wipe", "--quiet"];
    for (device, is_file) in [(file, true), (sim, false)] {
        let load = ["bench", "--requests", "300", "--writes", "0.5"];
        let arguments = [&load[..], &SMALL_CACHE, &device].concat();
        let text = run(folder.path(), &arguments);
        text.expect(0, &["device: ", "16 zones of 2MiB", "written by Floe"]);
        let json = run(folder.path(), &[&["--json"], &arguments[..]].concat()).expect(0, &[]);
        let rows: Vec<serde_json::Value> = serde_json::from_str(&json.out).unwrap();
        let figure = |metric: &str| {
            let row = rows.iter().find(|row| row["metric"] == metric);
            row.and_then(|row| row["measured"].as_f64()).expect(metric)
        };
        assert!(
            rows.iter().all(|row| row["metric"] != "device_zone_errors"),
            "only namespaces count them"
        );
        assert!(figure("device_zone_writes_in_flight_max") >= 1.0);
        assert!(figure("device_written") > 0.0);
        let (open, active) = ("device_open_zones_max", "device_active_zones_max");
        assert!((1.0..=16.0).contains(&figure(open)) && figure(open) <= figure(active));
        let described = rows[0]["device"].as_str().unwrap();
        assert!(described.contains("blocks of 4KiB"), "{described}");
        assert_eq!(described.contains("; file"), is_file, "{described}");
    }
}
