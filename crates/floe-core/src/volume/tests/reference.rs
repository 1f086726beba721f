//! LRU, SIEVE and CLOCK of 4 KiB blocks against queues of a few lines.

use std::collections::VecDeque;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::volume::{ByteRange, Cache, Config, Operation, Plan, Replacement, Request, VolumeId};
use crate::{ByteSize, Tick};

/// A queue of pages, newest first, each with the mark of SIEVE and CLOCK.
struct Reference {
    kind: Replacement,
    pages: VecDeque<(u64, bool)>,
    /// Position of the next candidate, counted from the oldest.
    hand: usize,
    capacity: usize,
}

impl Reference {
    /// True if `page` was there; it is afterwards.
    fn access(&mut self, page: u64) -> bool {
        let found = self.pages.iter().position(|&(other, _)| other == page);
        if let Some(at) = found {
            if self.kind != Replacement::Lru {
                self.pages[at].1 = true;
            } else if let Some(page) = self.pages.remove(at) {
                self.pages.push_front(page);
            }
            return true;
        }
        if self.pages.len() == self.capacity {
            self.evict();
        }
        self.pages.push_front((page, false));
        false
    }

    fn evict(&mut self) {
        if self.kind != Replacement::Sieve {
            while let Some((page, true)) = self.pages.pop_back() {
                self.pages.push_front((page, false));
            }
            return;
        }
        loop {
            let at = self.pages.len() - 1 - self.hand;
            let is_spared = std::mem::take(&mut self.pages[at].1);
            if is_spared {
                self.hand += 1;
            } else {
                self.pages.remove(at);
            }
            // The newest page has passed: the search goes on at the oldest.
            if self.hand == self.pages.len() {
                self.hand = 0;
            }
            if !is_spared {
                return;
            }
        }
    }
}

#[test]
fn lru_sieve_and_clock_of_single_pages_equal_a_queue() {
    for kind in [Replacement::Lru, Replacement::Sieve, Replacement::Clock] {
        for capacity in [1, 7, 64, 100] {
            let config = Config {
                block_replacement: kind,
                ..Config::fixed(ByteSize::kib(4 * capacity), ByteSize::kib(4)).unwrap()
            };
            let mut cache = Cache::new(&Plan::new(&config).unwrap());
            let mut reference = Reference {
                kind,
                pages: VecDeque::new(),
                hand: 0,
                capacity: capacity as usize,
            };
            let mut random = Xoshiro256PlusPlus::seed_from_u64(capacity);
            let mut steps = Vec::new();
            for _ in 0..20_000 {
                // Squares of uniform numbers: low pages are hot.
                let uniform = random.next_u64() as f64 / u64::MAX as f64;
                let (page, count) = (
                    (uniform * uniform * 300.0) as u64,
                    1 + random.next_u64() % 4,
                );
                let request = Request {
                    volume: VolumeId(1),
                    operation: if random.next_u64() % 2 == 0 {
                        Operation::Read
                    } else {
                        Operation::Write
                    },
                    range: ByteRange::at(page << 12, count << 12),
                };
                steps.clear();
                let outcome = cache.request(&request, Tick::ZERO, &mut steps);
                let hits = (page..page + count)
                    .filter(|&page| reference.access(page))
                    .count();
                assert_eq!(
                    outcome.hit_bytes,
                    (hits as u64) << 12,
                    "{kind:?} of {capacity}"
                );
            }
        }
    }
}
