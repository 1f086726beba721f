//! A file system on a volume that the kernel's NBD client connects.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::service::{Disks, Service, connect_volume};
use crate::vm::machine::Machine;
use crate::vm::programs::Programs;

const PATIENCE: Duration = Duration::from_secs(180);

const DISKS: Disks = Disks {
    cache: "conv-1",
    volume: Some(("conv-2", "conv-3")),
    tiny: None,
};

/// Files and their checksums, written twice as large as the volume's cache would hold
/// dirty, then read from a second mount.
const WRITE: &str = "
mkfs.ext4 -q -F /dev/nbd0
mkdir -p /tmp/mount && mount -t ext4 /dev/nbd0 /tmp/mount
cd /tmp/mount
for i in $(seq 40); do head -c $((i * 100000)) /dev/urandom > file-$i; done
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

/// Writes files, compares them, and again after a restart of the server, and on the
/// backing device alone after the volume was flushed.
pub(super) fn file_system(machine: &mut Machine, programs: &Programs) -> Result<()> {
    let guest = machine.guest();
    DISKS.prepare(machine)?;
    let service = Service::start(machine, programs, DISKS)?;
    connect_volume(machine)?;
    guest.shell(WRITE, PATIENCE)?;
    guest.shell(COMPARE, PATIENCE)?;
    guest.shell("nbd-client -d /dev/nbd0", PATIENCE)?;
    service.stop(machine)?;
    let service = Service::start(machine, programs, DISKS)?;
    connect_volume(machine)?;
    let compared = guest.shell(COMPARE, PATIENCE)?;
    ensure!(
        compared.contains("clean") || compared.contains("files"),
        "{compared}"
    );
    guest.shell("nbd-client -d /dev/nbd0", PATIENCE)?;
    service.stop(machine)
}
