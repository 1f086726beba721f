//! A server without root on a drive that a udev rule gives it, alone and under systemd.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::load::{self, KEPT_MIN, Load, fill_all, judge_all, under_load};
use super::power::PLACEMENT;
use super::service::{AS_USER, Service, Site};
use super::stage::Stage;
use crate::project;
use crate::vm::guest::{Echo, Guest};

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

/// Installs the unit for a drive by passthrough, as its comments say.
const INSTALL: &str = r#"
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 c /sys/fs/cgroup
: > /usr/bin/floe
mount --bind $FLOE /usr/bin/floe
mkdir -p /etc/floe
floe config default > /etc/floe/floe.toml
sed -e '/^PrivateDevices/d' -e 's/^#   \(DeviceAllow=[a-z]\)/\1/' \
  packaging/systemd/floe.service > /etc/systemd/system/floe.service
"#;

/// systemd as the first process of a container, which starts the unit. It empties the folder for
/// temporary files, in which the project may lie.
const SYSTEMD: &str = "exec unshare --pid --fork --kill-child --mount --mount-proc \
     sh -ec 'mount -t tmpfs t /tmp; exec env -i container=vm PATH=/usr/sbin:/usr/bin:/sbin:/bin \
     /lib/systemd/systemd --unit=floe.service --log-target=console --show-status=false'";

/// systemctl in that container: systemd refuses requests from outside.
const CONTROL: &str = "nsenter --target $(pgrep --oldest --full '^/lib/systemd/systemd --unit') \
     --pid --mount systemctl";

/// Makes the user, and gives it the namespaces with data placement.
fn give(guest: Guest) -> Result<()> {
    let here = format!("cd {}\n{GIVE}", project::root().display());
    let owners = guest.shell(&here, PATIENCE)?;
    ensure!(owners.contains(OWNERS), "the rule's owners: {owners}");
    Ok(())
}

pub(super) fn serves(stage: &Stage) -> Result<()> {
    let site = Site {
        is_user: true,
        ..PLACEMENT
    };
    let guest = stage.machine.guest();
    give(guest)?;
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
    service.stop(&stage.machine).map(drop)
}

/// The unit starts the server, starts it again after it was killed, and stops it.
pub(super) fn unit(stage: &Stage) -> Result<()> {
    if !Path::new("/lib/systemd/systemd").exists() {
        println!("vm:   skipped: this machine, whose programs the guest has, has no systemd");
        return Ok(());
    }
    let guest = stage.machine.guest();
    give(guest)?;
    PLACEMENT.prepare(&stage.machine)?;
    let loads = [Load::new(stage, PLACEMENT)];
    let root = project::root();
    let install = format!("cd {}; FLOE={}\n{INSTALL}", root.display(), stage.floe()?);
    guest.shell(&install, PATIENCE)?;
    let variable = |flag: &String| {
        let (name, value) = flag.trim_start_matches('-').split_once('=')?;
        let name = name.replace('-', "_").to_uppercase();
        (name != "DATA_DIR").then(|| format!("FLOE_{name}={value}\n"))
    };
    let variables: String = PLACEMENT.flags().iter().filter_map(variable).collect();
    let write = format!("cat > /etc/floe/secrets.env <<'END'\n{variables}END\n");
    guest.shell(&write, PATIENCE)?;

    let systemd = guest.start(&["/bin/sh", "-ec", SYSTEMD], 4 * PATIENCE, Echo::Keep)?;
    let control = |words: &str| guest.shell(&format!("{CONTROL} {words}"), PATIENCE);
    let wait = |wanted: &str| {
        let began = Instant::now();
        let show = "show floe -p ActiveState,SubState,NRestarts,Result,ExecMainStatus";
        loop {
            let shown = control(&format!("{show} | sort | xargs"));
            if shown.as_ref().is_ok_and(|shown| shown.trim() == wanted) {
                return anyhow::Ok(());
            }
            ensure!(
                began.elapsed() < PATIENCE && !systemd.has_ended(),
                "systemd says {shown:?}, not {wanted}"
            );
            thread::sleep(Duration::from_millis(200));
        }
    };
    let ended = (|| {
        wait("ActiveState=active ExecMainStatus=0 NRestarts=0 Result=success SubState=running")?;
        fill_all(stage, &loads)?;
        let moment = Duration::from_secs(3);
        under_load(stage, &loads, stage.seed, moment, || {
            control("kill --kill-who=main --signal=KILL floe")
        })?;
        wait("ActiveState=active ExecMainStatus=0 NRestarts=1 Result=success SubState=running")?;
        judge_all(stage, &loads, KEPT_MIN)?;
        control("stop floe")?;
        wait("ActiveState=inactive ExecMainStatus=0 NRestarts=0 Result=success SubState=dead")
    })();
    let journal = guest.shell("journalctl --no-pager -n 60 || true", PATIENCE);
    let said = systemd.cut_off()?;
    guest.shell("umount /usr/bin/floe", PATIENCE)?;
    ended.map_err(|error: anyhow::Error| error.context(format!("{said}\n{journal:?}")))
}
