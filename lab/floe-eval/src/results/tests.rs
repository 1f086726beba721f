use super::*;

#[test]
fn rows_are_flat_json_with_everything_asked_for() {
    let row = Row {
        experiment: "e".into(),
        case: "c".into(),
        metric: "get_latency_mean".into(),
        unit: "ms".into(),
        measured: 1.5,
        kind: Some(crate::experiment::Kind::Published),
        paper: Some(2.0),
        source: Some("ZNCache, table 5".into()),
        verdict: Some("lower".into()),
        known: None,
        relative_error: Some(-0.25),
        provenance: Provenance::here(None, "config", 7, "memory"),
    };
    let json: serde_json::Value = serde_json::to_value(&row).expect("JSON");
    for field in [
        "experiment",
        "case",
        "metric",
        "unit",
        "measured",
        "kind",
        "paper",
        "source",
        "verdict",
        "commit",
        "config_digest",
        "seed",
        "device",
        "machine",
    ] {
        assert!(
            json.get(field).is_some_and(|value| !value.is_object()),
            "{field}"
        );
    }
    let back: Row = serde_json::from_value(json).expect("a row");
    assert_eq!(back, row);
}

#[test]
fn digests_tell_configurations_apart() {
    assert_eq!(digest("a"), digest("a"));
    assert_ne!(digest("a"), digest("b"));
}

#[test]
fn resources_of_the_process_are_reported_by_bin() {
    let bin = |cpu: f64, mib: u64| {
        serde_json::to_value(Measures {
            length_s: 1.0,
            cpu_percent: Some(cpu),
            rss_bytes: Some(mib << 20),
            ..Measures::default()
        })
        .expect("JSON")
    };
    let bins: Vec<_> = (1..=100_u32).map(|n| bin(f64::from(n), n.into())).collect();
    let of = |bins: &[serde_json::Value]| -> Vec<Figure> {
        let run: RunResult = serde_json::from_value(serde_json::json!({
            "name": "", "started_unix_s": 0.0, "is_virtual": false, "requests": 0, "failed": 0,
            "first_failure": null, "skipped": 0, "verified_bytes": 0, "whole": bin(50.5, 1),
            "bins": bins, "rss_bytes_max": null, "cpu_us_per_request": null,
            "write_amplification": null
        }))
        .expect("a run");
        run_figures(&run)
    };
    let figures = of(&bins);
    let value = |metric: &str| {
        let found = figures.iter().find(|figure| figure.metric == metric);
        found.unwrap_or_else(|| panic!("{metric}")).value
    };
    let mib = 1_048_576.0;
    for (metric, expected) in [
        ("cpu", 50.5),
        ("cpu_max", 100.0),
        ("cpu_p50", 50.0),
        ("cpu_sd", 29.011_492),
        ("cpu_p95", 95.0),
        ("cpu_p99", 99.0),
        ("rss_mean", 50.5 * mib),
        ("rss_p50", 50.0 * mib),
        ("rss_sd", 29.011_492 * mib),
        ("rss_p95", 95.0 * mib),
        ("rss_p99", 99.0 * mib),
    ] {
        let found = value(metric);
        assert!((found / expected - 1.0).abs() < 1e-6, "{metric}: {found}");
    }
    let one = of(&bins[..1]);
    assert!(
        !one.iter().any(|figure| figure.metric == "cpu_sd"),
        "of one bin"
    );
}
