//! The objects of a cache, and the parts that all eviction policies share.

use super::slab::Slab;

/// The result of one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The object was there.
    Hit,
    /// The object was not there; it has been inserted.
    Miss,
    /// The object was not there. It is larger than the cache and was not
    /// inserted.
    Rejected,
}

/// An eviction policy: the order of the objects in a [`Slab`].
pub(super) trait Eviction {
    /// The policy of an empty cache of `capacity_bytes`.
    fn new(capacity_bytes: u64) -> Self;

    /// Object `id` was hit.
    fn hit(&mut self, slab: &mut Slab, id: u32);

    /// Returns whether the policy remembers `key`, which is not held, and
    /// forgets it. Called before the evictions that make room for the object.
    fn recall(&mut self, key: u64) -> bool {
        let _ = key;
        false
    }

    /// Adds an object, for which there is room. `recalled` is the result of
    /// [`recall`](Self::recall).
    fn insert(&mut self, slab: &mut Slab, key: u64, size: u64, recalled: bool);

    /// Removes one object, or moves at least one towards its removal. The slab
    /// is not empty.
    fn evict_one(&mut self, slab: &mut Slab);

    /// Removes object `id` on request.
    fn remove(&mut self, slab: &mut Slab, id: u32);
}

/// Objects under the policy `P`.
#[derive(Debug)]
pub(super) struct Resident<P> {
    capacity_bytes: u64,
    slab: Slab,
    policy: P,
}

impl<P: Eviction> Resident<P> {
    /// An empty cache.
    pub(super) fn new(capacity_bytes: u64) -> Self {
        Resident {
            capacity_bytes,
            slab: Slab::default(),
            policy: P::new(capacity_bytes),
        }
    }

    /// Looks `key` up; on a miss inserts it with `size` bytes.
    pub(super) fn access(&mut self, key: u64, size: u64) -> Access {
        if let Some(id) = self.slab.find(key) {
            self.policy.hit(&mut self.slab, id);
            return Access::Hit;
        }
        if size > self.capacity_bytes {
            return Access::Rejected;
        }
        let recalled = self.policy.recall(key);
        while self.slab.used_bytes() > self.capacity_bytes - size {
            self.policy.evict_one(&mut self.slab);
        }
        self.policy.insert(&mut self.slab, key, size, recalled);
        Access::Miss
    }

    /// Removes `key`; returns whether it was held.
    pub(super) fn remove(&mut self, key: u64) -> bool {
        self.policy.recall(key);
        let found = self.slab.find(key);
        if let Some(id) = found {
            self.policy.remove(&mut self.slab, id);
        }
        found.is_some()
    }

    /// True if `key` is held.
    pub(super) fn contains(&self, key: u64) -> bool {
        self.slab.find(key).is_some()
    }

    /// Bytes of the objects held; never above the capacity.
    pub(super) fn used_bytes(&self) -> u64 {
        self.slab.used_bytes()
    }

    /// Objects held.
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }
}
