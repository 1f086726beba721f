//! What the papers found, in small: the shipped experiment's verdicts hold.

use std::path::Path;

use floe_eval::experiment::{ExperimentOptions, run};
use floe_eval::results::Row;
use floe_eval::run::Progress;

#[test]
fn a_zoned_device_is_as_many_times_as_fast_as_zncache_found() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/zncache-table5-small.toml");
    let folder = tempfile::tempdir().expect("a folder");
    let results = run(&ExperimentOptions {
        results: folder.path().to_owned(),
        progress: Progress::Off,
        ..ExperimentOptions::new(path)
    })
    .expect("runs");
    let text = std::fs::read_to_string(results.join("results.jsonl")).expect("rows");
    let rows: Vec<Row> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a row"))
        .collect();
    let judged: Vec<&Row> = rows.iter().filter(|row| row.verdict.is_some()).collect();
    assert_eq!(judged.len(), 4);
    for row in &judged {
        let verdict = row.verdict.as_deref().unwrap_or_default();
        assert!(
            verdict.starts_with("holds") || verdict == "equal",
            "{}: {} beside {:?}: {verdict}",
            row.case,
            row.measured,
            row.paper
        );
    }
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
}
