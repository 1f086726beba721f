//! The FIFO of set-groups on flash, and the heat of the oldest (§4.4).

use std::collections::VecDeque;

use super::extents::Extent;
use crate::tiny::engine::Discarded;
use crate::tiny::statistics::room_bytes;

/// A set-group on flash.
#[derive(Debug)]
pub(super) struct Resident {
    pub(super) extent: Extent,
    pub(super) objects: u64,
    /// Only the oldest set-groups track heat; boxed to keep `Resident` small for
    /// lookups.
    heat: Option<Box<Heat>>,
}

impl Resident {
    /// The heat of an evicted set-group, to drop.
    pub(super) fn into_heat(self) -> Option<Discarded> {
        self.heat.map(Discarded::new)
    }
}

/// About one bit per object. A set with more objects than average shares bits
/// among them.
#[derive(Debug)]
struct Heat {
    bits_per_set: u32,
    words: usize,
    /// The words, in blocks that are there once a bit was set.
    blocks: Vec<Option<Box<[u64]>>>,
    /// Bytes of the blocks that are there.
    held_bytes: u64,
}

/// Words of a block; the last one may have fewer.
const BLOCK_WORDS: usize = 512;

impl Heat {
    fn new(objects: u64, sets: u32) -> Self {
        let bits_per_set = (objects.div_ceil(u64::from(sets)) as u32).max(1);
        let bits = u64::from(bits_per_set) * u64::from(sets);
        let words = bits.div_ceil(64) as usize;
        Heat {
            bits_per_set,
            words,
            blocks: vec![None; words.div_ceil(BLOCK_WORDS)],
            held_bytes: 0,
        }
    }

    fn bit(&self, set: u32, slot: usize) -> (usize, u64) {
        let slot = slot as u64 % u64::from(self.bits_per_set);
        let bit = u64::from(set) * u64::from(self.bits_per_set) + slot;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    fn word(&self, word: usize) -> u64 {
        let block = self.blocks[word / BLOCK_WORDS].as_deref();
        block.map_or(0, |block| block[word % BLOCK_WORDS])
    }

    fn mark(&mut self, set: u32, slot: usize) {
        let (word, bit) = self.bit(set, slot);
        let at = word / BLOCK_WORDS;
        let words = BLOCK_WORDS.min(self.words - at * BLOCK_WORDS);
        let held_bytes = &mut self.held_bytes;
        let block = self.blocks[at].get_or_insert_with(|| {
            *held_bytes += room_bytes::<u64>(words);
            vec![0; words].into()
        });
        block[word % BLOCK_WORDS] |= bit;
    }

    fn is_set(&self, set: u32, slot: usize) -> bool {
        let (word, bit) = self.bit(set, slot);
        self.word(word) & bit != 0
    }

    /// The words of a set, and its bits in each.
    fn words_of(&self, set: u32) -> impl Iterator<Item = (usize, u64)> + use<> {
        let start = u64::from(set) * u64::from(self.bits_per_set);
        let end = start + u64::from(self.bits_per_set);
        (start / 64..end.div_ceil(64)).map(move |word| {
            let (from, to) = (
                start.max(word * 64) % 64,
                end.min(word * 64 + 64) - word * 64,
            );
            (word as usize, u64::MAX << from & u64::MAX >> (64 - to))
        })
    }

    fn any(&self, set: u32) -> bool {
        let mut words = self.words_of(set);
        words.any(|(word, bits)| self.word(word) & bits != 0)
    }

    fn clear(&mut self, set: u32) {
        for (word, bits) in self.words_of(set) {
            if let Some(block) = &mut self.blocks[word / BLOCK_WORDS] {
                block[word % BLOCK_WORDS] &= !bits;
            }
        }
    }

    fn memory_bytes(&self) -> u64 {
        room_bytes::<Option<Box<[u64]>>>(self.blocks.capacity()) + self.held_bytes
    }
}

/// The set-groups on flash, oldest first.
#[derive(Debug)]
pub(super) struct Pool {
    sets: u32,
    residents: VecDeque<Resident>,
    /// Sequence of the oldest set-group, or of the next one if there is none.
    oldest: u64,
    /// See [`Pool::settled`].
    settled: u64,
    /// Upper bound of the set-groups that fit on flash.
    capacity: usize,
    /// Number of the oldest set-groups that track heat.
    tracked: usize,
    /// Number of the oldest set-groups that track it already.
    tracking: usize,
    /// The sweep that cools objects, until it has seen all sets that track heat.
    cooling: Option<Cooling>,
}

/// The next set to cool.
#[derive(Clone, Copy, Debug)]
struct Cooling {
    sequence: u64,
    set: u32,
}

impl Pool {
    pub(super) fn new(sets: u32, capacity: u32, hotness_window: f64) -> Self {
        Pool {
            sets,
            residents: VecDeque::new(),
            oldest: 0,
            settled: 0,
            capacity: capacity as usize,
            tracked: (hotness_window * f64::from(capacity)).ceil() as usize,
            tracking: 0,
            cooling: None,
        }
    }

    pub(super) fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Sequence of the set-group that will be pushed next.
    pub(super) fn next(&self) -> u64 {
        self.oldest + self.residents.len() as u64
    }

    /// Sets the sequence of the first set-group, while the pool is empty.
    pub(super) fn start_at(&mut self, oldest: u64) {
        debug_assert!(self.residents.is_empty(), "the pool is empty");
        self.oldest = oldest;
        self.settled = oldest;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.residents.is_empty()
    }

    pub(super) fn get(&self, sequence: u64) -> Option<&Resident> {
        let at = sequence.checked_sub(self.oldest)?;
        self.residents.get(at as usize)
    }

    pub(super) fn push(&mut self, extent: Extent, objects: u64) {
        self.residents.push_back(Resident {
            extent,
            objects,
            heat: None,
        });
        self.track_heat();
    }

    /// No crash can bring back set-groups before this one. Those from here to
    /// the oldest were evicted, but flash does not record that yet. A reset of
    /// their zone is not enough: a failed first attempt to write them may lie
    /// in another zone.
    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    /// Flash records durably which set-group is the oldest.
    pub(super) fn settle(&mut self) {
        self.settled = self.oldest;
    }

    /// Skips the next sequence. The pool must be empty.
    pub(super) fn skip(&mut self) {
        debug_assert!(self.residents.is_empty(), "the pool is empty");
        if self.settled == self.oldest {
            self.settled += 1;
        }
        self.oldest += 1;
    }

    /// Removes the oldest set-group.
    pub(super) fn pop(&mut self) -> Option<Resident> {
        let resident = self.residents.pop_front()?;
        self.oldest += 1;
        self.tracking = self.tracking.saturating_sub(1);
        self.track_heat();
        Some(resident)
    }

    /// Starts to track heat in the set-groups that will be evicted soon.
    fn track_heat(&mut self) {
        let to_come = self.capacity.saturating_sub(self.residents.len());
        let tracked = self.tracked.saturating_sub(to_come);
        let tracked = tracked.min(self.residents.len());
        for resident in self
            .residents
            .range_mut(self.tracking.min(tracked)..tracked)
        {
            resident.heat = Some(Box::new(Heat::new(resident.objects, self.sets)));
        }
        self.tracking = self.tracking.max(tracked);
    }

    /// Marks an object as hot, if its set-group tracks heat.
    pub(super) fn hit(&mut self, sequence: u64, set: u32, slot: usize) {
        let Some(at) = sequence.checked_sub(self.oldest) else {
            return;
        };
        if let Some(heat) = self
            .residents
            .get_mut(at as usize)
            .and_then(|resident| resident.heat.as_mut())
        {
            heat.mark(set, slot);
        }
    }

    /// True if the oldest set-group has a hot object in `set`.
    pub(super) fn oldest_has_hot(&self, set: u32) -> bool {
        self.oldest_heat().is_some_and(|heat| heat.any(set))
    }

    /// True if an object of the oldest set-group is hot.
    pub(super) fn oldest_is_hot(&self, set: u32, slot: usize) -> bool {
        self.oldest_heat()
            .is_some_and(|heat| heat.is_set(set, slot))
    }

    fn oldest_heat(&self) -> Option<&Heat> {
        self.residents.front()?.heat.as_deref()
    }

    /// Begins to cool objects.
    pub(super) fn begin_cooling(&mut self) {
        self.cooling.get_or_insert(Cooling {
            sequence: self.oldest,
            set: 0,
        });
    }

    /// Cools the objects of the next `count` sets, but for sets that are `recent`.
    pub(super) fn cool(&mut self, count: u32, recent: impl Fn(u32) -> bool) {
        let mut left = count;
        while left > 0
            && let Some(mut next) = self.cooling.take()
        {
            if next.sequence < self.oldest {
                next = Cooling {
                    sequence: self.oldest,
                    set: 0,
                };
            }
            let at = (next.sequence - self.oldest) as usize;
            // The set-groups that track heat are the oldest.
            let Some(heat) = self
                .residents
                .get_mut(at)
                .and_then(|resident| resident.heat.as_mut())
            else {
                return;
            };
            let end = next.set.saturating_add(left).min(self.sets);
            for set in (next.set..end).filter(|set| !recent(*set)) {
                heat.clear(set);
            }
            left -= end - next.set;
            self.cooling = Some(match end < self.sets {
                true => Cooling { set: end, ..next },
                false => Cooling {
                    sequence: next.sequence + 1,
                    set: 0,
                },
            });
        }
    }

    pub(super) fn objects(&self) -> u64 {
        self.residents.iter().map(|resident| resident.objects).sum()
    }

    /// Objects in set-groups before `end`.
    pub(super) fn objects_before(&self, end: u64) -> u64 {
        let count = end.saturating_sub(self.oldest) as usize;
        let residents = self.residents.iter().take(count);
        residents.map(|resident| resident.objects).sum()
    }

    /// Draws an object uniformly from the set-groups before `end`: its
    /// set-group, and its number there.
    pub(super) fn draw(&self, random: u64, end: u64) -> Option<(u64, u64)> {
        let mut nth = random.checked_rem(self.objects_before(end))?;
        for (sequence, resident) in (self.oldest..end).zip(&self.residents) {
            match nth.checked_sub(resident.objects) {
                Some(left) => nth = left,
                None => return Some((sequence, nth)),
            }
        }
        None
    }

    pub(super) fn hotness_bytes(&self) -> u64 {
        self.residents
            .iter()
            .filter_map(|resident| resident.heat.as_ref())
            .map(|heat| heat.memory_bytes())
            .sum()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.residents.capacity() * size_of::<Resident>()) as u64
    }
}
