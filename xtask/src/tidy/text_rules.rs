//! Rules on the text of every committed file: leftovers, machine names, experiments.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::rust_rules::is_rust;
use super::violation::Violation;

/// A longer file is reported: is it one idea?
const LINES_TO_ASK: usize = 600;

/// Words that must not be committed. Split so that this file does not match itself.
const LEFTOVERS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

/// Paths that exist on one machine only.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
];

/// Settings that tie a build to a private package index.
const INDEX_SETTINGS: &[&str] = &[
    concat!("index", "-url"),
    concat!("PIP_INDEX", "_URL"),
    concat!("replace", "-with"),
    concat!("GOPROXY", "="),
    concat!("npm_config_reg", "istry"),
];

/// The only index that lock files may name.
const CRATES_INDEX: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(super) fn check(root: &Path, files: &[PathBuf], violations: &mut Vec<Violation>) -> Result<()> {
    for file in files {
        let bytes = std::fs::read(root.join(file))
            .with_context(|| format!("reading {}", file.display()))?;
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        }; // binary data
        if file.file_name().is_some_and(|name| name == "Cargo.lock") {
            check_lock(file, &text, violations);
            continue;
        }
        check_leftovers(file, &text, violations);
        if file
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            check_toml(file, &text, violations);
        }
    }
    Ok(())
}

fn check_leftovers(file: &Path, text: &str, violations: &mut Vec<Violation>) {
    for (index, line) in text.lines().enumerate() {
        let mut report = |rule: String| violations.push(Violation::new(file, index + 1, rule));
        for word in LEFTOVERS {
            if contains_word(line, word) {
                report(format!(
                    "`{word}`: finish it, or write down the condition under which it changes"
                ));
            }
        }
        for place in MACHINE_PATHS {
            if contains_place(line, place) {
                report(format!("`{place}…` exists on one machine only"));
            }
        }
        for setting in INDEX_SETTINGS {
            if line.contains(setting) {
                report(format!("`{setting}` ties the build to one package index"));
            }
        }
    }
}

/// True if `word` occurs without a letter, digit or underscore on either side.
fn contains_word(line: &str, word: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !part(line[..at].chars().next_back()) && !part(line[at + word.len()..].chars().next())
    })
}

/// True if `place` occurs as the start of an absolute path, not inside a longer one.
fn contains_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(|c| {
            c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | '>' | ')' | '/')
        })
    })
}

/// Sources long enough to question whether they are one idea.
pub(super) fn long_sources(root: &Path, files: &[PathBuf]) -> Vec<(PathBuf, usize)> {
    let lines = |file: &PathBuf| {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        (file.clone(), text.lines().count())
    };
    let sources = files.iter().filter(|file| is_rust(file));
    sources
        .map(lines)
        .filter(|(_, lines)| *lines > LINES_TO_ASK)
        .collect()
}

fn check_lock(file: &Path, text: &str, violations: &mut Vec<Violation>) {
    for (index, line) in text.lines().enumerate() {
        if let Some(source) = line.strip_prefix("source = ")
            && source.trim_matches('"') != CRATES_INDEX
        {
            let rule =
                format!("{source} is not crates.io: nothing is pinned to git or to another index");
            violations.push(Violation::new(file, index + 1, rule));
        }
    }
}

/// Experiments and all other TOML files must at least parse.
fn check_toml(file: &Path, text: &str, violations: &mut Vec<Violation>) {
    if let Err(error) = toml::from_str::<toml::Table>(text) {
        let before = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.as_bytes()[..before]
            .iter()
            .filter(|&&b| b == b'\n')
            .count()
            + 1;
        violations.push(Violation::new(
            file,
            line,
            format!("is not TOML: {}", error.message()),
        ));
    }
}
