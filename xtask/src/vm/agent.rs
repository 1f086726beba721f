//! The guest's first process: it prepares the guest, and runs the commands that the host
//! sends over TCP.
//!
//! A connection is one command. The agent greets, reads the command's words as a line
//! of JSON, and sends its output, then a line with its status. The command dies with
//! its connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, ensure};

use super::packages;

/// The port that the agent listens on in the guest.
pub(super) const PORT: u16 = 4000;

/// The beginning of the line that an agent greets with; the kernel's release follows.
pub(super) const GREETING: &str = "floe-vm agent, Linux ";

/// The beginning of the line that ends a command's output; its exit status follows.
pub(super) const STATUS: &str = "floe-vm status ";

/// Gives disks names that do not depend on the order in which controllers appear:
/// `/dev/vm/SERIAL-NSID`, and `/dev/vm/SERIAL-NSID.char` for passthrough. Waits for those
/// of `DISKS`.
pub(super) const NAME_DISKS: &str = r#"
for name in $(echo $DISKS | tr , " "); do
  tries=0
  while :; do
    for controller in /sys/class/nvme/nvme*; do
      serial=$(tr -d ' ' < $controller/serial) || continue
      for namespace in $controller/nvme*n*; do
        [ -e $namespace/nsid ] || continue
        id=$serial-$(cat $namespace/nsid)
        ln -sf /dev/${namespace##*/} /dev/vm/$id
        ln -sf /dev/ng${namespace##*/nvme} /dev/vm/$id.char
      done
    done
    [ -b /dev/vm/$name ] && break
    tries=$((tries + 1)); [ $tries = 600 ] && { echo "no disk $name"; exit 1; }
    sleep 0.1
  done
done
"#;

/// Prepares the guest, then as its rig does by `SETUP`. `RIG` has the unpacked packages.
const PREPARE: &str = r#"
mkdir -p /dev/pts /dev/shm /dev/vm
mount -t devpts d /dev/pts
mount -t tmpfs t /dev/shm
mount -t debugfs d /sys/kernel/debug
hostname floe-vm
ip link set lo up
. $SETUP
"#;

/// Prepares the guest and serves the host until the machine ends.
///
/// # Errors
/// If this is not the guest, or it cannot be prepared.
pub fn run() -> Result<()> {
    ensure!(
        std::process::id() == 1,
        "only a guest's first process is the agent"
    );
    let rig = std::env::var_os("RIG").context("the kernel's command line names no RIG")?;
    let variables = packages::environment(Path::new(&rig));
    let mut setup = Command::new("env");
    let script = [PREPARE, NAME_DISKS].concat();
    setup.args(&variables).args(["/bin/sh", "-c", &script]);
    let status = setup.status()?;
    ensure!(
        status.success(),
        "the guest could not be prepared: {status}"
    );
    let listener = TcpListener::bind(("0.0.0.0", PORT))?;
    println!("vm-agent: ready");
    for connection in listener.incoming() {
        let (connection, variables) = (connection?, variables.clone());
        thread::spawn(move || {
            if let Err(error) = serve(&connection, &variables) {
                println!("vm-agent: {error:#}");
            }
        });
    }
    Ok(())
}

/// Runs one command in an environment of `variables`.
fn serve(connection: &TcpStream, variables: &[String]) -> Result<()> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut to_host = connection;
    to_host.write_all(format!("{GREETING}{}\n", release.trim()).as_bytes())?;
    let mut from_host = BufReader::new(connection);
    let mut line = String::new();
    if from_host.read_line(&mut line)? == 0 {
        return Ok(());
    }
    let words: Vec<String> = serde_json::from_str(&line)?;
    let (mut output, input) = io::pipe()?;
    let child = Command::new("env")
        .args(variables)
        .args(words)
        .stdin(Stdio::null())
        .stdout(input.try_clone()?)
        .stderr(input)
        .spawn()?;
    let status = watch(child, &mut output, connection, from_host)?;
    to_host.write_all(format!("\n{STATUS}{status}\n").as_bytes())?;
    Ok(())
}

/// Sends the child's output until it ends, and kills it if the host goes first.
fn watch(
    child: Child,
    output: &mut impl Read,
    connection: &TcpStream,
    mut from_host: BufReader<&TcpStream>,
) -> Result<i32> {
    let child = Mutex::new(child);
    let with_child = |act: &dyn Fn(&mut Child)| {
        act(&mut child.lock().unwrap_or_else(PoisonError::into_inner));
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            // Ends when the host closes the connection, or after the status.
            let _ = from_host.read(&mut [0]);
            with_child(&|child| drop(child.kill()));
        });
        let mut to_host = connection;
        let copied = io::copy(output, &mut to_host);
        if copied.is_err() {
            with_child(&|child| drop(child.kill()));
        }
        let status = child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .wait()?;
        // Wakes the thread above; the status can still be sent.
        connection.shutdown(std::net::Shutdown::Read)?;
        Ok(status.code().unwrap_or(128))
    })
}
