//! Reads and writes of 4 KiB over NBD on a Unix socket: requests per CPU second
//! of the server process at depth 32, and latency at depth 1, of exports in memory and
//! of a volume whose cache answers every request, beside nbdkit's
//! memory plugin and qemu-nbd on a file in memory.
//!
//! `cargo bench -p floe-server --bench nbd [-- --quick] [--json]`
//!
//! All servers get the same requests in alternating short slices, so that a
//! disturbance affects all. The load has one connection and a fixed time.

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
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

const SLICES: usize = 6;
const DEPTHS: [usize; 2] = [1, 32];

/// Bytes of a request's head and of a simple reply's.
const REQUEST_BYTES: usize = 28;
const REPLY_BYTES: usize = 16;

fn main() -> Result<(), AnyError> {
    let arguments = Arguments::read();
    if let Some(path) = &arguments.serve {
        return serve(path);
    }
    let slice = arguments.slice();
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let peers = Peer::all(folder.path())?;
    peers.iter().try_for_each(fill)?;
    for is_write in [false, true] {
        for depth in DEPTHS {
            let mut costs = vec![Cost::default(); peers.len()];
            for _ in 0..SLICES {
                for (peer, cost) in peers.iter().zip(&mut costs) {
                    measure(peer, is_write, depth, slice, cost)?;
                }
            }
            let null = peers
                .iter()
                .zip(&costs)
                .find(|(peer, _)| peer.export == "null");
            for (peer, cost) in peers.iter().zip(&costs) {
                let of_null = null.map(|(_, null)| {
                    cost.requests_per_cpu_second() / null.requests_per_cpu_second()
                });
                let kind = if is_write { "write" } else { "read" };
                let row = serde_json::json!({
                    "case": format!("{kind} of 4 KiB, depth {depth}"),
                    "peer": peer.name,
                    "requests_per_cpu_second": cost.requests_per_cpu_second().round(),
                    "of_floe_null": of_null.map(|of| (of * 100.0).round() / 100.0),
                    "requests_per_second": (cost.requests as f64 / cost.seconds).round(),
                    "mean_us": (depth as f64 * cost.seconds * 1e8 / cost.requests as f64).round() / 100.0,
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
        let floe = Rc::new(Process::own(&socket("floe"))?);
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

/// Writes every block once, so that no read finds a hole.
fn fill(peer: &Peer) -> Result<(), AnyError> {
    let blocks = EXPORT.bytes() / u64::from(BLOCK_BYTES);
    let mut load = Load::new(peer.connect()?, true, 32);
    (0..blocks).try_for_each(|block| load.request(block))?;
    load.finish()
}

fn measure(
    peer: &Peer,
    is_write: bool,
    depth: usize,
    time: Duration,
    cost: &mut Cost,
) -> Result<(), AnyError> {
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
    cost.seconds += began.elapsed().as_secs_f64();
    cost.cpu_seconds += peer.process.cpu_seconds()? - before;
    Ok(())
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
