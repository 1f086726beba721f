//! QEMU with Debian's kernel and emulated NVMe drives.

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result};

use super::machine::{Machine, PORTS, Rig};
use super::packages::{Packages, environment};
use crate::blackbox::server::free_addresses;

/// A boot under KVM takes seconds, if KVM can run the kernel at all.
const PROBE_PATIENCE: Duration = Duration::from_secs(10);

/// Prepares the guest, beside what every rig does.
const SETUP: &str = r#"
mkdir -p /lib/modules/$(uname -r)
mount --bind $RIG/lib/modules/$(uname -r) /lib/modules/$(uname -r)
modprobe -a configfs virtio_net nvme nbd ext4
mount -t configfs c /sys/kernel/config 2>/dev/null
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
"#;

/// A namespace of an emulated drive.
struct Namespace {
    /// `SERIAL-NSID`, the disk's name in the guest.
    name: &'static str,
    bytes: u64,
    /// Options of QEMU's `nvme-ns`.
    options: &'static str,
}

/// An emulated NVMe controller.
struct Controller {
    serial: &'static str,
    /// Further options of QEMU's `nvme`.
    options: &'static str,
    /// Further options of QEMU's `nvme-subsys`, which keeps the namespaces while the controller is
    /// removed.
    subsystem: &'static str,
    namespaces: &'static [Namespace],
}

impl Controller {
    /// QEMU's device.
    fn device(&self) -> String {
        let Controller {
            serial, options, ..
        } = self;
        format!(
            "nvme,id={serial},serial={serial},bus={serial}-port,subsys={serial}-subsys{options}"
        )
    }
}

const MIB: u64 = 1 << 20;

const CONTROLLERS: &[Controller] = &[
    // The geometry of a large drive: zones with less capacity than size.
    Controller {
        serial: "zns-a",
        options: ",zoned.zasl=6",
        subsystem: "",
        namespaces: &[Namespace {
            name: "zns-a-1",
            bytes: 1280 * MIB,
            options: "zoned=true,zoned.zone_size=64M,zoned.zone_capacity=62M,zoned.max_open=10,\
                      zoned.max_active=14,logical_block_size=4096,physical_block_size=4096",
        }],
    },
    // Small zones, tight limits, blocks of 512 bytes.
    Controller {
        serial: "zns-b",
        options: ",zoned.zasl=5",
        subsystem: "",
        namespaces: &[Namespace {
            name: "zns-b-1",
            bytes: 256 * MIB,
            options: "zoned=true,zoned.zone_size=8M,zoned.zone_capacity=6M,zoned.max_open=4,\
                      zoned.max_active=6,logical_block_size=512,physical_block_size=512",
        }],
    },
    Controller {
        serial: "fdp",
        options: "",
        subsystem: ",fdp=on,fdp.runs=16M,fdp.nrg=1,fdp.nruh=16",
        namespaces: &[
            Namespace {
                name: "fdp-1",
                bytes: 512 * MIB,
                options: "fdp.ruhs=0-7,logical_block_size=4096,physical_block_size=4096",
            },
            Namespace {
                name: "fdp-2",
                bytes: 64 * MIB,
                options: "fdp.ruhs=8-15,logical_block_size=4096,physical_block_size=4096",
            },
        ],
    },
    Controller {
        serial: "conv",
        options: "",
        subsystem: "",
        namespaces: &[
            Namespace {
                name: "conv-1",
                bytes: 512 * MIB,
                options: "logical_block_size=4096,physical_block_size=4096",
            },
            Namespace {
                name: "conv-2",
                bytes: 256 * MIB,
                options: "logical_block_size=512,physical_block_size=512",
            },
            Namespace {
                name: "conv-3",
                bytes: 256 * MIB,
                options: "logical_block_size=512,physical_block_size=512",
            },
            Namespace {
                name: "conv-4",
                bytes: 64 * MIB,
                options: "logical_block_size=4096,physical_block_size=4096",
            },
            Namespace {
                name: "conv-5",
                bytes: 64 * MIB,
                options: "logical_block_size=4096,physical_block_size=4096",
            },
        ],
    },
];

/// The processor's emulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accelerator {
    /// The hardware's virtualisation.
    Kvm,
    /// Translation of the guest's code.
    Tcg,
}

/// A machine to boot.
#[derive(Clone, Debug)]
pub(super) struct Qemu {
    packages: Packages,
    initramfs: PathBuf,
    accelerator: Accelerator,
    /// The folder of a run: disks, sockets and the console's log.
    run: PathBuf,
    /// The host's addresses of [`PORTS`].
    addresses: [SocketAddr; PORTS.len()],
}

impl Qemu {
    /// A rig whose runs have their files in `run`. The accelerator is probed once and
    /// noted in `folder`.
    pub(super) fn new(packages: Packages, folder: &Path, run: &Path) -> Result<Self> {
        let mut rig = Qemu {
            packages,
            initramfs: folder.join("initramfs"),
            accelerator: Accelerator::Tcg,
            run: run.to_path_buf(),
            addresses: free_addresses()?,
        };
        super::initramfs::build(&rig.packages, &rig.initramfs)?;
        fs::write(rig.run.join("setup"), SETUP)?;
        let noted = folder.join("accelerator");
        let is_kvm = match fs::read_to_string(&noted) {
            Ok(name) => name == "kvm",
            Err(_) => {
                let works = rig.kvm_works();
                fs::write(&noted, if works { "kvm" } else { "tcg" })?;
                works
            }
        };
        if is_kvm {
            rig.accelerator = Accelerator::Kvm;
        }
        Ok(rig)
    }

    /// Boots once under KVM, which some machines offer and cannot do.
    fn kvm_works(&self) -> bool {
        let opened = File::options().read(true).write(true).open("/dev/kvm");
        if opened.is_err() {
            return false;
        }
        let rig = Qemu {
            accelerator: Accelerator::Kvm,
            ..self.clone()
        };
        Machine::boot(Box::new(rig), PROBE_PATIENCE).is_ok()
    }

    fn monitor_socket(&self) -> PathBuf {
        self.run.join("monitor")
    }

    /// Disks are sparse files, which keep their content from one machine to the next.
    fn attach_drives(&self, command: &mut Command) -> Result<()> {
        for (slot, controller) in (1..).zip(CONTROLLERS) {
            let Controller {
                serial, subsystem, ..
            } = controller;
            let port = format!("pcie-root-port,id={serial}-port,chassis={slot},slot={slot}");
            let subsystem = format!("nvme-subsys,id={serial}-subsys,nqn={serial}{subsystem}");
            for device in [port, subsystem, controller.device()] {
                command.args(["-device", &device]);
            }
            for (number, namespace) in (1..).zip(controller.namespaces) {
                let file = self.run.join(namespace.name);
                let disk = File::options().create(true).append(true).open(&file)?;
                if namespace.options.contains("zoned=true") {
                    // A new machine's zones are empty.
                    disk.set_len(0)?;
                }
                disk.set_len(namespace.bytes)?;
                let Namespace { name, options, .. } = namespace;
                command.arg("-blockdev").arg(format!(
                    "driver=raw,node-name={name},discard=unmap,file.driver=file,\
                     file.discard=unmap,file.filename={}",
                    file.display()
                ));
                command.arg("-device").arg(format!(
                    "nvme-ns,drive={name},bus={serial},nsid={number},{options}"
                ));
            }
        }
        Ok(())
    }
}

impl Rig for Qemu {
    fn name(&self) -> &'static str {
        match self.accelerator {
            Accelerator::Kvm => "QEMU with KVM",
            Accelerator::Tcg => "QEMU, which emulates the processor",
        }
    }

    fn address(&self, port: u16) -> SocketAddr {
        let index = PORTS.iter().position(|known| *known == port);
        self.addresses[index.expect("the machine forwards this port")]
    }

    fn run(&self) -> &Path {
        &self.run
    }

    fn spawn(&self) -> Result<Child> {
        let mut network = "user,id=net".to_owned();
        for (host, guest) in self.addresses.iter().zip(PORTS) {
            network += &format!(",hostfwd=tcp:{host}-:{guest}");
        }
        let own = std::env::current_exe()?;
        let disks = CONTROLLERS
            .iter()
            .flat_map(|controller| controller.namespaces);
        let names: Vec<&str> = disks.map(|disk| disk.name).collect();
        let root = self.packages.root.display();
        // A killed task leaves no machine behind.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "env"]);
        command.args(environment(&self.packages.root));
        command.arg(self.packages.root.join("usr/bin/qemu-system-x86_64"));
        for firmware in ["usr/share/qemu", "usr/share/seabios"] {
            command.args(["-L", &format!("{root}/{firmware}")]);
        }
        command.args(match self.accelerator {
            Accelerator::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Accelerator::Tcg => [
                "-accel",
                "tcg,thread=multi,tb-size=512",
                "-cpu",
                "max,la57=off",
            ],
        });
        command.args([
            "-M",
            "q35",
            "-smp",
            "2",
            "-m",
            "3072",
            "-nodefaults",
            "-no-user-config",
        ]);
        command.args(["-display", "none", "-serial", "stdio"]);
        command.arg("-kernel").arg(self.packages.image());
        command.arg("-initrd").arg(&self.initramfs);
        command.arg("-append").arg(format!(
            "console=ttyS0 panic=-1 quiet nvme_core.multipath=N RIG={root} AGENT={} SETUP={} DISKS={}",
            own.display(),
            self.run.join("setup").display(),
            names.join(",")
        ));
        command.args([
            "-virtfs",
            "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
        ]);
        command.args(["-netdev", &network]);
        command.args(["-device", "virtio-net-pci,netdev=net,romfile="]);
        command.arg("-monitor").arg(format!(
            "unix:{},server=on,wait=off",
            self.monitor_socket().display()
        ));
        self.attach_drives(&mut command)?;
        self.start(&mut command)
    }

    /// Runs a command of QEMU's monitor.
    fn monitor(&self, command: &str) -> Result<()> {
        let mut monitor = UnixStream::connect(self.monitor_socket())?;
        monitor.write_all(format!("{command}\n").as_bytes())?;
        Ok(())
    }

    fn insert_drive(&self, serial: &str) -> Result<()> {
        let known = CONTROLLERS.iter().find(|known| known.serial == serial);
        let controller = known.context("a controller of the machine")?;
        self.monitor(&format!("device_add {}", controller.device()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project;

    /// One drive of each kind by hand: the options in docs/devices.md are those of the tests.
    #[test]
    fn the_page_of_devices_has_the_options_of_these_drives() {
        let page = project::root().join("docs/devices.md");
        let page = std::fs::read_to_string(page).unwrap();
        for name in ["zns-a-1", "fdp-1", "conv-1"] {
            let has = |controller: &&Controller| {
                let mut namespaces = controller.namespaces.iter();
                namespaces.any(|namespace| namespace.name == name)
            };
            let controller = CONTROLLERS.iter().find(has).unwrap();
            let namespaces = controller.namespaces.iter();
            let namespace = namespaces.into_iter().find(|found| found.name == name);
            let namespace = namespace.unwrap();
            let serial = controller.serial;
            let bytes = namespace.bytes / MIB;
            for part in [
                format!("nsid=1,{}", namespace.options),
                format!("serial={serial},subsys="),
                format!("truncate -s {bytes}M"),
            ] {
                assert!(page.contains(&part), "{name}: {part}");
            }
            assert!(page.contains(controller.options) && page.contains(controller.subsystem));
        }
    }
}
