//! The cost for the origin of a node's loss and return, with nodes that fill from each other
//! and without.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::network::{NODES, PROXIES};
use super::programs::{self, Node, Program, S3, shipped};
use crate::blackbox::http::Connection;

pub(super) const NAME: &str = "fill";

const OBJECTS: usize = 150;
const OBJECT_BYTES: usize = 100_000;

/// The time in which a proxy notices that a node has gone or come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Most reads of the origin for each object of a dead node: until HAProxy has noticed its death, a
/// repeated request may go to another node than later ones.
const LOSS_READS_MAX: f64 = 1.1;

/// Most of the origin's reads without peers that a new node may need with them.
const READS_MAX: f64 = 0.1;

/// The origin's reads in one run.
pub(super) struct Figures {
    /// Objects of the node that is lost.
    moved: u64,
    /// Reads by the others, for the objects of a node that died.
    after_loss: u64,
    /// Reads by the new node in its place.
    by_new_node: u64,
    /// Hits of the new node, of its reads after it had all its objects once.
    warm_hit_share: f64,
}

/// Both runs.
pub(super) struct Summary {
    alone: Figures,
    filling: Figures,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { alone, filling } = self;
        write!(
            f,
            "{} objects of a dead node took {} reads of the origin; an empty node in its place took {} \
             of {} from the origin with peers, {} of {} without",
            alone.moved,
            alone.after_loss,
            filling.by_new_node,
            filling.moved,
            alone.by_new_node,
            alone.moved,
        )
    }
}

/// Runs the trial.
///
/// # Errors
/// An answer was wrong, or the origin was read more often than allowed.
pub(super) fn run(binary: &Path, folder: &Path) -> Result<Summary> {
    println!("cluster: {NAME}: a node dies, and an empty one takes its place");
    let summary = Summary {
        alone: run_once(binary, &folder.join("alone"), false)?,
        filling: run_once(binary, &folder.join("filling"), true)?,
    };
    for figures in [&summary.alone, &summary.filling] {
        ensure!(figures.moved > 0, "the dead node had no object: {summary}");
        ensure!(
            figures.after_loss as f64 <= LOSS_READS_MAX * figures.moved as f64,
            "objects of a dead node came more than once: {summary}"
        );
        ensure!(
            figures.warm_hit_share > 0.9,
            "a new node did not become warm: {} of its reads hit",
            figures.warm_hit_share
        );
    }
    let with = summary.filling.by_new_node as f64;
    let without = summary.alone.by_new_node as f64;
    ensure!(
        without > 0.0 && with <= READS_MAX * without,
        "a new node reads the origin too often: {summary}"
    );
    Ok(summary)
}

fn run_once(binary: &Path, folder: &Path, fills: bool) -> Result<Figures> {
    let origin = folder.join("origin");
    fs::create_dir_all(origin.join("bucket"))?;
    for object in 0..OBJECTS {
        fs::write(
            origin.join("bucket").join(object.to_string()),
            bytes(object),
        )?;
    }
    let nodes = NODES.map(|machine| Node {
        machine,
        binary: binary.to_owned(),
        folder: folder.to_owned(),
        config: fills.then(|| shipped("node-s3.toml")),
        s3_keys: None,
        more: options(&origin, machine.address().into(), fills),
        minutes_off: 0,
    });
    let mut running: Vec<Program> = nodes.iter().map(Node::start).collect::<Result<_>>()?;
    let proxy = PROXIES[0];
    let _proxy = programs::haproxy(proxy, &shipped("haproxy-s3.cfg"), folder)?;
    let mut client = Client {
        proxy: SocketAddr::from((proxy.address(), S3)),
    };
    wait_for(&mut client, |served| served.len() == NODES.len())?;
    let last = NODES.len() - 1;
    let lost = NODES[last].name;
    let owners = client.read_all()?;
    let moved = owners.iter().filter(|owner| *owner == lost).count() as u64;

    let before = fetches(&nodes[..last])?;
    running.remove(last).end("KILL")?;
    wait_for(&mut client, |served| !served.contains(lost))?;
    client.read_all()?;
    let after_loss = fetches(&nodes[..last])? - before;

    fs::remove_dir_all(folder.join(lost))?;
    running.push(nodes[last].start()?);
    wait_for(&mut client, |served| served.contains(lost))?;
    client.read_all()?;
    let by_new_node = fetches(&nodes[last..])?;
    let [reads, hits] = reads(&nodes[last])?;
    client.read_all()?;
    let [all_reads, all_hits] = self::reads(&nodes[last])?;
    let warm_hit_share = (all_hits - hits) as f64 / (all_reads - reads).max(1) as f64;
    Ok(Figures {
        moved,
        after_loss,
        by_new_node,
        warm_hit_share,
    })
}

fn options(origin: &Path, address: std::net::IpAddr, fills: bool) -> Vec<String> {
    let mut options = vec!["--origin-root".to_owned(), origin.display().to_string()];
    if fills {
        options.extend(programs::peers(address));
    }
    options
}

/// Reads objects through the proxy.
struct Client {
    proxy: SocketAddr,
}

impl Client {
    /// Reads every object, and returns the nodes that served them.
    fn read_all(&mut self) -> Result<Vec<String>> {
        let mut connection = Connection::open(self.proxy)?;
        let mut read = |object: usize| {
            let path = format!("/bucket/{object}");
            let get = connection.request("GET", &path, &[], b"")?;
            ensure!(get.status == 200, "object {object}: {}", get.status);
            ensure!(get.body == bytes(object), "object {object} has other bytes");
            let node = get.header("x-floe-node").context("no node is named")?;
            Ok(node.to_owned())
        };
        (0..OBJECTS).map(&mut read).collect()
    }
}

/// Waits until the objects are served by the right nodes.
fn wait_for(client: &mut Client, right: impl Fn(&BTreeSet<&str>) -> bool) -> Result<()> {
    let began = Instant::now();
    loop {
        if let Ok(nodes) = client.read_all()
            && right(&nodes.iter().map(String::as_str).collect())
        {
            return Ok(());
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "the proxy does not notice what nodes there are"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Reads of the origin by `nodes` since their start.
fn fetches(nodes: &[Node]) -> Result<u64> {
    let of = |node: &Node| node.count("floe_object_fetches_total", "");
    nodes.iter().map(of).sum()
}

/// The reads of a node since its start, and those that hit.
fn reads(node: &Node) -> Result<[u64; 2]> {
    Ok([
        node.count("floe_object_reads_total", "")?,
        node.count("floe_object_reads_total", "=\"hit\"")?,
    ])
}

fn bytes(object: usize) -> Vec<u8> {
    let seed = object as u32;
    let word = |index: u32| (index ^ seed).wrapping_mul(0x9e37_79b9).to_le_bytes();
    (0..OBJECT_BYTES as u32 / 4).flat_map(word).collect()
}
