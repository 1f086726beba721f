//! Commands in the guest, run by its agent.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::agent::{GREETING, STATUS};

/// An agent that runs greets at once; before there is one, QEMU itself accepts the connection.
const BOOT_GREETING_PATIENCE: Duration = Duration::from_secs(2);

/// The same of an agent that is there, and shares its processors with the tests.
const GREETING_PATIENCE: Duration = Duration::from_secs(30);

/// Output shown by an error.
const TAIL_BYTES: usize = 4000;

/// The agent's address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guest {
    agent: SocketAddr,
}

impl Guest {
    pub(super) fn new(agent: SocketAddr) -> Self {
        Guest { agent }
    }

    /// The kernel's release.
    pub(super) fn greeting(self) -> Result<String> {
        let greeted = self.connect(BOOT_GREETING_PATIENCE);
        greeted.map(|(_, release)| release)
    }

    fn connect(self, patience: Duration) -> Result<(BufReader<TcpStream>, String)> {
        let stream = TcpStream::connect_timeout(&self.agent, patience)?;
        stream.set_read_timeout(Some(patience))?;
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let release = line.trim_end().strip_prefix(GREETING);
        let release = release.with_context(|| format!("no agent, but {line:?}"))?;
        Ok((stream, release.to_owned()))
    }

    /// Runs a command and prints its output line by line; returns the output.
    ///
    /// # Errors
    /// If its status is not 0, or `patience` is over.
    pub(super) fn run(self, words: &[&str], patience: Duration) -> Result<String> {
        self.start(words, patience, Echo::Print)?.wait()
    }

    /// As [`run`](Self::run), without printing.
    pub(super) fn output(self, words: &[&str], patience: Duration) -> Result<String> {
        self.start(words, patience, Echo::Keep)?.wait()
    }

    /// Runs a script of the shell and returns its output.
    pub(super) fn shell(self, script: &str, patience: Duration) -> Result<String> {
        self.output(&["/bin/sh", "-ec", script], patience)
    }

    /// Starts a command that runs beside others.
    pub(super) fn start(self, words: &[&str], patience: Duration, echo: Echo) -> Result<Running> {
        let (mut stream, _) = self.connect(GREETING_PATIENCE)?;
        let line = format!("{}\n", serde_json::to_string(words)?);
        stream.get_mut().write_all(line.as_bytes())?;
        let connection = stream.get_ref().try_clone()?;
        let command = words.join(" ");
        let reader = thread::spawn(move || read(stream, patience, echo));
        Ok(Running {
            command,
            connection,
            reader: Some(reader),
        })
    }
}

/// The use of a command's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Echo {
    Print,
    Keep,
}

/// A command's output, and its status if it has ended.
struct Ended {
    output: String,
    status: Option<i32>,
}

/// A command that runs in the guest. Dropping it kills the command.
pub(super) struct Running {
    command: String,
    connection: TcpStream,
    reader: Option<JoinHandle<Ended>>,
}

impl Running {
    /// True if it has ended, or the guest is gone.
    pub(super) fn has_ended(&self) -> bool {
        self.reader.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the end; returns the output.
    ///
    /// # Errors
    /// If its status is not 0.
    pub(super) fn wait(mut self) -> Result<String> {
        let Ended { output, status } = self.join()?;
        let start = output.len().saturating_sub(TAIL_BYTES);
        let start = (start..output.len()).find(|at| output.is_char_boundary(*at));
        let tail = &output[start.unwrap_or(output.len())..];
        match status {
            Some(0) => Ok(output),
            Some(status) => bail!("`{}` in the guest: status {status}\n{tail}", self.command),
            None => bail!(
                "`{}` in the guest did not end in time\n{tail}",
                self.command
            ),
        }
    }

    /// The output of a command that the guest's end cut off.
    pub(super) fn cut_off(mut self) -> Result<String> {
        self.connection.shutdown(Shutdown::Both)?;
        self.join().map(|ended| ended.output)
    }

    fn join(&mut self) -> Result<Ended> {
        let reader = self.reader.take().context("a command is awaited once")?;
        let ended = reader.join();
        ended.map_err(|_| anyhow!("the reader of `{}` panicked", self.command))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The guest may be gone.
        let _ = self.connection.shutdown(Shutdown::Both);
    }
}

/// Reads output until the status, the end of the connection, or of `patience`.
fn read(mut stream: BufReader<TcpStream>, patience: Duration, echo: Echo) -> Ended {
    let began = Instant::now();
    let mut ended = Ended {
        output: String::new(),
        status: None,
    };
    loop {
        let left = patience.saturating_sub(began.elapsed());
        let mut line = Vec::new();
        let timed = stream.get_ref().set_read_timeout(Some(left));
        if left.is_zero() || timed.is_err() {
            return ended;
        }
        match stream.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return ended,
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line);
        if let Some(status) = line.strip_prefix(STATUS) {
            ended.status = status.trim().parse().ok();
            return ended;
        }
        if echo == Echo::Print && !line.trim().is_empty() {
            print!("vm:   {line}");
        }
        ended.output += &line;
    }
}
