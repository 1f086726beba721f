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
