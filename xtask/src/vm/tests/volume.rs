//! A file system on a volume that the kernel's NBD client connects.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::service::{Service, Site, Volume, connect_volume, prepare_folders};
use super::stage::Stage;
use crate::vm::guest::Echo;
use crate::vm::machine::Cut;

const PATIENCE: Duration = Duration::from_secs(180);

pub(super) const SITE: Site = Site {
    name: "volume",
    number: 0,
    cache: "conv-1",
    volume: Some(Volume::new("conv-2", "conv-3")),
    tiny: None,
    is_user: false,
};

/// Files and their checksums, more than the volume's cache holds, then read from a
/// second mount.
const WRITE: &str = "
mkfs.ext4 -q -F /dev/nbd0
mkdir -p /tmp/mount && mount -t ext4 /dev/nbd0 /tmp/mount
cd /tmp/mount
for i in $(seq 30); do head -c $((i * 70000)) /dev/urandom > file-$i; done
sha256sum file-* > /tmp/sums
sync
cd / && umount /tmp/mount
";

const COMPARE: &str = "
e2fsck -fn /dev/nbd0
mount -t ext4 -o ro /dev/nbd0 /tmp/mount
cd /tmp/mount && sha256sum --quiet -c /tmp/sums
cd / && umount /tmp/mount
";

/// A volume that is empty, and its server.
pub(super) fn start(stage: &Stage) -> Result<Service> {
    prepare_folders(&stage.machine)?;
    SITE.prepare(&stage.machine)?;
    Service::start(stage, SITE)
}

/// Writes files, compares them, and again after a restart of the server.
pub(super) fn file_system(stage: &Stage) -> Result<()> {
    let guest = stage.machine.guest();
    let service = start(stage)?;
    connect_volume(&stage.machine, SITE)?;
    guest.shell(WRITE, PATIENCE)?;
    guest.shell(COMPARE, PATIENCE)?;
    guest.shell("nbd-client -d /dev/nbd0", PATIENCE)?;
    service.stop(&stage.machine)?;
    let service = Service::start(stage, SITE)?;
    connect_volume(&stage.machine, SITE)?;
    let compared = guest.shell(COMPARE, PATIENCE)?;
    ensure!(
        compared.contains("clean") || compared.contains("files"),
        "{compared}"
    );
    guest.shell("nbd-client -d /dev/nbd0", PATIENCE)?;
    service.stop(&stage.machine).map(drop)
}

/// Writes files for ever. A line says that a file is on stable media.
const WRITE_SYNCED: &str = "
mkfs.ext4 -q -F /dev/nbd0
mkdir -p /tmp/mount && mount -t ext4 /dev/nbd0 /tmp/mount
cd /tmp/mount
i=0
while :; do
  i=$((i + 1))
  head -c $((i % 50 * 1000 + 500)) /dev/urandom > file-$i
  sum=$(sha256sum file-$i)
  sync file-$i .
  echo \"synced $sum\"
done
";

/// A power cut while files are written and synced. The journal is replayed by a mount;
/// then every synced file is there, and the file system is whole.
pub(super) fn synced_files(stage: &Stage) -> Result<()> {
    // A word of a command has at most 128 KiB.
    const COMPARED_MAX: usize = 1_000;
    let service = start(stage)?;
    connect_volume(&stage.machine, SITE)?;
    let guest = stage.machine.guest();
    let files = guest.start(&["/bin/sh", "-ec", WRITE_SYNCED], PATIENCE, Echo::Keep)?;
    std::thread::sleep(Duration::from_secs(12));
    stage.machine.cut_power(Cut::Kill)?;
    drop(service);
    let lines = files.cut_off()?;
    stage.machine.restart(Cut::Kill)?;
    // The last line may be torn.
    let whole = lines.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let sums = whole
        .lines()
        .filter_map(|line| line.strip_prefix("synced "));
    let sums: Vec<_> = sums.take(COMPARED_MAX).collect();
    ensure!(!sums.is_empty(), "no file was synced in time\n{lines}");
    let service = Service::start(stage, SITE)?;
    connect_volume(&stage.machine, SITE)?;
    let compare = format!(
        "mkdir -p /tmp/mount && mount -t ext4 /dev/nbd0 /tmp/mount && cd /tmp/mount\n\
         sha256sum --quiet -c - <<'END'\n{}\nEND\n\
         cd / && umount /tmp/mount && e2fsck -fn /dev/nbd0 && nbd-client -d /dev/nbd0",
        sums.join("\n")
    );
    let compared = guest.shell(&compare, PATIENCE);
    compared.context("synced files were lost")?;
    println!("vm:   {} files were synced, and are there", sums.len());
    service.stop(&stage.machine).map(drop)
}
