//! `cargo xtask chart`: renders the Helm chart with several values, and checks the result.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::blackbox::scenario;
use crate::built::{self, Profile};
use crate::packages;
use crate::project::{self, Outcome};

/// The version of Helm that is built where there is none.
const HELM: &str = "helm.sh/helm/v3/cmd/helm@v3.22.0";

/// Runs the checks of `tests/chart`.
///
/// # Errors
/// A check failed, or none can run and `--require` is given.
pub fn run(options: &scenario::Options) -> Result<()> {
    ensure!(options.only.is_empty(), "the checks of the chart are one");
    drive(options)?.settle("chart", options.require)
}

fn drive(options: &scenario::Options) -> Result<Outcome> {
    let skipped = |error: anyhow::Error| Outcome::Skipped(format!("{error:#}"));
    context()?;
    if let Err(error) = packages::install("chart", &[("haproxy", "haproxy")]) {
        return Ok(skipped(error));
    }
    let packages = ["kubernetes-validate==1.37.*", "PyYAML"];
    let tools = packages::python("chart", "chart-venv", &packages)
        .and_then(|environment| Ok((environment, helm()?)));
    let (environment, helm) = match tools {
        Ok(tools) => tools,
        Err(error) => return Ok(skipped(error)),
    };
    let binary = match &options.binary {
        Some(given) => given.canonicalize()?,
        None => built::build_floe(Profile::from_flag(options.debug))?,
    };
    let haproxy = packages::path_of("haproxy").unwrap_or_default();
    let mut check = Command::new(environment.join("bin/python"));
    check.arg(project::root().join("tests/chart/check.py"));
    check.arg("--floe").arg(binary).arg("--helm").arg(helm);
    check.arg("--haproxy").arg(haproxy);
    project::run(check.env("PYTHONDONTWRITEBYTECODE", "1"))?;
    Ok(Outcome::Passed)
}

/// The files that the container's build sees make a whole workspace.
fn context() -> Result<()> {
    let root = project::root();
    let rules = fs::read_to_string(root.join("packaging/container/.containerignore"))?;
    let seen: Vec<&str> = rules
        .lines()
        .filter_map(|rule| rule.strip_prefix('!'))
        .collect();
    let folder = tempfile::tempdir_in(project::scratch()?)?;
    let mut list = Command::new("git");
    list.args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
    ]);
    for file in project::output(list.args(seen).current_dir(&root))?.lines() {
        let (from, to) = (root.join(file), folder.path().join(file));
        fs::create_dir_all(to.parent().context("a file in a folder")?)?;
        // One that is deleted, and not committed yet, is listed too.
        if from.is_file() {
            fs::copy(from, to)?;
        }
    }
    let mut metadata = Command::new("cargo");
    metadata.args([
        "metadata",
        "--offline",
        "--locked",
        "--no-deps",
        "--format-version=1",
    ]);
    project::output(metadata.current_dir(folder.path()))
        .context("the container's build does not see all of the workspace")?;
    println!("chart: the container's build sees the whole workspace");
    Ok(())
}

/// Helm: the machine's, or one that Go builds.
fn helm() -> Result<PathBuf> {
    if let Some(found) = packages::path_of("helm") {
        return Ok(found);
    }
    let folder = project::scratch()?.join("helm");
    let built = folder.join("helm");
    if built.is_file() {
        return Ok(built);
    }
    if packages::path_of("go").is_none() {
        bail!("there is neither helm nor go");
    }
    println!("chart: building {HELM}");
    let mut go = Command::new("go");
    go.args(["install", HELM]).env("GOBIN", &folder);
    // Files that can be removed again.
    go.env("GOPATH", folder.join("go"))
        .env("GOFLAGS", "-modcacherw");
    project::run(&mut go)?;
    Ok(built)
}
