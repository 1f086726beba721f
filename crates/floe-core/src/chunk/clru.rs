//! Chunk recency at two bytes per chunk.
//!
//! Exact LRU needs two links per entry. Instead every shard divides time into
//! epochs of one 256th of its live records' accesses; an entry remembers the
//! epoch of its last use, and a histogram counts entries per epoch. The oldest
//! epoch is evicted first by sweeping a hand over the entries: LRU to within
//! 0.4 % of the cache.

use std::collections::VecDeque;

/// Accesses per epoch are the live entries divided by this.
const EPOCHS_PER_TURNOVER: usize = 256;
/// Older epochs are merged beyond this many, far below the 2^16 at which
/// epoch numbers wrap.
const EPOCHS_MOST: usize = 4096;

/// Ages that recovery can give: as many as epochs make one turnover.
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
    /// No entries yet.
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

    /// A new entry was used just now: its epoch.
    pub fn admit(&mut self, live: usize) -> u16 {
        self.tick(live);
        *self.count_mut(self.current) += 1;
        self.current
    }

    /// A recovered entry that was last used `age` epochs ago, of
    /// [`RECOVERED_AGES`]: its epoch. Time does not pass.
    pub fn admit_aged(&mut self, age: u16) -> u16 {
        let age = age.min(RECOVERED_AGES - 1);
        while self.counts.len() <= usize::from(age) {
            self.counts.push_front(0);
        }
        let epoch = self.current.wrapping_sub(age);
        *self.count_mut(epoch) += 1;
        epoch
    }

    /// Whether an entry of `epoch` among `live` was not used for a quarter of a turnover.
    pub fn is_old(&self, epoch: u16, live: usize) -> bool {
        let turnover = EPOCHS_PER_TURNOVER.min(live.max(1));
        usize::from(self.age(epoch)) * 4 >= turnover
    }

    /// The youngest epochs of the oldest eighth and of the oldest half of the entries.
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

    /// An entry of epoch `old` was used just now: its new epoch.
    pub fn touch(&mut self, old: u16, live: usize) -> u16 {
        self.tick(live);
        self.forget(old);
        *self.count_mut(self.current) += 1;
        self.current
    }

    /// An entry moved: gives the copy, admitted at epoch `new`, the epoch of the original.
    pub fn restore(&mut self, new: u16, original: u16) -> u16 {
        self.forget(new);
        *self.count_mut(original) += 1;
        original
    }

    /// An entry of epoch `epoch` is no longer live.
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

    /// Gives up on the oldest epoch: nothing of it was found by a full sweep.
    pub fn drop_oldest(&mut self) {
        if let Some(front) = self.counts.front_mut() {
            *front = 0;
        }
    }

    /// Whether `epoch` is `threshold` or older.
    pub fn is_at_or_before(&self, epoch: u16, threshold: u16) -> bool {
        self.age(epoch) >= self.age(threshold)
    }

    /// The next entry for the sweep of `total` entries.
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
