//! Links and paths in Markdown files: each must lead to a file of the project,
//! and each anchor to a heading.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::violation::Violation;

/// Directories that paths in backticks begin with.
const FOLDERS: &[&str] = &[
    "crates/",
    "docs/",
    "experiments/",
    "fuzz/",
    "lab/",
    "packaging/",
    "xtask/",
];

/// Documents that map the sources: bare file names in them must exist too.
const MAPS: &[&str] = &["ARCHITECTURE.md", "docs/internals"];

/// Checks the Markdown files among `files`.
pub(super) fn check(root: &Path, files: &[PathBuf], violations: &mut Vec<Violation>) {
    let documents = files.iter().filter(|file| is_markdown(file));
    let texts: BTreeMap<&Path, String> = documents
        .filter_map(|file| Some((&**file, std::fs::read_to_string(root.join(file)).ok()?)))
        .collect();
    let anchors: BTreeMap<&Path, BTreeSet<String>> = texts
        .iter()
        .map(|(file, text)| (*file, anchors(text)))
        .collect();
    for (&file, text) in &texts {
        let is_map = MAPS.iter().any(|map| file.starts_with(map));
        for (number, line) in prose(text) {
            let mut report = |rule| violations.push(Violation::new(file, number, rule));
            for target in targets(line) {
                if !leads_somewhere(root, file, target, &anchors) {
                    report(format!("the link `{target}` leads nowhere"));
                }
            }
            for path in paths(line).filter(|path| is_missing(root, files, path, is_map)) {
                report(format!("`{path}` is no file or folder of the project"));
            }
        }
    }
}

fn is_markdown(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "md")
}

/// The lines outside code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((index + 1, line))
    })
}

/// The targets of `[text](target)` on one line.
pub(crate) fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let (target, _) = rest.split_once(')')?;
        let target = target.split_whitespace().next().unwrap_or_default();
        Some(target.trim_matches(['<', '>']))
    })
}

fn leads_somewhere(
    root: &Path,
    from: &Path,
    target: &str,
    anchors: &BTreeMap<&Path, BTreeSet<String>>,
) -> bool {
    if is_elsewhere(target) {
        return true;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let Some(file) = resolve(from, path) else {
        return false;
    };
    let has_anchor = || {
        anchors
            .get(&*file)
            .is_some_and(|known| known.contains(anchor))
    };
    root.join(&file).exists() && (anchor.is_empty() || has_anchor())
}

/// True if a link leaves the project.
pub(crate) fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// The file that a link to `path` in the file `from` names; `None` if it leaves the project.
pub(crate) fn resolve(from: &Path, path: &str) -> Option<PathBuf> {
    if path.is_empty() {
        return Some(from.to_owned());
    }
    let mut clean = PathBuf::new();
    for component in from.parent()?.join(path).components() {
        match component {
            Component::ParentDir if !clean.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            Component::Normal(name) => clean.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(clean)
}

/// The anchors of a document's headings, as in GitHub and mdbook.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let anchor = anchor(title.trim());
        let again = (1..).map(|n| format!("{anchor}-{n}"));
        let free = std::iter::once(anchor.clone()).chain(again);
        found.extend(free.into_iter().find(|a| !found.contains(a)));
    }
    found
}

fn anchor(title: &str) -> String {
    let kept = title.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ => c.is_alphanumeric().then_some(c),
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Words in backticks that look like paths.
fn paths(line: &str) -> impl Iterator<Item = String> {
    let quoted = line.split('`').skip(1).step_by(2);
    let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./{},".contains(c);
    quoted
        .filter(move |text| text.chars().all(is_path) && !text.contains("NAME"))
        .flat_map(expanded)
}

/// Expands `a/{b,c}.rs`.
fn expanded(path: &str) -> Vec<String> {
    let braces = path
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match braces {
        None => vec![path.to_owned()],
        Some((before, (choices, after))) => choices
            .split(',')
            .map(|choice| format!("{before}{choice}{after}"))
            .collect(),
    }
}

/// True if `path` should exist and does not. A map may omit the directories
/// above a source or directory.
fn is_missing(root: &Path, files: &[PathBuf], path: &str, is_map: bool) -> bool {
    if FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        return !root.join(path).exists();
    }
    let is_named = is_map && (path.ends_with(".rs") || path.ends_with('/'));
    let ends_one = |file: &PathBuf| file.ancestors().any(|place| place.ends_with(path));
    is_named && !files.iter().any(ends_one)
}
