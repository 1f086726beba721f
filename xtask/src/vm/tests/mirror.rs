//! A volume whose cache lies on two drives that the kernel mirrors.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::service::{Service, Site, Volume, prepare_folders};
use super::stage::Stage;
use crate::blackbox::nbd::Endpoint;
use crate::blackbox::volume_load::Part;

const PATIENCE: Duration = Duration::from_secs(120);

const SITE: Site = Site {
    name: "a mirrored cache",
    number: 0,
    cache: "conv-1",
    tiny: None,
    volume: Some(Volume::new("mirror", "conv-4")),
    is_user: false,
};

/// The drives of the mirror.
const DRIVES: [&str; 2] = ["conv-2", "conv-3"];

/// As docs/volumes.md describes it.
const MIRROR: &str = "
modprobe raid1
mdadm --create /dev/md/mirror --run --quiet --assume-clean --level=1 --raid-devices=2 \
  --metadata=1.2 --bitmap=internal --homehost=any /dev/vm/conv-2 /dev/vm/conv-3
ln -sf /dev/md/mirror /dev/vm/mirror
";

/// Sectors of the volume that are written.
const SECTORS: u64 = 4_096;

/// Writes and flushes, with one drive failing in the middle, then loses the other drive with the
/// machine's process: what was flushed is on the drive that is left.
pub(super) fn drives_fail(stage: &Stage) -> Result<()> {
    let guest = stage.machine.guest();
    prepare_folders(&stage.machine)?;
    for disk in DRIVES {
        super::service::blank(&stage.machine, disk)?;
    }
    guest.shell(MIRROR, PATIENCE)?;
    SITE.prepare(&stage.machine)?;
    for lost in DRIVES {
        let kept = DRIVES.into_iter().find(|disk| *disk != lost);
        let kept = kept.context("there are two drives")?;
        let service = Service::start(stage, SITE)?;
        let mut part = Part::new(Endpoint::Tcp(SITE.nbd(&stage.machine)), 0..SECTORS);
        let mut client = part.connect()?;
        part.fill(&mut client)?;
        part.flush(&mut client)?;
        part.drain(&mut client)?;
        service.kill(&stage.machine)?;
        // The machine is lost with its drive. Another one has the copy.
        let assemble = format!(
            "mdadm --stop --quiet /dev/md/mirror
             blkdiscard --zeroout /dev/vm/{lost}
             mdadm --assemble --run --quiet /dev/md/mirror /dev/vm/{kept}"
        );
        guest.shell(&assemble, PATIENCE)?;
        let service = Service::start(stage, SITE)?;
        part.verify().with_context(|| format!("without {lost}"))?;
        // A new drive takes the place of the lost one, under load.
        guest.shell(
            &format!("mdadm --manage --quiet /dev/md/mirror --add /dev/vm/{lost}"),
            PATIENCE,
        )?;
        let mut client = part.connect()?;
        part.fill(&mut client)?;
        part.flush(&mut client)?;
        part.drain(&mut client)?;
        guest.shell(
            "mdadm --wait /dev/md/mirror || true; grep -q '\\[UU\\]' /proc/mdstat",
            PATIENCE,
        )?;
        // It fails again while the volume is written.
        part.fill(&mut client)?;
        guest.shell(
            &format!(
                "mdadm --manage --quiet /dev/md/mirror --fail /dev/vm/{lost}
                 mdadm --manage --quiet /dev/md/mirror --remove /dev/vm/{lost}
                 mdadm --manage --quiet /dev/md/mirror --re-add /dev/vm/{lost}
                 mdadm --wait /dev/md/mirror || true; grep -q '\\[UU\\]' /proc/mdstat"
            ),
            PATIENCE,
        )?;
        part.flush(&mut client)?;
        part.drain(&mut client)?;
        part.verify().context("after a drive came back")?;
        let log = service.stop(&stage.machine)?;
        ensure!(!log.contains("poisoned"), "{log}");
        println!("vm:   without {lost}, and with it again: all that was flushed is there");
    }
    guest.shell("mdadm --stop --quiet /dev/md/mirror", PATIENCE)?;
    Ok(())
}
