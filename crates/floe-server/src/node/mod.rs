//! This server as one of several nodes: when its content counts.
//!
//! The rules are those of `floe::membership`. Here are the parties that decide: the settings,
//! a lease in etcd, or commands of an orchestrator.

mod config;
mod etcd;
mod volume_lock;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use floe::ItemCache;
use floe::membership::{Content, LeaseError, Membership, Place, keep};
use floe::object::ObjectCache;
use floe_device::Clock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::metrics::{Collect, Samples};
use etcd::Etcd;

pub use config::{NodeConfig, Rejoin};
pub use volume_lock::VolumeLocks;

/// A command to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Begin an era, and take the place.
    Join,
    /// Give the place up.
    Leave,
    /// Take the place with the content that is there.
    Confirm,
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The node's lease decides.
    #[error("the lease in etcd decides: a node cannot be confirmed past it; join begins an era")]
    HasLease,
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// The content could not be forgotten.
    #[error("the era could not begin: {0}")]
    Failed(LeaseError),
}

/// The state of a node, for operators: `GET /v1/node` of the admin frontend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name in the ring.
    pub name: String,
    /// Its version of Floe.
    pub version: String,
    /// Its setting.
    pub rejoin: Rejoin,
    /// Reads are answered from the cache.
    pub confirmed: bool,
    /// The time for which the lease confirms the node yet; none without a lease.
    pub confirmed_for_ms: Option<u64>,
    /// The node has a ring, and waits for no other node.
    pub settled: bool,
    /// Nodes of the ring, 0 without one.
    pub ring_nodes: usize,
    /// The same for all nodes that agree on a ring; 0 without one.
    pub ring: String,
    /// Eras that began since the start.
    pub eras: u64,
    /// Reads of keys of others, or while the node was not confirmed.
    pub reads_refused: u64,
    /// Writes likewise.
    pub writes_refused: u64,
}

/// This server as a node.
pub(crate) struct Node {
    state: Arc<State>,
    /// One change at a time.
    changing: tokio::sync::Mutex<()>,
    keeper: Mutex<Option<Keeper>>,
    is_stopping: AtomicBool,
}

/// The parts of a node that the task which keeps its place has, too.
struct State {
    config: NodeConfig,
    name: String,
    clock: Clock,
    objects: ObjectCache,
    /// The items of memcached, once they are open.
    items: Mutex<Option<ItemCache>>,
    eras: AtomicU64,
}

/// The task that keeps the place.
struct Keeper {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The time for a place to be given up when the server stops.
const LEAVE_TIME: Duration = Duration::from_secs(2);

impl Node {
    /// The node that `config` describes, before its items are opened.
    pub(crate) fn new(
        config: Option<&NodeConfig>,
        objects: &ObjectCache,
        clock: &Clock,
    ) -> Arc<Self> {
        let config = config.cloned().unwrap_or_default();
        let membership = objects.store().membership();
        if let Some(place) = config.place() {
            membership.set_identity(place.identity());
            if place.has_ring() {
                membership.await_ring();
            }
        }
        if let Some(ring) = config.fixed_ring() {
            membership.fix(ring);
        }
        if config.rejoin != Rejoin::Warm {
            membership.withdraw();
        }
        Arc::new(Node {
            state: Arc::new(State {
                name: config.effective_name(),
                config,
                clock: clock.clone(),
                objects: objects.clone(),
                items: Mutex::default(),
                eras: AtomicU64::new(0),
            }),
            changing: tokio::sync::Mutex::default(),
            keeper: Mutex::default(),
            is_stopping: AtomicBool::new(false),
        })
    }

    /// Takes charge of the items of memcached.
    pub(crate) fn adopt(&self, items: &ItemCache) {
        *self.state.items.lock() = Some(items.clone());
    }

    /// Takes the place that the settings give, before the first request.
    ///
    /// # Errors
    /// The content could not be forgotten, or etcd has no usable address.
    pub(crate) async fn start(&self) -> Result<(), LeaseError> {
        match (self.state.config.place(), self.state.config.rejoin) {
            (Some(place), _) => self.keep(place)?,
            (None, Rejoin::Warm) => {}
            (None, Rejoin::NewEra) => {
                self.state.begin_era().await?;
                self.state.membership().confirm();
            }
            (None, Rejoin::Wait) => tracing::info!(
                "this node answers with misses until it is told: POST /v1/node/confirm or /v1/node/join"
            ),
        }
        Ok(())
    }

    fn keep(&self, place: Place) -> Result<(), LeaseError> {
        let registry = Etcd::new(&self.state.config, place.time_of_calls())?;
        let stop = CancellationToken::new();
        let (state, stopping) = (Arc::clone(&self.state), stop.clone());
        let task = tokio::spawn(async move {
            keep(&place, &registry, &*state, &state.clock, &stopping).await;
        });
        *self.keeper.lock() = Some(Keeper { stop, task });
        Ok(())
    }

    /// Gives the place up, so that others need not wait for a lease to end.
    pub(crate) async fn stop(&self) {
        self.is_stopping.store(true, Relaxed);
        let _changing = self.changing.lock().await;
        self.leave().await;
    }

    async fn leave(&self) {
        self.state.membership().withdraw();
        let keeper = self.keeper.lock().take();
        if let Some(mut keeper) = keeper {
            keeper.stop.cancel();
            tokio::select! {
                biased;
                _ = &mut keeper.task => {}
                // The lease ends by itself.
                () = self.state.clock.sleep(LEAVE_TIME) => keeper.task.abort(),
            }
        }
        self.state.membership().withdraw();
    }

    /// Carries a command out.
    ///
    /// # Errors
    /// [`CommandError`]; the node is not confirmed then, unless the command was `Confirm`.
    pub(crate) async fn command(&self, command: Command) -> Result<(), CommandError> {
        let _changing = self.changing.lock().await;
        if self.is_stopping.load(Relaxed) {
            return Err(CommandError::Stopping);
        }
        let place = self.state.config.place();
        match (command, place) {
            (Command::Confirm, Some(_)) => return Err(CommandError::HasLease),
            (Command::Confirm, None) => self.state.membership().confirm(),
            (Command::Leave, _) => self.leave().await,
            (Command::Join, place) => {
                self.leave().await;
                match place {
                    // A new lease begins an era.
                    Some(place) => self.keep(place).map_err(CommandError::Failed)?,
                    None => {
                        self.state.begin_era().await.map_err(CommandError::Failed)?;
                        self.state.membership().confirm();
                    }
                }
            }
        }
        tracing::info!(?command, "the node was told");
        Ok(())
    }

    pub(crate) fn status(&self) -> NodeStatus {
        let membership = self.state.membership();
        let left = membership.confirmed_for();
        let refused = membership.refusals();
        NodeStatus {
            name: self.state.name.clone(),
            rejoin: self.state.config.rejoin,
            confirmed: membership.is_confirmed(),
            confirmed_for_ms: left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            settled: membership.is_settled(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ring_nodes: membership.ring_members(),
            ring: format!("{:016x}", membership.ring_list()),
            eras: self.state.eras.load(Relaxed),
            reads_refused: refused.reads,
            writes_refused: refused.writes,
        }
    }

    /// True if the node answers for keys that a ring gives it, or for all without a ring.
    pub(crate) fn is_member(&self) -> bool {
        let membership = self.state.membership();
        membership.is_confirmed() && membership.has_keys()
    }
}

impl Content for State {
    fn membership(&self) -> &Membership {
        self.objects.store().membership()
    }

    async fn begin_era(&self) -> Result<(), LeaseError> {
        let items = self.items.lock().clone();
        if let Some(items) = items {
            items.begin_era().await?;
        }
        self.objects.begin_era().await?;
        self.eras.fetch_add(1, Relaxed);
        Ok(())
    }

    async fn settle(&self) -> Result<(), LeaseError> {
        let items = self.items.lock().clone();
        match items {
            Some(items) => items.settle_ring().await?,
            // Only items have keys of the ring.
            None => self.membership().settle(0),
        }
        Ok(())
    }
}

impl Collect for Node {
    fn collect(&self, samples: &mut Samples) {
        let status = self.status();
        let rejoin = match status.rejoin {
            Rejoin::Warm => "warm",
            Rejoin::NewEra => "new-era",
            Rejoin::Wait => "wait",
        };
        let config = &self.state.config;
        let ring = match (config.ring.is_empty(), config.etcd.is_empty()) {
            (false, _) => "fixed",
            (true, false) => &config.etcd_prefix,
            (true, true) => "",
        };
        samples.gauge(
            "floe_node_info",
            "The node's name, its setting of node.rejoin, and its ring: fixed, or the prefix of its leases in etcd",
            &[("name", &status.name), ("rejoin", rejoin), ("ring", ring)],
            1.0,
        );
        let flag = |is: bool| f64::from(u8::from(is));
        samples.gauge(
            "floe_node_confirmed",
            "1 while the node answers from its cache",
            &[],
            flag(status.confirmed),
        );
        samples.gauge(
            "floe_node_settled",
            "1 while the node waits for no other node of its ring",
            &[],
            flag(status.settled),
        );
        samples.gauge(
            "floe_node_ring_nodes",
            "Nodes of the ring, 0 without one",
            &[],
            status.ring_nodes as f64,
        );
        samples.gauge(
            "floe_node_ring_share_ratio",
            "The node's share of all keys by its ring, 1 without one",
            &[],
            self.state.membership().ring_share(),
        );
        samples.counter(
            "floe_node_eras",
            "Eras that began: all items forgotten",
            &[],
            status.eras,
        );
        for (operation, refused) in [
            ("read", status.reads_refused),
            ("write", status.writes_refused),
        ] {
            samples.counter(
                "floe_node_refused",
                "Operations on items that are another node's or came while the node was not confirmed",
                &[("operation", operation)],
                refused,
            );
        }
    }
}
