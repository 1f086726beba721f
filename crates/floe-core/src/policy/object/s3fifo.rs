//! S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction",
//! SOSP 2023): new objects enter a small queue; those hit there often enough
//! move to the main queue when their turn comes, the others leave, remembered
//! by a ghost queue. An object whose ghost is met enters the main queue. The
//! main queue reinserts what was hit, with one hit less.
//!
//! An object larger than the small queue, which the paper does not speak of,
//! enters the main queue.

use super::Access;
use super::fifo::Fifo;
use super::slab::{List, Slab};

/// Share of the capacity that new objects share, in percent.
const SMALL_PERCENT: u64 = 10;
/// Hits in the small queue that earn a place in the main queue.
const PROMOTE_HITS: u32 = 2;
/// Hits that are remembered when the main queue reinserts.
const MAIN_HITS_MAX: u32 = 3;

/// Small, main and ghost FIFO queues.
#[derive(Debug)]
pub struct S3Fifo {
    capacity_bytes: u64,
    small: Queue,
    main: Queue,
    /// As many bytes' worth of keys as the main queue has of objects.
    ghost: Fifo,
}

#[derive(Debug)]
struct Queue {
    capacity_bytes: u64,
    slab: Slab,
    list: List,
}

impl S3Fifo {
    /// An empty cache.
    pub fn new(capacity_bytes: u64) -> Self {
        let small_bytes = (u128::from(capacity_bytes) * u128::from(SMALL_PERCENT) / 100) as u64;
        let main_bytes = capacity_bytes - small_bytes;
        S3Fifo {
            capacity_bytes,
            small: Queue::new(small_bytes),
            main: Queue::new(main_bytes),
            ghost: Fifo::new(main_bytes),
        }
    }

    /// Looks `key` up and inserts it on a miss.
    pub fn access(&mut self, key: u64, size: u64) -> Access {
        if self.small.hit(key) || self.main.hit(key) {
            return Access::Hit;
        }
        if size > self.capacity_bytes {
            return Access::Refused;
        }
        let was_ghost = self.ghost.remove(key);
        while self.used_bytes() > self.capacity_bytes - size {
            self.evict_one();
        }
        let queue = if was_ghost || size > self.small.capacity_bytes {
            &mut self.main
        } else {
            &mut self.small
        };
        queue.slab.insert(&mut queue.list, key, size, 0);
        Access::Miss
    }

    fn evict_one(&mut self) {
        if self.main.slab.used_bytes() > self.main.capacity_bytes || self.small.list.is_empty() {
            self.evict_from_main();
        } else {
            self.evict_from_small();
        }
    }

    /// Lets the small queue's oldest object go, after moving those that earned
    /// it to the main queue. May find none to evict: then main is larger now.
    fn evict_from_small(&mut self) {
        while !self.small.list.is_empty() {
            let oldest = self.small.list.oldest();
            let entry = self.small.slab.remove(&mut self.small.list, oldest);
            if entry.mark < PROMOTE_HITS {
                self.ghost.access(entry.key, entry.size);
                return;
            }
            self.main
                .slab
                .insert(&mut self.main.list, entry.key, entry.size, 0);
        }
    }

    fn evict_from_main(&mut self) {
        while !self.main.list.is_empty() {
            let oldest = self.main.list.oldest();
            let hits = self.main.slab.mark_mut(oldest);
            if *hits == 0 {
                self.main.slab.remove(&mut self.main.list, oldest);
                return;
            }
            *hits = (*hits).min(MAIN_HITS_MAX) - 1;
            self.main.slab.refresh(&mut self.main.list, oldest);
        }
    }

    /// Forgets `key`; says whether it was there.
    pub fn remove(&mut self, key: u64) -> bool {
        self.ghost.remove(key);
        self.small.remove(key) || self.main.remove(key)
    }

    /// Whether `key` is held.
    pub fn contains(&self, key: u64) -> bool {
        self.small.slab.find(key).is_some() || self.main.slab.find(key).is_some()
    }

    /// Bytes held.
    pub fn used_bytes(&self) -> u64 {
        self.small.slab.used_bytes() + self.main.slab.used_bytes()
    }

    /// Objects held.
    pub fn len(&self) -> usize {
        self.small.slab.len() + self.main.slab.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Queue {
    fn new(capacity_bytes: u64) -> Self {
        Queue {
            capacity_bytes,
            slab: Slab::default(),
            list: List::EMPTY,
        }
    }

    fn hit(&mut self, key: u64) -> bool {
        let found = self.slab.find(key);
        if let Some(id) = found {
            let hits = self.slab.mark_mut(id);
            *hits = hits.saturating_add(1);
        }
        found.is_some()
    }

    fn remove(&mut self, key: u64) -> bool {
        let found = self.slab.find(key);
        if let Some(id) = found {
            self.slab.remove(&mut self.list, id);
        }
        found.is_some()
    }
}
