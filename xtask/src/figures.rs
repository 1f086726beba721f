//! `cargo xtask figures [EXPERIMENT…]`: runs the experiments whose figures the
//! documents show, and writes the figures to `docs/figures`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::built::{self, Profile};
use crate::project;

/// The experiments to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Only these experiments, for example `nemo-fig12`; by default all with a
    /// figure in a document.
    pub experiments: Vec<String>,
}

/// Experiments, and their figures in documents, by the names of `floe report
/// --export`. Graphs over time have a thousand points, so they are smaller as
/// bitmaps.
const SHOWN: &[(&str, &[&str])] = &[
    ("nemo-fig12", &["curve-1.svg", "curve-2.svg"]),
    ("nemo-fig13", &["over-flash-writes.png", "curve-1.svg"]),
    ("nemo-fig14", &["over-write-amplification-trend.png"]),
    ("nemo-fig16", &["over-miss-ratio-trend.png"]),
    ("nemo-fig17", &["curve-1.svg"]),
    ("nemo-fig18", &["curve-2.svg", "curve-3.svg"]),
    ("nemo-fig19a", &["over-set-accesses.png"]),
    ("nemo-fig19b", &["curve-1.svg"]),
    ("nemo-table6", &["curve-1.svg"]),
    ("nemo-filters", &["curve-2.svg"]),
    ("nemo-admission", &["curve-2.svg"]),
];

/// The directory that documents link to.
fn folder() -> PathBuf {
    project::root().join("docs/figures")
}

/// Runs the experiments and draws the figures.
pub fn run(options: &Options) -> Result<()> {
    let chosen = chosen(&options.experiments)?;
    let floe = built::build_floe(Profile::Release)?;
    fs::create_dir_all(folder())?;
    for (experiment, figures) in chosen {
        println!("figures: {experiment}");
        draw(&floe, experiment, figures)?;
    }
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<(&'static str, &'static [&'static str])>> {
    if let Some(unknown) = names
        .iter()
        .find(|name| !SHOWN.iter().any(|(shown, _)| shown == name))
    {
        let known: Vec<&str> = SHOWN.iter().map(|(name, _)| *name).collect();
        bail!(
            "no document shows a figure of {unknown}; there are {}",
            known.join(", ")
        );
    }
    let is_chosen = |name: &str| names.is_empty() || names.iter().any(|chosen| chosen == name);
    Ok(SHOWN
        .iter()
        .copied()
        .filter(|(name, _)| is_chosen(name))
        .collect())
}

fn draw(floe: &Path, experiment: &str, figures: &[&str]) -> Result<()> {
    let work = tempfile::tempdir()?;
    let (results, exported) = (work.path().join("results"), work.path().join("exported"));
    let file = format!("experiments/{experiment}.toml");
    project::run(
        Command::new(floe)
            .current_dir(project::root())
            .args(["bench", &file, "--quiet", "--out"])
            .arg(&results),
    )?;
    let mut made = fs::read_dir(&results)?;
    let made = made.next().context("the experiment left no results")??;
    project::run(
        Command::new(floe)
            .arg("report")
            .arg(made.path())
            .arg("--export")
            .arg(&exported),
    )?;
    for figure in figures {
        let from = exported.join(figure);
        let to = folder().join(format!("{experiment}-{figure}"));
        fs::copy(&from, &to)
            .with_context(|| format!("{experiment} has no figure named {figure}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of all figures.
    fn shown() -> Vec<String> {
        let names = SHOWN.iter().flat_map(|(experiment, figures)| {
            figures
                .iter()
                .map(move |figure| format!("{experiment}-{figure}"))
        });
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn documents_show_all_figures_and_no_others_exist() {
        let mut there: Vec<String> = fs::read_dir(folder())
            .expect("docs/figures is there")
            .map(|entry| entry.expect("is read").file_name())
            .map(|name| name.into_string().expect("a name in UTF-8"))
            .collect();
        there.sort();
        assert_eq!(there, shown());
        let read = |page| fs::read_to_string(project::root().join(page)).expect("is there");
        let text = ["docs/tiny.md", "docs/tiny-results.md"].map(read).concat();
        for name in shown() {
            assert!(
                text.contains(&format!("](figures/{name})")),
                "the pages on tiny objects do not show {name}"
            );
        }
    }

    #[test]
    fn an_experiment_without_figures_is_rejected_with_those_that_have_some() {
        let error = chosen(&["nemo-fig99".into()]).expect_err("is rejected");
        assert!(error.to_string().contains("nemo-fig12"), "{error}");
        assert_eq!(chosen(&[]).expect("all").len(), SHOWN.len());
        let one = chosen(&["nemo-fig13".into()]).expect("is there");
        assert_eq!(one[0].0, "nemo-fig13");
    }
}
