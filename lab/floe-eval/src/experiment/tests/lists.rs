//! Lists that experiments share.

use super::*;
use crate::experiment::lists::expand;

const EXPERIMENT: &str = r#"name = "shared"
title = "Cases of a list"

[volume]
trace = { path = "set per case" }
cache = "capacity=10%"

[[vary]]
from = "traces.toml" # of the same folder

[[vary]]
key = "volume.settings"
label = "mode"
values = ["mode=write-back", "mode=write-around"]
"#;
const LIST: &str = r#"label = "trace"
names = ["uniform", "zipf"]
sets = [
    { "volume.trace.path" = "synthetic:uniform,requests=2000" },
    { "volume.trace.path" = "synthetic:zipf,requests=2000" },
]
"#;

/// Runs an experiment beside a list.
fn run_with(experiment: &str, list: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shared.toml");
    std::fs::write(&path, experiment).expect("write");
    std::fs::write(folder.path().join("traces.toml"), list).expect("write");
    let results = run(&options(&path, folder.path())).map_err(|error| error.to_string())?;
    std::fs::remove_file(folder.path().join("traces.toml")).expect("remove");
    let mut names: Vec<String> = rows(&results).into_iter().map(|row| row.case).collect();
    names.dedup();
    assert_eq!(
        names,
        [
            "trace uniform, mode mode=write-back",
            "trace uniform, mode mode=write-around",
            "trace zipf, mode mode=write-back",
            "trace zipf, mode mode=write-around",
        ]
    );
    // The results need no list.
    let path = results.join("experiment.toml");
    let text = std::fs::read_to_string(&path).expect("a copy");
    assert_eq!(expand(&path, &text).expect("no list"), text);
    assert_eq!(parse(&path, &text).expect("whole").1.len(), 4);
    Ok(())
}

#[test]
fn cases_of_a_list_are_those_of_its_keys() {
    run_with(EXPERIMENT, LIST).expect("it runs");
}

#[test]
fn errors_name_the_file_and_the_line() {
    for (from, to, file, line) in [
        ("traces.toml", "lists/traces.toml", "shared.toml", "line 9:"),
        (
            "from = ",
            "label = \"trace\"\nfrom = ",
            "shared.toml",
            "line 10:",
        ),
        ("values", "value", "shared.toml", "line 14,"),
    ] {
        let experiment = EXPERIMENT.replacen(from, to, 1);
        let error = run_with(&experiment, LIST).expect_err(to);
        assert!(
            error.contains(file) && error.contains(line),
            "{to}: {error}"
        );
    }
    for (from, to, line) in [
        ("sets", "set", "line 3,"),
        (", \"zipf\"", "", "line 2:"),
        ("label = \"trace\"", "from = \"more.toml\"", "line 1,"),
    ] {
        let error = run_with(EXPERIMENT, &LIST.replacen(from, to, 1)).expect_err(to);
        let is_named = error.contains("traces.toml") && error.contains(line);
        assert!(is_named, "{to}: {error}");
    }
}

#[test]
fn an_experiment_has_the_keys_of_the_one_that_it_extends() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("large.toml");
    let expanded = |text: &str| expand(&path, text).map_err(|error| error.to_string());
    std::fs::write(folder.path().join("traces.toml"), LIST).expect("write");
    std::fs::write(folder.path().join("shared.toml"), EXPERIMENT).expect("write");
    let text = r#"extends = "shared.toml"
name = "large"
[volume.trace]
skip-bad = true
"#;
    let text = expanded(text).expect("a base");
    let (experiment, cases) = parse(&path, &text).expect("whole");
    assert_eq!((experiment.name.as_str(), cases.len()), ("large", 4));
    assert_eq!(experiment.title, "Cases of a list");
    let trace = experiment.volume.expect("of a volume").trace;
    assert!(trace.skip_bad && trace.path.ends_with("set per case"));

    for elsewhere in [
        "extends = \"../shared.toml\"",
        "extends = 1",
        "extends = \"..\"",
    ] {
        let refused = expanded(elsewhere).expect_err("no name");
        assert!(refused.contains("beside this one"), "{refused}");
    }
    let absent = expanded("extends = \"absent.toml\"").expect_err("no base");
    assert!(absent.contains("absent.toml"), "{absent}");
    std::fs::write(&path, "extends = \"shared.toml\"").expect("write");
    let nested = expanded("extends = \"large.toml\"").expect_err("a base of a base");
    assert!(nested.contains("extends another"), "{nested}");
}
