//! A running cluster, and failures of its machines: one, or two at once.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::load::{Failed, Load, name};
use super::network::{Machine, PROXIES};
use super::programs::{MEMCACHED, NUTCRACKER, Node, Program};
use crate::blackbox::memcached::Client;

/// A failure of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// `kill -9`.
    Kill,
    /// An orderly end.
    End,
    /// SIGSTOP, then SIGCONT.
    Stop,
    /// Loses all packets.
    Cut,
    /// One proxy reaches it no more; the other one, and etcd, do.
    Unseen,
    /// etcd stops; without etcd as `Stop`.
    Registry,
}

/// When a failure was, and of which node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) fault: Fault,
    pub(super) node: usize,
    pub(super) began: Instant,
    pub(super) ended: Instant,
}

/// The time after a failure's begin and end in which reads may fail: until proxies have noticed.
pub(super) const DETECTION: Duration = Duration::from_secs(3);

/// The failures of single machines, in turn.
pub(super) const FAULTS: [Fault; 6] = [
    Fault::Kill,
    Fault::Cut,
    Fault::Stop,
    Fault::Unseen,
    Fault::End,
    Fault::Registry,
];

/// Failures of two machines at once, in turn.
pub(super) const PAIRS: [[Fault; 2]; 4] = [
    [Fault::Kill, Fault::Cut],
    [Fault::Stop, Fault::Kill],
    [Fault::Cut, Fault::End],
    [Fault::Unseen, Fault::Kill],
];

/// The running programs.
pub(super) struct Cluster {
    pub(super) nodes: Vec<Node>,
    pub(super) running: Vec<Option<Program>>,
    pub(super) etcd: Option<Program>,
    /// The times from a failure until the other nodes were a ring of their own.
    pub(super) takeovers: Vec<Duration>,
    /// Killed when they are dropped.
    pub(super) proxies: Vec<Program>,
}

impl Cluster {
    /// A failure of one node.
    pub(super) fn suffer(
        &mut self,
        fault: Fault,
        node: usize,
        time: Duration,
        load: &Load<'_>,
    ) -> Result<Window> {
        // A node that is still on its way back would look like a takeover.
        let was_whole = self.etcd.is_some() && self.ring_of(node, self.nodes.len());
        let began = Instant::now();
        load.excuse(DETECTION);
        self.begin(fault, node)?;
        match fault {
            Fault::Kill | Fault::End | Fault::Cut if was_whole => {
                self.watch(node, began, time, load)
            }
            _ => calm(load, time.saturating_sub(began.elapsed())),
        }
        self.end(fault, node, began, load)
    }

    /// Failures of two nodes: the second one begins during the first one, and ends after it.
    pub(super) fn suffer_both(
        &mut self,
        faults: [Fault; 2],
        nodes: [usize; 2],
        time: Duration,
        load: &Load<'_>,
    ) -> Result<[Window; 2]> {
        let first = Instant::now();
        load.excuse(DETECTION);
        self.begin(faults[0], nodes[0])?;
        calm(load, time / 4);
        let second = Instant::now();
        load.excuse(DETECTION);
        self.begin(faults[1], nodes[1])?;
        calm(load, time);
        let first = self.end(faults[0], nodes[0], first, load)?;
        calm(load, time / 4);
        Ok([first, self.end(faults[1], nodes[1], second, load)?])
    }

    fn begin(&mut self, fault: Fault, node: usize) -> Result<()> {
        let machine = self.nodes[node].machine;
        match fault {
            Fault::Kill | Fault::End => {
                let signal = if fault == Fault::Kill { "KILL" } else { "TERM" };
                match self.running[node].take() {
                    Some(program) => program.end(signal),
                    None => Ok(()),
                }
            }
            Fault::Cut => machine.cut(),
            Fault::Unseen => PROXIES[0].deafen(machine),
            Fault::Stop | Fault::Registry => self.signal(fault, node, "STOP"),
        }
    }

    fn end(
        &mut self,
        fault: Fault,
        node: usize,
        began: Instant,
        load: &Load<'_>,
    ) -> Result<Window> {
        let machine = self.nodes[node].machine;
        match fault {
            Fault::Kill | Fault::End => self.running[node] = Some(self.nodes[node].start()?),
            Fault::Cut => machine.heal()?,
            Fault::Unseen => PROXIES[0].hear(machine)?,
            Fault::Stop | Fault::Registry => self.signal(fault, node, "CONT")?,
        }
        load.excuse(DETECTION);
        Ok(Window {
            fault,
            node,
            began,
            ended: Instant::now(),
        })
    }

    /// Signals the node, or etcd instead if it is the one that fails.
    fn signal(&self, fault: Fault, node: usize, signal: &str) -> Result<()> {
        let registry = self.etcd.as_ref().filter(|_| fault == Fault::Registry);
        match registry.or(self.running[node].as_ref()) {
            Some(program) => program.signal(signal),
            None => Ok(()),
        }
    }

    /// True if the node after `node` is in a ring of so many nodes, which has settled.
    fn ring_of(&self, node: usize, nodes: usize) -> bool {
        let status = self.nodes[(node + 1) % self.nodes.len()].status();
        status.is_ok_and(|status| status["ring_nodes"] == nodes && status["settled"] == true)
    }

    /// Waits, and notes when the other nodes own the keys of `node`.
    fn watch(&mut self, node: usize, began: Instant, time: Duration, load: &Load<'_>) {
        while began.elapsed() < time {
            if self.ring_of(node, self.nodes.len() - 1) {
                self.takeovers.push(began.elapsed());
                break;
            }
            calm(load, Duration::from_millis(50));
        }
        calm(load, time.saturating_sub(began.elapsed()));
    }
}

/// The time in which each key must be writable again after the last failure.
const OWNERS_TIME: Duration = Duration::from_secs(20);

impl Cluster {
    /// The nodes of keys, by writing each through a proxy of memcached. For nodes that take every
    /// key, after the load.
    pub(super) fn owners(&self, keys: &BTreeSet<usize>) -> Result<HashMap<usize, usize>> {
        let began = Instant::now();
        let mut owners = HashMap::new();
        let mut keys = keys.iter().peekable();
        while let Some(key) = keys.peek() {
            match self.owner(&name(**key)) {
                Ok(owner) => {
                    owners.insert(**key, owner);
                    keys.next();
                }
                // The proxy finds out only now that an old connection is gone.
                Err(error) if began.elapsed() > OWNERS_TIME => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        Ok(owners)
    }

    fn owner(&self, key: &str) -> Result<usize> {
        let open = |machine: Machine, port| {
            let address = SocketAddr::from((machine.address(), port));
            Client::open_with_patience(address, Duration::from_secs(2))
        };
        let mark = format!("owner of {key}").into_bytes();
        let stored = open(PROXIES[0], NUTCRACKER)?.store("set", key, &mark, None)?;
        ensure!(stored == "STORED", "{key}: {stored}");
        for (index, node) in self.nodes.iter().enumerate() {
            let item = open(node.machine, MEMCACHED)?.get(key)?;
            if item.is_some_and(|item| item.bytes == mark) {
                return Ok(index);
            }
        }
        bail!("{key} is at no node")
    }
}

impl Window {
    /// True if the node of a key could not answer through the proxy of an attempt, and the proxy
    /// has no other node for the key.
    pub(super) fn explains(&self, failed: &Failed, owners: &HashMap<usize, usize>) -> bool {
        let is_down = self.began <= failed.when && failed.when < self.ended + DETECTION;
        let is_seen = self.fault == Fault::Unseen && failed.proxy.ip() != PROXIES[0].address();
        let mut keys = failed.keys.iter();
        is_down && !is_seen && keys.any(|key| owners.get(key) == Some(&self.node))
    }
}

/// Waits, unless the load ends by itself.
pub(super) fn calm(load: &Load<'_>, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time && !load.ended.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
}
