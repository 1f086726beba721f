//! `cargo xtask sweep`: the recipes for Slurm, on a cluster of this machine alone.
//!
//! A task is killed. It must go on where it was, and the report must have every case; without its
//! shard the report must say what is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::blackbox::scenario;
use crate::built::{self, Profile};
use crate::packages;
use crate::project::{self, Outcome};

const TOOLS: [(&str, &str); 4] = [
    ("munged", "munge"),
    ("slurmctld", "slurm-wlm"),
    ("slurmd", "slurm-wlm"),
    ("sbatch", "slurm-wlm"),
];

/// Three cases of some seconds in a build for development.
const EXPERIMENT: &str = r#"
name = "sweep"
title = "A sweep"
time = "virtual"
bench.requests = 20000
bench.ratio = 2.0
bench.pacing = { mode = "closed", clients = 2 }
bench.workload = { kind = "uniform" }
bench.cache.origin-latency = { rule = "constant", ms = 1.0 }
bench.cache.device = { kind = "memory", size = "32MiB", zone_size = "2MiB" }
bench.cache.chunk = { write_buffer = "8MiB" }
bench.cache.ram = { size = "0" }

[[vary]]
key = "bench.cache.origin-latency.ms"
label = "origin ms"
values = [1.0, 2.0, 3.0]
"#;

const TASKS: usize = 3;

/// The time for the daemons to know each other, and for all tasks.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the recipe.
///
/// # Errors
/// A case is missing, or none can run and `--require` is given.
pub fn run(options: &scenario::Options) -> Result<()> {
    ensure!(options.only.is_empty(), "there is one recipe");
    drive(options)?.settle("sweep", options.require)
}

fn drive(options: &scenario::Options) -> Result<Outcome> {
    if let Err(error) = packages::install("sweep", &TOOLS) {
        return Ok(Outcome::Skipped(format!("{error:#}")));
    }
    let is_root = project::output(Command::new("id").arg("-u"))?.trim() == "0";
    if !is_root {
        return Ok(Outcome::Skipped("Slurm's daemons need root".to_owned()));
    }
    let profile = Profile::from_flag(options.debug);
    let floe = match &options.binary {
        Some(given) => given.canonicalize()?,
        None => built::build_floe(profile)?,
    };
    let folder = tempfile::tempdir_in(project::scratch()?)?;
    // A container may forbid what the daemons need.
    let cluster = match Cluster::start(folder.path()) {
        Ok(cluster) => cluster,
        Err(error) => return Ok(Outcome::Skipped(format!("Slurm does not start: {error:#}"))),
    };
    cluster.sweep(&floe)?;
    match packages::python("sweep", "sweep-venv", &["submitit"]) {
        Ok(environment) => cluster.sweep_by_submitit(&floe, &environment)?,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    }
    Ok(Outcome::Passed)
}

/// Slurm with one node, in a folder. Its daemons are killed when it is dropped.
struct Cluster {
    folder: PathBuf,
    daemons: Vec<Child>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Tasks of a run that failed outlive the daemons otherwise.
        if self.slurm("scancel", &["--user", "root"]).is_ok() {
            let _ = self.wait("no task is left", |cluster| {
                Ok(cluster.slurm("squeue", &["--noheader"])?.trim().is_empty())
            });
        }
        for daemon in self.daemons.iter_mut().rev() {
            // Unless it has ended.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

impl Cluster {
    fn start(folder: &Path) -> Result<Self> {
        let at = |name: &str| folder.join(name).display().to_string();
        for name in ["state", "spool"] {
            fs::create_dir(folder.join(name))?;
        }
        let host = project::output(&mut Command::new("hostname"))?;
        let host = host.trim();
        let (socket, state, spool) = (at("munge.socket"), at("state"), at("spool"));
        let settings = [
            ("ClusterName", "sweep"),
            ("SlurmctldHost", &format!("{host}(127.0.0.1)")),
            // Beside a cluster that runs on this machine.
            ("SlurmctldPort", "16817"),
            ("SlurmdPort", "16818"),
            ("SlurmUser", "root"),
            ("SlurmdUser", "root"),
            ("AuthType", "auth/munge"),
            ("AuthInfo", &format!("socket={socket}")),
            ("StateSaveLocation", &state),
            ("SlurmdSpoolDir", &spool),
            ("SlurmctldPidFile", &at("slurmctld.pid")),
            ("SlurmdPidFile", &at("slurmd.pid")),
            ("ProctrackType", "proctrack/pgid"),
            ("TaskPlugin", "task/none"),
            ("SelectType", "select/cons_tres"),
            ("SelectTypeParameters", "CR_Core"),
            ("MailProg", "/bin/true"),
            ("ReturnToService", "2"),
            (
                "NodeName",
                &format!("{host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=1024 State=UNKNOWN"),
            ),
            ("PartitionName", "all Nodes=ALL Default=YES State=UP"),
        ];
        let lines = settings.map(|(name, value)| format!("{name}={value}\n"));
        fs::write(folder.join("slurm.conf"), lines.concat())?;
        project::run(Command::new("mungekey").args(["--create", "--keyfile", &at("munge.key")]))?;
        let mut cluster = Cluster {
            folder: folder.to_owned(),
            daemons: Vec::new(),
        };
        let munge = [
            ["--key-file", &at("munge.key")],
            ["--socket", &socket],
            ["--pid-file", &at("munged.pid")],
            ["--log-file", &at("munged.log")],
            ["--seed-file", &at("munged.seed")],
        ];
        let munge: Vec<&str> = munge.iter().flatten().copied().collect();
        cluster.daemon(
            "munged",
            &[&["--foreground", "--force"], &munge[..]].concat(),
        )?;
        cluster.daemon("slurmctld", &["-D", "-c"])?;
        cluster.daemon("slurmd", &["-D"])?;
        cluster.wait("the node is idle", |cluster| {
            Ok(cluster
                .slurm("sinfo", &["--noheader", "--format=%T"])?
                .trim()
                == "idle")
        })?;
        Ok(cluster)
    }

    fn daemon(&mut self, program: &str, arguments: &[&str]) -> Result<()> {
        let path = packages::path_of(program).with_context(|| format!("{program} is not there"))?;
        let log = fs::File::create(self.folder.join(format!("{program}.printed")))?;
        let mut command = Command::new(path);
        command
            .args(arguments)
            .env("SLURM_CONF", self.folder.join("slurm.conf"));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.daemons.push(command.spawn()?);
        Ok(())
    }

    fn slurm(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.folder);
        project::output(command.env("SLURM_CONF", self.folder.join("slurm.conf")))
    }

    fn wait(&self, what: &str, is_so: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let began = Instant::now();
        // The daemons refuse questions at first.
        while !is_so(self).unwrap_or(false) {
            if began.elapsed() > PATIENCE {
                let log = fs::read_to_string(self.folder.join("slurmctld.printed"));
                bail!(
                    "not within {PATIENCE:?}: {what}; {}",
                    log.unwrap_or_default()
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Runs the experiment by the recipe, kills a task, and looks at the reports.
    fn sweep(&self, floe: &Path) -> Result<()> {
        fs::write(self.folder.join("sweep.toml"), EXPERIMENT)?;
        let recipe = project::root().join("packaging/sweeps/slurm.sbatch");
        let variable = format!("--export=ALL,FLOE={}", floe.display());
        let array = format!("--array=1-{TASKS}");
        let job = self.slurm(
            "sbatch",
            &[
                "--parsable",
                "--mem=256M",
                "--output=task-%a.txt",
                &variable,
                &array,
                &recipe.display().to_string(),
                "sweep.toml",
                "results",
            ],
        )?;
        let job = job.trim();
        self.wait("the second task runs", |cluster| {
            Ok(!cluster.shard(2)?.as_os_str().is_empty())
        })?;
        // As the kernel does when memory runs out. The shell and the lab have the path, too.
        let shard = "results/shard-2-of-3";
        project::run(Command::new("pkill").args(["-KILL", "-f", shard]))?;
        let killed = format!("{job}_2");
        self.wait("the killed task is queued again", |cluster| {
            let shown = cluster.slurm("scontrol", &["show", "job", &killed])?;
            Ok(shown.contains("Restarts=1"))
        })?;
        self.wait("the other tasks have ended", |cluster| {
            let queue = cluster.slurm("squeue", &["--noheader", "--format=%K"])?;
            Ok(queue.trim() == "2")
        })?;
        let missing = self.report(floe, &["results/shard-1-of-3", "results/shard-3-of-3"])?;
        ensure!(
            missing == 1,
            "without a shard of one case, a report lacks {missing}"
        );
        // Slurm would wait for two minutes.
        self.slurm(
            "scontrol",
            &["update", &format!("JobId={killed}"), "StartTime=now"],
        )?;
        self.wait("all tasks have ended", |cluster| {
            Ok(cluster.slurm("squeue", &["--noheader"])?.trim().is_empty())
        })?;
        let all = [1, 2, 3].map(|task| format!("results/shard-{task}-of-3"));
        let missing = self.report(floe, &all.each_ref().map(String::as_str))?;
        ensure!(
            missing == 0,
            "{missing} cases are missing from {}",
            self.folder.display()
        );
        println!("sweep: Slurm ran {TASKS} tasks, one of them twice, and the report has all cases");
        Ok(())
    }

    /// Runs it by submitit, and kills a shard.
    fn sweep_by_submitit(&self, floe: &Path, environment: &Path) -> Result<()> {
        let recipe = project::root().join("packaging/sweeps/submitit_sweep.py");
        let tasks = TASKS.to_string();
        let log = self.folder.join("submitit.printed");
        let printed = fs::File::create(&log)?;
        let mut recipe = Command::new(environment.join("bin/python"))
            .arg(recipe)
            .args(["sweep.toml", "by-submitit", &tasks, "--memory-gb=0.25"])
            .current_dir(&self.folder)
            .env("SLURM_CONF", self.folder.join("slurm.conf"))
            .env("FLOE", floe)
            .stdout(printed.try_clone()?)
            .stderr(printed)
            .spawn()?;
        self.wait("the second shard runs", |cluster| {
            Ok(!cluster.made("by-submitit", 2)?.as_os_str().is_empty())
        })?;
        // The lab, and not the job above it.
        let shard = "bench .*by-submitit/shard-2-of-3";
        project::run(Command::new("pkill").args(["-KILL", "-f", shard]))?;
        let ended = recipe.wait()?;
        let said = fs::read_to_string(&log)?;
        ensure!(ended.success(), "submitit's recipe failed: {said}");
        let all = [1, 2, 3].map(|task| format!("by-submitit/shard-{task}-of-3"));
        let missing = self.report(floe, &all.each_ref().map(String::as_str))?;
        ensure!(missing == 0, "submitit's recipe lacks {missing} cases");
        let batches = fs::read_dir(self.folder.join("by-submitit/jobs"))?
            .filter_map(Result::ok)
            .filter(|entry| {
                entry
                    .file_name()
                    .to_string_lossy()
                    .ends_with("submission.sh")
            })
            .count();
        ensure!(batches > 1, "the killed shard was not submitted again");
        println!("sweep: submitit ran {TASKS} shards, one of them twice, and merged them");
        Ok(())
    }

    /// The folder that a shard has made, if it has.
    fn shard(&self, task: usize) -> Result<PathBuf> {
        self.made("results", task)
    }

    fn made(&self, results: &str, task: usize) -> Result<PathBuf> {
        let place = self
            .folder
            .join(format!("{results}/shard-{task}-of-{TASKS}"));
        let made = fs::read_dir(place)?.next().transpose()?;
        Ok(made.map(|made| made.path()).unwrap_or_default())
    }

    /// Merges shards, and returns how many cases they lack.
    fn report(&self, floe: &Path, shards: &[&str]) -> Result<usize> {
        let mut command = Command::new(floe);
        command
            .args(["--json", "report", "--out", "merged"])
            .current_dir(&self.folder);
        for shard in shards {
            for made in fs::read_dir(self.folder.join(shard)).into_iter().flatten() {
                command.arg(made?.path());
            }
        }
        let told: serde_json::Value = serde_json::from_str(&project::output(&mut command)?)?;
        Ok(told["missing"].as_array().context("nothing is told")?.len())
    }
}
