//! A volume over NVMe/TCP, exported and connected by the commands of docs/volumes.md.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::service::connect_volume;
use super::stage::Stage;
use super::volume::{SITE, start};
use crate::project;

const PATIENCE: Duration = Duration::from_secs(180);

/// Finds the namespace that was connected.
const FIND: &str = "
for controller in /sys/class/nvme/nvme*; do
  grep -q com.example $controller/subsysnqn && controller=${controller##*/} && break
done
tries=0
until [ -b /dev/${controller}n1 ]; do
  tries=$((tries + 1)); [ $tries = 300 ] && { echo no namespace appears; exit 1; }
  sleep 0.1
done
";

const WRITE: &str = "
mkfs.ext4 -q -F /dev/${controller}n1
mkdir -p /tmp/mount && mount -t ext4 /dev/${controller}n1 /tmp/mount
cd /tmp/mount
for i in $(seq 30); do head -c $((i * 70000)) /dev/urandom > file-$i; done
sha256sum file-* > /tmp/sums
cd / && umount /tmp/mount
mount -t ext4 /dev/${controller}n1 /tmp/mount
cd /tmp/mount && sha256sum --quiet -c /tmp/sums
cd / && umount /tmp/mount
echo 1 > /sys/class/nvme/$controller/delete_controller
cd /sys/kernel/config/nvmet
rm ports/1/subsystems/disk
rmdir ports/1 subsystems/nqn*/namespaces/1 subsystems/nqn*
nbd-client -d /dev/nbd0
";

/// The files came through NVMe/TCP; they are read from the volume itself.
const COMPARE: &str = "
e2fsck -fn /dev/nbd0
mount -t ext4 -o ro /dev/nbd0 /tmp/mount
cd /tmp/mount && sha256sum --quiet -c /tmp/sums
cd / && umount /tmp/mount
nbd-client -d /dev/nbd0
";

pub(super) fn file_system(stage: &Stage) -> Result<()> {
    let document = std::fs::read_to_string(project::root().join("docs/volumes.md"))?;
    let (_, section) = document
        .split_once("### NVMe/TCP")
        .context("volumes.md describes NVMe/TCP")?;
    let blocks: Vec<_> = section.split("```sh\n").skip(1).take(2).collect();
    ensure!(
        blocks.len() == 2,
        "one block for the server, one for the client"
    );
    let guest = stage.machine.guest();
    let service = start(stage)?;
    for block in blocks {
        let commands = block.split("```").next().unwrap_or_default();
        let commands = commands
            .replace("/var/lib/floe", &SITE.folder())
            .replace("192.0.2.1", "127.0.0.1");
        guest.shell(&commands, PATIENCE)?;
    }
    guest.shell(&[FIND, WRITE].concat(), PATIENCE)?;
    connect_volume(&stage.machine, SITE)?;
    guest.shell(COMPARE, PATIENCE)?;
    service.stop(&stage.machine).map(drop)
}
