//! The programs of a cluster: nodes, proxies and etcd, each on its machine.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::network::{ETCD, Machine};
use crate::blackbox::http::Connection;
use crate::packages;
use crate::project;

/// The time for a program to serve.
const START_TIME: Duration = Duration::from_secs(30);

pub(super) const MEMCACHED: u16 = 11211;
pub(super) const S3: u16 = 9000;
pub(super) const ADMIN: u16 = 9091;
pub(super) const NUTCRACKER: u16 = 22121;
const PEERS: u16 = 9095;

/// Set inside the sandbox to the path of Envoy, if it is installed.
pub(super) const ENVOY: &str = "FLOE_CLUSTER_ENVOY";

/// The configurations that ship.
const RING: &str = "packaging/ring";

/// The path of a shipped configuration.
pub(super) fn shipped(name: &str) -> PathBuf {
    project::root().join(RING).join(name)
}

/// A running program, killed when it is dropped.
pub(super) struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    fn start(command: &mut Command, log: &Path, port: SocketAddr) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("{command:?}"))?;
        let mut program = Program {
            child,
            log: log.to_owned(),
        };
        let began = Instant::now();
        while TcpStream::connect_timeout(&port, Duration::from_secs(1)).is_err() {
            if program.child.try_wait()?.is_some() || began.elapsed() > START_TIME {
                bail!("{command:?} does not serve:\n{}", program.log_tail());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(program)
    }

    pub(super) fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    pub(super) fn log_tail(&self) -> String {
        let text = self.log().unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// Sends a signal, such as `STOP`.
    pub(super) fn signal(&self, signal: &str) -> Result<()> {
        let mut kill = Command::new("kill");
        kill.arg(format!("-{signal}"))
            .arg(self.child.id().to_string());
        project::run(&mut kill)
    }

    /// Ends it, orderly or not.
    pub(super) fn end(mut self, signal: &str) -> Result<()> {
        self.signal(signal)?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Unless it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A node: its machine, and how it is started.
pub(super) struct Node {
    pub(super) machine: Machine,
    pub(super) binary: PathBuf,
    pub(super) folder: PathBuf,
    /// Its configuration in `packaging/ring`, if it has one.
    pub(super) config: Option<PathBuf>,
    /// The keys that sign requests of S3; without them, no request needs a signature.
    pub(super) s3_keys: Option<String>,
    pub(super) more: Vec<String>,
    /// By how many minutes its time of day is wrong.
    pub(super) minutes_off: i32,
}

impl Node {
    pub(super) fn start(&self) -> Result<Program> {
        let data = self.folder.join(self.machine.name);
        fs::create_dir_all(&data)?;
        let at = |port| format!("{}:{port}", self.machine.address());
        let mut command = self.machine.command(&self.binary.display().to_string());
        if let Some(library) = fake_clock().filter(|_| self.minutes_off != 0) {
            command
                .env("LD_PRELOAD", library)
                .env("FAKETIME", format!("{:+}m", self.minutes_off))
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command.arg("serve");
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        command.arg("--data-dir").arg(&data);
        command.args(["--device-size", "128MiB", "--device-zone-size", "8MiB"]);
        command.args(["--tiny-size", "128MiB", "--ram-size", "16MiB"]);
        command.args(["--memcached-threads", "1", "--s3-threads", "1"]);
        command.args(["--node-name", self.machine.name]);
        command.args(["--memcached-listen", &at(MEMCACHED)]);
        command.arg("--memcached-anonymous=true");
        match &self.s3_keys {
            Some(keys) => command.args(["--s3-keys", keys, "--s3-anonymous=false"]),
            None => command.arg("--s3-anonymous=true"),
        };
        command.args(["--s3-listen", &at(S3), "--admin-listen", &at(ADMIN)]);
        command.args(["--admin-public", "--server-drain-timeout-seconds", "3"]);
        command.args(&self.more);
        let log = self.folder.join(format!("{}.log", self.machine.name));
        let port = SocketAddr::from((self.machine.address(), ADMIN));
        Program::start(&mut command, &log, port)
    }

    /// What the node says of itself.
    pub(super) fn status(&self) -> Result<Value> {
        let address = SocketAddr::from((self.machine.address(), ADMIN));
        let mut connection = Connection::open_with_patience(address, Duration::from_secs(2))?;
        let answer = connection.request("GET", "/v1/node", &[], b"")?;
        Ok(serde_json::from_slice(&answer.body)?)
    }

    /// The sum of a metric's counts whose labels contain a text.
    pub(super) fn count(&self, metric: &str, label: &str) -> Result<u64> {
        let address = SocketAddr::from((self.machine.address(), ADMIN));
        let answer = Connection::open(address)?.request("GET", "/metrics", &[], b"")?;
        let text = String::from_utf8(answer.body)?;
        let values = text.lines().filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            let labels = name.strip_prefix(metric)?;
            let is_it = labels.is_empty() || labels.starts_with('{');
            (is_it && labels.contains(label)).then(|| value.parse::<u64>())
        });
        let values: Vec<u64> = values.collect::<Result<_, _>>()?;
        ensure!(!values.is_empty(), "there is no metric {metric} {label}");
        Ok(values.iter().sum())
    }
}

/// The options of a node that fills from the others.
pub(super) fn peers(address: IpAddr) -> [String; 4] {
    let listen = SocketAddr::from((address, PEERS)).to_string();
    [
        "--peers-listen".to_owned(),
        listen,
        "--peers-secret".to_owned(),
        "of a trial".to_owned(),
    ]
}

/// Waits until every node has its place in a ring of all.
pub(super) fn wait_for_ring(nodes: &[Node]) -> Result<()> {
    let began = Instant::now();
    let mut last = Vec::new();
    while began.elapsed() < START_TIME {
        let statuses = nodes.iter().map(Node::status);
        last = statuses.collect::<Result<Vec<Value>>>().unwrap_or_default();
        let is_whole = |status: &Value| {
            status["confirmed"] == true
                && status["settled"] == true
                && matches!(status["ring_nodes"].as_u64(), Some(0 | 3))
        };
        if last.len() == nodes.len() && last.iter().all(is_whole) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    bail!("the nodes found no ring: {last:?}")
}

/// A library that changes a program's time of day, if it is installed.
pub(super) fn fake_clock() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut paths = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    paths.find(|path| path.is_file())
}

pub(super) fn nutcracker(machine: Machine, config: &Path, folder: &Path) -> Result<Program> {
    let name = machine.name;
    let mut command = machine.command("nutcracker");
    command.arg("--conf-file").arg(config);
    command
        .arg("--pid-file")
        .arg(folder.join(format!("{name}.pid")));
    command.args(["--stats-interval", "1000"]);
    let log = folder.join(format!("{name}.log"));
    let port = SocketAddr::from((machine.address(), NUTCRACKER));
    Program::start(&mut command, &log, port)
}

pub(super) fn haproxy(machine: Machine, config: &Path, folder: &Path) -> Result<Program> {
    let program = packages::path_of("haproxy").context("haproxy is not installed")?;
    let mut command = machine.command(&program.display().to_string());
    command.arg("-db").arg("-f").arg(config);
    let log = folder.join(format!("{}.log", machine.name));
    Program::start(
        &mut command,
        &log,
        SocketAddr::from((machine.address(), S3)),
    )
}

/// Envoy, whose path is in [`ENVOY`].
pub(super) fn envoy(machine: Machine, config: &Path, folder: &Path) -> Result<Program> {
    let program = std::env::var(ENVOY).context("envoy is not installed")?;
    let mut command = machine.command(&program);
    command.args([
        "--disable-hot-restart",
        "--concurrency",
        "1",
        "--log-level",
        "warning",
    ]);
    command.arg("-c").arg(config);
    let log = folder.join(format!("{}.log", machine.name));
    let port = SocketAddr::from((machine.address(), S3));
    Program::start(&mut command, &log, port)
}

/// etcd, which keeps its state over a restart in `folder`, with further options, those of TLS.
pub(super) fn etcd(folder: &Path, tls: &[&str]) -> Result<Program> {
    let scheme = if tls.is_empty() { "http" } else { "https" };
    let url = format!("{scheme}://{}:2379", ETCD.address());
    let peer = "http://127.0.0.1:2380";
    let mut command = ETCD.command("etcd");
    command.args(["--name", "e1", "--unsafe-no-fsync", "--logger=zap"]);
    command.args(tls).arg("--data-dir").arg(folder.join("etcd"));
    for (option, value) in [
        ("--listen-client-urls", &*url),
        ("--advertise-client-urls", &*url),
        ("--listen-peer-urls", peer),
        ("--initial-advertise-peer-urls", peer),
    ] {
        command.args([option, value]);
    }
    command.args(["--initial-cluster", &format!("e1={peer}")]);
    let log = folder.join("etcd.log");
    Program::start(&mut command, &log, SocketAddr::from((ETCD.address(), 2379)))
}
