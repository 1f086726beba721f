//! One run: a steady load, a node that joins, a node that dies.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use floe::object::Outcome;
use floe::origin::emulated::verify;
use floe_device::Clock;
use parking_lot::Mutex;
use tokio::task::{JoinError, JoinSet};

use super::network::Network;
use super::nodes::{Nodes, key};
use super::spec::FleetCase;
use crate::error::EvalError;
use crate::ratio::ratio;
use crate::results::Figure;
use crate::workload::{Workload, WorkloadSpec};

/// Requests over which the hit ratio of a node that joins is taken.
const WINDOW: usize = 500;

/// The share of the old hit ratio at which it counts as warm.
const WARM_SHARE: f64 = 0.9;

/// Runs `spec` on `clock`, which is virtual, and returns its figures.
///
/// # Errors
/// A setting is wrong, a cache cannot be opened or a read fails, or returned wrong bytes.
pub async fn drive_fleet(
    spec: &FleetCase,
    seed: u64,
    clock: Clock,
) -> Result<Vec<Figure>, EvalError> {
    spec.check()?;
    let network = Network::new(&spec.network, seed, &clock)?;
    let nodes = Nodes::new(spec, network);
    let (joins, dies) = (spec.nodes - 1, 0);
    for node in 0..joins {
        nodes.start(node, spec, seed, &clock).await?;
    }
    let workload = Workload::new(&WorkloadSpec {
        distribution: spec.workload.clone(),
        items: spec.objects(),
        seed,
    })?;
    let load = Load {
        nodes: Arc::clone(&nodes),
        spec: spec.clone(),
        seed,
        rest: Arc::new(Mutex::new(Rest {
            workload,
            requests: 0,
        })),
    };
    let before_join = Arc::new(nodes.owners(spec.objects()));
    load.send(&before_join, spec.warm_up_per_node, Tally::new(spec))
        .await?;

    let before = total(&nodes.origin_reads());
    let steady = load
        .send(&before_join, spec.requests_per_node, Tally::new(spec))
        .await?;
    let steady_reads = total(&nodes.origin_reads()) - before;

    nodes.start(joins, spec, seed, &clock).await?;
    let owners = Arc::new(nodes.owners(spec.objects()));
    let mut watch = Tally::new(spec);
    watch.watched = Some(Watched::new(joins, WARM_SHARE * steady.hit_ratio()));
    let joined = load.send(&owners, spec.requests_per_node, watch).await?;
    let warm = joined.watched.as_ref().and_then(|watched| watched.warm);

    let of_dead: HashSet<u64> = objects_of(&owners, dies);
    nodes.kill(dies);
    let lost_owners = Arc::new(nodes.owners(spec.objects()));
    let before = total(&nodes.origin_reads());
    let mut watch = Tally::new(spec);
    watch.orphans = Some(Orphans::of(of_dead));
    let lost = load
        .send(&lost_owners, spec.requests_per_node, watch)
        .await?;
    let lost_reads = total(&nodes.origin_reads()) - before;

    let mut figures = Vec::new();
    let mut add = |metric: &str, unit: &str, value: f64| {
        figures.push(Figure::new(metric, unit, value));
    };
    add("hit_ratio", "ratio", steady.hit_ratio());
    let shares = relative(&counts_of(&owners, spec.nodes));
    let (busiest, requests) = largest(&relative(&joined.requests));
    add("imbalance", "ratio", requests);
    add("busiest_objects", "ratio", shares[busiest]);
    add("object_imbalance", "ratio", largest(&shares).1);
    add("join_moved", "ratio", moved_share(&before_join, &owners));
    if let Some(warm) = warm {
        add("warm_requests", "count", warm.requests as f64);
        add("warm_origin_reads", "count", warm.origin_reads as f64);
    }
    add("join_hit_ratio", "ratio", joined.hit_ratio());
    add("loss_moved", "ratio", moved_share(&owners, &lost_owners));
    add("loss_hit_ratio", "ratio", lost.hit_ratio());
    add(
        "loss_origin_reads_over_steady",
        "ratio",
        ratio(lost_reads, steady_reads.max(1)),
    );
    if let Some(orphans) = lost.orphans {
        let objects = orphans.read.len() as u64;
        add("lost_objects_read", "count", objects as f64);
        add(
            "lost_misses_per_object",
            "ratio",
            ratio(orphans.misses, objects.max(1)),
        );
    }
    Ok(figures)
}

fn total(counts: &[u64]) -> u64 {
    counts.iter().sum()
}

fn objects_of(owners: &[usize], node: usize) -> HashSet<u64> {
    let objects = (0..).zip(owners).filter(|(_, owner)| **owner == node);
    objects.map(|(object, _)| object).collect()
}

/// Objects of each node.
fn counts_of(owners: &[usize], nodes: usize) -> Vec<u64> {
    let mut counts = vec![0; nodes];
    owners.iter().for_each(|&owner| counts[owner] += 1);
    counts
}

/// Counts beside their mean.
fn relative(counts: &[u64]) -> Vec<f64> {
    let mean = total(counts).max(1) as f64 / counts.len().max(1) as f64;
    counts.iter().map(|&count| count as f64 / mean).collect()
}

/// The largest number, and its place.
fn largest(numbers: &[f64]) -> (usize, f64) {
    let numbered = numbers.iter().copied().enumerate();
    let largest = numbered.max_by(|one, other| one.1.total_cmp(&other.1));
    largest.unwrap_or_default()
}

/// The share of the objects that went to another node.
fn moved_share(before: &[usize], after: &[usize]) -> f64 {
    let moved = before.iter().zip(after).filter(|(from, to)| from != to);
    moved.count() as f64 / before.len().max(1) as f64
}

/// The clients of a fleet.
struct Load {
    nodes: Arc<Nodes>,
    spec: FleetCase,
    seed: u64,
    rest: Arc<Mutex<Rest>>,
}

struct Rest {
    workload: Workload,
    requests: u64,
}

/// The answers to clients in a phase.
struct Tally {
    requests: Vec<u64>,
    hits: u64,
    watched: Option<Watched>,
    orphans: Option<Orphans>,
}

/// A node that becomes warm.
struct Watched {
    node: usize,
    goal: f64,
    last: VecDeque<bool>,
    requests: u64,
    warm: Option<Warm>,
}

/// The requests until it was warm.
#[derive(Clone, Copy)]
struct Warm {
    requests: u64,
    origin_reads: u64,
}

/// Objects whose node has died.
struct Orphans {
    all: HashSet<u64>,
    read: HashSet<u64>,
    misses: u64,
}

impl Orphans {
    fn of(all: HashSet<u64>) -> Self {
        Orphans {
            all,
            read: HashSet::new(),
            misses: 0,
        }
    }
}

impl Watched {
    fn new(node: usize, goal: f64) -> Self {
        Watched {
            node,
            goal,
            last: VecDeque::with_capacity(WINDOW),
            requests: 0,
            warm: None,
        }
    }

    fn note(&mut self, is_hit: bool, nodes: &Nodes) {
        self.requests += 1;
        if self.last.len() == WINDOW {
            self.last.pop_front();
        }
        self.last.push_back(is_hit);
        let hits = self.last.iter().filter(|hit| **hit).count() as u64;
        let is_warm = self.last.len() == WINDOW && ratio(hits, WINDOW as u64) >= self.goal;
        if is_warm && self.warm.is_none() {
            self.warm = Some(Warm {
                requests: self.requests,
                origin_reads: nodes.origin_reads()[self.node],
            });
        }
    }
}

impl Tally {
    fn new(spec: &FleetCase) -> Self {
        Tally {
            requests: vec![0; spec.nodes],
            hits: 0,
            watched: None,
            orphans: None,
        }
    }

    fn note(&mut self, object: u64, node: usize, outcome: Outcome, nodes: &Nodes) {
        let is_hit = outcome.is_hit();
        self.requests[node] += 1;
        self.hits += u64::from(is_hit);
        if let Some(watched) = self.watched.as_mut().filter(|one| one.node == node) {
            watched.note(is_hit, nodes);
        }
        if let Some(orphans) = self
            .orphans
            .as_mut()
            .filter(|one| one.all.contains(&object))
        {
            orphans.read.insert(object);
            // A read that joined the fetch of another one began none.
            orphans.misses += u64::from(outcome == Outcome::Miss);
        }
    }

    fn hit_ratio(&self) -> f64 {
        ratio(self.hits, total(&self.requests).max(1))
    }
}

impl Load {
    /// Sends so many requests for each node, and waits for all answers.
    async fn send(
        &self,
        owners: &Arc<Vec<usize>>,
        per_node: u64,
        tally: Tally,
    ) -> Result<Tally, EvalError> {
        self.rest.lock().requests = per_node * self.spec.nodes as u64;
        let tally = Arc::new(Mutex::new(tally));
        let mut clients: JoinSet<Result<(), EvalError>> = JoinSet::new();
        for _ in 0..self.spec.clients_per_node * self.spec.nodes {
            let (rest, tally) = (Arc::clone(&self.rest), Arc::clone(&tally));
            let (nodes, owners) = (Arc::clone(&self.nodes), Arc::clone(owners));
            let seed = self.seed;
            clients.spawn(async move {
                while let Some(object) = next(&rest) {
                    let node = owners[object as usize];
                    let outcome = read(&nodes, node, object, seed).await?;
                    tally.lock().note(object, node, outcome, &nodes);
                }
                Ok(())
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended.map_err(|error: JoinError| EvalError::cache(&error))??;
        }
        let tally = Arc::into_inner(tally).map(Mutex::into_inner);
        tally.ok_or_else(|| EvalError::Cache("a client has not ended".to_owned()))
    }
}

/// The next object to read.
fn next(rest: &Mutex<Rest>) -> Option<u64> {
    let mut rest = rest.lock();
    rest.requests = rest.requests.checked_sub(1)?;
    Some(rest.workload.next_id())
}

/// Reads an object from a node, and compares its bytes.
async fn read(nodes: &Nodes, node: usize, object: u64, seed: u64) -> Result<Outcome, EvalError> {
    let key = key(object);
    let cache = nodes.cache(node);
    let cache = cache.ok_or_else(|| EvalError::Cache(format!("node {node} is not alive")))?;
    let read = cache.get(&key, None).await;
    let read = read.map_err(|error| EvalError::cache(&error))?;
    let outcome = read.outcome;
    let bytes = read
        .bytes()
        .await
        .map_err(|error| EvalError::cache(&error))?;
    verify(seed, &key, 0, &bytes).map_err(|wrong| EvalError::WrongBytes {
        key: key.to_string(),
        offset: wrong.offset,
    })?;
    Ok(outcome)
}
