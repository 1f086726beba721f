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

[[published]]
case = "origin ms 4.0, target store"
metric = "miss_latency_p50"
value = 4.0
source = "the configuration"
tolerance = 0.01
"#;

fn refused(text: &str) -> String {
    let error = parse(Path::new("x.toml"), text).expect_err("must be refused");
    error.to_string()
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
fn mistakes_are_named() {
    for (from, to, said) in [
        ("items = 50", "itmes = 50", "itmes"),
        ("name = \"small\"", "name = \"../x\"", "file name"),
        ("bench.cache.target", "bench.cache.tagret", "tagret"),
        ("bench.cache.target", "bench.items.target", "items"),
        (
            "values = [\"store\", \"object\"]",
            "values = []",
            "no values",
        ),
        ("\"object\"]", "\"objekt\"]", "objekt"),
        ("x = \"origin ms\"", "x = \"clients\"", "clients"),
        (
            "[bench]\n",
            "[replay]\ntrace = { path = \"t\" }\n[bench]\n",
            "either",
        ),
    ] {
        assert!(SMALL.contains(from), "{from}");
        let said_really = refused(&SMALL.replacen(from, to, 1));
        assert!(said_really.contains(said), "{to}: {said_really}");
    }
}

#[test]
fn a_run_writes_everything_that_is_promised() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("small.toml");
    std::fs::write(&path, SMALL).expect("written");
    let options = ExperimentOptions {
        path,
        results: folder.path().join("results"),
        progress: Progress::Off,
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
fn every_shipped_experiment_is_understood() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("experiments") {
        let path = entry.expect("an entry").path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            let text = std::fs::read_to_string(&path).expect("read");
            parse(&path, &text).unwrap_or_else(|error| panic!("{error}"));
            seen += 1;
        }
    }
    assert!(seen >= 5);
}

#[test]
fn verdicts_compare() {
    let published = |expect, tolerance| Published {
        case: String::new(),
        metric: String::new(),
        value: 100.0,
        source: String::new(),
        expect,
        tolerance,
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
}
