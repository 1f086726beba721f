//! Engines for tiny objects where eviction matters, in small: they miss, write and read
//! as they did in the run whose figures the experiment states.

use std::path::Path;

use floe_eval::experiment::{ExperimentOptions, run};
use floe_eval::results::Row;
use floe_eval::run::Progress;

#[test]
fn engines_miss_write_and_read_as_in_an_earlier_run() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/nemo-working-set-small.toml");
    let folder = tempfile::tempdir().expect("a folder");
    let results = run(&ExperimentOptions {
        results: folder.path().to_owned(),
        progress: Progress::Off,
        ..ExperimentOptions::new(path)
    })
    .expect("runs");
    let text = std::fs::read_to_string(results.join("results.jsonl")).expect("rows");
    let rows = text
        .lines()
        .map(|line| serde_json::from_str::<Row>(line).expect("a row"));
    let judged: Vec<Row> = rows.filter(|row| row.verdict.is_some()).collect();
    // Two working sets, six engines, three metrics.
    assert_eq!(judged.len(), 36);
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
}
