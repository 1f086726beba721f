//! Machines of a cluster: network namespaces on a bridge, in a sandbox that leaves nothing behind.

use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context, Result};

use crate::project;

/// The first three bytes of every address.
const NETWORK: [u8; 3] = [10, 77, 0];

/// A machine of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) name: &'static str,
    last_byte: u8,
}

/// The nodes.
pub(super) const NODES: [Machine; 3] = [machine("n1", 11), machine("n2", 12), machine("n3", 13)];
pub(super) const ETCD: Machine = machine("etcd", 20);
/// The proxies. Each client has one of them.
pub(super) const PROXIES: [Machine; 2] = [machine("p1", 30), machine("p2", 31)];

const fn machine(name: &'static str, last_byte: u8) -> Machine {
    Machine { name, last_byte }
}

impl Machine {
    pub(super) fn address(self) -> Ipv4Addr {
        let [a, b, c] = NETWORK;
        Ipv4Addr::new(a, b, c, self.last_byte)
    }

    /// A command that runs in this machine.
    pub(super) fn command(self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name));
        command.arg(program);
        command
    }

    /// Its end of the cable, in the bridge.
    fn port(self) -> String {
        format!("to-{}", self.name)
    }

    /// Loses every packet from and to this machine; its cable stays plugged in.
    pub(super) fn cut(self) -> Result<()> {
        ip(&["link", "set", &self.port(), "nomaster"])
    }

    /// Loses what this machine sends to `other`; all else arrives.
    pub(super) fn deafen(self, other: Machine) -> Result<()> {
        let address = other.address().to_string();
        // Of no machine.
        let mac = "02:00:00:00:00:99";
        let (own, device) = (self.name, ["dev", "eth0", "nud", "permanent"]);
        let entry = ["-n", own, "neigh", "replace", &address, "lladdr", mac];
        ip(&[&entry[..], &device].concat())
    }

    /// Ends [`deafen`](Machine::deafen).
    pub(super) fn hear(self, other: Machine) -> Result<()> {
        let address = other.address().to_string();
        ip(&["-n", self.name, "neigh", "del", &address, "dev", "eth0"])
    }

    /// Ends [`cut`](Machine::cut).
    pub(super) fn heal(self) -> Result<()> {
        ip(&["link", "set", &self.port(), "master", "br0", "up"])
    }
}

/// Builds the network inside the sandbox. The clients are on the bridge itself.
pub(super) fn build() -> Result<()> {
    project::run(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]))?;
    std::fs::create_dir_all("/run/netns").context("/run/netns")?;
    ip(&["link", "set", "lo", "up"])?;
    ip(&["link", "add", "br0", "type", "bridge"])?;
    ip(&["addr", "add", "10.77.0.1/24", "dev", "br0"])?;
    ip(&["link", "set", "br0", "up"])?;
    for machine in NODES.into_iter().chain([ETCD]).chain(PROXIES) {
        let (name, port) = (machine.name, machine.port());
        ip(&["netns", "add", name])?;
        ip(&[
            "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", name,
        ])?;
        machine.heal()?;
        let address = format!("{}/24", machine.address());
        ip(&["-n", name, "addr", "add", &address, "dev", "eth0"])?;
        ip(&["-n", name, "link", "set", "eth0", "up"])?;
        ip(&["-n", name, "link", "set", "lo", "up"])?;
    }
    Ok(())
}

fn ip(arguments: &[&str]) -> Result<()> {
    project::output(Command::new("ip").args(arguments))?;
    Ok(())
}
