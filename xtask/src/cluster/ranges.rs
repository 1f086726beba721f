//! Ranges of one huge object through Envoy, which spreads them over the nodes by their start, while
//! the object is overwritten.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::body::{self, CELL_BYTES};
use super::history::{History, Value};
use super::network::{Machine, NODES, PROXIES};
use super::objects::{self, ObjectClient, Signing, node_name};
use super::programs::{self, Node, Program, S3, shipped};

pub(super) const NAME: &str = "ranges";

/// A name by which each node gets one of the pieces.
const OBJECT: &str = "/bucket/huge";
const OBJECT_BYTES: u64 = 310_000_000;
const OBJECT_CELLS: u32 = (OBJECT_BYTES / CELL_BYTES as u64) as u32;
/// `envoy-s3.yaml` hashes the offset of a range without its last eight digits.
const PIECE_BYTES: u64 = 100_000_000;
const PIECE_CELLS: u32 = (PIECE_BYTES / CELL_BYTES as u64) as u32;
const PIECES: u32 = OBJECT_CELLS.div_ceil(PIECE_CELLS);

const RANGE_CELLS_MAX: u32 = 16_384;
/// Places in a piece whose ranges are read again and again, so that nodes have them.
const PLACES: u32 = 4;

/// Reads of any ranges between two overwrites; as many of places follow before an overwrite and
/// after it.
const READS: u64 = 300;

const PATIENCE: Duration = Duration::from_secs(60);

/// The figures of the trial.
pub(super) struct Summary {
    reads: u64,
    broken: u64,
    overwrites: u64,
    nodes: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ranges of an object of {} MB, which was overwritten {} times, 0 stale reads; \
             {} nodes served them, {} broke off",
            self.reads,
            OBJECT_BYTES / 1_000_000,
            self.overwrites,
            self.nodes,
            self.broken
        )
    }
}

/// One object, its writer, and its readers.
struct Trial {
    history: History,
    ended: AtomicBool,
    /// Readers ask for places that nodes have. A miss of another one would tell the node that the
    /// object is a new one.
    only_places: AtomicBool,
    reads: AtomicU64,
    /// Reads without a whole answer.
    broken: AtomicU64,
}

/// Runs the trial.
///
/// # Errors
/// A range had wrong bytes or those of an old version, or one node served all.
pub(super) fn run(binary: &Path, folder: &Path, overwrites: u64) -> Result<Summary> {
    println!("cluster: {NAME}: Envoy before S3, ranges of a huge object");
    let origin = folder.join("origin");
    std::fs::create_dir_all(origin.join("bucket"))?;
    let nodes = NODES.map(|machine| node(machine, binary, folder, &origin));
    let _running: Vec<Program> = nodes.iter().map(Node::start).collect::<Result<_>>()?;
    let config = shipped("envoy-s3.yaml");
    let start = |machine: &Machine| programs::envoy(*machine, &config, folder);
    let _proxies: Vec<Program> = PROXIES.iter().map(start).collect::<Result<_>>()?;
    let proxies = PROXIES.map(|machine| address(&machine));
    for proxy in proxies {
        objects::wait_for_nodes(proxy)?;
    }

    let trial = Trial {
        history: History::new(1),
        ended: AtomicBool::new(false),
        only_places: AtomicBool::new(false),
        reads: AtomicU64::new(0),
        broken: AtomicU64::new(0),
    };
    trial.write(proxies[0], 1)?;
    let owners = trial.owners(proxies)?;
    let before = nodes.iter().map(reads).collect::<Result<Vec<u64>>>()?;

    std::thread::scope(|scope| {
        // The nodes too, since they may have what the proxies do not ask them for.
        let readers = proxies.into_iter().chain(NODES.iter().map(address));
        let readers: Vec<_> = readers
            .enumerate()
            .map(|(seed, host)| {
                let trial = &trial;
                scope.spawn(move || trial.read_on(host, seed as u64))
            })
            .collect();
        let written = (0..overwrites).try_for_each(|overwrite| {
            trial.wait_for_reads(READS);
            trial.only_places.store(true, Relaxed);
            trial.wait_for_reads(READS);
            trial.write(proxies[overwrite as usize % proxies.len()], overwrite + 2)?;
            trial.wait_for_reads(READS);
            trial.only_places.store(false, Relaxed);
            Ok(())
        });
        trial.ended.store(true, Relaxed);
        let read: Result<()> = readers
            .into_iter()
            .try_for_each(|reader| reader.join().map_err(|_| anyhow!("a reader panicked"))?);
        written.and(read)
    })?;

    for ((node, before), name) in nodes.iter().zip(before).zip(NODES.map(|node| node.name)) {
        let more = reads(node)? - before;
        ensure!(more > 0 || !owners.contains(name), "{name} counts no read");
    }
    let summary = Summary {
        reads: trial.reads.into_inner(),
        broken: trial.broken.into_inner(),
        overwrites,
        nodes: owners.len(),
    };
    ensure!(
        summary.nodes == NODES.len(),
        "not every node has a piece: {summary}"
    );
    ensure!(
        summary.broken * 100 <= summary.reads,
        "too many broke off: {summary}"
    );
    Ok(summary)
}

fn node(machine: Machine, binary: &Path, folder: &Path, origin: &Path) -> Node {
    let mut more = vec!["--origin-root".to_owned(), origin.display().to_string()];
    more.extend(programs::peers(machine.address().into()));
    Node {
        machine,
        binary: binary.to_owned(),
        folder: folder.to_owned(),
        config: Some(shipped("node-s3-envoy.toml")),
        s3_keys: Some(objects::keys()),
        more,
        minutes_off: 0,
    }
}

fn address(machine: &Machine) -> SocketAddr {
    SocketAddr::from((machine.address(), S3))
}

fn reads(node: &Node) -> Result<u64> {
    node.count("floe_object_reads_total", "")
}

impl Trial {
    /// Overwrites the object through a proxy.
    fn write(&self, proxy: SocketAddr, value: Value) -> Result<()> {
        let bytes = body::of_value(value, OBJECT_CELLS);
        let mut client = ObjectClient::open(proxy, Signing::Query, PATIENCE)?;
        self.history.begin(0, value);
        let start = Instant::now();
        let put = client.put(OBJECT, &bytes).context("PUT")?;
        ensure!(put.status == 200, "PUT: {}", put.status);
        self.history.answered(0, Some(value), start);
        Ok(())
    }

    /// The nodes of the pieces, which both proxies choose alike.
    fn owners(&self, proxies: [SocketAddr; 2]) -> Result<BTreeSet<String>> {
        let mut owners = BTreeSet::new();
        let mut clients = Vec::new();
        for proxy in proxies {
            clients.push(ObjectClient::open(proxy, Signing::Headers, PATIENCE)?);
        }
        for piece in 0..PIECES {
            let mut chosen = BTreeSet::new();
            for client in &mut clients {
                for place in 0..PLACES {
                    let first = piece * PIECE_CELLS + place * RANGE_CELLS_MAX;
                    chosen.extend(self.read(client, first, RANGE_CELLS_MAX)?);
                }
            }
            ensure!(chosen.len() == 1, "piece {piece} is at {chosen:?}");
            owners.append(&mut chosen);
        }
        Ok(owners)
    }

    /// Reads ranges until the trial ends. One that is being replaced may break off.
    fn read_on(&self, host: SocketAddr, seed: u64) -> Result<()> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut open = None;
        while !self.ended.load(Relaxed) {
            let first = match self.only_places.load(Relaxed) || rng.random_ratio(1, 2) {
                true => {
                    let piece = rng.random_range(0..PIECES);
                    piece * PIECE_CELLS + rng.random_range(0..PLACES) * RANGE_CELLS_MAX
                }
                false => rng.random_range(0..OBJECT_CELLS),
            };
            let cells = rng.random_range(1..=RANGE_CELLS_MAX);
            let mut client = match open.take() {
                Some(client) => client,
                None => ObjectClient::open(host, Signing::of_client(seed as usize), PATIENCE)?,
            };
            match self.read(&mut client, first, cells) {
                Ok(_) => open = Some(client),
                Err(error) if error.is::<std::io::Error>() => {
                    self.broken.fetch_add(1, Relaxed);
                }
                Err(error) => {
                    self.ended.store(true, Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Reads and judges a range. Returns the node that a proxy names.
    fn read(&self, client: &mut ObjectClient, first: u32, cells: u32) -> Result<Option<String>> {
        let end = (first + cells).min(OBJECT_CELLS);
        let offset = |cell: u32| u64::from(cell) * CELL_BYTES as u64;
        let range = format!("bytes={}-{}", offset(first), offset(end) - 1);
        let start = Instant::now();
        let get = client.get(OBJECT, Some(range.clone()))?;
        ensure!(get.status == 206, "{range}: {}", get.status);
        self.reads.fetch_add(1, Relaxed);
        let value = body::value_of(&get.body, first, end).context(range)?;
        self.history.check(0, value, start)?;
        Ok(get
            .header("x-floe-node")
            .map(|said| node_name(said).to_owned()))
    }

    fn wait_for_reads(&self, count: u64) {
        let wanted = self.reads.load(Relaxed) + count;
        while self.reads.load(Relaxed) < wanted && !self.ended.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
