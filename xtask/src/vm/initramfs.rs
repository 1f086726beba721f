//! The guest's first file system: it loads modules, mounts the host's root read-only
//! under an overlay in memory, and starts the agent there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::packages::Packages;
use crate::project;

/// The modules that the root file system needs.
const MODULES: &[&str] = &["virtio_pci", "9pnet_virtio", "9p", "overlay"];

/// The kernel's command line names the agent in `AGENT`. Where the project lies in one of the
/// folders for temporary files, the guest sees the host's.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc p /proc
mount -t sysfs s /sys
mount -t devtmpfs d /dev
while read module; do insmod /modules/$module || echo "no module $module"; done < /modules/order
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro host /lower
mount -t tmpfs -o size=2g t /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work o /new
mkdir -p /new/proc /new/sys /new/dev /new/tmp /new/run
mount -t proc p /new/proc
mount -t sysfs s /new/sys
mount -t devtmpfs d /new/dev
for folder in run tmp; do
  case $AGENT in /$folder/*) ;; *) mount -t tmpfs t /new/$folder ;; esac
done
exec switch_root /new $AGENT vm-agent
"#;

/// Writes the initial file system to `archive`.
pub(super) fn build(packages: &Packages, archive: &Path) -> Result<()> {
    let staging = tempfile::tempdir()?;
    let at = |name: &str| staging.path().join(name);
    for folder in [
        "bin", "dev", "proc", "sys", "modules", "lower", "upper", "new",
    ] {
        fs::create_dir(at(folder))?;
    }
    fs::copy(packages.root.join("bin/busybox"), at("bin/busybox"))?;
    fs::write(at("init"), INIT)?;
    fs::set_permissions(at("init"), fs::Permissions::from_mode(0o755))?;
    let mut order = String::new();
    for module in modules(packages)? {
        let name = project::name(&module).replace(".ko.xz", ".ko");
        let unpacked = packages.tool("xz").arg("-dc").arg(&module).output()?;
        ensure!(unpacked.status.success(), "{} is damaged", module.display());
        fs::write(at("modules").join(&name), unpacked.stdout)?;
        order += &format!("{name}\n");
    }
    fs::write(at("modules/order"), order)?;
    let pack = "find . | \"$BUSYBOX\" cpio -o -H newc 2>&1 >\"$ARCHIVE\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", pack])
        .current_dir(staging.path())
        .env("BUSYBOX", packages.root.join("bin/busybox"))
        .env("ARCHIVE", archive);
    project::output(&mut command).map(drop)
}

/// The files of [`MODULES`] and of their dependencies, which come first.
fn modules(packages: &Packages) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for module in MODULES {
        let mut show = packages.tool("modprobe");
        show.arg("-d")
            .arg(&packages.root)
            .args(["-S", &packages.kernel]);
        let shown = project::output(show.args(["--show-depends", module]))
            .with_context(|| format!("the kernel has no module {module}"))?;
        for line in shown.lines() {
            let file = line
                .strip_prefix("insmod ")
                .map(|rest| PathBuf::from(rest.trim()));
            files.extend(file.filter(|file| !files.contains(file)));
        }
    }
    Ok(files)
}
