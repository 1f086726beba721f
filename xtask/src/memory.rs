//! `cargo xtask memory`: measures the server's RAM use with the largest chunks
//! and many clients.
//!
//! Clients stream whole objects and ranges from flash and from the origin, some
//! of them slowly, while small objects fill the RAM tier. The kernel's peak of
//! resident memory must stay within the limit.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use xxhash_rust::xxh3::xxh3_64;

use crate::blackbox::http::Connection;
use crate::blackbox::server::{Server, Setup};
use crate::built::{self, Profile};
use crate::project;

/// Options of the task.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Use the debug build.
    #[arg(long)]
    pub debug: bool,
    /// Use this binary instead of building one.
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Seconds of load.
    #[arg(long, default_value_t = 40)]
    pub seconds: u64,
    /// Seed of the load.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

const MIB: u64 = 1 << 20;
const CLIENTS: u64 = 64;
/// Objects of one chunk each.
const CHUNK_BYTES: u64 = 512 * MIB;
/// They fit on flash together, with space for others.
const HOT_OBJECTS: u64 = 2;
const COLD_OBJECTS: u64 = 256;
const SMALL_BYTES: u64 = 64 << 10;
/// Four times the RAM tier's capacity.
const SMALL_OBJECTS: u64 = 4 * RAM_TIER_BYTES / SMALL_BYTES;
const RAM_TIER_BYTES: u64 = 64 * MIB;
/// Most memory of the server besides its RAM tier.
const REST_BYTES_MAX: u64 = 256 * MIB;
/// Ranges begin at multiples of this, so that bytes of different clients are comparable.
const BLOCK_BYTES: u64 = 64 << 10;
/// The last bytes of a fetched chunk arrive after all others.
const PATIENCE: Duration = Duration::from_secs(120);
/// One client in this many reads slowly.
const SLOW_ONE_IN: u64 = 4;

/// Runs the load and checks the memory.
pub fn run(options: &Options) -> Result<()> {
    let binary = match &options.binary {
        Some(given) => given.clone(),
        None => built::build_floe(Profile::from_flag(options.debug))?,
    };
    let folder = tempfile::Builder::new()
        .prefix("memory-")
        .tempdir_in(project::scratch()?)?;
    let setup = Setup {
        binary,
        data_dir: folder.path().to_path_buf(),
        // Two metadata zones, mostly unwritten, and eight data zones.
        cache_size: "5440MiB".to_owned(),
        zone_size: "544MiB",
        chunk_size: "512MiB",
        ram_size: format!("{}MiB", RAM_TIER_BYTES / MIB),
        consistency: "immutable",
        more: [
            "--origin-kind=emulated",
            "--origin-emulated-size={ rule = \"from_key\", otherwise = \"1KiB\" }",
            "--origin-emulated-bandwidth-per-stream=128MiB",
        ]
        .map(str::to_owned)
        .to_vec(),
    };
    let server = Server::start(&setup)?;
    let idle = server.peak_rss_bytes()?;
    let mut load = Load {
        s3: server.s3,
        until: Instant::now() + PATIENCE,
        blocks: Mutex::default(),
        bytes: AtomicU64::new(0),
        wrong: AtomicU64::new(0),
    };
    load.warm_up()?;
    for crowd in [Crowd::Mixed, Crowd::SlowOnFlash] {
        load.until = Instant::now() + Duration::from_secs(options.seconds) / 2;
        load.run(crowd, options.seed)?;
        println!(
            "memory: {} MiB at most after {crowd:?}",
            server.peak_rss_bytes()? / MIB
        );
    }
    let hits = server.metric("floe_object_chunk_lookups_total", &["result=\"flash\""])?;
    let peak = server.peak_rss_bytes()?;
    // Fetches that continue for later readers need not be waited for.
    server.kill()?;

    let wrong = load.wrong.into_inner();
    ensure!(
        wrong == 0,
        "{wrong} blocks differ from what other clients saw"
    );
    ensure!(hits > 0.0, "nothing was read from flash");
    let limit = RAM_TIER_BYTES + REST_BYTES_MAX;
    let figures = format!(
        "{} MiB at most ({} MiB idle), with {CLIENTS} clients of {} MiB chunks and a RAM tier of {} MiB, \
         {} MiB read, {hits} chunks from flash",
        peak / MIB,
        idle / MIB,
        CHUNK_BYTES / MIB,
        RAM_TIER_BYTES / MIB,
        load.bytes.into_inner() / MIB,
    );
    ensure!(
        peak < limit,
        "resident set of {figures}: over {} MiB",
        limit / MIB
    );
    println!(
        "memory: resident set of {figures}; the limit is {} MiB",
        limit / MIB
    );
    Ok(())
}

/// The behaviour of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crowd {
    /// A quarter is slow; the clients read all kinds of objects.
    Mixed,
    /// All clients are slow and read objects on flash, so that every response
    /// waits for its client.
    SlowOnFlash,
}

/// The state that all clients share.
struct Load {
    s3: SocketAddr,
    until: Instant,
    /// The first checksum of every block of every object.
    blocks: Mutex<HashMap<(String, u64), u64>>,
    bytes: AtomicU64,
    wrong: AtomicU64,
}

impl Load {
    /// Brings the hot objects onto flash.
    fn warm_up(&self) -> Result<()> {
        for number in 0..HOT_OBJECTS {
            let key = object("hot", number, CHUNK_BYTES);
            self.read(&key, 0, CHUNK_BYTES, false)?;
        }
        Ok(())
    }

    fn run(&self, crowd: Crowd, seed: u64) -> Result<()> {
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    scope.spawn(move || {
                        self.client(
                            client,
                            crowd,
                            seed.wrapping_mul(1_000_003).wrapping_add(client),
                        )
                    })
                })
                .collect();
            for client in clients {
                client
                    .join()
                    .map_err(|_| anyhow::anyhow!("a client panicked"))??;
            }
            Ok(())
        })
    }

    fn client(&self, client: u64, crowd: Crowd, seed: u64) -> Result<()> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let is_slow = crowd == Crowd::SlowOnFlash || client.is_multiple_of(SLOW_ONE_IN);
        while Instant::now() < self.until {
            let (key, size) = choose_object(crowd, &mut random);
            let start = random.random_range(0..size / BLOCK_BYTES) * BLOCK_BYTES;
            let (start, end) = match random.random_range(0..3) {
                0 => (0, size),
                1 => (start, size),
                _ => (start, size.min(start + 16 * MIB)),
            };
            self.read(&key, start, end, is_slow)
                .with_context(|| format!("client {client}, {key}, bytes {start} to {end}"))?;
        }
        Ok(())
    }

    /// Streams a range and compares it block by block; stops when time is up.
    fn read(&self, key: &str, start: u64, end: u64, is_slow: bool) -> Result<()> {
        const SLOW_PAUSE: Duration = Duration::from_millis(20);
        let range = [("Range", format!("bytes={start}-{}", end - 1))];
        let mut connection = Connection::open_with_patience(self.s3, PATIENCE)?;
        let (head, mut body) = connection.stream(&format!("/bucket/{key}"), &range)?;
        ensure!(head.status == 206, "status {}", head.status);
        ensure!(
            body.left() == end - start,
            "an answer of {} bytes",
            body.left()
        );
        let mut block = vec![0; BLOCK_BYTES as usize];
        let mut at = start;
        while at < end && Instant::now() < self.until {
            let len = BLOCK_BYTES.min(end - at) as usize;
            body.read_exact(&mut block[..len])?;
            self.compare(key, at, &block[..len]);
            at += len as u64;
            self.bytes.fetch_add(len as u64, Ordering::Relaxed);
            if is_slow {
                thread::sleep(SLOW_PAUSE);
            }
        }
        Ok(())
    }

    fn compare(&self, key: &str, at: u64, block: &[u8]) {
        let sum = xxh3_64(block);
        let Ok(mut blocks) = self.blocks.lock() else {
            return; // whoever panicked is reported by `run`
        };
        let first = *blocks.entry((key.to_owned(), at)).or_insert(sum);
        if first != sum {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A key, whose last number is its object's size.
fn choose_object(crowd: Crowd, random: &mut Xoshiro256PlusPlus) -> (String, u64) {
    let (kind, count, size) = match random.random_range(0..100) {
        _ if crowd == Crowd::SlowOnFlash => ("hot", HOT_OBJECTS, CHUNK_BYTES),
        0..50 => ("hot", HOT_OBJECTS, CHUNK_BYTES),
        50..60 => ("cold", COLD_OBJECTS, CHUNK_BYTES),
        _ => ("small", SMALL_OBJECTS, SMALL_BYTES),
    };
    let number = random.random_range(0..count);
    (object(kind, number, size), size)
}

/// The emulated origin takes an object's size from its key.
fn object(kind: &str, number: u64, bytes: u64) -> String {
    format!("{kind}-{number}-{bytes}")
}
