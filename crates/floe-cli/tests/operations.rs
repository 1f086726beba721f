//! What `docs/operations.md` and the help say of settings, metrics, commands
//! and flags is so.

mod common;

use std::collections::BTreeSet;
use std::fs;

use common::{Serving, floe, get, run};

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
    fs::read_to_string(path).unwrap()
}

/// What stands between backticks.
fn quoted(page: &str) -> Vec<String> {
    let parts = page.split('`').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

#[test]
fn every_setting_of_the_page_exists() {
    let folder = tempfile::tempdir().unwrap();
    let shown = run(folder.path(), &["config", "show", "--json"]).expect(0, &[]);
    let shown: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    let settings: Vec<&String> = shown.as_object().unwrap().keys().collect();
    let sections: BTreeSet<&str> = settings
        .iter()
        .filter_map(|setting| setting.split('.').next())
        .collect();
    let mut seen = 0;
    for words in quoted(&page()) {
        let name = words.split([' ', '=']).next().unwrap_or_default();
        let Some((section, _)) = name.split_once('.') else {
            continue;
        };
        if !sections.contains(section) || name.ends_with(".floe") {
            continue;
        }
        let is_table = |setting: &&String| setting.starts_with(&format!("{name}."));
        let exists =
            settings.iter().any(|setting| *setting == name) || settings.iter().any(is_table);
        assert!(exists, "`{name}` is no setting");
        seen += 1;
    }
    assert!(seen > 15, "{seen}");
}

#[test]
fn every_metric_of_the_page_is_rendered() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = floe(folder.path());
    command.env("FLOE_MEMCACHED_LISTEN", "127.0.0.1:0");
    command.env("FLOE_TINY_SIZE", "32MiB");
    let serving = Serving::spawn(&mut command);
    let metrics = String::from_utf8(get(serving.admin, "/metrics").1).unwrap();
    let mut seen = 0;
    for words in quoted(&page()) {
        if words.starts_with("floe_") {
            // A counter's family is named without the suffix of its samples.
            let family = words.strip_suffix("_total").unwrap_or(&words);
            let is_known = [words.as_str(), family]
                .iter()
                .any(|name| metrics.contains(&format!("# TYPE {name} ")));
            assert!(is_known, "`{words}` is not rendered");
            seen += 1;
        }
    }
    assert!(seen > 5, "{seen}");
    assert_eq!(serving.stop(), 0);
}

#[test]
fn every_command_and_flag_of_the_page_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for words in quoted(&page()) {
        let Some(command) = words.strip_prefix("floe ") else {
            continue;
        };
        let mut words = command.split(' ');
        let (name, rest) = (words.next().unwrap(), words.collect::<Vec<_>>());
        let flags = rest.iter().filter(|word| word.starts_with("--"));
        let help = run(folder.path(), &[name, "--help"]).expect(0, &[]).out;
        for flag in flags {
            assert!(help.contains(flag), "`floe {name}` has no {flag}");
        }
        if name == "config" {
            for action in rest.iter().flat_map(|words| words.split('|')) {
                run(folder.path(), &["config", action, "--help"]).expect(0, &[]);
            }
        }
        seen += 1;
    }
    assert!(seen > 5, "{seen}");
}

#[test]
fn the_help_names_files_that_exist_and_how_flags_take_values() {
    let folder = tempfile::tempdir().unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for arguments in [&["--help"][..], &["bench", "--help"], &["replay", "--help"]] {
        let help = run(folder.path(), arguments).expect(0, &[]).out;
        let files = help
            .split_whitespace()
            .filter(|word| word.starts_with("experiments/"));
        for file in files {
            assert!(fs::exists(format!("{root}/{file}")).unwrap(), "{file}");
        }
    }
    let help = run(folder.path(), &["serve", "--help"]).expect(0, &[]).out;
    let help: Vec<&str> = help.split_whitespace().collect();
    let help = help.join(" ");
    assert!(help.contains("[a value needs `=`: --tiny-enabled=…]"));
}
