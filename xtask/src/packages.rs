//! Programs that Debian has, installed where that needs no confirmation.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::project;

/// Programs, and the Debian packages that have them.
pub(crate) type Tools = [(&'static str, &'static str)];

/// The path of a program, also where only root looks for it.
pub(crate) fn path_of(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut paths = folders.map(|folder| folder.join(program));
    paths.find(|path| path.is_file())
}

/// Makes the programs available: installs their packages if that needs no confirmation.
pub(crate) fn install(task: &str, tools: &Tools) -> Result<()> {
    let packages = missing(tools);
    if packages.is_empty() {
        return Ok(());
    }
    let names = packages.join(" ");
    let by_hand = format!("install with `apt-get install {names}`");
    let is_root = project::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !is_root || !project::available("apt-get") {
        bail!("{names} not installed; {by_hand}");
    }
    println!("{task}: installing {names}");
    let install = || {
        let mut command = apt_get();
        command.args(["install", "--yes", "--no-install-recommends"]);
        project::output(command.args(&packages))
    };
    // The package lists may be old or missing.
    let installed = install().or_else(|_| {
        project::output(apt_get().arg("update"))?;
        install()
    });
    installed.with_context(|| format!("{names} could not be installed"))?;
    match missing(tools).as_slice() {
        [] => Ok(()),
        missing => bail!("{} have not all programs", missing.join(" ")),
    }
}

/// A virtual environment of Python with packages of PyPI, created once. Programs are in its `bin`.
pub(crate) fn python(task: &str, name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = project::scratch()?.join(name);
    let ready = folder.join("ready");
    let wanted = packages.join(" ");
    if fs::read_to_string(&ready).is_ok_and(|made| made == wanted) {
        return Ok(folder);
    }
    println!("{task}: installing {wanted}");
    let mut create = Command::new("python3");
    project::run(create.args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut install = Command::new(folder.join("bin/python"));
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    project::run(install.args(packages))?;
    fs::write(&ready, wanted)?;
    Ok(folder)
}

/// The packages of programs that are not there.
fn missing(tools: &Tools) -> Vec<&'static str> {
    let missing = tools.iter().filter(|(tool, _)| path_of(tool).is_none());
    let mut packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    packages.dedup();
    packages
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .arg("--quiet")
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}
