//! `cargo xtask book`: builds the documents as a site with mdbook, in
//! `target/xtask/book/site`. `docs/SUMMARY.md` lists the pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::project::{self, Outcome};
use crate::tidy::links;

/// The version of mdbook that renders the site.
const VERSION: &str = "0.5.4";

/// The list of pages; its links are relative to its directory.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Options of the task.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Fail if mdbook can neither be found nor installed.
    #[arg(long)]
    pub require: bool,
}

/// Builds the site, and installs mdbook for this project if it is missing.
pub fn run(options: &Options) -> Result<()> {
    build()?.settle("book", options.require)
}

fn build() -> Result<Outcome> {
    let folder = project::scratch()?.join("book");
    let Some(mdbook) = mdbook(&project::scratch()?.join("mdbook"))? else {
        return Ok(Outcome::Skipped(format!(
            "mdbook {VERSION} cannot be installed; the output above says why"
        )));
    };
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    let root = project::root();
    let pages = gather(&root, &folder.join("src"))?;
    fs::copy(root.join("docs/book.toml"), folder.join("book.toml"))
        .context("copying docs/book.toml")?;
    let mut build = Command::new(mdbook);
    project::run(build.arg("build").arg(&folder))?;
    let site = folder.join("site");
    check(&site, &pages)?;
    println!("book: {} pages in {}", pages.len(), site.display());
    Ok(Outcome::Passed)
}

/// The program, installed in `folder` if it is missing.
fn mdbook(folder: &Path) -> Result<Option<PathBuf>> {
    let program = folder.join("bin/mdbook");
    if !is_wanted(&program) {
        let mut install = project::cargo();
        install
            .args(["install", "mdbook", "--version", VERSION, "--locked"])
            // Without its server and search index, which need three quarters of
            // its dependencies.
            .args(["--no-default-features", "--debug", "--root"])
            .arg(folder);
        if let Err(error) = project::run(&mut install) {
            eprintln!("{error:#}");
        }
    }
    Ok(is_wanted(&program).then_some(program))
}

fn is_wanted(program: &Path) -> bool {
    project::output(Command::new(program).arg("--version"))
        .is_ok_and(|version| version.trim().ends_with(VERSION))
}

/// Copies the pages, and the files that they show or link to, to `to`. Returns
/// the pages.
///
/// They keep their relative paths, so that links between them stay valid.
fn gather(root: &Path, to: &Path) -> Result<Vec<PathBuf>> {
    let summary = fs::read_to_string(root.join(SUMMARY)).context("reading the summary")?;
    let pages = linked(Path::new(SUMMARY), &summary);
    let mut files: BTreeSet<PathBuf> = pages.iter().cloned().collect();
    for page in &pages {
        let text = fs::read_to_string(root.join(page))
            .with_context(|| format!("reading {}", page.display()))?;
        files.extend(linked(page, &text));
    }
    for file in files.iter().filter(|file| root.join(file).is_file()) {
        let copy = to.join(renamed(file));
        fs::create_dir_all(copy.parent().context("a page without a folder")?)?;
        if pages.contains(file) {
            let text = fs::read_to_string(root.join(file))?;
            // The site shows its summary beside every page.
            let text = text.replace("docs/SUMMARY.md)", "index.md)");
            fs::write(copy, text.replace("README.md)", "index.md)"))
        } else {
            fs::copy(root.join(file), copy).map(drop)
        }
        .with_context(|| format!("copying {}", file.display()))?;
    }
    // mdbook expects the summary at the root of the pages.
    fs::write(to.join("SUMMARY.md"), from_root(&summary)?)?;
    Ok(pages)
}

/// A page's name on the site; a directory's README is its index.
fn renamed(page: &Path) -> PathBuf {
    match page.ends_with("README.md") {
        true => page.with_file_name("index.md"),
        false => page.to_owned(),
    }
}

/// The files of the project that `text` links to.
fn linked(page: &Path, text: &str) -> Vec<PathBuf> {
    let targets = text.lines().flat_map(links::targets);
    targets
        .filter(|target| !links::is_elsewhere(target))
        .filter_map(|target| links::resolve(page, target.split('#').next()?))
        .collect()
}

/// The summary with links relative to the root.
fn from_root(summary: &str) -> Result<String> {
    let mut text = String::new();
    for line in summary.lines() {
        match (line.split_once("]("), links::targets(line).next()) {
            (Some((before, _)), Some(target)) => {
                let page = links::resolve(Path::new(SUMMARY), target)
                    .with_context(|| format!("`{target}` leads out of the project"))?;
                text += &format!("{before}]({})\n", renamed(&page).display());
            }
            _ => text += &format!("{line}\n"),
        }
    }
    Ok(text)
}

/// Fails if a page links to a file that the site lacks.
fn check(site: &Path, pages: &[PathBuf]) -> Result<()> {
    let mut broken = Vec::new();
    for page in pages {
        let page = renamed(page).with_extension("html");
        let text = fs::read_to_string(site.join(&page))
            .with_context(|| format!("reading {} of the site", page.display()))?;
        for link in text.split("href=\"").skip(1) {
            let target = link.split(['"', '#']).next().unwrap_or_default();
            let is_there = links::is_elsewhere(target)
                || links::resolve(&page, target).is_some_and(|file| site.join(file).exists());
            if !is_there {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    if !broken.is_empty() {
        bail!(
            "links that lead nowhere on the site:\n{}",
            broken.join("\n")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_leads_from_the_root() {
        let text = "# Floe\n\n- [Start](../README.md)\n  - [Tiny](tiny.md)\n";
        let moved = "# Floe\n\n- [Start](index.md)\n  - [Tiny](docs/tiny.md)\n";
        assert_eq!(from_root(text).expect("links"), moved);
    }

    #[test]
    fn every_document_is_a_page() {
        let root = project::root();
        let summary = fs::read_to_string(root.join(SUMMARY)).expect("a summary");
        let pages = linked(Path::new(SUMMARY), &summary);
        for folder in ["", "docs", "docs/internals"] {
            for entry in fs::read_dir(root.join(folder)).expect("a folder") {
                let file = Path::new(folder).join(entry.expect("an entry").file_name());
                let is_document = file.extension().is_some_and(|e| e == "md");
                let is_page = pages.contains(&file) || file == Path::new(SUMMARY);
                assert!(!is_document || is_page, "{} is in no page", file.display());
            }
        }
    }
}
