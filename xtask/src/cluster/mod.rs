//! `cargo xtask cluster`: several nodes behind real proxies, in network namespaces, with
//! failures. No read may return what was replaced.
//!
//! The configurations are those of `packaging/ring`, verbatim. The task runs again in a sandbox
//! of its own network, mounts and processes, so that nothing stays behind.

mod fill;
mod history;
mod load;
mod network;
mod page;
mod programs;
mod trial;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::blackbox::scenario;
use crate::built::{self, Profile};
use crate::packages;
use crate::project::{self, Outcome};
use load::Protocol;
use trial::{Length, Setup, Trial};

/// The trials to run.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Seed of the load and the failures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Fewer failures: about three minutes.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    common: scenario::Options,
}

const TOOLS: [(&str, &str); 8] = [
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("ip", "iproute2"),
    ("pkill", "procps"),
    ("kill", "procps"),
    ("nutcracker", "nutcracker"),
    ("haproxy", "haproxy"),
    ("etcd", "etcd-server"),
];

/// Set inside the sandbox to the path of the binary.
const INSIDE: &str = "FLOE_CLUSTER_BINARY";

const TRIALS: [Trial; 5] = [
    Trial {
        name: "fixed-ring",
        about: "nutcracker that ejects no node, nodes that start warm",
        protocol: Protocol::Memcached,
        setup: Setup {
            proxy: "nutcracker.yml",
            node: None,
            etcd: false,
        },
        lies: false,
    },
    Trial {
        name: "known-ring",
        about: "nutcracker that ejects nodes, nodes that know their ring",
        protocol: Protocol::Memcached,
        setup: Setup {
            proxy: "nutcracker-ejecting.yml",
            node: Some("node-fixed.toml"),
            etcd: false,
        },
        lies: false,
    },
    Trial {
        name: "leases",
        about: "nutcracker that ejects nodes, nodes that take over by leases in etcd",
        protocol: Protocol::Memcached,
        setup: Setup {
            proxy: "nutcracker-ejecting.yml",
            node: Some("node-leases.toml"),
            etcd: true,
        },
        lies: false,
    },
    Trial {
        name: "s3",
        about: "HAProxy before S3 in mode etag",
        protocol: Protocol::S3,
        setup: Setup {
            proxy: "haproxy-s3.cfg",
            node: Some("node-s3.toml"),
            etcd: false,
        },
        lies: false,
    },
    // The planted bug.
    Trial {
        name: "warm-after-ejection",
        about: "nutcracker that ejects nodes, nodes that return warm: it must lie",
        protocol: Protocol::Memcached,
        setup: Setup {
            proxy: "nutcracker-ejecting.yml",
            node: None,
            etcd: false,
        },
        lies: true,
    },
];

/// Runs the trials.
///
/// # Errors
/// A trial failed, or none can run and `--require` is given.
pub fn run(options: &Options) -> Result<()> {
    if let Some(binary) = std::env::var_os(INSIDE) {
        return inside(options, Path::new(&binary));
    }
    prepared(options)?.settle("cluster", options.common.require)
}

/// Prepares the machine, and starts the task in the sandbox.
fn prepared(options: &Options) -> Result<Outcome> {
    if let Err(error) = packages::install("cluster", &TOOLS) {
        return Ok(Outcome::Skipped(format!("{error:#}")));
    }
    let Some(mut sandbox) = sandbox() else {
        let why = "this machine forbids network namespaces, even to its own users";
        return Ok(Outcome::Skipped(why.to_owned()));
    };
    let clock = packages::install("cluster", &[("faketime", "faketime")]);
    if let Err(error) = &clock {
        eprintln!("skipped: clocks that are wrong: {error:#}");
    }
    let binary = match &options.common.binary {
        Some(given) => given.canonicalize()?,
        None => built::build_floe(Profile::from_flag(options.common.debug))?,
    };
    sandbox.arg(std::env::current_exe()?);
    sandbox.args(std::env::args_os().skip(1));
    project::run(sandbox.env(INSIDE, binary))?;
    Ok(match clock {
        Ok(()) => Outcome::Passed,
        Err(error) => Outcome::Skipped(format!("{error:#}")),
    })
}

/// A command that runs another one in namespaces of its own, as root or as another user.
fn sandbox() -> Option<Command> {
    let own = [
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
    ];
    let as_user = ["--user", "--map-root-user"];
    [&[][..], &as_user[..]].into_iter().find_map(|more| {
        let command = || {
            let mut command = Command::new("unshare");
            command.args(own).args(more);
            command
        };
        let works = command()
            .args(["ip", "link", "add", "type", "veth"])
            .output();
        works
            .is_ok_and(|works| works.status.success())
            .then(command)
    })
}

fn inside(options: &Options, binary: &Path) -> Result<()> {
    // It changes the network of its namespace.
    ensure!(
        std::process::id() == 1,
        "{INSIDE} is for the sandbox of this task alone"
    );
    network::build().context("the network cannot be built")?;
    let only = &options.common.only;
    let chosen = TRIALS.iter().filter(|trial| {
        only.is_empty() || only.iter().any(|word| trial.name.contains(word.as_str()))
    });
    let (faults, longest_ms) = if options.quick { (6, 5000) } else { (24, 8000) };
    let length = Length {
        faults,
        longest_ms,
        seed: options.seed,
    };
    let mut ran = 0;
    let mut failed = Vec::new();
    if only.is_empty() || only.iter().any(|word| page::NAME.contains(word.as_str())) {
        ran += 1;
        match page::run(binary, folder(page::NAME)?.path()) {
            Ok(()) => println!("cluster: {}: the commands of the page work", page::NAME),
            Err(error) => {
                println!("cluster: {} FAILED: {error:#}", page::NAME);
                failed.push(page::NAME);
            }
        }
    }
    if only.is_empty() || only.iter().any(|word| fill::NAME.contains(word.as_str())) {
        ran += 1;
        match fill::run(binary, folder(fill::NAME)?.path()) {
            Ok(summary) => println!("cluster: {}: {summary}", fill::NAME),
            Err(error) => {
                println!("cluster: {} FAILED: {error:#}", fill::NAME);
                failed.push(fill::NAME);
            }
        }
    }
    for trial in chosen {
        let folder = folder(trial.name)?;
        ran += 1;
        match trial.run(length, binary, folder.path()) {
            Ok(summary) => println!("cluster: {}: {summary}", trial.name),
            Err(error) => {
                println!("cluster: {} FAILED: {error:#}", trial.name);
                failed.push(trial.name);
            }
        }
    }
    ensure!(ran > 0, "no trial has such a name");
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("failed: {}", failed.join(", ")),
    }
}

fn folder(name: &str) -> Result<tempfile::TempDir> {
    let prefix = format!("cluster-{name}-");
    let mut builder = tempfile::Builder::new();
    Ok(builder.prefix(&prefix).tempdir_in(project::scratch()?)?)
}
