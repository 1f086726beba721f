//! The kernel of the user-mode rig, built from Debian's newest sources.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use sha2::{Digest, Sha256};

use super::packages::{Apt, Packages, kernel_sources};
use crate::project;

const CONFIGURATION: &str = include_str!("uml.config");

/// A pattern of the packages of sources, of which the newest is taken.
const SOURCE: &str = r"^linux-source-[0-9]+\.[0-9]+$";

/// Tools of the build that a machine with a compiler may lack.
const TOOLS: [&str; 3] = ["flex", "bison", "m4"];

/// Tools that the machine must have.
const OWN_TOOLS: [&str; 7] = ["gcc", "ld", "make", "bc", "perl", "xz", "strip"];

/// Compiled files between two lines of progress.
const PROGRESS: usize = 250;

/// A kernel that was built.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// The program.
    pub(super) program: PathBuf,
    /// The root of `lib/modules`, which names what is built in.
    pub(super) root: PathBuf,
}

impl Kernel {
    /// Builds the kernel below `folder`, if it was not built from this configuration.
    ///
    /// # Errors
    /// If the archive is out of reach, or a tool is missing.
    pub(super) fn install(folder: &Path, packages: &Packages) -> Result<Self> {
        let kernel = Kernel {
            program: folder.join("linux"),
            root: folder.join("installed"),
        };
        let ready = folder.join("ready");
        let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(CONFIGURATION));
        let built = fs::read_to_string(&ready).unwrap_or_default();
        if built.lines().last() == Some(hash.as_str()) {
            return Ok(kernel);
        }
        for tool in OWN_TOOLS {
            ensure!(
                project::available(tool),
                "{tool}, which builds a kernel, is missing"
            );
        }
        fs::create_dir_all(folder)?;
        let apt = Apt::new(folder, &kernel_sources())?;
        let source = apt.newest(SOURCE)?;
        println!("vm: downloading {source}");
        let root = folder.join("root");
        let mut wanted = TOOLS.map(str::to_owned).to_vec();
        wanted.push(source.clone());
        apt.unpack(&wanted, &root)?;
        let archive = root.join(format!("usr/src/{source}.tar.xz"));
        project::run(
            Command::new("tar")
                .arg("-C")
                .arg(folder)
                .arg("-xf")
                .arg(archive),
        )?;
        let build = folder.join("build");
        compile(&folder.join(&source), &root, &build)?;
        kernel.keep(&build, packages)?;
        for part in [source.as_str(), "root", "build", "apt"] {
            fs::remove_dir_all(folder.join(part))?;
        }
        fs::write(&ready, format!("{source}\n{hash}"))?;
        Ok(kernel)
    }

    /// Keeps what boots need of a build.
    fn keep(&self, build: &Path, packages: &Packages) -> Result<()> {
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(&self.program).arg(build.join("linux"));
        project::run(&mut strip)?;
        let release = fs::read_to_string(build.join("include/config/kernel.release"))?;
        let modules = self.root.join("lib/modules").join(release.trim());
        fs::create_dir_all(&modules)?;
        for list in ["modules.builtin", "modules.builtin.modinfo"] {
            fs::copy(build.join(list), modules.join(list))
                .with_context(|| format!("the build made no {list}"))?;
        }
        fs::write(modules.join("modules.order"), "")?;
        let mut depmod = packages.tool("depmod");
        project::run(depmod.arg("-b").arg(&self.root).arg(release.trim()))
    }
}

/// Builds the kernel of `source` in `build`, with the tools below `root`.
fn compile(source: &Path, root: &Path, build: &Path) -> Result<()> {
    let began = Instant::now();
    let programs = root.join("usr/bin");
    let path = std::env::var("PATH")?;
    let make = |folder: &Path| {
        let mut make = Command::new("nice");
        make.args(["make", "ARCH=um", "-C"]).arg(folder);
        make.env("PATH", format!("{}:{path}", programs.display()))
            .env("M4", programs.join("m4"))
            .env("BISON_PKGDATADIR", root.join("usr/share/bison"));
        make
    };
    fs::create_dir_all(build)?;
    let all = build.join("all.config");
    fs::write(&all, CONFIGURATION)?;
    let mut configure = make(source);
    configure.env("KCONFIG_ALLCONFIG", &all);
    configure.arg(format!("O={}", build.display()));
    project::output(configure.arg("allnoconfig"))?;
    check_configuration(&fs::read_to_string(build.join(".config"))?)?;

    println!("vm: building the kernel; this takes minutes, once");
    let jobs = thread::available_parallelism()?;
    let log = fs::File::create(build.join("log"))?;
    let mut compile = make(build);
    compile.arg(format!("--jobs={jobs}")).arg("linux");
    let mut compile = compile.stdout(Stdio::piped()).stderr(log).spawn()?;
    let lines = BufReader::new(compile.stdout.take().context("a pipe")?).lines();
    let compiled = lines.map_while(Result::ok);
    let compiled = compiled.filter(|line| line.starts_with("  CC "));
    for (files, _) in (1..).zip(compiled) {
        if files % PROGRESS == 0 {
            let seconds = began.elapsed().as_secs();
            println!("vm:   {files} files compiled in {seconds} s");
        }
    }
    let status = compile.wait()?;
    let errors = fs::read_to_string(build.join("log"))?;
    ensure!(status.success(), "the kernel's build failed\n{errors}");
    Ok(())
}

/// Checks that the sources know all settings, and that each has what it depends on.
fn check_configuration(made: &str) -> Result<()> {
    let is_set = |line: &&str| line.starts_with("CONFIG_");
    let set = CONFIGURATION.lines().filter(is_set);
    let lost: Vec<&str> = set
        .filter(|line| !made.lines().any(|made| made == *line))
        .collect();
    ensure!(lost.is_empty(), "these sources lack {}", lost.join(", "));
    Ok(())
}
