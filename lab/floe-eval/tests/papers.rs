//! The papers' findings, in small: the shipped experiment's verdicts hold, and small
//! forms of the experiments reproduce their earlier results (`small/*.json`): that is
//! regression, not reproduction.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use floe_eval::experiment::{ExperimentOptions, run};
use floe_eval::results::Row;
use floe_eval::run::Progress;

/// How far a figure may be from the committed one, as a share. Runs are in virtual time
/// or without time, so that they find the same on one machine; logarithms and powers
/// may differ in their last digit on another.
const TOLERANCE: f64 = 0.01;

/// The metrics to compare, if a case has them.
const METRICS: [&str; 8] = [
    "get_throughput",
    "get_latency_mean",
    "get_latency_p99",
    "hit_ratio",
    "device_write_amplification",
    "write_amplification",
    "miss_ratio",
    "bits_per_object",
];

/// Case, metric, value.
type Results = BTreeMap<String, BTreeMap<String, f64>>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/small")
}

fn rows_of(path: PathBuf) -> Vec<Row> {
    let folder = tempfile::tempdir().expect("a folder");
    let results = run(&ExperimentOptions {
        results: folder.path().to_owned(),
        progress: Progress::Off,
        ..ExperimentOptions::new(path)
    })
    .expect("runs");
    let text = std::fs::read_to_string(results.join("results.jsonl")).expect("rows");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect()
}

fn results_of(rows: &[Row]) -> Results {
    let mut results = Results::new();
    let compared = |row: &&Row| METRICS.contains(&row.metric.as_str()) && !row.case.contains(" / ");
    for row in rows.iter().filter(compared) {
        let of_case = results.entry(row.case.clone()).or_default();
        of_case.insert(row.metric.clone(), row.measured);
    }
    results
}

/// Compares with the committed results of the same experiment. With `FLOE_BLESS` set,
/// commits what was found instead.
fn assert_as_before(rows: &[Row]) {
    let found = results_of(rows);
    let path = folder().join(format!("{}.json", rows[0].experiment));
    if std::env::var_os("FLOE_BLESS").is_some() {
        let text = serde_json::to_string_pretty(&found).expect("JSON");
        std::fs::write(&path, text + "\n").expect("written");
        return;
    }
    let text = std::fs::read_to_string(&path).expect("committed results");
    let before: Results = serde_json::from_str(&text).expect("committed results");
    let flat = |results: &Results| -> BTreeMap<(String, String), f64> {
        let cases = results.iter();
        cases
            .flat_map(|(case, metrics)| {
                let named =
                    move |(metric, &value): (&String, _)| ((case.clone(), metric.clone()), value);
                metrics.iter().map(named)
            })
            .collect()
    };
    let (found, before) = (flat(&found), flat(&before));
    assert!(
        found.keys().eq(before.keys()),
        "other figures than in {}",
        path.display()
    );
    let is_far = |value: f64, before: f64| (value - before).abs() > TOLERANCE * before.abs() + 1e-9;
    let differences: Vec<String> = found
        .iter()
        .filter(|(figure, value)| is_far(**value, before[figure]))
        .map(|((case, metric), value)| {
            let was = before[&(case.clone(), metric.clone())];
            format!("{case}: {metric} is {value}, was {was}")
        })
        .collect();
    assert!(
        differences.is_empty(),
        "not as in {}; if that is right, run again with FLOE_BLESS=1\n{}",
        path.display(),
        differences.join("\n")
    );
}

#[test]
fn a_small_oxcache_run_repeats_its_recorded_figures() {
    assert_as_before(&rows_of(folder().join("oxcache.toml")));
}

#[test]
fn a_small_nemo_run_repeats_its_recorded_figures() {
    assert_as_before(&rows_of(folder().join("nemo.toml")));
}

fn shipped(name: &str) -> PathBuf {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    experiments.join(format!("{name}.toml"))
}

/// The judged rows, all of which hold.
fn judged(rows: &[Row], count: usize) -> Vec<&Row> {
    let judged: Vec<&Row> = rows.iter().filter(|row| row.verdict.is_some()).collect();
    assert_eq!(judged.len(), count);
    for row in &judged {
        let verdict = row.verdict.as_deref().unwrap_or_default();
        assert!(
            verdict.starts_with("holds") || verdict == "equal",
            "{} {}: {} beside {:?}: {verdict}",
            row.case,
            row.metric,
            row.measured,
            row.paper
        );
    }
    judged
}

/// Engines for tiny objects where eviction matters: two working sets, six engines, three
/// metrics.
#[test]
fn engines_repeat_their_recorded_misses_writes_and_reads() {
    judged(&rows_of(shipped("nemo-working-set-small")), 36);
}

#[test]
fn a_zoned_device_is_as_many_times_as_fast_as_zncache_found() {
    let rows = rows_of(shipped("zncache-table5-small"));
    let judged = judged(&rows, 4);
    let largest = judged
        .iter()
        .max_by(|a, b| a.measured.total_cmp(&b.measured));
    let largest = largest.map(|row| row.case.as_str()).unwrap_or_default();
    assert!(largest.contains("UNIF-2"), "{largest}");

    // A zoned device writes nothing but what it is given and the rest of zones.
    let moved = rows.iter().filter(|row| {
        row.metric == "device_collected_per_host_byte" && row.provenance.device.contains("zn540")
    });
    assert!(moved.clone().count() == 4 && moved.clone().all(|row| row.measured == 0.0));
    assert_as_before(&rows);
}
