//! `cargo xtask tidy`: the house rules that neither the compiler nor clippy
//! knows, each explained where it is broken. Runs with the tests.

mod arrows;
mod dashboard;
mod modules;
mod rust_rules;
mod text_rules;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The file, relative to the project's root.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong and what to do instead.
    pub rule: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.rule)
    }
}

impl Violation {
    fn new(file: impl Into<PathBuf>, line: usize, rule: impl Into<String>) -> Self {
        Violation {
            file: file.into(),
            line,
            rule: rule.into(),
        }
    }
}

/// Checks the project at `root` and returns what is broken, in order of file and line.
pub fn check(root: &Path) -> Result<Vec<Violation>> {
    let files = project_files(root)?;
    let packages = arrows::packages(root)?;
    let mut violations = arrows::check(root, &packages);

    let reached = modules::walk(root, &packages, &mut violations)?;
    modules::check_dead(root, &packages, &files, &reached, &mut violations);
    for source in &reached {
        rust_rules::check(source, &mut violations);
    }
    text_rules::check(root, &files, &mut violations)?;
    dashboard::check(root, &mut violations)?;

    violations.sort();
    violations.dedup();
    Ok(violations)
}

/// Prints what is broken and fails where anything is.
pub fn run(root: &Path) -> Result<()> {
    let violations = check(root)?;
    for violation in &violations {
        eprintln!("{violation}");
    }
    if !violations.is_empty() {
        bail!("tidy: {} rules broken", violations.len());
    }
    println!("tidy: every rule holds");
    Ok(())
}

/// The files that are or would be committed, relative to `root`.
fn project_files(root: &Path) -> Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output();
    let mut files: Vec<PathBuf> = match listed {
        Ok(output) if output.status.success() => output
            .stdout
            .split(|&b| b == 0)
            .filter(|name| !name.is_empty())
            .map(|name| PathBuf::from(String::from_utf8_lossy(name).into_owned()))
            .filter(|file| root.join(file).is_file())
            .collect(),
        // Not a git checkout (a source archive): everything but build products.
        _ => {
            let mut found = Vec::new();
            walk_folder(root, root, &mut found)?;
            found
        }
    };
    files.sort();
    files.dedup();
    Ok(files)
}

fn walk_folder(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in
        std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?
    {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if !matches!(
                name.as_str(),
                "target" | ".git" | "corpus" | "artifacts" | "results"
            ) {
                walk_folder(root, &path, found)?;
            }
        } else if let Ok(relative) = path.strip_prefix(root) {
            found.push(relative.to_path_buf());
        }
    }
    Ok(())
}
