//! Rules that every shipped experiment's figures keep, and the list of rows
//! known to differ.

use std::path::PathBuf;

use super::*;
use crate::experiment::lists::expand;
use crate::experiment::{Experiment, KnownToDiffer, TOLERANCES};
use crate::report::read_data;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments")
}

/// Every shipped experiment.
pub(super) fn shipped() -> Vec<Experiment> {
    let entries = std::fs::read_dir(folder()).expect("experiments");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_experiment = |path: &PathBuf| {
        let is_toml = path
            .extension()
            .is_some_and(|extension| extension == "toml");
        is_toml && !path.ends_with("known-to-differ.toml")
    };
    let experiment = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("read");
        let found = expand(&path, &text).and_then(|text| parse(&path, &text));
        found.unwrap_or_else(|error| panic!("{error}")).0
    };
    paths.filter(is_experiment).map(experiment).collect()
}

fn known() -> KnownToDiffer {
    KnownToDiffer::beside(&folder().join("any.toml")).expect("the list is understood")
}

#[test]
fn every_published_value_has_its_place_and_no_tolerance_of_its_own() {
    for experiment in shipped() {
        for figure in experiment.all_published().expect("figures") {
            let of = format!("{}: {figure:?}", experiment.name);
            assert!(figure.has_place(), "no place, or not the kind's form: {of}");
            // `parse` rejects these, too.
            let is_own = figure.tolerance.is_some() || figure.margin.is_some();
            assert!(
                figure.kind == Kind::Goal || !is_own,
                "a tolerance of its own: {of}"
            );
            let is_judged = figure.expect != Expectation::Context;
            assert!(
                figure.kind == Kind::Derived || is_judged,
                "not judged: {of}"
            );
        }
    }
}

#[test]
fn every_verdict_can_differ() {
    for experiment in shipped() {
        for figure in experiment.all_published().expect("figures") {
            let of = format!("{}: {figure:?}", experiment.name);
            assert!(figure.can_differ(), "no result could fail: {of}");
            assert!(
                figure.tolerance.is_none_or(|share| share <= 0.25),
                "too wide: {of}"
            );
        }
    }
}

#[test]
fn every_known_difference_exists_once_and_has_a_reason() {
    let experiments = shipped();
    let mut seen = std::collections::BTreeSet::new();
    for known in known().known {
        assert!(known.reason.trim().len() > 20, "no reason: {known:?}");
        let experiment = experiments.iter().find(|e| e.name == known.experiment);
        let experiment = experiment.unwrap_or_else(|| panic!("no such experiment: {known:?}"));
        let figures = experiment.all_published().expect("figures");
        for (case, metric) in known
            .cases
            .iter()
            .flat_map(|c| known.metrics.iter().map(move |m| (c, m)))
        {
            let is_of = |figure: &&Published| {
                let row = match &figure.relative_to {
                    Some(other) => format!("{} / {other}", figure.case),
                    None => figure.case.clone(),
                };
                known.is_of(&experiment.name, &row, &figure.metric, &figure.source)
                    && row == *case
                    && figure.metric == *metric
                    && figure.expect != Expectation::Context
            };
            let count = figures.iter().filter(is_of).count();
            assert_eq!(
                count, 1,
                "{case}, {metric} of {known:?}: name its source where it has several"
            );
            let key = (
                known.experiment.clone(),
                case.clone(),
                metric.clone(),
                known.source.clone(),
            );
            assert!(
                seen.insert(key),
                "listed twice: {case}, {metric} of {known:?}"
            );
        }
    }
}

#[test]
fn the_guide_has_every_tolerance() {
    let guide = std::fs::read_to_string(folder().join("README.md")).expect("the guide");
    for tolerance in TOLERANCES {
        let allowed = match (tolerance.share, tolerance.margin) {
            (0.0, 0.0) => "none".to_owned(),
            (0.0, margin) => format!("{margin}"),
            (share, _) => format!("{:.0} %", 100.0 * share),
        };
        let line = format!("| {} | {allowed} |", tolerance.kind);
        assert!(
            guide.contains(&line),
            "experiments/README.md lacks `{line}`"
        );
    }
}

#[test]
fn tolerances_of_rows_and_published_context_are_rejected() {
    for (from, to, message) in [
        (
            "kind = \"goal\"",
            "kind = \"published\"",
            "only goals have a tolerance",
        ),
        (
            "kind = \"goal\"",
            "kind = \"derived\"",
            "only goals have a tolerance",
        ),
        ("kind = \"goal\"\n", "", "missing field `kind`"),
        (
            "tolerance = 0.01",
            "expect = \"context\"",
            "only derived values",
        ),
        (
            "kind = \"goal\"\ncase = \"origin ms 4.0, target store\"\nmetric = \"miss_latency_p50\"\nvalue = 4.0\nsource = \"the configuration\"\ntolerance = 0.01",
            "kind = \"published\"\ncase = \"origin ms 4.0, target store\"\nmetric = \"elapsed\"\nvalue = 4.0\nsource = \"A paper, Table 1\"",
            "no tolerance for this metric",
        ),
    ] {
        assert_rejected(from, to, message);
    }
}

#[test]
fn sources_have_the_form_of_their_kind() {
    let figure = |kind, source: &str| Published {
        kind,
        source: source.into(),
        case: String::new(),
        relative_to: None,
        metric: "get_throughput".into(),
        value: 1.0,
        unit: None,
        expect: Expectation::Equal,
        tolerance: None,
        margin: None,
    };
    for (kind, source, is_good) in [
        (Kind::Published, "ZNCache, Table 5", true),
        (Kind::Published, "Nemo, Figure 12b (read off)", true),
        (Kind::Published, "Nemo, Figure 12b", false),
        (Kind::Published, "ZNCache, §4.2.2", true),
        (Kind::Published, "Nemo, Appendix A", true),
        (
            Kind::Published,
            "libCacheSim aa0fc40, test_evictionAlgo.c",
            true,
        ),
        (Kind::Published, "what the prototype reaches", false),
        (Kind::Published, "ZNCache, Table 9 ÷ Table 8", false),
        (Kind::Derived, "ZNCache, Table 9 ÷ Table 8", true),
        (Kind::Derived, "ZNCache, Table 9", false),
        (Kind::Derived, "a ÷ b", false),
        (Kind::Goal, "Floe's", true),
        (Kind::Goal, " ", false),
    ] {
        assert_eq!(
            figure(kind, source).has_place(),
            is_good,
            "{kind:?} {source}"
        );
    }
}

#[test]
fn only_known_differences_differ() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("small.toml");
    let surprises = |experiment: &str, known: Option<&str>| -> Vec<String> {
        std::fs::write(&path, experiment).expect("written");
        let list = folder.path().join("known-to-differ.toml");
        match known {
            Some(known) => std::fs::write(&list, known).expect("written"),
            None => _ = std::fs::remove_file(&list),
        }
        let results = run(&options(&path, folder.path())).expect("runs");
        read_data(&results).expect("results").surprises()
    };
    let differs = SMALL.replace("value = 4.0", "value = 9.0");
    let listed = r#"
[[known]]
experiment = "small"
metrics = ["miss_latency_p50"]
cases = ["origin ms 4.0, target store"]
reason = "the value is made up, for this test"
"#;
    assert_eq!(surprises(SMALL, None), [] as [String; 0]);
    let unlisted = surprises(&differs, None);
    assert!(
        unlisted.len() == 1 && unlisted[0].contains("is not listed"),
        "{unlisted:?}"
    );
    assert!(
        unlisted[0].contains("origin ms 4.0, target store, miss_latency_p50"),
        "{unlisted:?}"
    );
    assert_eq!(surprises(&differs, Some(listed)), [] as [String; 0]);
    let recovered = surprises(SMALL, Some(listed));
    assert!(
        recovered.len() == 1 && recovered[0].contains("is listed"),
        "{recovered:?}"
    );
}
