//! How the nodes are configured.

pub(crate) use floe::membership::RingHash;
pub(crate) use floe::object::Consistency;

/// How the nodes of the ring are configured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nodes {
    pub(crate) ring_hash: RingHash,
    /// `None` if unknown.
    pub(crate) consistency: Option<Consistency>,
}

impl Nodes {
    /// True if a node refuses memcached's keys that it does not own: reads miss, writes fail.
    pub(super) fn know_ring(&self) -> bool {
        self.ring_hash != RingHash::Off
    }
}
