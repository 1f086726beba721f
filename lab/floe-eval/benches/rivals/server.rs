//! The peers: how each is started, and what the kernel says of it.

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::AnyError;
use crate::load::Case;

/// Threads that serve requests, the same for all.
const THREADS: u32 = 2;

const START_PATIENCE: Duration = Duration::from_secs(120);

/// Programs that are not on the path.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    pub(crate) floe: Option<PathBuf>,
    /// The one of `peers/`, which can put foyer behind the protocol.
    pub(crate) foyer: Option<PathBuf>,
}

/// A server in a process of its own, ended when dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) socket: PathBuf,
    /// Keys that it has, for gets; filled by the load.
    pub(crate) found: Vec<u64>,
    /// It can keep more than its memory holds.
    pub(crate) has_flash: bool,
    /// A file that it reads through the kernel's page cache.
    pub(crate) cached_file: Option<PathBuf>,
    /// Receives the first line that it prints.
    announcement: Mutex<Receiver<String>>,
    child: Child,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The resources that a process used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    pub(crate) cpu_seconds: f64,
    /// That it had read from the device: what the page cache answers is none.
    pub(crate) read_bytes: u64,
    /// That it caused to be written to the device.
    pub(crate) written_bytes: u64,
    /// Gets that were answered, and those of them that flash answered; of
    /// peers that count them.
    pub(crate) hits: Option<(u64, u64)>,
}

impl Used {
    /// The processor time, bytes and hits that the peer added after `before`.
    pub(crate) fn since(&self, before: &Used) -> Used {
        Used {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            read_bytes: self.read_bytes - before.read_bytes,
            written_bytes: self.written_bytes - before.written_bytes,
            hits: (self.hits.zip(before.hits))
                .map(|((all, flash), (then, flash_then))| (all - then, flash - flash_then)),
        }
    }
}

impl Peer {
    /// All that can be had; says loudly which cannot.
    pub(crate) fn start_all(
        programs: &Programs,
        case: &Case,
        folder: &Path,
    ) -> Result<Vec<Self>, AnyError> {
        let mut floes = vec!["floe", "floe-process"];
        if case.is_tiny() {
            // Values of 4 KiB are in such blocks as it is.
            floes.extend(["floe-sectors", "floe-looks", "floe-unfenced"]);
        }
        let floes = floes
            .into_iter()
            .map(|name| (name, floe(programs, case, folder, name)));
        let others = [
            ("memcached-extstore", Some(memcached(case, folder, true))),
            (MEMORY_ONLY, Some(memcached(case, folder, false))),
            ("foyer", foyer(programs, case, folder)),
        ];
        let mut peers = Vec::new();
        for (name, command) in floes.chain(others) {
            let Some(command) = command else {
                eprintln!("SKIPPED {name}: its program was not named");
                continue;
            };
            let socket = socket(folder, name);
            match Peer::start(name, command, socket) {
                Ok(mut peer) => {
                    let file = folder.join(EXTSTORE_FILE);
                    peer.cached_file = (name == "memcached-extstore").then_some(file);
                    peers.push(peer);
                }
                // Ours must be there; the others may be missing on a machine.
                Err(error) if name == "floe" => return Err(error),
                Err(error) => eprintln!("SKIPPED {name}: {error}"),
            }
        }
        Ok(peers)
    }

    /// Floe with another engine for tiny objects, and the defaults but for sizes.
    pub(crate) fn engine(
        programs: &Programs,
        engine: &'static str,
        flash_bytes: u64,
        folder: &Path,
    ) -> Result<Self, AnyError> {
        let mut command = bare_floe(programs, folder, engine).ok_or("its program was not named")?;
        command
            .args(["--device-size", "64MiB", "--device-zone-size", "8MiB"])
            .args(["--chunk-write-buffer", "16MiB", "--ram-size", "1MiB"])
            .args(["--tiny-engine", engine, "--tiny-size"])
            .arg(format!("{}MiB", flash_bytes >> 20))
            .arg("--json");
        Peer::start(engine, command, socket(folder, engine))
    }

    /// Ends it as an operator does, and waits for that.
    pub(crate) fn stop(mut self) -> Result<(), AnyError> {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        match self.child.wait()? {
            status if status.success() => Ok(()),
            status => Err(format!("it stopped with {status}").into()),
        }
    }

    fn start(name: &'static str, mut command: Command, socket: PathBuf) -> Result<Self, AnyError> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().ok_or("it is piped")?;
        let stdout = child.stdout.take().ok_or("it is piped")?;
        let (announce, announcement) = mpsc::channel();
        let mut peer = Peer {
            name,
            socket,
            found: Vec::new(),
            has_flash: name != MEMORY_ONLY,
            cached_file: None,
            announcement: Mutex::new(announcement),
            child,
        };
        // The server must never wait for a reader of its output.
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            if let Some(line) = lines.next() {
                let _ = announce.send(line);
            }
            lines.for_each(drop);
        });
        let lines = std::thread::spawn(move || {
            let lines = BufReader::new(stderr).lines().map_while(Result::ok);
            lines
                .filter(|line| !line.contains("INFO"))
                .take(5)
                .collect::<Vec<_>>()
                .join("; ")
        });
        let end = Instant::now() + START_PATIENCE;
        while UnixStream::connect(&peer.socket).is_err() {
            if let Some(status) = peer.child.try_wait()? {
                let output = lines.join().unwrap_or_default();
                return Err(format!("it ended at once, {status}: {output}").into());
            }
            if Instant::now() > end {
                return Err("it did not open its socket".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(peer)
    }

    pub(crate) fn connect(&self) -> Result<UnixStream, AnyError> {
        Ok(UnixStream::connect(&self.socket)?)
    }

    fn proc(&self, file: &str) -> Result<String, AnyError> {
        let path = format!("/proc/{}/{file}", self.child.id());
        Ok(std::fs::read_to_string(path)?)
    }

    /// Processor time of all its threads, and bytes written.
    pub(crate) fn used(&self) -> Result<Used, AnyError> {
        let stat = self.proc("stat")?;
        // The second field is the name, in brackets.
        let fields = stat.rsplit_once(')').ok_or("no name")?.1;
        let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<u64>);
        let mut next = || ticks.next().ok_or("a short line")?.map_err(|_| "no number");
        let ticks = next()? + next()?;
        let io = self.proc("io")?;
        let bytes = |name: &str| -> Result<u64, AnyError> {
            let found = io.lines().find_map(|line| line.strip_prefix(name));
            Ok(found.ok_or_else(|| format!("no {name}"))?.trim().parse()?)
        };
        Ok(Used {
            cpu_seconds: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
            read_bytes: bytes("read_bytes:")?,
            written_bytes: bytes("write_bytes:")?,
            hits: crate::client::hits(self.connect()?)?,
        })
    }

    /// The memory of the program and its tiny objects, as Floe with `--json` says at its start; for
    /// its first caller.
    pub(crate) fn announced_bytes(&self) -> Option<u64> {
        let lines = self.announcement.lock().ok()?;
        let line = lines.recv_timeout(START_PATIENCE).ok()?;
        let line: Value = serde_json::from_str(&line).ok()?;
        let parts = ["tiny", "program", "registered_buffers"];
        let parts = parts.map(|part| line["memory"]["parts"][part].as_u64());
        parts.into_iter().sum()
    }

    /// The most memory that it ever had.
    pub(crate) fn resident_bytes(&self) -> Result<u64, AnyError> {
        let status = self.proc("status")?;
        let kib = status.lines().find_map(|line| {
            let kib = line.strip_prefix("VmHWM:")?.trim();
            kib.strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        Ok(kib.ok_or("no VmHWM")? << 10)
    }
}

const MEMORY_ONLY: &str = "memcached";
const EXTSTORE_FILE: &str = "extstore";

fn socket(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.sock"))
}

/// `floe serve` with its defaults, but for sizes. Half of the memory is for
/// values; the other half is more than what its buffers and indexes take. As
/// `floe-process` what it promises of overwrites and deletes holds when the
/// process dies, and not when power fails; the others promise neither. As
/// `floe-unfenced` it promises nothing of them, as extstore. As
/// `floe-sectors` it writes blocks of 512 bytes instead of 4 KiB. As `floe-looks`
/// it looks for every key on flash of which memory knows nothing before it makes
/// a fence.
fn floe(programs: &Programs, case: &Case, folder: &Path, name: &str) -> Option<Command> {
    let mib = |bytes: u64| format!("{}MiB", bytes >> 20);
    // An engine that has nothing to do has the least flash that it can run on.
    let least = 64 << 20;
    let (tiny, chunks) = match case.is_tiny() {
        true => (case.flash_bytes, least),
        false => (least, case.flash_bytes),
    };
    let (tiny_ram, chunk_ram) = match case.is_tiny() {
        true => (case.memory_bytes / 2, 1 << 20),
        false => (1 << 20, case.memory_bytes / 2),
    };
    let mut command = bare_floe(programs, folder, name)?;
    command
        .args([
            "--device-zone-size",
            "8MiB",
            "--chunk-write-buffer",
            "16MiB",
        ])
        .args(["--device-size", &mib(chunks), "--tiny-size", &mib(tiny)])
        .args([
            "--ram-size",
            &mib(chunk_ram),
            "--tiny-ram-size",
            &mib(tiny_ram),
        ]);
    if !case.is_tiny() {
        // With its head an item of 4 KiB is a little longer than that, and
        // would take two blocks of 4 KiB.
        command.args(["--device-block-size", "512"]);
    }
    if name == "floe-sectors" {
        command.args(["--tiny-block-size", "512"]);
    }
    if name == "floe-looks" {
        command.args(["--tiny-look-before-fence", "always"]);
    }
    if name == "floe-unfenced" {
        command.arg("--tiny-durability=none");
    }
    if name == "floe-process" {
        command.args(["--chunk-durability", "process", "--tiny-durability=process"]);
    }
    Some(command)
}

/// `floe serve` on a socket and in a folder of its own.
fn bare_floe(programs: &Programs, folder: &Path, name: &str) -> Option<Command> {
    let mut command = Command::new(programs.floe.clone().or_else(beside_us)?);
    command
        .args(["serve", "--memcached-listen", "off", "--s3-listen", "off"])
        .args(["--admin-listen", "off", "--log-level", "warn"])
        .args(["--memcached-threads", &THREADS.to_string()])
        .arg("--memcached-path")
        .arg(socket(folder, name))
        .arg("--data-dir")
        .arg(folder.join(name));
    Some(command)
}

/// Cargo puts a bench two folders below the programs.
fn beside_us() -> Option<PathBuf> {
    let bench = std::env::current_exe().ok()?;
    let program = bench.parent()?.parent()?.join("floe");
    program.is_file().then_some(program)
}

/// memcached, with `ext` over flash. Values go there as soon as they are idle
/// for a second, whatever their size: gets from flash are what is compared.
fn memcached(case: &Case, folder: &Path, ext: bool) -> Command {
    let mut command = Command::new("memcached");
    command
        .args(["-p", "0", "-U", "0", "-u", "root", "-c", "256"])
        .args(["-m", &(case.memory_bytes >> 20).to_string()])
        .args(["-t", &THREADS.to_string(), "-s"])
        .arg(socket(
            folder,
            if ext {
                "memcached-extstore"
            } else {
                "memcached"
            },
        ));
    if ext {
        let path = folder.join(EXTSTORE_FILE);
        command.arg("-o").arg(format!(
            "ext_page_size=8,ext_wbuf_size=4,ext_item_size=64,ext_item_age=1,ext_threads={THREADS},ext_path={}:{}m",
            path.display(),
            case.flash_bytes >> 20
        ));
    }
    command
}

/// foyer's block engine behind the protocol. Half of the memory is for values;
/// its index and buffers come on top.
fn foyer(programs: &Programs, case: &Case, folder: &Path) -> Option<Command> {
    let mut command = Command::new(programs.foyer.as_ref()?);
    command
        .args(["--flash-mib", &(case.flash_bytes >> 20).to_string()])
        .args(["--ram-mib", &(case.memory_bytes >> 21).to_string()])
        .arg("serve")
        .arg(socket(folder, "foyer"))
        .arg(folder.join("foyer"))
        .arg("psync");
    Some(command)
}
