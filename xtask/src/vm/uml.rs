//! User-mode Linux: a kernel that is a program of the host. Its drives are disks in
//! memory and files, some of them exported as NVMe namespaces by the kernel's own target.
//!
//! The guest's network is a pair of virtual interfaces in a namespace of this process.
//! Linux 7.3 crashes when it opens a tap device.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Result, bail};

use super::kernel::Kernel;
use super::machine::Rig;
use super::packages::Packages;
use crate::project;

/// The guest's address.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);

/// Mounts the host's root under an overlay in memory and starts the agent there. Where the
/// project lies in one of the folders for temporary files, the guest sees the host's.
const INIT: &str = r#"
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t tmpfs t /mnt
mkdir /mnt/files /mnt/work /mnt/new
mount -t overlay -o lowerdir=/,upperdir=/mnt/files,workdir=/mnt/work o /mnt/new
cd /mnt/new
mkdir -p proc sys dev tmp run old
mount -t proc p proc
mount -t sysfs s sys
mount -t devtmpfs d dev
for folder in run tmp; do
  case $AGENT in /$folder/*) ;; *) mount -t tmpfs t $folder ;; esac
done
pivot_root . old
exec chroot . $AGENT vm-agent <dev/console >dev/console 2>&1
"#;

/// Prepares the guest, beside what every rig does. The drives have the names of QEMU's:
/// an exported subsystem's serial number begins each.
const SETUP: &str = r#"
# A busy host stops the guest for seconds, and the default is five.
ALIVE=keep_alive_tmo=600
mkdir -p /lib/modules/$(uname -r)
mount --bind $MODULES/$(uname -r) /lib/modules/$(uname -r)
mount -t configfs c /sys/kernel/config
ip addr add 10.0.2.15/24 dev vec0
ip link set vec0 up

# disk NAME MIB BLOCK_BYTES [ZONE_MIB CAPACITY_MIB OPEN ACTIVE]
disk() {
  cd /sys/kernel/config/nullb
  mkdir $1
  cd $1
  echo 1 > memory_backed
  echo 1 > discard
  echo $2 > size
  echo $3 > blocksize
  echo 2048 > max_sectors
  if [ $# -gt 3 ]; then
    echo 0 > discard
    echo 1 > zoned
    echo 0 > zone_nr_conv
    echo $4 > zone_size
    echo $5 > zone_capacity
    echo $6 > zone_max_open
    echo $7 > zone_max_active
  fi
  echo 1 > power
}

# The node has the disk's name, or its number.
node() {
  [ -b /dev/$1 ] && echo /dev/$1 || echo /dev/nullb$(cat /sys/kernel/config/nullb/$1/index)
}

# export_disks SERIAL NAME...
export_disks() {
  cd /sys/kernel/config/nvmet/subsystems
  mkdir $1
  cd $1
  echo 1 > attr_allow_any_host
  echo $1 > attr_serial
  serial=$1
  shift
  number=0
  for name; do
    number=$((number + 1))
    mkdir namespaces/$number
    printf %s $(node $name) > namespaces/$number/device_path
    echo 1 > namespaces/$number/enable
  done
  ln -s $PWD /sys/kernel/config/nvmet/ports/61/subsystems/$serial
  printf %s nqn=$serial,transport=loop,$ALIVE > /dev/nvme-fabrics
}

disk zns-a 1280 4096 64 62 10 14
disk zns-b 256 512 8 6 4 6
disk conv1 512 4096
disk conv2 256 512
disk conv3 256 512
disk conv4 64 4096
disk conv5 64 4096
mkdir /sys/kernel/config/nvmet/ports/61
echo loop > /sys/kernel/config/nvmet/ports/61/addr_trtype
export_disks zns-a zns-a
export_disks zns-b zns-b
export_disks conv conv1 conv2 conv3 conv4 conv5

# A disk whose writes are logged, the disk of their log, and one for replays.
for name in logged replayed; do disk $name 128 512; done
disk writes 1024 512
for name in logged replayed writes; do ln -s $(node $name) /dev/vm/$name; done

# A disk that two hosts reach, and can reserve.
disk shared 16 512
mkdir /sys/kernel/config/nvmet/subsystems/shared
cd /sys/kernel/config/nvmet/subsystems/shared
echo 1 > attr_allow_any_host
mkdir namespaces/1
printf %s $(node shared) > namespaces/1/device_path
echo 1 > namespaces/1/resv_enable
echo 1 > namespaces/1/enable
ln -s $PWD /sys/kernel/config/nvmet/ports/61/subsystems/shared
for host in 1 2; do
  id=0000000$host-0000-4000-8000-000000000000
  printf %s nqn=shared,transport=loop,$ALIVE,hostnqn=host-$host,hostid=$id > /dev/nvme-fabrics
  for controller in /sys/class/nvme/nvme*; do
    [ $(cat $controller/hostid) = $id ] || continue
    tries=0
    until namespace=$(ls -d $controller/nvme*n1); do
      tries=$((tries + 1)); [ $tries = 100 ] && exit 1
      sleep 0.1
    done
    ln -s /dev/${namespace##*/} /dev/vm/shared-of-$host
  done
done

# Zones that are files.
disk files 512 4096
mkfs.ext4 -q $(node files)
mkdir -p /var/local/zloop
mount $(node files) /var/local/zloop
mkdir -p /var/local/zloop/0
echo add id=0,capacity_mb=264,zone_size_mb=4,zone_capacity_mb=3,conv_zones=2,max_open_zones=4 > /dev/zloop-control
ln -s /dev/zloop0 /dev/vm/zloop
"#;

/// The names of the drives.
const DISKS: &str = "zns-a-1,zns-b-1,conv-1,conv-2,conv-3,conv-4,conv-5";

/// Tells whether the network of a guest can be made.
pub(super) fn probe() -> Result<String> {
    project::output(isolated().args(["ip", "link", "add", "type", "veth"]))
}

/// A command that runs a program in a network of its own, as root there. It dies with this
/// process.
pub(super) fn isolated() -> Command {
    let mut command = Command::new("unshare");
    // A user without privileges has them in a namespace of users.
    if project::output(Command::new("id").arg("-u")).is_ok_and(|user| user.trim() != "0") {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "setpriv", "--pdeathsig", "KILL"]);
    command
}

/// The machine to boot.
#[derive(Clone, Debug)]
pub(super) struct Uml {
    packages: Packages,
    kernel: Kernel,
    run: PathBuf,
}

impl Uml {
    /// A rig whose runs have their files in `run`. This process is [`isolated`].
    pub(super) fn new(packages: Packages, kernel: Kernel, run: &Path) -> Result<Self> {
        for command in [
            "link set lo up",
            "link add host0 type veth peer name guest0",
            "addr add 10.0.2.2/24 dev host0",
            "link set host0 up",
            "link set guest0 up",
        ] {
            project::output(Command::new("ip").args(command.split(' ')))?;
        }
        fs::write(run.join("setup"), SETUP)?;
        let init = run.join("init");
        fs::write(&init, format!("#!/bin/sh{INIT}"))?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
        Ok(Uml {
            packages,
            kernel,
            run: run.to_path_buf(),
        })
    }
}

impl Rig for Uml {
    fn name(&self) -> &'static str {
        "user-mode Linux"
    }

    fn address(&self, port: u16) -> SocketAddr {
        (ADDRESS, port).into()
    }

    fn run(&self) -> &Path {
        &self.run
    }

    fn spawn(&self) -> Result<Child> {
        let own = std::env::current_exe()?;
        // A killed task leaves no machine behind.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL"])
            .arg(&self.kernel.program);
        command.args(["mem=3G", "ncpus=2", "seccomp=auto", "quiet", "panic=-1"]);
        command.args([
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "con=null",
            "con0=null,fd:1",
        ]);
        command.arg("null_blk.nr_devices=0");
        command.arg("vec0:transport=raw,ifname=guest0,gro=1");
        for (name, path) in [
            ("uml_dir", self.run.join("uml")),
            ("init", self.run.join("init")),
            ("SETUP", self.run.join("setup")),
            ("AGENT", own),
            ("RIG", self.packages.root.clone()),
            ("MODULES", self.kernel.root.join("lib/modules")),
        ] {
            command.arg(format!("{name}={}", path.display()));
        }
        command.arg(format!("DISKS={DISKS}"));
        self.start(&mut command)
    }

    fn monitor(&self, command: &str) -> Result<()> {
        bail!("user-mode Linux has no {command}")
    }

    fn insert_drive(&self, serial: &str) -> Result<()> {
        bail!("user-mode Linux has no slot for {serial}")
    }
}
