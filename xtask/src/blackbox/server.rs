//! The real binary as a process.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::http::Connection;

const START_PATIENCE: Duration = Duration::from_secs(60);

/// Small, so that a short load fills many zones.
pub const SMALL_ZONE: &str = "4MiB";
/// Small, so that objects have several chunks.
pub const SMALL_CHUNK: &str = "128KiB";

/// The settings of the server.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The `floe` binary.
    pub binary: PathBuf,
    /// The directory of all files of this cache.
    pub data_dir: PathBuf,
    /// Size of the cache, as a flag's value.
    pub cache_size: String,
    /// Size of a zone, as a flag's value.
    pub zone_size: &'static str,
    /// Size of a chunk, as a flag's value.
    pub chunk_size: &'static str,
    /// Size of the RAM tier, as a flag's value.
    pub ram_size: String,
    /// The consistency mode.
    pub consistency: &'static str,
    /// Further flags.
    pub more: Vec<String>,
}

/// A running server. Dropping it kills it.
pub struct Server {
    child: Child,
    /// The S3 frontend.
    pub s3: SocketAddr,
    /// The memcached frontend.
    pub memcached: SocketAddr,
    /// Metrics and health.
    pub admin: SocketAddr,
    /// From the start of the process to the first healthy response.
    pub start_time: Duration,
}

impl Server {
    /// Starts the server and waits until it is healthy.
    pub fn start(setup: &Setup) -> Result<Self> {
        let mut server = Self::spawn(setup)?;
        let began = Instant::now();
        loop {
            if let Some(status) = server.child.try_wait()? {
                bail!(
                    "the server ended while starting: {status}\n{}",
                    log_tail(&setup.data_dir)
                );
            }
            if server.healthy() {
                server.start_time = began.elapsed();
                return Ok(server);
            }
            if began.elapsed() > START_PATIENCE {
                bail!(
                    "the server did not start in {START_PATIENCE:?}\n{}",
                    log_tail(&setup.data_dir)
                );
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Starts the server without waiting.
    pub fn spawn(setup: &Setup) -> Result<Self> {
        let [s3, memcached, admin] = free_addresses()?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(setup.data_dir.join("floe.log"))?;
        let child = Command::new(&setup.binary)
            .arg("serve")
            .arg("--data-dir")
            .arg(&setup.data_dir)
            .args(flags(setup, s3, memcached, admin))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", setup.binary.display()))?;
        Ok(Server {
            child,
            s3,
            memcached,
            admin,
            start_time: Duration::ZERO,
        })
    }

    fn healthy(&self) -> bool {
        let response =
            Connection::open(self.admin).and_then(|mut c| c.request("GET", "/ready", &[], b""));
        response.is_ok_and(|response| response.status == 200)
    }

    /// `kill -9`; waits for the end of the process.
    pub fn kill(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the server ended by itself: {status}");
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends `signal` (`"TERM"`, `"HUP"`).
    pub fn signal(&self, signal: &str) -> Result<()> {
        let status = Command::new("kill")
            .args(["-s", signal, &self.child.id().to_string()])
            .status()?;
        ensure!(status.success(), "kill -s {signal}: {status}");
        Ok(())
    }

    /// Sends SIGTERM; the server must end with status 0.
    pub fn stop(mut self) -> Result<()> {
        self.signal("TERM")?;
        let began = Instant::now();
        while began.elapsed() < START_PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                if !status.success() {
                    bail!("a graceful stop ended with {status}");
                }
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        bail!("the server did not stop in {START_PATIENCE:?}")
    }

    /// The process's peak resident memory in bytes.
    pub fn peak_rss_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .and_then(|rest| rest.trim().strip_suffix(" kB"))
            .with_context(|| format!("{path} has no VmHWM"))?;
        Ok(kib.trim().parse::<u64>()? << 10)
    }

    /// The sum of the metric `name` over the samples whose labels contain one
    /// of `labels`; `""` matches all samples.
    pub fn metric(&self, name: &str, labels: &[&str]) -> Result<f64> {
        let response = Connection::open(self.admin)?.request("GET", "/metrics", &[], b"")?;
        let text = String::from_utf8_lossy(&response.body).into_owned();
        let mut found = false;
        let mut sum = 0.0;
        for line in text.lines() {
            let Some(rest) = line
                .strip_prefix(name)
                .filter(|rest| rest.starts_with(['{', ' ']))
            else {
                continue;
            };
            let Some((own_labels, value)) = rest.rsplit_once(' ') else {
                continue;
            };
            if labels.iter().any(|label| own_labels.contains(label)) {
                sum += value
                    .parse::<f64>()
                    .with_context(|| format!("metric line {line:?}"))?;
                found = true;
            }
        }
        if !found {
            bail!("/metrics has no `{name}` with {labels:?}");
        }
        Ok(sum)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn flags(setup: &Setup, s3: SocketAddr, memcached: SocketAddr, admin: SocketAddr) -> Vec<String> {
    let has_keys = setup.more.iter().any(|flag| flag.starts_with("--s3-keys="));
    // Without keys, a server is anonymous only if a flag says so.
    let anonymous = if has_keys { "false" } else { "loopback" };
    let pairs = [
        ("--s3-anonymous", anonymous.to_owned()),
        ("--s3-listen", s3.to_string()),
        ("--memcached-listen", memcached.to_string()),
        ("--admin-listen", admin.to_string()),
        ("--device-size", setup.cache_size.clone()),
        ("--device-zone-size", setup.zone_size.to_owned()),
        ("--chunk-size", setup.chunk_size.to_owned()),
        ("--ram-size", setup.ram_size.clone()),
        ("--object-consistency", setup.consistency.to_owned()),
    ];
    let mut flags: Vec<String> = pairs
        .into_iter()
        .map(|(flag, value)| format!("{flag}={value}"))
        .collect();
    flags.extend(setup.more.iter().cloned());
    flags
}

/// Name of the volume of [`volume_flags`].
pub const VOLUME: &str = "disk";

/// Flags that serve `backing` as a volume over NBD, at `nbd.sock` in the data directory.
/// Its cache of `cache_size` is cleaned all the time.
pub fn volume_flags(backing: &Path, mode: &str, cache_size: &str) -> Vec<String> {
    vec![
        format!("--volume={VOLUME}={},mode={mode}", backing.display()),
        format!("--volumes-size={cache_size}"),
        "--volumes-cleaning={ kind = \"acp\" }".to_owned(),
        "--nbd-listen=off".to_owned(),
    ]
}

/// Distinct addresses that were free a moment ago.
pub(crate) fn free_addresses<const N: usize>() -> Result<[SocketAddr; N]> {
    let mut listeners = Vec::with_capacity(N);
    for _ in 0..N {
        listeners.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
    }
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); N];
    for (address, listener) in addresses.iter_mut().zip(&listeners) {
        *address = listener.local_addr()?;
    }
    Ok(addresses)
}

/// The end of the server's log.
pub fn log_tail(data_dir: &Path) -> String {
    const LINES: usize = 30;
    let text = std::fs::read_to_string(data_dir.join("floe.log")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
