//! The FIFO of set-groups on flash, and the heat of the oldest (§4.4).

use std::collections::VecDeque;

use super::extents::Extent;

/// A set-group on flash.
#[derive(Debug)]
pub(super) struct Resident {
    pub(super) extent: Extent,
    pub(super) objects: u64,
    /// Only the oldest set-groups track heat; boxed to keep `Resident` small for
    /// lookups.
    heat: Option<Box<Heat>>,
}

/// About one bit per object. A set with more objects than average shares bits
/// among them.
#[derive(Debug)]
struct Heat {
    bits_per_set: u32,
    words: Vec<u64>,
}

impl Heat {
    fn new(objects: u64, sets: u32) -> Self {
        let bits_per_set = (objects.div_ceil(u64::from(sets)) as u32).max(1);
        let bits = u64::from(bits_per_set) * u64::from(sets);
        Heat {
            bits_per_set,
            words: vec![0; bits.div_ceil(64) as usize],
        }
    }

    fn bit(&self, set: u32, slot: usize) -> (usize, u64) {
        let slot = slot as u64 % u64::from(self.bits_per_set);
        let bit = u64::from(set) * u64::from(self.bits_per_set) + slot;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    fn is_set(&self, set: u32, slot: usize) -> bool {
        let (word, bit) = self.bit(set, slot);
        self.words[word] & bit != 0
    }

    fn any(&self, set: u32) -> bool {
        (0..self.bits_per_set as usize).any(|slot| self.is_set(set, slot))
    }

    fn clear(&mut self, set: u32) {
        for slot in 0..self.bits_per_set as usize {
            let (word, bit) = self.bit(set, slot);
            self.words[word] &= !bit;
        }
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
        self.track_heat();
        Some(resident)
    }

    /// Starts to track heat in the set-groups that will be evicted soon.
    fn track_heat(&mut self) {
        let to_come = self.capacity.saturating_sub(self.residents.len());
        let tracked = self.tracked.saturating_sub(to_come);
        for resident in self.residents.iter_mut().take(tracked) {
            if resident.heat.is_none() {
                resident.heat = Some(Box::new(Heat::new(resident.objects, self.sets)));
            }
        }
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
            let (word, bit) = heat.bit(set, slot);
            heat.words[word] |= bit;
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

    /// Cools all objects of sets that are not `recent`.
    pub(super) fn cool(&mut self, recent: impl Fn(u32) -> bool) {
        for resident in &mut self.residents {
            let Some(heat) = &mut resident.heat else {
                continue;
            };
            for set in (0..self.sets).filter(|set| !recent(*set)) {
                heat.clear(set);
            }
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
            .map(|heat| heat.words.len() as u64 * 8)
            .sum()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.residents.capacity() * size_of::<Resident>()) as u64
    }
}
