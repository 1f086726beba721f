//! A fleet as an experiment describes it.

use floe::latency::LatencyRule;
use floe::membership::HolderOrder;
use floe_core::ByteSize;
use floe_core::chunk::ChunkConfig;
use floe_device::DeviceConfig;
use serde::Deserialize;

use crate::error::EvalError;
use crate::workload::Distribution;

/// Nodes behind a balancer. One of them joins an otherwise warm fleet, then another one dies.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FleetCase {
    /// The nodes, with the one that joins.
    pub nodes: usize,
    /// How the balancer spreads objects, and nodes order the peers that they ask.
    #[serde(default = "default_order")]
    pub order: HolderOrder,
    /// The weight of each node in the balancer's ring.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// Peers that a node asks for an object; 0 for none.
    pub asked: usize,
    /// Objects, for each node.
    pub objects_per_node: u64,
    /// Bytes of each.
    pub object_size: ByteSize,
    /// The drive of each node.
    pub device: DeviceConfig,
    /// The chunk engine of each node.
    #[serde(default)]
    pub chunk: ChunkConfig,
    /// The popularity of objects.
    pub workload: Distribution,
    /// Clients, for each node. Each sends its next request after the answer to the last.
    pub clients_per_node: usize,
    /// Requests before the measurement, for each node.
    pub warm_up_per_node: u64,
    /// Requests of each of the three phases, for each node.
    pub requests_per_node: u64,
    /// The network between nodes.
    #[serde(default)]
    pub network: NetworkSpec,
    /// Latency of the origin, also of requests for metadata.
    pub origin_latency: LatencyRule,
}

/// The network between nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct NetworkSpec {
    /// The time of a message from node to node.
    pub latency: LatencyRule,
    /// Share of the messages that are lost.
    pub loss: f64,
    /// Share of the pairs of nodes that do not reach each other.
    pub cut: f64,
    /// The time after which a node gives a question up, in milliseconds.
    pub timeout_ms: u64,
}

impl Default for NetworkSpec {
    fn default() -> Self {
        NetworkSpec {
            latency: LatencyRule::Constant { ms: 0.1 },
            loss: 0.0,
            cut: 0.0,
            timeout_ms: 100,
        }
    }
}

fn default_order() -> HolderOrder {
    HolderOrder::Haproxy
}

fn default_weight() -> u32 {
    16
}

impl FleetCase {
    /// Objects of the fleet.
    pub(super) fn objects(&self) -> u64 {
        self.objects_per_node * self.nodes as u64
    }

    /// Checks the ranges of settings.
    pub(super) fn check(&self) -> Result<(), EvalError> {
        let wrong = |option, reason: &str| {
            Err(EvalError::Option {
                option,
                reason: reason.to_owned(),
            })
        };
        if !(2..=4096).contains(&self.nodes) {
            return wrong("fleet.nodes", "must be from 2 to 4096");
        }
        if self.objects_per_node == 0 || self.clients_per_node == 0 {
            return wrong("fleet", "needs objects and clients for each node");
        }
        if !(1..=256).contains(&self.weight) {
            return wrong("fleet.weight", "must be from 1 to 256");
        }
        if self.requests_per_node == 0 {
            return wrong("fleet.requests-per-node", "must be at least 1");
        }
        for share in [self.network.loss, self.network.cut] {
            if !(0.0..=1.0).contains(&share) {
                return wrong("fleet.network", "its shares must be from 0 to 1");
            }
        }
        Ok(())
    }
}
