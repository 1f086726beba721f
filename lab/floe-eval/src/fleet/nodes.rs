//! The nodes of a fleet, and the balancer before them.

use std::sync::Arc;

use floe::Origin;
use floe::membership::Holders;
use floe::object::{Consistency, ObjectCache, ObjectConfig, ObjectKey};
use floe::origin::emulated::{EmulatedConfig, SizeRule};
use floe::{RamConfig, Store, StoreConfig};
use floe_core::ByteSize;
use floe_device::Clock;
use parking_lot::RwLock;

use super::network::{Holder, Network, Others};
use super::spec::FleetCase;
use crate::error::EvalError;
use crate::run::{BENCH_BUCKET, emulated_origin};

/// The nodes. Each has a place in the balancer's list, whether it is alive or not.
pub(super) struct Nodes {
    pub(super) holders: Holders,
    network: Arc<Network>,
    caches: RwLock<Vec<Option<ObjectCache>>>,
}

/// The origin of a fleet, which every node opens for itself: its counts are the node's.
fn origin(spec: &FleetCase, seed: u64, clock: &Clock) -> Result<Origin, EvalError> {
    let emulated = EmulatedConfig {
        size: SizeRule::Fixed {
            bytes: spec.object_size,
        },
        latency: spec.origin_latency.clone(),
        head_latency: true,
        ..EmulatedConfig::default()
    };
    emulated_origin(emulated, seed, clock)
}

impl Nodes {
    pub(super) fn new(spec: &FleetCase, network: Network) -> Arc<Self> {
        let names: Vec<String> = (0..spec.nodes).map(|node| format!("n{node}")).collect();
        Arc::new(Nodes {
            holders: Holders::new(spec.order, spec.weight, &names),
            network: Arc::new(network),
            caches: RwLock::new(vec![None; spec.nodes]),
        })
    }

    /// Starts a node with an empty cache.
    pub(super) async fn start(
        self: &Arc<Self>,
        node: usize,
        spec: &FleetCase,
        seed: u64,
        clock: &Clock,
    ) -> Result<(), EvalError> {
        let device = floe_device::open_drives(&spec.device, clock).await?;
        let config = StoreConfig {
            chunk: spec.chunk.clone(),
            format: true,
            seed: Some(seed ^ node as u64),
            ram: RamConfig {
                size: ByteSize(0),
                ..RamConfig::default()
            },
            ..StoreConfig::default()
        };
        let store = Store::open(device, clock.clone(), &config).await;
        let store = store.map_err(|error| EvalError::cache(&error))?;
        let config = ObjectConfig {
            chunk_size: spec.object_size,
            consistency: Consistency::Etag,
            ..ObjectConfig::default()
        };
        let origin = origin(spec, seed, clock)?;
        let cache = ObjectCache::new(store, origin, clock.clone(), config);
        let cache = cache.map_err(|error| EvalError::cache(&error))?;
        if spec.asked > 0 {
            // The nodes have this cache.
            let (nodes, asked) = (Arc::downgrade(self), spec.asked);
            cache.ask_peers(Arc::new(Others {
                own: node,
                network: Arc::clone(&self.network),
                holders: Box::new(move |key| {
                    let nodes = nodes.upgrade();
                    nodes.map_or_else(Vec::new, |nodes| nodes.likeliest(key, node, asked))
                }),
            }));
        }
        self.caches.write()[node] = Some(cache);
        Ok(())
    }

    /// The `count` likeliest holders of an object besides `own`.
    fn likeliest(&self, key: &ObjectKey, own: usize, count: usize) -> Vec<Holder> {
        let order = self.holders.of(key.bucket(), key.key());
        let others = order.filter(|&node| node != own).take(count);
        others.map(|node| (node, self.cache(node))).collect()
    }

    /// A node dies with its cache.
    pub(super) fn kill(&self, node: usize) {
        self.caches.write()[node] = None;
    }

    pub(super) fn cache(&self, node: usize) -> Option<ObjectCache> {
        self.caches.read()[node].clone()
    }

    /// The node to which the balancer sends each object, of those that are alive.
    pub(super) fn owners(&self, objects: u64) -> Vec<usize> {
        let alive: Vec<bool> = self.caches.read().iter().map(Option::is_some).collect();
        let owner = |object| {
            let key = key(object);
            let mut order = self.holders.of(key.bucket(), key.key());
            order.find(|&node| alive[node]).unwrap_or(0)
        };
        (0..objects).map(owner).collect()
    }

    /// Reads of the origin by each node since its start.
    pub(super) fn origin_reads(&self) -> Vec<u64> {
        let of =
            |cache: &Option<ObjectCache>| cache.as_ref().map_or(0, |cache| cache.stats().fetches);
        self.caches.read().iter().map(of).collect()
    }
}

/// The name of an object.
pub(super) fn key(object: u64) -> ObjectKey {
    ObjectKey::new(
        BENCH_BUCKET,
        format!("folder-{}/object-{object}", object % 64),
    )
}
