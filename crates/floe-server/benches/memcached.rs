//! Gets of values in memory over memcached's protocol: requests per CPU second
//! of the server process, beside the installed memcached.
//!
//! `cargo bench -p floe-server --bench memcached [-- --quick] [--json]`
//!
//! Both servers get the same requests in alternating short slices, so that a
//! disturbance affects both. The load has a fixed number of connections and
//! time.

mod support;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use floe::cache::TinyTierConfig;
use floe::object::{ObjectCache, ObjectConfig};
use floe::origin::{Origin, OriginConfig};
use floe::{Cache, CacheConfig};
use floe_core::ByteSize;
use floe_device::{Clock, DeviceConfig};
use floe_server::{Caches, MemcachedConfig, Server, ServerConfig};
use support::{AnyError, Arguments, Cost, Process};

const KEYS: usize = 10_000;
const VALUE_BYTES: usize = 100;
const CONNECTIONS: usize = 4;
const SLICES: usize = 6;
const DEPTHS: [usize; 2] = [1, 32];

fn main() -> Result<(), AnyError> {
    let arguments = Arguments::read();
    if let Some(path) = &arguments.serve {
        return serve(path);
    }
    let slice = arguments.slice();
    let folder = tempfile::tempdir()?;
    let ours = Peer::floe(&folder.path().join("floe.sock"))?;
    let theirs = Peer::memcached(&folder.path().join("memcached.sock"));
    let peers: Vec<Peer> = [Some(ours), theirs].into_iter().flatten().collect();
    for peer in &peers {
        fill(&peer.path)?;
    }
    for depth in DEPTHS {
        let mut costs = vec![Cost::default(); peers.len()];
        for _ in 0..SLICES {
            for (peer, cost) in peers.iter().zip(&mut costs) {
                *cost += measure(peer, depth, slice)?;
            }
        }
        for (peer, cost) in peers.iter().zip(&costs) {
            let of =
                cost.requests_per_cpu_second() / costs[costs.len() - 1].requests_per_cpu_second();
            let row = serde_json::json!({
                "case": format!("get of {VALUE_BYTES} B in memory, depth {depth}"),
                "peer": peer.name,
                "requests_per_cpu_second": cost.requests_per_cpu_second().round(),
                "requests_per_second": (cost.requests as f64 / cost.seconds).round(),
                "of_memcached": (peers.len() > 1).then_some((of * 100.0).round() / 100.0),
            });
            match arguments.json {
                true => println!("{row}"),
                false => println!(
                    "{:<38} {:<10} {:>10.0} requests per CPU second, {of:.2} of the last",
                    row["case"].as_str().unwrap_or_default(),
                    peer.name,
                    cost.requests_per_cpu_second(),
                ),
            }
        }
    }
    Ok(())
}

/// A server.
struct Peer {
    name: &'static str,
    process: Process,
    path: PathBuf,
}

impl Peer {
    fn floe(path: &Path) -> Result<Self, AnyError> {
        Ok(Peer {
            name: "floe",
            process: Process::own("--serve", path)?,
            path: path.to_owned(),
        })
    }

    fn memcached(path: &Path) -> Option<Self> {
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get());
        let child = Command::new("memcached")
            .args(["-p", "0", "-U", "0", "-m", "256", "-u", "root", "-t"])
            .arg(threads.to_string())
            .arg("-s")
            .arg(path)
            .stdin(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            eprintln!("memcached is not installed: nothing to compare with");
            return None;
        };
        Some(Peer {
            name: "memcached",
            process: Process::listening(child, path),
            path: path.to_owned(),
        })
    }
}

/// Serves until standard input ends.
fn serve(path: &Path) -> Result<(), AnyError> {
    support::serve(async {
        let clock = Clock::real();
        // As in `floe serve`: small items in the tiny engine.
        let config = CacheConfig {
            device: memory(ByteSize::mib(192), ByteSize::mib(8)),
            tiny: Some(TinyTierConfig {
                device: memory(ByteSize::mib(64), ByteSize::mib(4)),
                ..TinyTierConfig::default()
            }),
            ..CacheConfig::default()
        };
        let items = Cache::open(&config).await?;
        let origin = OriginConfig {
            root: path.parent().map(Path::to_owned),
            ..OriginConfig::default()
        };
        let origin = Origin::open(&origin, clock.clone())?;
        let store = items.store().clone();
        let objects = ObjectCache::new(store, origin, clock.clone(), ObjectConfig::default())?;
        let config = ServerConfig {
            memcached: Some(MemcachedConfig {
                listen: None::<SocketAddr>,
                path: path.to_owned(),
                ..MemcachedConfig::default()
            }),
            ..ServerConfig::default()
        };
        let caches = Caches {
            items,
            ..objects.into()
        };
        Ok::<_, AnyError>(Server::start(config, caches, clock, None).await?)
    })
}

fn memory(size: ByteSize, zone_size: ByteSize) -> DeviceConfig {
    DeviceConfig {
        zone_size: Some(zone_size),
        ..DeviceConfig::memory(size)
    }
}

fn fill(path: &Path) -> Result<(), AnyError> {
    let mut stream = UnixStream::connect(path)?;
    let value = "v".repeat(VALUE_BYTES);
    for key in 0..KEYS {
        write!(stream, "set key-{key:06} 0 0 {VALUE_BYTES}\r\n{value}\r\n")?;
        stream.read_exact(&mut [0; 8])?;
    }
    Ok(())
}

fn measure(peer: &Peer, depth: usize, time: Duration) -> Result<Cost, AnyError> {
    let before = peer.process.cpu_seconds()?;
    let began = Instant::now();
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let path = peer.path.clone();
            std::thread::spawn(move || client(&path, depth, number, began + time))
        })
        .collect();
    let mut requests = 0;
    for client in clients {
        requests += client.join().map_err(|_| "a client panicked")??;
    }
    Ok(Cost {
        requests,
        cpu_seconds: peer.process.cpu_seconds()? - before,
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// Gets keys in batches of `depth` until the time is up.
fn client(path: &Path, depth: usize, number: usize, end: Instant) -> Result<u64, AnyError> {
    let mut stream = UnixStream::connect(path)?;
    let mut key = number * KEYS / CONNECTIONS;
    let one = format!("VALUE key-000000 0 {VALUE_BYTES}\r\n").len() + VALUE_BYTES + 2 + 5;
    let mut response = vec![0; one * depth];
    let mut request = Vec::new();
    let mut requests = 0;
    while Instant::now() < end {
        request.clear();
        for _ in 0..depth {
            key = (key + 7919) % KEYS;
            write!(request, "get key-{key:06}\r\n")?;
        }
        stream.write_all(&request)?;
        stream.read_exact(&mut response)?;
        if !response.starts_with(b"VALUE ") || !response.ends_with(b"END\r\n") {
            return Err("a wrong answer".into());
        }
        requests += depth as u64;
    }
    Ok(requests)
}
