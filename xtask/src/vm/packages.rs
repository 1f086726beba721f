//! QEMU, kernels and the guest's tools: Debian packages, unpacked into a folder of
//! their own. apt runs with a private configuration, and the machine keeps its sources
//! and packages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::project;

/// The Debian release whose libraries the unpacked programs fit.
const RELEASE: &str = "bookworm";

/// QEMU from the backports: the release's own has no FDP.
const QEMU: &str = "qemu-system-x86";

/// Programs of the guest and of its initial file system.
const TOOLS: &[&str] = &[
    BUSYBOX,
    "dmsetup",
    "e2fsprogs",
    "kmod",
    "mdadm",
    "nbd-client",
    "udev",
    "xz-utils",
];

const BUSYBOX: &str = "busybox-static";

/// A pattern of the kernel's packages, of which the newest is taken.
const KERNEL: &str = r"^linux-image-6\.12\.[0-9]+\+deb12-amd64$";

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The folders of programs in an unpacked package.
const PROGRAM_FOLDERS: [&str; 4] = ["usr/sbin", "usr/bin", "sbin", "bin"];

/// The unpacked packages.
#[derive(Clone, Debug)]
pub(super) struct Packages {
    /// The root of their files.
    pub(super) root: PathBuf,
    /// The kernel's release, the name of its folder of modules.
    pub(super) kernel: String,
}

impl Packages {
    /// Downloads and unpacks the packages below `folder` if they are not there yet.
    ///
    /// # Errors
    /// If this is not a Debian machine of the right release, or the archive is out of
    /// reach.
    pub(super) fn install(folder: &Path) -> Result<Self> {
        check_machine()?;
        let root = folder.join("root");
        // It names the tools, so that further ones are installed later.
        let ready = folder.join("ready");
        let is_ready = fs::read_to_string(&ready).is_ok_and(|tools| tools == TOOLS.join(" "));
        if !is_ready {
            let _ = fs::remove_dir_all(&root);
            let apt = Apt::new(folder, &sources())?;
            let kernel = apt.newest(KERNEL)?;
            let mut wanted = apt.missing(&installed()?)?;
            wanted.push(kernel);
            println!("vm: unpacking {} Debian packages", wanted.len());
            apt.unpack(&wanted, &root)?;
        }
        let modules = root.join("lib/modules");
        let mut kernels = modules.read_dir().context("the kernel has no modules")?;
        let kernel = kernels.next().context("there is no kernel")??;
        let packages = Packages {
            kernel: kernel.file_name().to_string_lossy().into_owned(),
            root,
        };
        if !is_ready {
            let mut depmod = packages.tool("depmod");
            depmod.arg("-b").arg(&packages.root).arg(&packages.kernel);
            project::run(&mut depmod)?;
            fs::write(&ready, TOOLS.join(" "))?;
        }
        Ok(packages)
    }

    /// The kernel's image.
    pub(super) fn image(&self) -> PathBuf {
        self.root.join(format!("boot/vmlinuz-{}", self.kernel))
    }

    /// A command of the packages, or else of the machine.
    pub(super) fn tool(&self, name: &str) -> Command {
        let mut command = Command::new("env");
        for variable in environment(&self.root) {
            command.arg(variable);
        }
        command.arg(name);
        command
    }
}

/// The variables that find the programs and libraries below `root`, then the machine's.
pub(super) fn environment(root: &Path) -> [String; 2] {
    let unpacked = PROGRAM_FOLDERS.map(|folder| root.join(folder).display().to_string());
    let own = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let root = root.display();
    [
        format!("PATH={}:{own}", unpacked.join(":")),
        format!("LD_LIBRARY_PATH={root}/usr/lib/x86_64-linux-gnu:{root}/lib/x86_64-linux-gnu"),
    ]
}

/// Checks that unpacked packages can run here.
fn check_machine() -> Result<()> {
    ensure!(
        std::env::consts::ARCH == "x86_64",
        "the rig unpacks programs for x86_64, and this machine is {}",
        std::env::consts::ARCH
    );
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    ensure!(
        release.contains(&format!("VERSION_CODENAME={RELEASE}")),
        "the rig unpacks packages of Debian 12 ({RELEASE}), and this machine runs another system"
    );
    Ok(())
}

/// The packages that the machine has.
fn installed() -> Result<BTreeSet<String>> {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${Package} ${db:Status-Status}\n"]);
    let listed = project::output(&mut query)?;
    let lines = listed.lines();
    let names = lines.filter_map(|line| line.strip_suffix(" installed"));
    Ok(names.map(str::to_owned).collect())
}

/// apt with its own lists, sources and status.
pub(super) struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// Has read the lists of `sources`; its own files are below `folder`.
    pub(super) fn new(folder: &Path, sources: &str) -> Result<Self> {
        let folder = folder.join("apt");
        for part in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(folder.join(part))?;
        }
        // Nothing counts as installed, so that apt names every dependency.
        fs::write(folder.join("status"), "")?;
        fs::write(folder.join("sources.list"), sources)?;
        let apt = Apt { folder };
        let updated = project::output(apt.command("apt-get").arg("update"));
        updated.context("the Debian archive is out of reach")?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let folder = self.folder.display();
        let mut command = Command::new(program);
        command.current_dir(&self.folder).arg("--quiet");
        for setting in [
            format!("Dir::Etc::sourcelist={folder}/sources.list"),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            "Dir::Etc::preferences=/dev/null".to_owned(),
            "Dir::Etc::preferencesparts=/dev/null".to_owned(),
            format!("Dir::State::lists={folder}/lists"),
            format!("Dir::State::status={folder}/status"),
            format!("Dir::Cache={folder}"),
            // The user `_apt` may not write below the project.
            "APT::Sandbox::User=root".to_owned(),
        ] {
            command.args(["--option", &setting]);
        }
        command
    }

    /// The package of the newest version among those whose names match `pattern`.
    pub(super) fn newest(&self, pattern: &str) -> Result<String> {
        let mut search = self.command("apt-cache");
        let found = project::output(search.args(["search", "--names-only", pattern]))?;
        let names = found.lines().filter_map(|line| line.split(' ').next());
        let version = |name: &str| -> Vec<u32> {
            let digits = name.split(|c: char| !c.is_ascii_digit());
            digits.filter_map(|word| word.parse().ok()).collect()
        };
        let newest = names.max_by_key(|name| version(name));
        let newest = newest.with_context(|| format!("the archive has no package {pattern}"))?;
        Ok(newest.to_owned())
    }

    /// The packages that QEMU and the tools need beside those `installed`, each with its
    /// version. QEMU's own are never taken from the machine, which may have older ones,
    /// and busybox is copied into the guest.
    fn missing(&self, installed: &BTreeSet<String>) -> Result<Vec<String>> {
        let backports = format!("--target-release={RELEASE}-backports");
        let plans = [self.plan(&[&backports, QEMU])?, self.plan(TOOLS)?].concat();
        let steps = plans.lines().filter_map(|line| line.strip_prefix("Inst "));
        let named = steps.filter_map(|step| {
            let (name, rest) = step.split_once(" (")?;
            Some((name, rest.split(' ').next()?))
        });
        let own = |name: &str| name.starts_with("qemu-") || ["seabios", BUSYBOX].contains(&name);
        let missing = named.filter(|(name, _)| own(name) || !installed.contains(*name));
        // One version of each: QEMU's.
        let mut versions = BTreeMap::new();
        for (name, version) in missing {
            versions.entry(name).or_insert(version);
        }
        let packages = versions.into_iter();
        Ok(packages
            .map(|(name, version)| format!("{name}={version}"))
            .collect())
    }

    /// The steps of an installation.
    fn plan(&self, words: &[&str]) -> Result<String> {
        let mut plan = self.command("apt-get");
        plan.args(["install", "--simulate", "--no-install-recommends"]);
        project::output(plan.args(words))
    }

    /// Downloads packages and unpacks them below `root`.
    pub(super) fn unpack(&self, packages: &[String], root: &Path) -> Result<()> {
        let archives = self.folder.join("archives");
        let mut download = self.command("apt-get");
        download
            .current_dir(&archives)
            .arg("download")
            .args(packages);
        project::output(&mut download).context("the packages could not be downloaded")?;
        let mut unpacked = 0;
        for entry in archives.read_dir()? {
            let archive = entry?.path();
            if archive
                .extension()
                .is_some_and(|extension| extension == "deb")
            {
                project::run(Command::new("dpkg").arg("-x").arg(&archive).arg(root))?;
                fs::remove_file(&archive)?;
                unpacked += 1;
            }
        }
        if unpacked < packages.len() {
            bail!("{unpacked} of {} packages were downloaded", packages.len());
        }
        relink_programs(root)
    }
}

/// Leads the absolute links of programs, such as `modprobe`'s to `/bin/kmod`, below `root`.
fn relink_programs(root: &Path) -> Result<()> {
    for folder in PROGRAM_FOLDERS {
        for entry in root.join(folder).read_dir().into_iter().flatten() {
            let link = entry?.path();
            let target = fs::read_link(&link).unwrap_or_default();
            if let Ok(inner) = target.strip_prefix("/") {
                fs::remove_file(&link)?;
                symlink(root.join(inner), &link)?;
            }
        }
    }
    Ok(())
}

/// The sources of the release, its updates and its backports.
fn sources() -> String {
    let security = format!("{RELEASE}-security");
    let [updates, backports] = ["updates", "backports"].map(|part| format!("{RELEASE}-{part}"));
    [
        source("/debian", RELEASE),
        source("/debian", &updates),
        source("/debian", &backports),
        source("/debian-security", &security),
    ]
    .concat()
}

/// The sources of user-mode Linux: the tools of this release, and the kernel of a later one.
pub(super) fn kernel_sources() -> String {
    source("/debian", RELEASE) + &source("/debian", "trixie-backports")
}

/// A suite of the machine's mirror.
fn source(path: &str, suite: &str) -> String {
    format!("deb [signed-by={KEYRING}] {} {suite} main\n", mirror(path))
}

/// The first address in the machine's own sources that ends with `path`, or Debian's.
fn mirror(path: &str) -> String {
    let listed = Path::new("/etc/apt/sources.list.d").read_dir();
    let mut files: Vec<PathBuf> = listed
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.sort();
    files.push("/etc/apt/sources.list".into());
    let texts = files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok());
    let text = texts.collect::<Vec<_>>().join("\n");
    let words = text
        .split_whitespace()
        .map(|word| word.trim_end_matches('/'));
    let mut mirrors = words.filter(|word| word.starts_with("http") && word.ends_with(path));
    let debian = || format!("http://deb.debian.org{path}");
    mirrors.next().map_or_else(debian, str::to_owned)
}
