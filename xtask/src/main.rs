//! The `cargo xtask` command.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::blackbox::scenario;
use xtask::{
    attack, bench, book, chart, ci, clients, cluster, crash, devices, faults, figures, fuzz,
    licences, memory, project, report_shot, sizes, sweep, tidy, vm,
};

/// Tasks for developers and CI
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the house rules and explain violations
    Tidy {
        /// List the violations of the rules on comments and documents
        #[arg(long)]
        voice: bool,
    },
    /// List places that share six or more lines of one shape
    Duplicates(Root),
    /// Count lines of Rust and words of documents by crate.
    Sizes(Root),
    /// Write the table of old names in CHANGELOG.md.
    Renamed,
    /// Record the public API of the library's crates in docs/api/
    Api,
    /// Check the licences of all linked packages against deny.toml
    Licences,
    /// Build the documents as a site, with mdbook.
    Book(book::Options),
    /// Run every check that CI runs.
    Ci(ci::Options),
    /// Render the Helm chart, and check it against Kubernetes, HAProxy and Floe
    Chart(scenario::Options),
    /// Drive the server with third-party clients
    Clients(clients::Options),
    /// Run several nodes behind real proxies, with failures, and check that no read is stale
    Cluster(cluster::Options),
    /// Run the recipe for sweeps on Slurm, with a task that is killed
    Sweep(scenario::Options),
    /// Kill the server under load repeatedly, and check that it never returns wrong bytes
    Crash(crash::Options),
    /// Give the server invalid input, a misbehaving origin and a failing
    /// device, and check its responses
    Faults(scenario::Options),
    /// Attack the server with hostile clients, and with foreign and damaged files
    Attack(scenario::Options),
    /// Check the server's RAM use with the largest chunks and many clients
    Memory(memory::Options),
    /// Run the devices' conformance suite on a real block device.
    Devices(devices::Options),
    /// Test real storage in a virtual machine: NVMe drives, the kernel's NBD client, power cuts
    Vm(vm::Options),
    /// The guest's part of `vm`.
    #[command(hide = true)]
    VmAgent,
    /// Read the log of a disk's writes, in the guest of `vm`.
    #[command(hide = true, subcommand)]
    VmWrites(vm::writes::Task),
    /// Run every fuzz target for a short time
    FuzzSmoke(fuzz::Options),
    /// Run the benches and write docs/benchmarks.md.
    Bench(bench::Options),
    /// Run the experiments whose figures the documents show, and draw these figures
    Figures(figures::Options),
    /// Open a report in headless Chromium and fail on console errors.
    ReportShot(report_shot::Options),
}

/// The project to check.
#[derive(clap::Args)]
struct Root {
    /// Another checkout to compare with
    #[arg(long)]
    root: Option<PathBuf>,
}

impl Root {
    fn folder(self) -> PathBuf {
        self.root.unwrap_or_else(project::root)
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Tidy { voice: true } => tidy::print_voice(&project::root()),
        Task::Tidy { voice: false } => tidy::run(&project::root()),
        Task::Duplicates(root) => tidy::print_duplicates(&root.folder()),
        Task::Sizes(root) => sizes::run(&root.folder()),
        Task::Renamed => tidy::renamed::write_changelog(&project::root()),
        Task::Api => tidy::write_api(&project::root()),
        Task::Licences => licences::run(),
        Task::Book(options) => book::run(&options),
        Task::Ci(options) => ci::run(&options),
        Task::Clients(options) => clients::run(&options),
        Task::Chart(options) => chart::run(&options),
        Task::Cluster(options) => cluster::run(&options),
        Task::Sweep(options) => sweep::run(&options),
        Task::Crash(options) => crash::run(&options),
        Task::Faults(options) => faults::run(&options),
        Task::Attack(options) => attack::run(&options),
        Task::Memory(options) => memory::run(&options),
        Task::Devices(options) => devices::run(&options),
        Task::Vm(options) => vm::run(&options),
        Task::VmAgent => vm::agent::run(),
        Task::VmWrites(task) => vm::writes::run(&task),
        Task::FuzzSmoke(options) => fuzz::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Figures(options) => figures::run(&options),
        Task::ReportShot(options) => report_shot::run(&options),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Arguments;

    /// Only a debug build of clap judges the whole tree, and only when a task is started.
    #[test]
    fn arguments_of_every_task_are_sound() {
        Arguments::command().debug_assert();
    }
}
