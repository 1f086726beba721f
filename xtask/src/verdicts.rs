//! `docs/verdicts.md`: the latest verdicts of the experiments at full scale.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::project;

/// The page, relative to the workspace's root.
const PAGE: &str = "docs/verdicts.md";

const HEAD: &str = "\
# Verdicts at full scale

`cargo xtask ci --full --record` runs the papers' experiments at full scale with \
`--verdicts` and writes this page. It replaces the rows of the experiments that ran and \
keeps the others, so that each row names the commit that it was measured at. The rules \
are in [experiments/README.md](../experiments/README.md), the figures that are known to \
differ in [known-to-differ.toml](../experiments/known-to-differ.toml).

| experiment | verdicts | as expected | takes | commit |
|---|---|---|---|---|
";

/// Verdicts of one experiment's run.
pub struct Verdict {
    /// Its name.
    pub experiment: String,
    /// The number of figures that hold, a sentence per kind.
    pub sentences: Vec<String>,
    /// The figures that differ are exactly the expected ones.
    pub is_as_expected: bool,
    /// Duration of the step, including its build.
    pub took: Duration,
}

/// True if a printed line counts the figures that hold.
pub fn is_count(line: &str) -> bool {
    line.contains(" judged figures hold")
}

/// Writes `verdicts` into the page.
pub fn record(verdicts: &[Verdict]) -> Result<()> {
    let path = project::root().join(PAGE);
    let before = match path.exists() {
        true => {
            std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?
        }
        false => String::new(),
    };
    let page = updated(&before, verdicts, &commit(&project::root())?);
    std::fs::write(&path, page).with_context(|| format!("writing {}", path.display()))?;
    println!("recorded {} verdicts in {PAGE}", verdicts.len());
    Ok(())
}

fn updated(page: &str, verdicts: &[Verdict], commit: &str) -> String {
    let mut rows: BTreeMap<String, String> = page.lines().filter_map(row).collect();
    for verdict in verdicts {
        let name = &verdict.experiment;
        let line = format!(
            "| `{name}` | {} | {} | {} s | {commit} |",
            verdict.sentences.join(" "),
            match verdict.is_as_expected {
                true => "yes",
                false => "**no**",
            },
            verdict.took.as_secs(),
        );
        rows.insert(name.clone(), line);
    }
    let rows: String = rows.into_values().map(|row| row + "\n").collect();
    HEAD.to_owned() + &rows
}

/// The experiment of a table's row, and the row.
fn row(line: &str) -> Option<(String, String)> {
    let (name, _) = line.strip_prefix("| `")?.split_once('`')?;
    Some((name.to_owned(), line.to_owned()))
}

fn commit(root: &Path) -> Result<String> {
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty", "--exclude=*"])
        .current_dir(root)
        .output()
        .context("asking git for the commit")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(experiment: &str, is_as_expected: bool) -> Verdict {
        Verdict {
            experiment: experiment.to_owned(),
            sentences: vec!["published: all of 3 judged figures hold.".to_owned()],
            is_as_expected,
            took: Duration::from_secs(61),
        }
    }

    #[test]
    fn a_run_replaces_its_rows_and_keeps_the_others() {
        let first = updated("", &[verdict("b", true), verdict("a", true)], "1111111");
        let second = updated(&first, &[verdict("b", false)], "2222222");
        let rows: Vec<&str> = second
            .lines()
            .skip_while(|l| !l.starts_with("|---"))
            .collect();
        let sentence = "published: all of 3 judged figures hold.";
        assert_eq!(
            rows[1],
            format!("| `a` | {sentence} | yes | 61 s | 1111111 |")
        );
        assert_eq!(
            rows[2],
            format!("| `b` | {sentence} | **no** | 61 s | 2222222 |")
        );
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn counts_are_distinguished_from_other_lines() {
        assert!(is_count(
            "goal: 1 of 2 judged figures hold, 1 differ, of which 1 are known to."
        ));
        assert!(!is_count("report: results/a/report.html"));
    }
}
