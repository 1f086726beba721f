//! S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction",
//! SOSP 2023). New objects enter a small queue. At its end, objects with enough
//! hits move to the main queue; the others are evicted, and a ghost queue
//! remembers their keys. A new object with a ghost enters the main queue at
//! once. The main queue reinserts objects that were hit, with one hit less.
//!
//! An object larger than the small queue, which the paper does not mention,
//! enters the main queue.

use super::fifo::Fifo;
use super::resident::{Eviction, Resident};
use super::slab::Slab;
use crate::list::List;

/// The small queue's share of the capacity, in percent.
const SMALL_PERCENT: u64 = 10;
/// Hits in the small queue that promote an object to the main queue.
const PROMOTE_HITS: u32 = 2;
/// Most hits that count when the main queue reinserts an object.
const MAIN_HITS_MAX: u32 = 3;

/// Small, main and ghost FIFO queues.
#[derive(Debug)]
pub(super) struct S3Fifo {
    /// An entry's mark has its queue ([`IN_MAIN`]) and its number of hits.
    small: Queue,
    main: Queue,
    /// Keys of as many bytes of objects as the main queue holds.
    ghost: Resident<Fifo>,
}

/// Set in the marks of objects in the main queue; the other bits count hits.
const IN_MAIN: u32 = 1 << 31;

#[derive(Debug)]
struct Queue {
    capacity_bytes: u64,
    used_bytes: u64,
    list: List,
}

impl Eviction for S3Fifo {
    fn new(capacity_bytes: u64) -> Self {
        let small_bytes = (u128::from(capacity_bytes) * u128::from(SMALL_PERCENT) / 100) as u64;
        let main_bytes = capacity_bytes - small_bytes;
        S3Fifo {
            small: Queue::new(small_bytes),
            main: Queue::new(main_bytes),
            ghost: Resident::new(main_bytes),
        }
    }

    fn hit(&mut self, slab: &mut Slab, id: u32) {
        let mark = slab.mark_mut(id);
        if *mark & !IN_MAIN < !IN_MAIN {
            *mark += 1;
        }
    }

    fn recall(&mut self, key: u64) -> bool {
        self.ghost.remove(key)
    }

    fn insert(&mut self, slab: &mut Slab, key: u64, size: u64, recalled: bool) {
        let (queue, mark) = match recalled || size > self.small.capacity_bytes {
            true => (&mut self.main, IN_MAIN),
            false => (&mut self.small, 0),
        };
        slab.insert(&mut queue.list, key, size, mark);
        queue.used_bytes += size;
    }

    fn evict_one(&mut self, slab: &mut Slab) {
        if self.main.used_bytes > self.main.capacity_bytes || self.small.list.is_empty() {
            self.evict_from_main(slab);
        } else {
            self.evict_from_small(slab);
        }
    }

    fn remove(&mut self, slab: &mut Slab, id: u32) {
        let queue = match slab.get(id).mark & IN_MAIN {
            0 => &mut self.small,
            _ => &mut self.main,
        };
        queue.used_bytes -= slab.remove(&mut queue.list, id).size;
    }
}

impl S3Fifo {
    /// Moves promoted objects from the end of the small queue to the main
    /// queue, then evicts the next. May find none to evict; then the main queue
    /// has grown.
    fn evict_from_small(&mut self, slab: &mut Slab) {
        while !self.small.list.is_empty() {
            let oldest = self.small.list.oldest();
            let entry = slab.get(oldest);
            let (size, hits) = (entry.size, entry.mark);
            self.small.used_bytes -= size;
            if hits < PROMOTE_HITS {
                let gone = slab.remove(&mut self.small.list, oldest);
                self.ghost.access(gone.key, gone.size);
                return;
            }
            self.small.list.unlink(slab, oldest);
            self.main.list.push_newest(slab, oldest);
            *slab.mark_mut(oldest) = IN_MAIN;
            self.main.used_bytes += size;
        }
    }

    fn evict_from_main(&mut self, slab: &mut Slab) {
        while !self.main.list.is_empty() {
            let oldest = self.main.list.oldest();
            let mark = slab.mark_mut(oldest);
            let hits = *mark & !IN_MAIN;
            if hits == 0 {
                let gone = slab.remove(&mut self.main.list, oldest);
                self.main.used_bytes -= gone.size;
                return;
            }
            *mark = IN_MAIN | (hits.min(MAIN_HITS_MAX) - 1);
            self.main.list.refresh(slab, oldest);
        }
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
