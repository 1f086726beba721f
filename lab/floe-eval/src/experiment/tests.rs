mod judged;
mod lists;
mod request_sizes;
mod stand_ins;

use std::path::Path;

use super::cases::parse;
use super::*;
use crate::results::Row;
use crate::run::Progress;

const SMALL: &str = r#"
name = "small"
title = "A small one"
time = "virtual"

[bench]
items = 50
requests = 300
bin-s = 0.05
pacing = { mode = "closed", clients = 2 }
workload = { kind = "uniform" }

[bench.cache]
origin-latency = { rule = "constant", ms = 1.0 }
device = { kind = "memory", size = "32MiB", zone_size = "1MiB" }
chunk = { size = "64KiB" }

[[vary]]
key = "bench.cache.origin-latency.ms"
label = "origin ms"
values = [1.0, 4.0]

[[vary]]
key = "bench.cache.target"
label = "target"
values = ["store", "object"]

[[curves]]
title = "Miss latency"
x = "origin ms"
y = ["miss_latency_p50"]
y-label = "Latency"

[[curves]]
title = "Over names, which have no place but an even one"
x = "target"
y = ["hit_ratio", "written_per_request"]
y-label = "Figure"

[[published]]
kind = "goal"
case = "origin ms 4.0, target store"
metric = "miss_latency_p50"
value = 4.0
source = "the configuration"
tolerance = 0.01
"#;

fn rejected(text: &str) -> String {
    let error = parse(Path::new("x.toml"), text).expect_err("must be rejected");
    error.to_string()
}

/// Replaces `from` by `to` in the small experiment; parsing then fails with
/// `message`.
fn assert_rejected(from: &str, to: &str, message: &str) {
    assert!(SMALL.contains(from), "{from}");
    let error = rejected(&SMALL.replacen(from, to, 1));
    assert!(error.contains(message), "{to}: {error}");
}

#[test]
fn cases_are_the_product_of_what_is_varied() {
    let (_, cases) = parse(Path::new("x.toml"), SMALL).expect("a good file");
    let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "origin ms 1.0, target store",
            "origin ms 1.0, target object",
            "origin ms 4.0, target store",
            "origin ms 4.0, target object",
        ]
    );
}

#[test]
fn overrides_are_of_all_cases_and_part_of_the_text() {
    let set = [
        "bench.items=7",
        "bench.cache.origin-latency.ms = 2.5",
        "bench.cache.device.kind=sim",
        "bench.cache.target=\"store\"",
    ];
    let set = set.map(|text| text.parse().expect(text));
    let text = overrides::applied(SMALL.to_owned(), &set);
    let (_, cases) = parse(Path::new("x.toml"), &text).expect("a good file");
    assert_eq!(cases.len(), 4);
    for case in cases {
        let bench = case.experiment.bench.expect("a bench");
        let found = (bench.items, bench.cache.device.kind, bench.cache.target);
        let expected = (
            Some(7),
            floe_device::config::DeviceKind::Sim,
            TargetKind::Store,
        );
        assert_eq!(found, expected);
        let latency = floe::latency::LatencyRule::Constant { ms: 2.5 };
        assert_eq!(bench.cache.origin_latency, latency);
    }
    for wrong in ["bench.items", "=3", "bench..items=3"] {
        assert!(wrong.parse::<Override>().is_err(), "{wrong}");
    }
}

#[test]
fn errors_name_the_invalid_key() {
    for (from, to, message) in [
        ("items = 50", "itmes = 50", "itmes"),
        ("name = \"small\"", "name = \"../x\"", "file name"),
        ("bench.cache.target", "bench.cache.tagret", "tagret"),
        ("bench.cache.target", "bench.items.target", "items"),
        (
            "values = [\"store\", \"object\"]",
            "values = []",
            "over no values",
        ),
        ("\"object\"]", "\"objekt\"]", "objekt"),
        ("x = \"origin ms\"", "x = \"clients\"", "clients"),
        (
            "[bench]\n",
            "[replay]\ntrace = { path = \"t\" }\n[bench]\n",
            "give one of",
        ),
    ] {
        assert_rejected(from, to, message);
    }
}

#[test]
fn a_run_writes_all_its_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("small.toml");
    std::fs::write(&path, SMALL).expect("written");
    let options = ExperimentOptions {
        results: folder.path().join("results"),
        progress: Progress::Off,
        ..ExperimentOptions::new(path)
    };
    let results = run(&options).expect("runs");
    let name = results.file_name().expect("a name").to_string_lossy();
    assert!(name.starts_with("small-"), "{name}");

    let lines = std::fs::read_to_string(results.join("results.jsonl")).expect("rows");
    let rows: Vec<Row> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect();
    let compared: Vec<&Row> = rows.iter().filter(|row| row.paper.is_some()).collect();
    assert_eq!(compared.len(), 1);
    let verdict = compared[0].verdict.as_deref().unwrap_or_default();
    assert!(
        verdict == "equal" || verdict.starts_with("holds"),
        "{verdict}"
    );
    assert!(rows.iter().all(|row| row.provenance.seed == 42));
    let failed = rows.iter().filter(|row| row.metric == "failed");
    assert!(failed.clone().count() == 4 && failed.clone().all(|row| row.measured == 0.0));
    let device = &rows[0].provenance.device;
    assert!(
        device.contains("memory") && device.contains("32 zones"),
        "{device}"
    );

    for file in [
        "report.html",
        "data.json",
        "experiment.toml",
        "figures/curve-1.svg",
        "figures/curve-2.svg",
    ] {
        assert!(results.join(file).is_file(), "{file}");
    }
    assert!(!results.join("scratch").exists());
    let before = std::fs::read(results.join("report.html")).expect("a page");
    crate::report(&results).expect("made again");
    assert_eq!(
        before,
        std::fs::read(results.join("report.html")).expect("a page")
    );
}

#[test]
fn every_shipped_experiment_parses() {
    assert!(judged::shipped().len() >= 5);
}

#[test]
fn verdicts_compare() {
    let published = |expect, tolerance| Published {
        kind: Kind::Goal,
        case: String::new(),
        metric: String::new(),
        value: 100.0,
        source: String::new(),
        expect,
        tolerance: Some(tolerance),
        margin: None,
        relative_to: None,
        unit: None,
    };
    for (expect, tolerance, measured, verdict) in [
        (Expectation::Equal, 0.0, 100.0, "equal"),
        (Expectation::Equal, 0.0, 101.0, "DIFFERS (+1.00 %)"),
        (Expectation::Equal, 0.02, 101.0, "holds (+1.00 %)"),
        (Expectation::AtMost, 0.0, 50.0, "holds (-50.00 %)"),
        (Expectation::AtMost, 0.0, 150.0, "DIFFERS (+50.00 %)"),
        (Expectation::AtLeast, 0.0, 150.0, "holds (+50.00 %)"),
        (Expectation::Context, 0.0, 1.0, "for orientation"),
    ] {
        assert_eq!(published(expect, tolerance).verdict(measured), verdict);
    }
    let nothing = Published {
        value: 0.0,
        margin: Some(0.05),
        ..published(Expectation::Equal, 0.0)
    };
    assert_eq!(nothing.relative_error(0.02), None, "no share of nothing");
    assert_eq!(nothing.verdict(0.02), "holds (+0.020)");
    assert_eq!(nothing.verdict(-0.06), "DIFFERS (-0.060)");
}

#[test]
fn values_are_compared_in_their_own_units() {
    let published = |unit: Option<&str>| Published {
        kind: Kind::Goal,
        case: String::new(),
        relative_to: None,
        metric: "get_throughput".into(),
        value: 1.5,
        unit: unit.map(str::to_owned),
        source: "a paper".into(),
        expect: Expectation::Equal,
        tolerance: None,
        margin: None,
    };
    assert_eq!(published(None).factor("B/s"), Ok(1.0));
    assert_eq!(
        published(Some("GiB/s")).factor("B/s"),
        Ok(f64::from(1 << 30))
    );
    assert_eq!(published(Some("s")).factor("ms"), Ok(1000.0));
    assert_eq!(published(Some("%")).factor("ratio"), Ok(0.01));
    assert_eq!(published(Some("%")).factor("%"), Ok(1.0));
    let error = published(Some("ms")).factor("B/s").expect_err("no way");
    assert!(
        error.contains("a paper") && error.contains("`ms`"),
        "{error}"
    );
    let margin = Published {
        margin: Some(0.03),
        ..published(None)
    };
    assert!(margin.verdict(1.53).starts_with("holds"));
    assert!(margin.verdict(1.54).starts_with("DIFFERS"));
}

#[test]
fn tables_and_ratios_are_compared() {
    let text = SMALL.to_owned()
        + r#"
[[published-table]]
kind = "derived"
source = "a table"
metrics = ["miss_latency_p50", "get_throughput"]
case = "origin ms {}, target store"
expect = "context"
rows = { "1.0" = [1.0, 2.0], "4.0" = [4.0, nan] }

[[published]]
kind = "goal"
case = "origin ms 4.0, target store"
relative-to = "origin ms 1.0, target store"
metric = "miss_latency_p50"
value = 4.0
source = "a ratio"
tolerance = 0.01
"#;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("small.toml");
    std::fs::write(&path, text).expect("written");
    let results = run(&options(&path, folder.path())).expect("runs");
    let rows = rows(&results);
    let of = |source: &str| -> Vec<&Row> {
        let is_of = |row: &&Row| row.source.as_deref() == Some(source);
        rows.iter().filter(is_of).collect()
    };
    assert_eq!(of("a table").len(), 3);
    assert_eq!(of("the configuration").len(), 1);
    let [ratio] = of("a ratio")[..] else {
        panic!("{rows:?}");
    };
    assert_eq!(ratio.unit, "ratio");
    assert!((ratio.measured - 4.0).abs() < 0.05, "{ratio:?}");
    assert_eq!(
        ratio.case,
        "origin ms 4.0, target store / origin ms 1.0, target store"
    );
    assert!(ratio.relative_error.is_some_and(|off| off.abs() < 0.01));
}

fn options(path: &Path, folder: &Path) -> ExperimentOptions {
    ExperimentOptions {
        results: folder.join("results"),
        progress: Progress::Off,
        ..ExperimentOptions::new(path)
    }
}

fn rows(results: &Path) -> Vec<Row> {
    let lines = std::fs::read_to_string(results.join("results.jsonl")).expect("rows");
    let row = |line| serde_json::from_str(line).expect("a row");
    lines.lines().map(row).collect()
}

/// Measured values without times.
fn measured(results: &Path) -> Vec<(String, String, String, String)> {
    let figure = |row: Row| {
        let value = format!("{:e}", row.measured);
        (row.case, row.metric, value, row.provenance.config_digest)
    };
    rows(results).into_iter().map(figure).collect()
}

#[test]
fn shards_resumed_and_parallel_sweeps_find_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("small.toml");
    std::fs::write(&path, SMALL).expect("written");
    let jobs = |count| std::num::NonZeroUsize::new(count);
    let alone = run(&ExperimentOptions {
        jobs: jobs(1),
        ..options(&path, folder.path())
    });
    let alone = measured(&alone.expect("runs"));
    let together = run(&ExperimentOptions {
        jobs: jobs(4),
        ..options(&path, folder.path())
    });
    let together = together.expect("runs");
    assert_eq!(alone, measured(&together));

    // A case without a record runs again; the others are kept.
    let cases = std::fs::read_dir(together.join("cases")).expect("records");
    let cases: Vec<_> = cases.map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(cases.len(), 4);
    std::fs::remove_file(&cases[0]).expect("removed");
    let kept = std::fs::read(&cases[1]).expect("a record");
    let resumed = run(&ExperimentOptions {
        resume: Some(together.clone()),
        ..options(&path, folder.path())
    });
    assert_eq!(resumed.expect("goes on"), together);
    assert_eq!(alone, measured(&together));
    assert_eq!(kept, std::fs::read(&cases[1]).expect("a record"));

    // Another configuration reuses no records; other published figures and
    // names do.
    let renamed = SMALL.replace(r#"label = "target""#, r#"label = "layer""#);
    let renamed = renamed.replace("4.0, target store", "4.0, layer store");
    let renamed = renamed.replace(r#"x = "target""#, r#"x = "layer""#);
    let other = folder.path().join("renamed.toml");
    std::fs::write(&other, renamed).expect("written");
    let stamp = |path: &Path| {
        std::fs::metadata(path)
            .and_then(|m| m.modified())
            .expect("a time")
    };
    let before = stamp(&cases[1]);
    let resumed = run(&ExperimentOptions {
        resume: Some(together.clone()),
        ..options(&other, folder.path())
    });
    resumed.expect("goes on");
    assert_eq!(before, stamp(&cases[1]));
    assert!(
        measured(&together)
            .iter()
            .any(|row| row.0.contains("layer store"))
    );

    let shards: Vec<std::path::PathBuf> = ["1/3", "2/3", "3/3"]
        .map(|shard| {
            let shard: Shard = shard.parse().expect("a part");
            run(&ExperimentOptions {
                shard: Some(shard),
                ..options(&path, folder.path())
            })
            .expect("runs")
        })
        .to_vec();
    assert!(are_pieces(&shards) && !are_pieces(&[together.clone(), shards[0].clone()]));
    let merged = merge(&shards, &folder.path().join("merged")).expect("merges");
    assert_eq!(alone, measured(&merged));
    let page = |folder: &Path| std::fs::read_to_string(folder.join("report.html")).expect("a page");
    assert!(page(&shards[2]).contains("not run"), "a part says so");
    assert!(!page(&merged).contains("not run"));
    let error = merge(&[shards[0].clone(), together], folder.path()).expect_err("no piece");
    assert!(
        error.to_string().contains("only pieces of one experiment"),
        "{error}"
    );
}

#[test]
fn a_case_that_fails_keeps_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("small.toml");
    let broken = SMALL.replace("values = [1.0, 4.0]", "values = [1.0, -4.0]");
    let broken = broken.replace("origin ms 4.0", "origin ms -4.0");
    std::fs::write(&path, broken).expect("written");
    let one = std::num::NonZeroUsize::new(1);
    let error = run(&ExperimentOptions {
        jobs: one,
        ..options(&path, folder.path())
    });
    let Err(crate::EvalError::Case { case, folder, .. }) = error else {
        panic!("{error:?}");
    };
    assert!(case.starts_with("origin ms -4.0"), "{case}");
    let kept = std::fs::read_dir(folder.join("cases")).expect("records");
    assert_eq!(kept.count(), 2);
}

#[test]
fn parts_parse() {
    assert_eq!("2/5".parse(), Ok(Shard { index: 2, count: 5 }));
    for text in ["", "0/5", "6/5", "1", "a/b", "1/0"] {
        assert!(text.parse::<Shard>().is_err(), "{text}");
    }
}

#[test]
fn some_cases_are_adjusted() {
    let adjusted = SMALL.to_owned()
        + r#"
[[adjust]]
only = { target = ["object"], "origin ms" = ["4.0"] }
set = { "bench.requests" = 7, "bench.cache.chunk.size" = "128KiB" }
"#;
    let (_, plain) = parse(Path::new("x.toml"), SMALL).expect("a good file");
    let (_, cases) = parse(Path::new("x.toml"), &adjusted).expect("a good file");
    let requests = |case: &cases::Case| case.experiment.bench.as_ref().and_then(|b| b.requests);
    let requests: Vec<_> = cases.iter().map(requests).collect();
    assert_eq!(requests, [Some(300), Some(300), Some(300), Some(7)]);
    for (case, before) in cases.iter().zip(&plain).take(3) {
        assert_eq!(case.digest, before.digest);
    }
    assert_ne!(cases[3].digest, plain[3].digest);
    for (from, to, message) in [
        ("target = [\"object\"]", "traget = []", "traget"),
        ("[\"object\"]", "[\"objekt\"]", "there is: store, object"),
    ] {
        let at = adjusted.find("[[adjust]]").expect("it is there");
        let (head, tail) = adjusted.split_at(at);
        let error = rejected(&(head.to_owned() + &tail.replace(from, to)));
        assert!(error.contains(message), "{error}");
    }
}
