//! The nodes that may hold what this one lacks: their addresses, and which of them answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use floe::membership::{HolderOrder, Holders};
use floe_core::Tick;
use floe_device::Clock;
use futures::future::join_all;
use parking_lot::{Mutex, RwLock};
use tokio::net::lookup_host;

/// Names are looked up again after this time, for nodes that come and go.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(10);

/// The time for which a node that failed is not asked. It doubles with each further
/// failure, up to 16 s.
const LEFT_OUT: Duration = Duration::from_secs(1);

/// The time for the lookup of a name.
const LOOKUP_TIME: Duration = Duration::from_secs(5);

/// Most addresses of one name.
const ADDRESSES_PER_NAME: usize = 1024;

/// A node. It may turn out to be this one.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    is_self: AtomicBool,
    health: Mutex<Health>,
}

#[derive(Debug, Default)]
struct Health {
    /// Failures since the last answer.
    failures: u32,
    failed_at: Tick,
    left_out_until: Tick,
}

impl Peer {
    fn at(address: SocketAddr, own: SocketAddr) -> Arc<Self> {
        Arc::new(Peer {
            address,
            is_self: AtomicBool::new(address == own),
            health: Mutex::default(),
        })
    }

    pub(super) fn is_self(&self) -> bool {
        self.is_self.load(Relaxed)
    }

    pub(super) fn is_this_node(&self) {
        self.is_self.store(true, Relaxed);
    }

    /// True if the node may be asked. One that failed is tried with a single question.
    pub(super) fn may_be_asked(&self, now: Tick) -> bool {
        let mut health = self.health.lock();
        if health.failures == 0 {
            return true;
        }
        let is_trial = now >= health.left_out_until;
        if is_trial {
            health.left_out_until = now + LEFT_OUT;
        }
        is_trial
    }

    pub(super) fn answers(&self) {
        let failures = std::mem::take(&mut self.health.lock().failures);
        if failures > 0 {
            tracing::info!(peer = %self.address, "a peer answers again");
        }
    }

    /// Leaves the node out for a while.
    pub(super) fn fails(&self, now: Tick, why: &str) {
        let mut health = self.health.lock();
        if health.failures > 0 && now < health.failed_at + LEFT_OUT {
            // One of many questions that were under way when it failed.
            return;
        }
        let time = LEFT_OUT * 2u32.pow(health.failures.min(4));
        health.failures += 1;
        health.failed_at = now;
        health.left_out_until = now + time;
        if health.failures == 1 {
            tracing::warn!(peer = %self.address, why, "a peer fails; the origin is asked in its place");
        }
    }
}

/// The nodes at one time.
pub(super) struct Members {
    /// `None` for an entry whose address is not known.
    pub(super) peers: Vec<Option<Arc<Peer>>>,
    pub(super) holders: Holders,
}

/// The nodes of the settings.
pub(super) struct Group {
    spread: Spread,
    /// This node's address, where it listens on a certain one.
    own: SocketAddr,
    clock: Clock,
    members: RwLock<Arc<Members>>,
    /// The addresses of each entry when it was looked up last.
    entries: Mutex<Vec<Entry>>,
    is_looking: AtomicBool,
    /// Nanoseconds of the clock.
    next_lookup: AtomicU64,
}

/// How objects are spread over nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    pub(super) order: HolderOrder,
    /// Of each node.
    pub(super) weight: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    text: String,
    addresses: Vec<SocketAddr>,
}

impl Group {
    pub(super) fn new(
        nodes: &[String],
        spread: Spread,
        own: SocketAddr,
        clock: &Clock,
    ) -> Arc<Self> {
        let entry = |text: &String| Entry {
            text: text.clone(),
            // A name is looked up later.
            addresses: text.parse().into_iter().collect(),
        };
        let entries: Vec<_> = nodes.iter().map(entry).collect();
        let members = members_of(&entries, spread, own, &[]);
        Arc::new(Group {
            spread,
            own,
            clock: clock.clone(),
            members: RwLock::new(Arc::new(members)),
            entries: Mutex::new(entries),
            is_looking: AtomicBool::new(false),
            next_lookup: AtomicU64::new(0),
        })
    }

    /// The nodes as they are known; their names are looked up in the background.
    pub(super) fn peers(self: &Arc<Self>) -> Arc<Members> {
        let is_due = self.clock.now().0 >= self.next_lookup.load(Relaxed);
        if is_due && !self.is_looking.swap(true, Relaxed) {
            let group = Arc::clone(self);
            tokio::spawn(async move { group.look_up().await });
        }
        Arc::clone(&self.members.read())
    }

    async fn look_up(&self) {
        let entries = self.entries.lock().clone();
        let entries = join_all(entries.into_iter().map(|entry| self.look_entry_up(entry))).await;
        let is_new = *self.entries.lock() != entries;
        if is_new {
            self.take(entries);
        }
        let next = self.clock.now() + LOOKUP_INTERVAL;
        self.next_lookup.store(next.0, Relaxed);
        self.is_looking.store(false, Relaxed);
    }

    fn take(&self, entries: Vec<Entry>) {
        let before = Arc::clone(&self.members.read());
        let known: Vec<_> = before.peers.iter().flatten().cloned().collect();
        let members = members_of(&entries, self.spread, self.own, &known);
        *self.members.write() = Arc::new(members);
        *self.entries.lock() = entries;
    }

    /// A name that cannot be looked up keeps its addresses from before.
    async fn look_entry_up(&self, mut entry: Entry) -> Entry {
        if entry.text.parse::<SocketAddr>().is_ok() {
            return entry;
        }
        let looking = async {
            let found = lookup_host(entry.text.as_str()).await?;
            Ok(found.take(ADDRESSES_PER_NAME).collect())
        };
        let found: io::Result<Vec<SocketAddr>> = tokio::select! {
            biased;
            found = looking => found,
            () = self.clock.sleep(LOOKUP_TIME) => Err(io::ErrorKind::TimedOut.into()),
        };
        match found {
            Ok(found) => entry.addresses = found,
            Err(error) => tracing::debug!(name = entry.text, %error, "a peer's name is not known"),
        }
        entry
    }

    /// Nodes with an address, without this one, and those of them that fail.
    pub(super) fn counts(&self) -> (usize, usize) {
        let members = self.members.read();
        let others = members
            .peers
            .iter()
            .flatten()
            .filter(|peer| !peer.is_self());
        let failing = |peer: &&Arc<Peer>| peer.health.lock().failures > 0;
        (others.clone().count(), others.filter(failing).count())
    }
}

fn members_of(entries: &[Entry], spread: Spread, own: SocketAddr, known: &[Arc<Peer>]) -> Members {
    let peer = |address: SocketAddr| {
        let same = known.iter().find(|peer| peer.address == address);
        same.map_or_else(|| Peer::at(address, own), Arc::clone)
    };
    let peers: Vec<_> = match spread.order {
        HolderOrder::Rendezvous => {
            let mut all: Vec<SocketAddr> = entries
                .iter()
                .flat_map(|entry| &entry.addresses)
                .copied()
                .collect();
            all.sort_unstable();
            all.dedup();
            all.into_iter().map(|address| Some(peer(address))).collect()
        }
        // An entry is a server of the balancer.
        HolderOrder::Haproxy => entries
            .iter()
            .map(|entry| entry.addresses.first().copied().map(peer))
            .collect(),
    };
    let name = |peer: &Option<Arc<Peer>>| {
        peer.as_ref()
            .map_or_else(String::new, |p| p.address.to_string())
    };
    let names: Vec<String> = peers.iter().map(name).collect();
    Members {
        holders: Holders::new(spread.order, spread.weight, &names),
        peers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(order: HolderOrder) -> Spread {
        Spread { order, weight: 1 }
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn names_become_nodes_and_keep_their_state() {
        let clock = Clock::real();
        let nodes = [
            "127.0.0.1:9",
            "localhost:9",
            "127.0.0.2:9",
            "no such name:9",
        ];
        let nodes = nodes.map(str::to_owned);
        let own = address("127.0.0.3:9");
        let addresses = |group: &Arc<Group>| -> Vec<Option<SocketAddr>> {
            let of = |peer: &Option<Arc<Peer>>| peer.as_ref().map(|peer| peer.address);
            group.peers().peers.iter().map(of).collect()
        };
        let [one, two] = ["127.0.0.1:9", "127.0.0.2:9"].map(|text| Some(address(text)));
        let group = Group::new(&nodes, by(HolderOrder::Rendezvous), own, &clock);
        assert_eq!(addresses(&group), [one, two], "addresses need no lookup");
        group.look_up().await;
        let found = addresses(&group);
        assert!(found.contains(&one) && found.contains(&two), "{found:?}");
        let peers = group.peers();
        let of = |wanted| {
            peers
                .peers
                .iter()
                .flatten()
                .find(|peer| Some(peer.address) == wanted)
        };
        let (this, other) = (of(one).unwrap(), of(two).unwrap());
        let others = group.counts().0;
        this.is_this_node();
        other.fails(clock.now(), "a test");
        group.look_up().await;
        assert_eq!(group.counts(), (others - 1, 1));

        // HAProxy counts entries, whether it knows their addresses or not.
        let nodes = [
            "127.0.0.1:9",
            "no such name:9",
            "127.0.0.2:9",
            "127.0.0.1:9",
        ];
        let nodes = nodes.map(str::to_owned);
        let group = Group::new(
            &nodes,
            by(HolderOrder::Haproxy),
            address("127.0.0.2:9"),
            &clock,
        );
        group.look_up().await;
        assert_eq!(addresses(&group), [one, None, two, one]);
        let is_self = group.peers().peers[2].as_ref().unwrap().is_self();
        assert!(is_self, "the node knows itself by its address");
    }

    #[test]
    fn a_node_that_fails_is_tried_ever_more_rarely() {
        let peer = Peer::at(address("127.0.0.1:9"), address("127.0.0.2:9"));
        let mut now = Tick(5_000_000_000);
        for seconds in [1, 2, 4, 8, 16, 16] {
            assert!(peer.may_be_asked(now), "{seconds}");
            peer.fails(now, "a test");
            // One of many that were under way.
            peer.fails(now + LEFT_OUT / 2, "a test");
            let end = now + Duration::from_secs(seconds);
            assert!(!peer.may_be_asked(now + Duration::from_millis(seconds * 1000 - 1)));
            assert!(peer.may_be_asked(end), "a trial");
            assert!(!peer.may_be_asked(end), "no second one");
            now = end + LEFT_OUT;
        }
        peer.answers();
        assert!(peer.may_be_asked(now) && peer.may_be_asked(now));
    }
}
