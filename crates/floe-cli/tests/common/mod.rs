//! Runs the real binary and checks its output.

#![allow(dead_code)] // Not every test file uses everything.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

/// The `floe` command in `folder`. It starts the laboratory of the same build, if there is
/// one: through cargo, the laboratory would be built again with the features of one package.
pub(crate) fn floe(folder: &Path) -> Command {
    let program = program();
    let mut command = clean(&program, folder);
    if program.with_file_name("floe-lab").is_file() {
        command.env_remove("CARGO");
    }
    command
}

/// The binary: cargo names it to tests of its own package; for other packages
/// it is in the same directory.
fn program() -> PathBuf {
    match (
        option_env!("CARGO_BIN_EXE_floe"),
        option_env!("CARGO_BIN_EXE_floe-lab"),
    ) {
        (Some(program), _) => program.into(),
        (None, lab) => Path::new(lab.expect("a binary to test")).with_file_name("floe"),
    }
}

/// A command in `folder`, without the environment's settings of Floe.
pub(crate) fn clean(program: impl AsRef<OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let is_ours = name.to_str().is_some_and(|name| name.starts_with("FLOE_"));
        if is_ours || name == "NOTIFY_SOCKET" || name == "WATCHDOG_USEC" {
            command.env_remove(name);
        }
    }
    command
}

/// The exit code and output of a finished command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `floe` in `folder` until it ends.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Outcome {
    outcome(floe(folder).args(arguments).output().expect("floe runs"))
}

pub(crate) fn outcome(output: Output) -> Outcome {
    Outcome {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Outcome {
    /// Asserts the exit code, and that the output contains all `parts`.
    #[track_caller]
    pub(crate) fn expect(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        for part in parts {
            assert!(
                self.out.contains(part) || self.err.contains(part),
                "`{part}` is not in {self:#?}"
            );
        }
        assert!(!self.err.contains("panicked"), "{self:#?}");
        self
    }
}

/// A running `floe serve` on its own ports, killed on drop.
pub(crate) struct Serving {
    child: Child,
    pub(crate) s3: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) announced: serde_json::Value,
}

impl Serving {
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::spawn(floe(folder).args(arguments))
    }

    /// The memcached frontend is off unless the environment sets its address.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let memcached = "FLOE_MEMCACHED_LISTEN";
        if !command.get_envs().any(|(name, _)| name == memcached) {
            command.env(memcached, "off");
        }
        command
            .args(["serve", "--json"])
            .args([
                "--s3-listen",
                "127.0.0.1:0",
                "--admin-listen",
                "127.0.0.1:0",
            ])
            .args(["--device-size", "16MiB", "--device-zone-size", "1MiB"])
            .args(["--ram-size", "1MiB", "--chunk-write-buffer", "8MiB"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (mut serving, stderr) = Self::read(command);
        // The pipe stays open, or the server would fail to log.
        serving.child.stderr = Some(stderr);
        serving
    }

    /// Starts a command that serves and announces itself as JSON, with both
    /// outputs piped. Returns its log too.
    pub(crate) fn read(command: &mut Command) -> (Self, ChildStderr) {
        let mut child = command.spawn().expect("floe starts");
        let mut stderr = child.stderr.take().expect("it is piped");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("it can be read");
        let Ok(announced) = serde_json::from_str::<serde_json::Value>(&line) else {
            let mut err = String::new();
            let _ = stderr.read_to_string(&mut err);
            panic!("floe serve printed `{line}` and `{err}`");
        };
        let address = |name: &str| {
            let text = announced[name].as_str().expect("the frontend is open");
            text.parse().expect("it is an address")
        };
        let serving = Serving {
            s3: address("s3"),
            admin: address("admin"),
            announced,
            child,
        };
        (serving, stderr)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .args([signal, &self.pid().to_string()])
            .status()
            .expect("kill runs");
        assert!(status.success());
    }

    /// Sends SIGTERM, and returns the exit code.
    pub(crate) fn stop(self) -> i32 {
        self.stop_by("-TERM")
    }

    pub(crate) fn stop_by(mut self, signal: &str) -> i32 {
        self.signal(signal);
        let status = self.child.wait().expect("it ends");
        status.code().unwrap_or(-1)
    }

    pub(crate) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A GET over a new connection: the status and the body.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("it is a socket");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .expect("it takes a request");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("it answers");
    let end = response
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .expect("the head ends");
    let head = String::from_utf8_lossy(&response[..end]);
    let status = head
        .split_whitespace()
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("the head has a status");
    (status, response[end + 4..].to_vec())
}
