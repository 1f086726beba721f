//! A running virtual machine.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::agent;
use super::guest::Guest;

/// Boots under emulation take 5 s alone, and longer beside other work.
pub(super) const BOOT_PATIENCE: Duration = Duration::from_secs(180);

/// The guest's first port of the first server.
pub(super) const SERVER_PORT: u16 = 4001;

/// Ports of a server.
pub(super) const SERVER_PORTS: u16 = 3;

/// The guest's ports that the machine forwards: the agent's, and those of three servers.
pub(super) const PORTS: [u16; 10] = [
    agent::PORT,
    SERVER_PORT,
    4002,
    4003,
    4004,
    4005,
    4006,
    4007,
    4008,
    4009,
];

/// The kinds of virtual machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RigKind {
    /// QEMU with Debian's kernel: NVMe with zones, FDP, power cuts.
    Qemu,
    /// User-mode Linux, built from Debian's newest kernel.
    Uml,
}

/// A machine to boot.
pub(super) trait Rig: Send + Sync {
    /// The name of the rig.
    fn name(&self) -> &'static str;

    /// Starts a machine, whose agent runs the script `setup` of the folder of the run.
    fn spawn(&self) -> Result<Child>;

    /// The host's address of a port of the guest, the same in every boot.
    fn address(&self, port: u16) -> SocketAddr;

    /// The folder of the run: disks, sockets and the console's log.
    fn run(&self) -> &Path;

    /// Runs a command that acts on the machine's hardware.
    fn monitor(&self, command: &str) -> Result<()>;

    /// Inserts a drive that was removed.
    fn insert_drive(&self, serial: &str) -> Result<()>;

    /// Starts the command of a machine, which writes to the console's log.
    fn start(&self, command: &mut Command) -> Result<Child> {
        let log = self.run().join("console.log");
        let console = File::options().create(true).append(true).open(log)?;
        command
            .stdin(Stdio::null())
            .stdout(console.try_clone()?)
            .stderr(console)
            .spawn()
            .context("setpriv of util-linux could not start the machine")
    }
}

/// The way in which the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// The reset of QEMU's machine. Zoned namespaces keep their zones' states.
    Reset,
    /// The death of the machine. QEMU's zoned namespaces are empty afterwards, because it has
    /// the states of their zones in memory; all drives of user-mode Linux are new.
    Kill,
}

/// A running machine. Dropping it kills the machine.
pub(super) struct Machine {
    child: Mutex<Child>,
    rig: Box<dyn Rig>,
}

impl Machine {
    /// Starts a machine and waits until its agent answers.
    pub(super) fn boot(rig: Box<dyn Rig>, patience: Duration) -> Result<Self> {
        let machine = Machine {
            child: Mutex::new(rig.spawn()?),
            rig,
        };
        machine.wait(patience)?;
        Ok(machine)
    }

    /// The guest's commands.
    pub(super) fn guest(&self) -> Guest {
        Guest::new(self.address(agent::PORT))
    }

    /// The host's address of a port of the guest, the same in every boot.
    pub(super) fn address(&self, port: u16) -> SocketAddr {
        self.rig.address(port)
    }

    /// The name of its rig.
    pub(super) fn rig_name(&self) -> &'static str {
        self.rig.name()
    }

    /// The guest's kernel, as its agent greets.
    pub(super) fn kernel(&self) -> Result<String> {
        self.guest().greeting()
    }

    /// Cuts the power at once: nothing in the guest goes on. The disks keep what the
    /// drives had taken.
    pub(super) fn cut_power(&self, how: Cut) -> Result<()> {
        match how {
            Cut::Reset => {
                self.rig.monitor("system_reset")?;
                self.wait_for_silence()
            }
            Cut::Kill => {
                let mut child = self.child();
                child.kill()?;
                child.wait()?;
                Ok(())
            }
        }
    }

    /// Removes the controller of this serial number, as if it was pulled out.
    pub(super) fn remove_drive(&self, serial: &str) -> Result<()> {
        self.rig.monitor(&format!("device_del {serial}"))
    }

    /// Inserts it again. Its namespaces have kept their data and the states of zones.
    pub(super) fn insert_drive(&self, serial: &str) -> Result<()> {
        self.rig.insert_drive(serial)
    }

    /// Boots again after [`cut_power`](Self::cut_power).
    pub(super) fn restart(&self, how: Cut) -> Result<()> {
        if how == Cut::Kill {
            *self.child() = self.rig.spawn()?;
        }
        self.wait(BOOT_PATIENCE)
    }

    /// Waits until the agent from before a reset has gone.
    fn wait_for_silence(&self) -> Result<()> {
        let began = Instant::now();
        while self.guest().greeting().is_ok() {
            if began.elapsed() > BOOT_PATIENCE {
                bail!("the machine was not reset");
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The end of the console's log.
    pub(super) fn console_tail(&self) -> String {
        const LINES: usize = 40;
        let text = fs::read(self.rig.run().join("console.log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, patience: Duration) -> Result<()> {
        let began = Instant::now();
        while self.guest().greeting().is_err() {
            let ended = self.child().try_wait()?;
            if ended.is_some() || began.elapsed() > patience {
                let state = match ended {
                    Some(status) => format!("it ended with {status}"),
                    None => format!("no agent answered within {patience:?}"),
                };
                bail!("the guest did not boot: {state}\n{}", self.console_tail());
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let mut child = self.child();
        // Fails only if the machine has ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}
