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
    /// The objects of both queues; an entry's mark says which queue it is in
    /// ([`IN_MAIN`]) and how often it was hit.
    slab: Slab,
    small: Queue,
    main: Queue,
    /// As many bytes' worth of keys as the main queue has of objects.
    ghost: Fifo,
}

/// Set in the marks of objects in the main queue; the other bits count hits.
const IN_MAIN: u32 = 1 << 31;

#[derive(Debug)]
struct Queue {
    capacity_bytes: u64,
    used_bytes: u64,
    list: List,
}

impl S3Fifo {
    /// An empty cache.
    pub fn new(capacity_bytes: u64) -> Self {
        let small_bytes = (u128::from(capacity_bytes) * u128::from(SMALL_PERCENT) / 100) as u64;
        let main_bytes = capacity_bytes - small_bytes;
        S3Fifo {
            capacity_bytes,
            slab: Slab::default(),
            small: Queue::new(small_bytes),
            main: Queue::new(main_bytes),
            ghost: Fifo::new(main_bytes),
        }
    }

    /// Looks `key` up and inserts it on a miss.
    pub fn access(&mut self, key: u64, size: u64) -> Access {
        if let Some(id) = self.slab.find(key) {
            let mark = self.slab.mark_mut(id);
            if *mark & !IN_MAIN < !IN_MAIN {
                *mark += 1;
            }
            return Access::Hit;
        }
        if size > self.capacity_bytes {
            return Access::Refused;
        }
        let was_ghost = self.ghost.remove(key);
        while self.slab.used_bytes() > self.capacity_bytes - size {
            self.evict_one();
        }
        let into_main = was_ghost || size > self.small.capacity_bytes;
        let (queue, mark) = match into_main {
            true => (&mut self.main, IN_MAIN),
            false => (&mut self.small, 0),
        };
        self.slab.insert(&mut queue.list, key, size, mark);
        queue.used_bytes += size;
        Access::Miss
    }

    fn evict_one(&mut self) {
        if self.main.used_bytes > self.main.capacity_bytes || self.small.list.is_empty() {
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
            let entry = self.slab.get(oldest);
            let (size, hits) = (entry.size, entry.mark);
            self.small.used_bytes -= size;
            if hits < PROMOTE_HITS {
                let gone = self.slab.remove(&mut self.small.list, oldest);
                self.ghost.access(gone.key, gone.size);
                return;
            }
            self.slab
                .transfer(&mut self.small.list, &mut self.main.list, oldest);
            *self.slab.mark_mut(oldest) = IN_MAIN;
            self.main.used_bytes += size;
        }
    }

    fn evict_from_main(&mut self) {
        while !self.main.list.is_empty() {
            let oldest = self.main.list.oldest();
            let mark = self.slab.mark_mut(oldest);
            let hits = *mark & !IN_MAIN;
            if hits == 0 {
                let gone = self.slab.remove(&mut self.main.list, oldest);
                self.main.used_bytes -= gone.size;
                return;
            }
            *mark = IN_MAIN | (hits.min(MAIN_HITS_MAX) - 1);
            self.slab.refresh(&mut self.main.list, oldest);
        }
    }

    /// Forgets `key`; says whether it was there.
    pub fn remove(&mut self, key: u64) -> bool {
        self.ghost.remove(key);
        let found = self.slab.find(key);
        if let Some(id) = found {
            let queue = match self.slab.get(id).mark & IN_MAIN {
                0 => &mut self.small,
                _ => &mut self.main,
            };
            queue.used_bytes -= self.slab.remove(&mut queue.list, id).size;
        }
        found.is_some()
    }

    /// Whether `key` is held.
    pub fn contains(&self, key: u64) -> bool {
        self.slab.find(key).is_some()
    }

    /// Bytes held.
    pub fn used_bytes(&self) -> u64 {
        self.slab.used_bytes()
    }

    /// Objects held.
    pub fn len(&self) -> usize {
        self.slab.len()
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
            used_bytes: 0,
            list: List::EMPTY,
        }
    }
}
