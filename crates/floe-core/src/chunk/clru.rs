//! Chunk recency at two bytes per chunk.
//!
//! Exact LRU needs two links per entry. Instead, every shard divides time into
//! epochs. An epoch lasts for as many accesses as one 256th of the shard's live
//! records. An entry has the epoch of its last use, and a histogram counts the
//! entries per epoch. To evict, a hand sweeps over the entries for those of the
//! oldest epoch: LRU to within 0.4 % of the cache.

use std::collections::VecDeque;

/// An epoch lasts for the number of live entries, divided by this, in accesses.
const EPOCHS_PER_TURNOVER: usize = 256;
/// Most epochs; older ones are merged. Far below 2^16, where epoch numbers
/// wrap.
const EPOCHS_MOST: usize = 4096;

/// Number of ages that recovery distinguishes: the epochs of one turnover.
pub const RECOVERED_AGES: u16 = 256;

/// The recency of one shard's chunks.
#[derive(Debug)]
pub struct Recency {
    /// Entries per epoch, oldest first; the last is the current epoch.
    counts: VecDeque<u32>,
    /// The number of the current epoch (wraps).
    current: u16,
    accesses: usize,
    hand: usize,
}

impl Recency {
    /// No entries.
    pub fn new() -> Self {
        Recency {
            counts: VecDeque::from([0]),
            current: 0,
            accesses: 0,
            hand: 0,
        }
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<u32>()
    }

    /// Adds an entry that was used now; returns its epoch.
    pub fn admit(&mut self, live: usize) -> u16 {
        self.tick(live);
        *self.count_mut(self.current) += 1;
        self.current
    }

    /// Adds a recovered entry that was last used `age` epochs ago, of
    /// [`RECOVERED_AGES`]; returns its epoch. Does not advance time.
    pub fn admit_aged(&mut self, age: u16) -> u16 {
        let age = age.min(RECOVERED_AGES - 1);
        while self.counts.len() <= usize::from(age) {
            self.counts.push_front(0);
        }
        let epoch = self.current.wrapping_sub(age);
        *self.count_mut(epoch) += 1;
        epoch
    }

    /// True if an entry of `epoch` was not used for a quarter of a turnover of
    /// `live` entries.
    pub fn is_old(&self, epoch: u16, live: usize) -> bool {
        let turnover = EPOCHS_PER_TURNOVER.min(live.max(1));
        usize::from(self.age(epoch)) * 4 >= turnover
    }

    /// The youngest epochs of the oldest eighth and of the oldest half of the
    /// entries.
    pub fn quantiles(&self) -> (u16, u16) {
        let all: usize = self.counts.iter().map(|&count| count as usize).sum();
        let youngest_of = |share: usize| {
            let mut seen = 0;
            let epochs = self.counts.iter().take_while(|&&count| {
                seen += count as usize;
                seen <= share
            });
            self.first()
                .wrapping_add(epochs.count() as u16)
                .wrapping_sub(1)
        };
        (youngest_of(all / 8), youngest_of(all / 2))
    }

    /// Records a use of an entry of epoch `old`; returns its new epoch.
    pub fn touch(&mut self, old: u16, live: usize) -> u16 {
        self.tick(live);
        self.forget(old);
        *self.count_mut(self.current) += 1;
        self.current
    }

    /// Gives the copy of a moved entry, admitted at epoch `new`, the epoch of
    /// the original; returns it.
    pub fn restore(&mut self, new: u16, original: u16) -> u16 {
        self.forget(new);
        *self.count_mut(original) += 1;
        original
    }

    /// Removes an entry of epoch `epoch`, which is no longer live.
    pub fn forget(&mut self, epoch: u16) {
        let count = self.count_mut(epoch);
        *count = count.saturating_sub(1);
    }

    /// The oldest epoch with entries.
    pub fn oldest(&mut self) -> Option<u16> {
        while self.counts.len() > 1 && self.counts.front() == Some(&0) {
            self.counts.pop_front();
        }
        (self.counts.front() != Some(&0)).then(|| self.first())
    }

    /// Drops the oldest epoch, because a full sweep found none of its entries.
    pub fn drop_oldest(&mut self) {
        if let Some(front) = self.counts.front_mut() {
            *front = 0;
        }
    }

    /// True if `epoch` is `threshold` or older.
    pub fn is_at_or_before(&self, epoch: u16, threshold: u16) -> bool {
        self.age(epoch) >= self.age(threshold)
    }

    /// The next entry of the sweep over `total` entries.
    pub fn advance_hand(&mut self, total: usize) -> usize {
        self.hand = if self.hand + 1 >= total {
            0
        } else {
            self.hand + 1
        };
        self.hand
    }

    fn tick(&mut self, live: usize) {
        self.accesses += 1;
        if self.accesses * EPOCHS_PER_TURNOVER < live.max(EPOCHS_PER_TURNOVER) {
            return;
        }
        self.accesses = 0;
        self.current = self.current.wrapping_add(1);
        self.counts.push_back(0);
        if self.counts.len() > EPOCHS_MOST
            && let Some(oldest) = self.counts.pop_front()
            && let Some(next) = self.counts.front_mut()
        {
            *next += oldest;
        }
    }

    fn age(&self, epoch: u16) -> u16 {
        self.current.wrapping_sub(epoch)
    }

    fn first(&self) -> u16 {
        self.current.wrapping_sub((self.counts.len() - 1) as u16)
    }

    fn count_mut(&mut self, epoch: u16) -> &mut u32 {
        let last = self.counts.len() - 1;
        let index = last.saturating_sub(usize::from(self.age(epoch)));
        &mut self.counts[index]
    }
}

impl Default for Recency {
    fn default() -> Self {
        Recency::new()
    }
}
