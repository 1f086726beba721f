//! Reads and writes of 4 KiB over NBD on a Unix socket: requests per CPU second of the
//! server process at depth 32, and latency at depth 1. It measures exports in memory and a
//! volume whose cache answers every request. Beside them stand a bare loop that moves the
//! same bytes, nbdkit's memory plugin and qemu-nbd on a file in memory.
//!
//! `cargo bench -p floe-server --bench nbd [-- --quick] [--json]`
//!
//! All servers get the same requests in alternating short slices, so that a
//! disturbance affects all. The load has one connection and a fixed time. A case takes
//! at most [`SLICES`] seconds for each server.

mod support;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use floe::object::{ObjectCache, ObjectConfig};
use floe::origin::{Origin, OriginConfig};
use floe::volume::{Mode, VolumeCache, VolumeCacheConfig, VolumeConfig};
use floe::{Cache, CacheConfig};
use floe_core::ByteSize;
use floe_device::{Clock, DeviceConfig, MemoryBlocks};
use floe_server::nbd::{ExportConfig, ExportKind};
use floe_server::{Caches, NbdConfig, Server, ServerConfig};
use support::{AnyError, Arguments, Cost, Process};

/// Bytes of the export, and of one request.
const EXPORT: ByteSize = ByteSize::mib(256);
const BLOCK_BYTES: u32 = 4096;

/// An odd number, for the median. A slice takes at most a second.
const SLICES: usize = 7;
const DEPTHS: [usize; 2] = [1, 32];

/// Bytes of a request's head and of a simple reply's.
const REQUEST_BYTES: usize = 28;
const REPLY_BYTES: usize = 16;

fn main() -> Result<(), AnyError> {
    let arguments = Arguments::read();
    if let Some(path) = &arguments.serve {
        return serve(path);
    }
    if let Some(path) = std::env::args().skip_while(|word| word != BARE).nth(1) {
        return serve_bare(Path::new(&path));
    }
    let slice = arguments.slice();
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let peers = Peer::all(folder.path())?;
    peers.iter().try_for_each(fill)?;
    for is_write in [false, true] {
        for depth in DEPTHS {
            let mut costs = vec![Cost::default(); peers.len()];
            let mut latencies = vec![Vec::new(); peers.len()];
            for _ in 0..SLICES {
                for ((peer, cost), means) in peers.iter().zip(&mut costs).zip(&mut latencies) {
                    let of_slice = measure(peer, is_write, depth, slice)?;
                    means.push(depth as f64 * of_slice.seconds / of_slice.requests as f64);
                    *cost += of_slice;
                }
            }
            let of = |export: &str, cost: &Cost| {
                let other = peers.iter().position(|peer| peer.name == export)?;
                let ratio = cost.requests_per_cpu_second() / costs[other].requests_per_cpu_second();
                Some((ratio * 100.0).round() / 100.0)
            };
            for ((peer, cost), means) in peers.iter().zip(&costs).zip(&mut latencies) {
                means.sort_unstable_by(f64::total_cmp);
                let kind = if is_write { "write" } else { "read" };
                let row = serde_json::json!({
                    "case": format!("{kind} of 4 KiB, depth {depth}"),
                    "peer": peer.name,
                    "requests_per_cpu_second": cost.requests_per_cpu_second().round(),
                    "of_floe_null": of("floe null", cost),
                    "of_bare_loop": of("bare loop", cost),
                    "requests_per_second": (cost.requests as f64 / cost.seconds).round(),
                    // The median of the slices' means.
                    "mean_us": (means[SLICES / 2] * 1e8).round() / 100.0,
                });
                match arguments.json {
                    true => println!("{row}"),
                    false => println!("{row:#}"),
                }
            }
        }
    }
    Ok(())
}

/// An export of a server.
struct Peer {
    name: &'static str,
    /// Shared by the exports of one server, and killed with the last of them.
    process: Rc<Process>,
    path: PathBuf,
    export: &'static str,
}

impl Peer {
    /// Floe's exports, `floe memory` first, and those of the installed servers.
    fn all(folder: &Path) -> Result<Vec<Peer>, AnyError> {
        let socket = |name: &str| folder.join(format!("{name}.sock"));
        let floe = Rc::new(Process::own("--serve", &socket("floe"))?);
        let own = |name, export| Peer {
            name,
            process: Rc::clone(&floe),
            path: socket("floe"),
            export,
        };
        let mut peers = vec![
            own("floe memory", "memory"),
            own("floe null", "null"),
            own("floe volume, all hits", "volume"),
            Peer {
                name: "bare loop",
                process: Rc::new(Process::own(BARE, &socket("bare"))?),
                path: socket("bare"),
                export: "",
            },
        ];
        let image = folder.join("image");
        std::fs::File::create(&image)?.set_len(EXPORT.bytes())?;
        let mut nbdkit = Command::new("nbdkit");
        nbdkit
            .args(["--foreground", "--unix"])
            .arg(socket("nbdkit"));
        nbdkit.args(["memory", &EXPORT.bytes().to_string()]);
        let mut qemu = Command::new("qemu-nbd");
        qemu.args([
            "--persistent",
            "--format=raw",
            "--shared=0",
            "--export-name=",
            "--socket",
        ]);
        qemu.arg(socket("qemu-nbd")).arg(&image);
        for (name, mut command) in [("nbdkit", nbdkit), ("qemu-nbd", qemu)] {
            match command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
                Err(error) => eprintln!("SKIPPED {name}: {error}"),
                Ok(child) => {
                    let path = socket(name);
                    let process = Process::listening(child, &path);
                    peers.push(Peer {
                        name,
                        process: Rc::new(process),
                        path,
                        export: "",
                    });
                }
            }
        }
        Ok(peers)
    }

    /// A connection with simple replies.
    fn connect(&self) -> Result<UnixStream, AnyError> {
        let mut stream = UnixStream::connect(&self.path)?;
        stream.read_exact(&mut [0; 18])?;
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT");
        // EXPORT_NAME, whose reply is a size and flags.
        hello.extend(1u32.to_be_bytes());
        hello.extend((self.export.len() as u32).to_be_bytes());
        hello.extend(self.export.as_bytes());
        stream.write_all(&hello)?;
        stream.read_exact(&mut [0; 10])?;
        Ok(stream)
    }
}

/// Serves until standard input ends.
fn serve(path: &Path) -> Result<(), AnyError> {
    let export = |name: &str, kind| ExportConfig {
        name: name.to_owned(),
        kind,
        size: EXPORT,
        read_only: false,
    };
    let nbd = NbdConfig {
        listen: None,
        path: path.to_owned(),
        exports: vec![
            export("memory", ExportKind::Memory),
            export("null", ExportKind::Null),
        ],
        ..NbdConfig::default()
    };
    support::serve(async {
        let clock = Clock::real();
        let config = CacheConfig {
            device: DeviceConfig::memory(ByteSize::mib(64)),
            ..CacheConfig::default()
        };
        let items = Cache::open(&config).await?;
        let origin = Origin::open(
            &OriginConfig {
                root: path.parent().map(Path::to_owned),
                ..OriginConfig::default()
            },
            clock.clone(),
        )?;
        let store = items.store().clone();
        let objects = ObjectCache::new(store, origin, clock.clone(), ObjectConfig::default())?;
        let config = ServerConfig {
            nbd: Some(nbd),
            ..ServerConfig::default()
        };
        let caches = Caches {
            items,
            volumes: Some(volumes().await?),
            ..objects.into()
        };
        Ok(Server::start(config, caches, clock, None).await?)
    })
}

/// A cache in memory with a write-back volume, twice as large as the volume: once every
/// block has been written, all requests hit.
async fn volumes() -> Result<VolumeCache, AnyError> {
    let memory = |bytes| MemoryBlocks::new(ByteSize(bytes), BLOCK_BYTES).map(Arc::new);
    let config = VolumeCacheConfig::default();
    let device = memory(2 * EXPORT.bytes())?;
    let cache = VolumeCache::open(device, Clock::real(), &config).await?;
    let config = VolumeConfig {
        mode: Mode::WriteBack,
        allow_data_loss: true,
        ..VolumeConfig::default()
    };
    let backing = memory(EXPORT.bytes())?;
    cache.attach("volume", backing, &config).await?;
    Ok(cache)
}

/// Names the path of the bare loop.
const BARE: &str = "--bare";

/// Bytes that the bare loop receives at once.
const BARE_BYTES: usize = 256 << 10;

/// The least that a server of blocks in memory does: it receives what has arrived, copies
/// the blocks of all whole requests, and sends their replies together. It has no event
/// loop, no limits, no checks, and one client at a time.
fn serve_bare(path: &Path) -> Result<(), AnyError> {
    let listener = UnixListener::bind(path)?;
    let mut blocks = vec![0; EXPORT.bytes() as usize];
    println!("ready");
    std::thread::spawn(|| {
        // It ends with the bench.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
        stream.read_exact(&mut [0; 20])?;
        stream.write_all(&EXPORT.bytes().to_be_bytes())?;
        stream.write_all(&[0, 1])?;
        answer_bare(&mut stream, &mut blocks)?;
    }
}

/// Answers until the client closes the connection.
fn answer_bare(stream: &mut UnixStream, blocks: &mut [u8]) -> Result<(), AnyError> {
    let mut input = vec![0; BARE_BYTES];
    let mut output = Vec::new();
    let mut filled = 0;
    loop {
        let len = stream.read(&mut input[filled..])?;
        if len == 0 {
            return Ok(());
        }
        filled += len;
        let mut rest = &input[..filled];
        while let Some((head, after)) = rest.split_at_checked(REQUEST_BYTES) {
            let is_write = match head[7] {
                0 => false,
                1 => true,
                _ => return Ok(()),
            };
            let at = u64::from_be_bytes(head[16..24].try_into()?) as usize;
            let block = &mut blocks[at..at + BLOCK_BYTES as usize];
            rest = match after.split_at_checked(block.len()) {
                _ if !is_write => after,
                Some((data, after)) => {
                    block.copy_from_slice(data);
                    after
                }
                None => break,
            };
            output.extend([0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
            output.extend(&head[8..16]);
            if !is_write {
                output.extend_from_slice(block);
            }
        }
        let left = rest.len();
        input.copy_within(filled - left..filled, 0);
        filled = left;
        stream.write_all(&output)?;
        output.clear();
    }
}

/// Writes every block once, so that no read finds a hole.
fn fill(peer: &Peer) -> Result<(), AnyError> {
    let blocks = EXPORT.bytes() / u64::from(BLOCK_BYTES);
    let mut load = Load::new(peer.connect()?, true, 32);
    (0..blocks).try_for_each(|block| load.request(block))?;
    load.finish()
}

fn measure(peer: &Peer, is_write: bool, depth: usize, time: Duration) -> Result<Cost, AnyError> {
    let mut cost = Cost::default();
    let mut load = Load::new(peer.connect()?, is_write, depth);
    let blocks = EXPORT.bytes() / u64::from(BLOCK_BYTES);
    let (before, began) = (peer.process.cpu_seconds()?, Instant::now());
    let mut block = 7;
    while began.elapsed() < time {
        // A generator with the full period of a power of two.
        block = (block * 5 + 12_345) % blocks;
        load.request(block)?;
        cost.requests += 1;
    }
    load.finish()?;
    cost.seconds = began.elapsed().as_secs_f64();
    cost.cpu_seconds = peer.process.cpu_seconds()? - before;
    Ok(cost)
}

/// A connection with a number of requests in flight.
struct Load {
    stream: UnixStream,
    is_write: bool,
    depth: usize,
    in_flight: usize,
    requests: Vec<u8>,
    replies: Vec<u8>,
    /// Bytes of a reply that has not arrived completely.
    partial: usize,
}

impl Load {
    fn new(stream: UnixStream, is_write: bool, depth: usize) -> Self {
        Load {
            stream,
            is_write,
            depth,
            in_flight: 0,
            requests: Vec::new(),
            replies: vec![0; 256 << 10],
            partial: 0,
        }
    }

    /// Sends a request, once fewer than `depth` are in flight.
    fn request(&mut self, block: u64) -> Result<(), AnyError> {
        let (command, payload) = match self.is_write {
            true => (1u16, BLOCK_BYTES as usize),
            false => (0, 0),
        };
        let at = block * u64::from(BLOCK_BYTES);
        self.requests.extend(0x2560_9513u32.to_be_bytes());
        self.requests.extend([0, 0]);
        self.requests.extend(command.to_be_bytes());
        self.requests.extend(at.to_be_bytes());
        self.requests.extend(at.to_be_bytes());
        self.requests.extend(BLOCK_BYTES.to_be_bytes());
        self.requests
            .resize(self.requests.len() + payload, block as u8);
        self.in_flight += 1;
        if self.in_flight == self.depth {
            self.exchange()?;
        }
        Ok(())
    }

    /// Sends the gathered requests, and takes the replies that have arrived.
    fn exchange(&mut self) -> Result<(), AnyError> {
        self.stream.write_all(&self.requests)?;
        self.requests.clear();
        let payload = if self.is_write {
            0
        } else {
            BLOCK_BYTES as usize
        };
        let reply = REPLY_BYTES + payload;
        // At least one reply.
        loop {
            let room = &mut self.replies[self.partial..];
            let len = self.stream.read(room)?;
            if len == 0 {
                return Err("the server closed the connection".into());
            }
            let got = self.partial + len;
            let whole = got / reply;
            for one in self.replies[..whole * reply].chunks_exact(reply) {
                if one[..8] != [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0] {
                    return Err("a wrong reply".into());
                }
            }
            self.replies.copy_within(whole * reply..got, 0);
            self.partial = got - whole * reply;
            self.in_flight -= whole;
            if whole > 0 {
                return Ok(());
            }
        }
    }

    /// Waits for all replies.
    fn finish(mut self) -> Result<(), AnyError> {
        while self.in_flight > 0 {
            self.exchange()?;
        }
        let mut end = vec![0; REQUEST_BYTES];
        end[..8].copy_from_slice(&[0x25, 0x60, 0x95, 0x13, 0, 0, 0, 2]);
        self.stream.write_all(&end)?;
        Ok(())
    }
}
