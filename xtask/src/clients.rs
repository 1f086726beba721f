//! `cargo xtask clients`: clients of S3 and memcached that others wrote, against
//! the real server.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::project::{self, Outcome, Profile};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Use the debug build.
    #[arg(long)]
    pub debug: bool,
    /// Use this binary instead of building one.
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Fail where Python or its packages cannot be had, instead of saying so and passing.
    #[arg(long)]
    pub require: bool,
}

/// The clients, and the origin that they compare with.
const PACKAGES: &[&str] = &["boto3", "awscli", "moto[server]", "pymemcache"];

const SCRIPTS: &str = "tests/clients";

/// Runs every script of `tests/clients` with the binary's path.
pub fn run(options: &Options) -> Result<()> {
    drive(options)?.settle("clients", options.require)
}

fn drive(options: &Options) -> Result<Outcome> {
    let scripts = scripts()?;
    if !project::available("python3") {
        return Ok(Outcome::Skipped("there is no python3".into()));
    }
    let environment = match environment() {
        Ok(environment) => environment,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    };
    let binary = match &options.binary {
        Some(given) => given.clone(),
        None => project::build_floe(Profile::from_flag(options.debug))?,
    };
    for script in &scripts {
        println!("clients: {}", script.display());
        project::run(
            Command::new(environment.join("bin/python"))
                .arg(script)
                .current_dir(project::root())
                .env("FLOE_BINARY", &binary)
                .env("PATH", path_with(&environment))
                .env("PYTHONDONTWRITEBYTECODE", "1"),
        )?;
    }
    println!("clients: {} scripts passed", scripts.len());
    Ok(Outcome::Passed)
}

/// The scripts to run: helpers, whose names begin with `_`, are not.
fn scripts() -> Result<Vec<PathBuf>> {
    let folder = project::root().join(SCRIPTS);
    let mut scripts = Vec::new();
    for entry in folder.read_dir().into_iter().flatten() {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.ends_with(".py") && !name.starts_with('_') {
            scripts.push(path);
        }
    }
    if scripts.is_empty() {
        bail!("{SCRIPTS} holds no script");
    }
    scripts.sort();
    Ok(scripts)
}

/// A virtual environment with [`PACKAGES`], made once.
fn environment() -> Result<PathBuf> {
    let folder = project::scratch()?.join("clients-venv");
    let ready = folder.join("ready");
    let wanted = PACKAGES.join(" ");
    if std::fs::read_to_string(&ready).is_ok_and(|made| made == wanted) {
        return Ok(folder);
    }
    println!("clients: installing {wanted}");
    project::run(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&folder),
    )?;
    project::run(
        Command::new(folder.join("bin/python"))
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .args(PACKAGES),
    )?;
    std::fs::write(&ready, wanted)?;
    Ok(folder)
}

fn path_with(environment: &Path) -> String {
    let rest = std::env::var("PATH").unwrap_or_default();
    format!("{}:{rest}", environment.join("bin").display())
}
