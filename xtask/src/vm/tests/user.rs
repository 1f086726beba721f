//! A server without root on a drive that a udev rule gives it.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::load::{self, KEPT_MIN, fill_all, judge_all, under_load};
use super::power::PLACEMENT;
use super::service::{AS_USER, Service, Site};
use super::stage::Stage;
use crate::project;

const PATIENCE: Duration = Duration::from_secs(120);

/// The program is the daemon under that name.
const GIVE: &str = r#"
systemd-sysusers $PWD/packaging/sysusers.d/floe.conf
mkdir -p /etc/udev/rules.d
sed s/S5XYNG0K123456/fdp/ packaging/udev/70-floe.rules > /etc/udev/rules.d/70-floe.rules
ln -sf $RIG/bin/udevadm /tmp/systemd-udevd
/tmp/systemd-udevd --daemon
udevadm trigger --settle --action=change --subsystem-match=block --subsystem-match=nvme-generic
udevadm control --exit
for disk in fdp-1 fdp-1.char fdp-2 fdp-2.char conv-1; do stat -Lc %U:%a /dev/vm/$disk; done
"#;

const OWNERS: &str = "floe:600\nfloe:600\nfloe:600\nfloe:600\nroot:";

pub(super) fn serves(stage: &Stage) -> Result<()> {
    let site = Site {
        is_user: true,
        ..PLACEMENT
    };
    let guest = stage.machine.guest();
    let here = format!("cd {}\n{GIVE}", project::root().display());
    let owners = guest.shell(&here, PATIENCE)?;
    ensure!(owners.contains(OWNERS), "the rule's owners: {owners}");

    let (loads, mut services) = load::start(stage, &[site], false)?;
    fill_all(stage, &loads)?;
    let service = services.remove(0);
    let moment = Duration::from_secs(3);
    under_load(stage, &loads, stage.seed, moment, || {
        service.kill(&stage.machine)
    })?;
    let service = Service::start(stage, site)?;
    judge_all(stage, &loads, KEPT_MIN)?;
    let words = [stage.floe()?, "device", "info", "/dev/vm/fdp-1.char"];
    let info = guest.output(&[AS_USER, &words].concat(), PATIENCE)?;
    ensure!(info.contains("placement"), "{info}");
    service.stop(&stage.machine)
}
