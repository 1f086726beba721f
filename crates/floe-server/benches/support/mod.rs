//! The servers that a bench measures.

use std::future::Future;
use std::io::{BufRead, BufReader, Read};
use std::ops::AddAssign;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use floe_server::Server;

pub(crate) type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The command line of a bench.
pub(crate) struct Arguments {
    /// Serve at this path instead of measuring.
    pub(crate) serve: Option<PathBuf>,
    pub(crate) json: bool,
    is_quick: bool,
}

impl Arguments {
    pub(crate) fn read() -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let has = |word: &str| words.iter().any(|other| other == word);
        let at = words.iter().position(|word| word == "--serve");
        Arguments {
            serve: at.and_then(|at| words.get(at + 1)).map(PathBuf::from),
            json: has("--json"),
            is_quick: has("--quick"),
        }
    }

    /// Time of one slice.
    pub(crate) fn slice(&self) -> Duration {
        Duration::from_millis(if self.is_quick { 200 } else { 1000 })
    }
}

/// The requests of a server, and their cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) requests: u64,
    pub(crate) cpu_seconds: f64,
    pub(crate) seconds: f64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.requests += other.requests;
        self.cpu_seconds += other.cpu_seconds;
        self.seconds += other.seconds;
    }
}

impl Cost {
    pub(crate) fn requests_per_cpu_second(&self) -> f64 {
        self.requests as f64 / self.cpu_seconds.max(1e-9)
    }
}

/// A server process, killed on drop.
pub(crate) struct Process(Child);

impl Process {
    /// Starts this program as the server at `path` that `flag` names.
    pub(crate) fn own(flag: &str, path: &Path) -> Result<Self, AnyError> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(flag)
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("it is piped")?;
        BufReader::new(stdout).read_line(&mut line)?;
        Ok(Process(child))
    }

    /// A server that has been started, once it listens at `path`.
    pub(crate) fn listening(child: Child, path: &Path) -> Self {
        while UnixStream::connect(path).is_err() {
            std::thread::yield_now();
        }
        Process(child)
    }

    /// CPU time of the process so far.
    pub(crate) fn cpu_seconds(&self) -> Result<f64, AnyError> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let fields = stat.rsplit_once(')').ok_or("no name")?.1;
        let mut fields = fields.split_whitespace().skip(11);
        let mut next = || -> Result<u64, AnyError> { Ok(fields.next().ok_or("short")?.parse()?) };
        let ticks = next()? + next()?;
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the server that `start` starts, until standard input ends.
pub(crate) fn serve(start: impl Future<Output = Result<Server, AnyError>>) -> Result<(), AnyError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let _server = runtime.block_on(start)?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
