//! A running cluster, and failures of its machines: one, or two at once.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::load::Load;
use super::network::PROXIES;
use super::programs::{Node, Program};

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
        let began = Instant::now();
        self.begin(fault, node)?;
        match fault {
            Fault::Kill | Fault::End | Fault::Cut => self.watch(node, began, time, load),
            Fault::Stop | Fault::Unseen | Fault::Registry => calm(load, time),
        }
        self.end(fault, node, began)
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
        self.begin(faults[0], nodes[0])?;
        calm(load, time / 4);
        let second = Instant::now();
        self.begin(faults[1], nodes[1])?;
        calm(load, time);
        let first = self.end(faults[0], nodes[0], first)?;
        calm(load, time / 4);
        Ok([first, self.end(faults[1], nodes[1], second)?])
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

    fn end(&mut self, fault: Fault, node: usize, began: Instant) -> Result<Window> {
        let machine = self.nodes[node].machine;
        match fault {
            Fault::Kill | Fault::End => self.running[node] = Some(self.nodes[node].start()?),
            Fault::Cut => machine.heal()?,
            Fault::Unseen => PROXIES[0].hear(machine)?,
            Fault::Stop | Fault::Registry => self.signal(fault, node, "CONT")?,
        }
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

    /// Waits, and notes when the other nodes own the keys of `node`.
    fn watch(&mut self, node: usize, began: Instant, time: Duration, load: &Load<'_>) {
        let other = (node + 1) % self.nodes.len();
        let rest = self.nodes.len() as u64 - 1;
        while self.etcd.is_some() && began.elapsed() < time {
            let status = self.nodes[other].status();
            if status.is_ok_and(|status| status["ring_nodes"] == rest && status["settled"] == true)
            {
                self.takeovers.push(began.elapsed());
                break;
            }
            calm(load, Duration::from_millis(50));
        }
        calm(load, time.saturating_sub(began.elapsed()));
    }
}

/// Waits, unless the load ends by itself.
pub(super) fn calm(load: &Load<'_>, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time && !load.ended.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
}
