//! How the nodes are configured.

use clap::ValueEnum;

/// How a node computes the owner of a key, to refuse the keys of others: `node.ring_hash`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RingHash {
    /// Not at all: a node takes every key.
    #[default]
    Off,
    /// As nutcracker does with `distribution: ketama` and `hash: fnv1a_64`.
    Nutcracker,
    /// As pymemcache's `HashClient` does.
    Pymemcache,
}

/// When cached metadata of objects is used without a request to the origin: `object.consistency`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Consistency {
    /// Never.
    Etag,
    /// Always: objects never change.
    Immutable,
    /// For some seconds.
    Ttl,
    /// While notifications arrive.
    Events,
}

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
