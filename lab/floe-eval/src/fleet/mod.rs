//! Many nodes in front of one origin, in virtual time: real engines on simulated drives, a
//! balancer with HAProxy's ring, a network that delays and loses, nodes that come and die.
//!
//! | file | has |
//! |---|---|
//! | `spec.rs` | a fleet as an experiment describes it |
//! | `network.rs` | messages between nodes, and nodes that ask each other |
//! | `nodes.rs` | the nodes, and the balancer before them |
//! | `drive.rs` | one run: a steady load, a node that joins, a node that dies |
//!
//! Processing takes no time. The rules by which a server leaves a failing peer out for a while
//! are not modelled: here a node that cannot be reached costs each question the whole time-out.

mod drive;
mod network;
mod nodes;
mod spec;
#[cfg(test)]
mod tests;

pub use drive::drive_fleet;
pub use spec::{FleetCase, NetworkSpec};
