//! `[peers]`.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use floe::membership::HolderOrder;
use http::HeaderValue;
use serde::{Deserialize, Serialize};

use crate::config::{Section, ServerConfigError, guarded, positive, problem};

/// The other nodes of this cache, which fill from each other.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PeersConfig {
    /// Address and port for the questions of other nodes; port 0 selects a free one, `off`
    /// disables the frontend.
    #[serde(with = "crate::config::address_or_off")]
    pub listen: Option<SocketAddr>,
    /// The addresses of all nodes, with this one: `host:port`.
    pub nodes: Vec<String>,
    /// How objects are spread over the nodes.
    pub order: HolderOrder,
    /// HAProxy's weight of each node.
    pub weight: u32,
    /// Nodes that are asked for a missing object, the likeliest ones.
    pub asked: u32,
    /// The time for a node's answer, and for each piece of it.
    pub timeout_ms: u32,
    /// The secret of the nodes. Only a loopback address can do without.
    pub secret: String,
    /// Most open connections of other nodes. A further one replaces the connection that has
    /// been idle longest; if none is idle, it waits.
    pub max_connections: u32,
}

impl fmt::Debug for PeersConfig {
    /// Hides the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeersConfig({:?}, {:?})", self.listen, self.nodes)
    }
}

impl Default for PeersConfig {
    fn default() -> Self {
        PeersConfig {
            listen: None,
            nodes: Vec::new(),
            order: HolderOrder::Rendezvous,
            weight: 1,
            asked: 2,
            timeout_ms: 100,
            secret: String::new(),
            max_connections: 256,
        }
    }
}

/// Most entries: each lookup orders all nodes.
const NODES_MAX: usize = 1024;

/// Most nodes times their weight: a ring of a million points.
const POINTS_MAX: usize = 1 << 16;

/// HAProxy's greatest weight.
const WEIGHT_MAX: u32 = 256;

/// Most nodes that are asked for one object.
const ASKED_MAX: u32 = 16;

impl PeersConfig {
    /// The secret as a header's value.
    pub(super) fn bearer(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", self.secret)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.timeout_ms))
    }
}

impl Section for PeersConfig {
    fn validate(&self) -> Result<(), ServerConfigError> {
        positive("peers.max_connections", self.max_connections)?;
        positive("peers.timeout_ms", self.timeout_ms)?;
        if !(1..=ASKED_MAX).contains(&self.asked) {
            return Err(problem(
                "peers.asked",
                &format!("{} is not between 1 and {ASKED_MAX}", self.asked),
                "use 2",
            ));
        }
        if !(1..=WEIGHT_MAX).contains(&self.weight) {
            return Err(problem(
                "peers.weight",
                &format!("{} is not between 1 and {WEIGHT_MAX}", self.weight),
                "use the weight of the servers in HAProxy's configuration",
            ));
        }
        if self.nodes.len() > NODES_MAX {
            return Err(problem(
                "peers.nodes",
                "it has more than 1024 entries",
                "use several groups of nodes",
            ));
        }
        if self.nodes.len() * self.weight as usize > POINTS_MAX {
            return Err(problem(
                "peers.weight",
                "with so many nodes it makes too large a ring",
                "use a smaller weight in HAProxy and here, such as 16",
            ));
        }
        let is_address = |entry: &&String| {
            let parts = entry.rsplit_once(':');
            parts.is_some_and(|(host, port)| {
                !host.is_empty()
                    && !host.contains('/')
                    && port.parse().is_ok_and(|port: u16| port > 0)
            })
        };
        if let Some(wrong) = self.nodes.iter().find(|entry| !is_address(entry)) {
            return Err(problem(
                "peers.nodes",
                &format!("`{wrong}` is no address"),
                "use entries such as \"10.0.0.11:9095\" or \"floe.example.net:9095\"",
            ));
        }
        if self.bearer().is_none() {
            return Err(problem(
                "peers.secret",
                "it has a line break or another character that no header may have",
                "use letters, digits and punctuation",
            ));
        }
        let secret = ("secret", self.secret.as_str());
        guarded("peers", self.listen, secret, "read every cached object")
    }
}
