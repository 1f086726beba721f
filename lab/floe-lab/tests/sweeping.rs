//! Sweeps of an experiment's cases: shards, resuming, merging, and the shipped
//! recipes for them.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{outcome, run};

const SWEEP: &str = r#"
name = "sweep"
title = "A sweep"
time = "virtual"

[bench]
requests = 200
ratio = 2.0
bin-s = 0.05
pacing = { mode = "closed", clients = 2 }
workload = { kind = "uniform" }

[bench.cache]
origin-latency = { rule = "constant", ms = 1.0 }
device = { kind = "memory", size = "32MiB", zone_size = "2MiB" }
chunk = { write_buffer = "8MiB" }
ram = { size = "0" }

[[vary]]
key = "bench.cache.origin-latency.ms"
label = "origin ms"
values = [1.0, 2.0, 3.0]
"#;

/// Metric and value of every row, by case.
fn measured(folder: &Path) -> Vec<(String, String, f64)> {
    let text = fs::read_to_string(folder.join("results.jsonl")).unwrap();
    let rows = text.lines().map(|line| {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        let value = row["measured"].as_f64().unwrap();
        assert!(!text("commit").is_empty() && !text("config_digest").is_empty());
        (text("case"), text("metric"), value)
    });
    rows.collect()
}

fn results_folder(out: &str) -> PathBuf {
    let page = out.trim().trim_start_matches("report: ");
    PathBuf::from(page.trim_end_matches("/report.html"))
}

#[test]
fn whole_sharded_and_resumed_sweeps_give_the_same_figures() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("sweep.toml"), SWEEP).unwrap();
    let bench = |more: &[&str]| {
        let arguments = [&["bench", "sweep.toml", "--quiet"], more].concat();
        let outcome = run(folder.path(), &arguments).expect(0, &["report: "]);
        folder.path().join(results_folder(&outcome.out))
    };
    let whole = bench(&[]);
    let figures = measured(&whole);
    assert!(figures.iter().any(|row| row.0 == "origin ms 3.0"));
    assert_eq!(figures, measured(&bench(&["--jobs", "3"])));

    let record = fs::read_dir(whole.join("cases")).unwrap().next().unwrap();
    fs::remove_file(record.unwrap().path()).unwrap();
    bench(&["--resume", whole.to_str().unwrap()]);
    assert_eq!(figures, measured(&whole));

    let first = bench(&["--shard", "1/2", "--out", "parts"]);
    let second = bench(&["--shard", "2/2", "--out", "parts"]);
    assert!(measured(&first).len() > measured(&second).len());
    let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
    run(folder.path(), &["report", first, second]).expect(0, &["parts/merged/report.html"]);
    assert_eq!(figures, measured(&at("parts/merged")));

    // The flag is equivalent to the positional argument.
    let arguments = [
        "bench",
        "--experiment",
        "sweep.toml",
        "--quiet",
        "--shard",
        "3/3",
    ];
    run(folder.path(), &arguments).expect(0, &["shard-3-of-3/report.html"]);
}

#[test]
fn invalid_sweeps_are_usage_errors() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sweep.toml"), SWEEP).unwrap();
    for (arguments, parts) in [
        (
            &["bench", "--shard", "1/2"][..],
            &["needs an experiment file"][..],
        ),
        (
            &["bench", "sweep.toml", "--shard", "3/2"],
            &["2/5 for the second of five"],
        ),
        (
            &["bench", "sweep.toml", "--resume", "absent"],
            &["absent/sweep.json"],
        ),
        (
            &["bench", "sweep.toml", "--clock", "virtual"],
            &["`clock` has no effect"],
        ),
        (
            &["bench", "sweep.toml", "--experiment", "x.toml"],
            &["cannot be used with"],
        ),
        (&["report"], &["required"]),
    ] {
        run(folder.path(), arguments).expect(2, parts);
    }
    let broken = SWEEP.replace("3.0]", "-3.0]");
    fs::write(folder.path().join("broken.toml"), broken).unwrap();
    run(
        folder.path(),
        &["bench", "broken.toml", "--quiet", "--jobs", "1"],
    )
    .expect(2, &["case `origin ms -3.0`", "--resume results/sweep-"]);
}

#[test]
fn rows_name_the_commit_of_the_build() {
    let folder = tempfile::tempdir().unwrap();
    let one = SWEEP.replace("[1.0, 2.0, 3.0]", "[1.0]");
    fs::write(folder.path().join("sweep.toml"), one).unwrap();
    let outcome = run(folder.path(), &["bench", "sweep.toml", "--quiet"]).expect(0, &[]);
    let rows = folder
        .path()
        .join(results_folder(&outcome.out))
        .join("results.jsonl");
    let rows = fs::read_to_string(rows).unwrap();
    let row: serde_json::Value = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
    let version = run(folder.path(), &["--version"]).expect(0, &[]).out;
    assert_eq!(
        Some(version.trim().trim_start_matches("floe-lab ")),
        row["commit"].as_str()
    );
}

#[test]
fn the_recipe_for_one_machine_runs_resumes_and_merges() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sweep.toml"), SWEEP).unwrap();
    let recipe = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/sweeps/local.sh"
    );
    let sweep = || {
        let mut command = Command::new("sh");
        command
            .current_dir(folder.path())
            .env("FLOE", env!("CARGO_BIN_EXE_floe-lab"))
            .args([recipe, "sweep.toml", "out", "2"]);
        outcome(command.output().unwrap())
    };
    sweep().expect(0, &["out/merged/report.html"]);
    let merged = folder.path().join("out/merged");
    let figures = measured(&merged);
    assert_eq!(figures.iter().filter(|row| row.1 == "hit_ratio").count(), 3);

    // An interrupted run: one shard's case and report are missing.
    let shard = fs::read_dir(folder.path().join("out/shard-2-of-2")).unwrap();
    let shard = shard.last().unwrap().unwrap().path();
    fs::remove_dir_all(shard.join("cases")).unwrap();
    fs::remove_file(shard.join("data.json")).unwrap();
    fs::remove_dir_all(&merged).unwrap();
    sweep().expect(0, &["out/merged/report.html"]);
    assert_eq!(figures, measured(&merged));

    // A report of one shard says what it lacks.
    let mut report = Command::new(env!("CARGO_BIN_EXE_floe-lab"));
    report.arg("report").arg(
        folder
            .path()
            .join("out/shard-2-of-2")
            .join(shard.file_name().unwrap()),
    );
    let lacking = [
        "not run, so not in the report: 2 of its cases",
        "origin ms 1.0",
        "report.html",
    ];
    outcome(report.output().unwrap()).expect(0, &lacking);

    fs::write(folder.path().join("sweep.toml"), "name = 3").unwrap();
    fs::remove_dir_all(folder.path().join("out")).unwrap();
    sweep().expect(1, &["shard 1 of 2 failed", "sweep.toml"]);
}

#[test]
fn the_recipes_for_clusters_are_well_formed() {
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/sweeps");
    let checked = Command::new("sh")
        .arg("-n")
        .arg(recipes.join("slurm.sbatch"))
        .output();
    assert!(checked.unwrap().status.success());
    // A task of the array, as Slurm runs it.
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sweep.toml"), SWEEP).unwrap();
    let mut task = Command::new("sh");
    task.current_dir(folder.path())
        .envs([
            ("SLURM_ARRAY_TASK_ID", "2"),
            ("SLURM_ARRAY_TASK_COUNT", "3"),
        ])
        .env("FLOE", env!("CARGO_BIN_EXE_floe-lab"))
        .arg(recipes.join("slurm.sbatch"))
        .args(["sweep.toml", "out"]);
    outcome(task.output().unwrap()).expect(0, &["out/shard-2-of-3/sweep-"]);
    // A requeued task resumes in its folder.
    outcome(task.output().unwrap()).expect(0, &["out/shard-2-of-3/sweep-"]);
    let made = fs::read_dir(folder.path().join("out/shard-2-of-3")).unwrap();
    assert_eq!(made.count(), 1);

    // The pod's script, extracted from the job.
    let job = fs::read_to_string(recipes.join("kubernetes.yaml")).unwrap();
    let script = job.split("- |\n").nth(1).unwrap();
    let script = script.split("          resources:").next().unwrap();
    let script = script
        .replace("/results/", "pods/")
        .replace("/experiment/experiment.toml", "sweep.toml")
        .replace(
            "floe bench",
            &format!("{} bench", env!("CARGO_BIN_EXE_floe-lab")),
        );
    let mut pod = Command::new("sh");
    pod.current_dir(folder.path())
        .env("JOB_COMPLETION_INDEX", "0")
        .args(["-euc", &script]);
    outcome(pod.output().unwrap()).expect(0, &["pods/shard-1-of-16/sweep-"]);
}

#[test]
fn one_seed_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sweep.toml"), SWEEP).unwrap();
    let bytes = |jobs: &str| {
        let mut command = common::lab(folder.path());
        command.env("SOURCE_DATE_EPOCH", "1767225600");
        command.args(["bench", "sweep.toml", "--quiet", "--jobs", jobs]);
        let outcome = outcome(command.output().unwrap()).expect(0, &[]);
        let results = folder.path().join(results_folder(&outcome.out));
        ["results.jsonl", "report.html"].map(|name| fs::read(results.join(name)).unwrap())
    };
    let first = bytes("1");
    assert!(String::from_utf8_lossy(&first[0]).contains("2026-01-01 00:00:00 UTC"));
    assert_eq!(first, bytes("3"));
}

#[test]
fn two_sets_are_compared_and_exported() {
    let folder = tempfile::tempdir().unwrap();
    for (name, rule) in [("before", "1.0, 2.0"), ("after", "2.0, 4.0")] {
        let text = SWEEP.replace("[1.0, 2.0, 3.0]", &format!("[{rule}]"));
        let text = text.replace(
            "label = \"origin ms\"",
            "label = \"origin\"\nnames = [\"near\", \"far\"]",
        );
        let file = format!("{name}.toml");
        fs::write(folder.path().join(&file), text).unwrap();
        run(folder.path(), &["bench", &file, "--quiet", "--out", name]).expect(0, &[]);
    }
    let results = |name: &str| {
        let made = fs::read_dir(folder.path().join(name))
            .unwrap()
            .next()
            .unwrap();
        format!("{name}/{}", made.unwrap().file_name().to_string_lossy())
    };
    let (before, after) = (results("before"), results("after"));
    let arguments = [
        "report", &before, &after, "--out", "both", "--export", "files",
    ];
    let outcome = run(folder.path(), &arguments);
    // Without fonts no PNG is drawn, and a message says so.
    if outcome.code != 0 {
        assert!(outcome.err.contains("font"), "{outcome:#?}");
        return;
    }
    outcome.expect(0, &["get_latency_mean", "near", "both/report.html"]);
    let table = fs::read_to_string(folder.path().join("files/comparison-figures.md")).unwrap();
    assert!(
        table.contains("| case | metric | first | second | ratio | difference |"),
        "{table}"
    );
    let pictures = fs::read_dir(folder.path().join("files")).unwrap();
    let pictures = pictures.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().ends_with(".png")
    });
    assert_eq!(pictures.count(), 4);
    run(folder.path(), &["report", &before, &before, &after]).expect(2, &["neither the shards"]);
}
