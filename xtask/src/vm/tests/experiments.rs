//! Experiments on emulated drives: what caches and drives count is what they count on the
//! simulated drive.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::service::blank;
use super::stage::Stage;
use crate::project;
use crate::vm::machine::RigKind;

const PATIENCE: Duration = Duration::from_secs(900);

/// A drive in the guest, and the `kind` of its setting.
type Disk = (&'static str, &'static str);

const ZNS: Disk = ("zns-b-1.char", "zns");
const ZONED_BLOCK: Disk = ("zns-b-1", "file");
const FDP: Disk = ("fdp-1.char", "fdp");
const CONVENTIONAL: Disk = ("conv-1.char", "nvme");

/// An experiment that is run on several drives.
struct Experiment {
    name: &'static str,
    /// Where it has the settings of the drive.
    device: &'static str,
    disks: &'static [Disk],
    /// Settings for the drives and the simulated drive.
    set: &'static [&'static str],
    /// The share by which counts may differ.
    same: &'static str,
}

const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "drives-hosts",
        device: "bench.cache.device",
        disks: &[ZNS, FDP, CONVENTIONAL],
        set: &["bench.requests=1500"],
        same: "0",
    },
    Experiment {
        name: "drives-store",
        device: "bench.cache.device",
        disks: &[ZNS, ZONED_BLOCK, FDP, CONVENTIONAL],
        set: &["bench.requests=1500"],
        same: "0",
    },
    Experiment {
        name: "drives-tiny",
        device: "tiny.device.drive",
        disks: &[ZNS, FDP, CONVENTIONAL],
        set: &["tiny.flash-size=36MiB", "tiny.measured=0.25"],
        // Two notes of a set-group share a block of the journal, or on a slow machine do not.
        same: "0.001",
    },
];

/// All experiments on each kind of drive.
pub(super) fn drives(stage: &Stage) -> Result<()> {
    EXPERIMENTS
        .iter()
        .try_for_each(|experiment| compare(stage, experiment))
}

/// Runs an experiment on the simulated drive, here, and on drives in the guest.
fn compare(stage: &Stage, experiment: &Experiment) -> Result<()> {
    let Experiment { name, device, .. } = experiment;
    let folder = tempfile::tempdir()?;
    let simulated = simulate(stage, experiment, folder.path())?;
    for (disk, kind) in experiment.disks {
        // QEMU, which translates code, has the drive that the other rig lacks.
        if (stage.rig == RigKind::Qemu) != (*disk == FDP.0) {
            continue;
        }
        let began = Instant::now();
        blank(&stage.machine, disk)?;
        let set = [
            format!("{device}.kind={kind}"),
            format!("{device}.path=/dev/vm/{disk}"),
        ];
        let drive = folder.path().join(format!("{disk}.jsonl"));
        let rows = bench_in_guest(stage, experiment, &set)?;
        fs::write(&drive, rows)?;
        let mut report = Command::new(stage.lab()?);
        report.arg("report").args([&simulated, &drive]);
        report
            .args(["--same", experiment.same])
            .current_dir(folder.path());
        let same = report.output()?;
        ensure!(
            same.status.success(),
            "{name} on {disk}: {}",
            String::from_utf8_lossy(&same.stderr)
        );
        println!(
            "vm:   {name} {} on {disk}: the same counts ({:.1} s)",
            experiment.set.join(" "),
            began.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

/// The words of a run of an experiment; its results go to `out`.
fn bench(
    stage: &Stage,
    experiment: &Experiment,
    out: &str,
    more: &[String],
) -> Result<Vec<String>> {
    let file = project::root().join(format!("experiments/{}.toml", experiment.name));
    let file = file.to_str().context("a path that is text")?;
    let words = [
        stage.lab()?,
        "bench",
        file,
        "--quiet",
        "--wipe",
        "--out",
        out,
    ];
    let set = experiment.set.iter().map(|set| (*set).to_owned());
    let set = set.chain(more.iter().cloned());
    let set = set.flat_map(|set| ["--set".to_owned(), set]);
    Ok(words.map(str::to_owned).into_iter().chain(set).collect())
}

fn simulate(stage: &Stage, experiment: &Experiment, folder: &Path) -> Result<PathBuf> {
    let words = bench(stage, experiment, "simulated", &[])?;
    let mut command = Command::new(&words[0]);
    let ran = command.args(&words[1..]).current_dir(folder).output()?;
    let name = experiment.name;
    ensure!(
        ran.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let made = fs::read_dir(folder.join("simulated"))?.next();
    Ok(made.context("no results")??.path().join("results.jsonl"))
}

/// The rows of the results of a run in the guest.
fn bench_in_guest(stage: &Stage, experiment: &Experiment, set: &[String]) -> Result<String> {
    const OUT: &str = "/tmp/experiment";
    let guest = stage.machine.guest();
    guest.shell(&format!("rm -rf {OUT}"), PATIENCE)?;
    let words = bench(stage, experiment, OUT, set)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    guest.output(&words, PATIENCE)?;
    let rows = guest.shell(&format!("cat {OUT}/*/results.jsonl"), PATIENCE)?;
    // Between the rows there may be messages of the kernel.
    let rows = rows.lines().filter(|line| line.starts_with('{'));
    Ok(rows.map(|row| format!("{row}\n")).collect())
}
