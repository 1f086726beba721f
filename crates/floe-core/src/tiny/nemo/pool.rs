//! Set-groups on flash, first in, first out, and the heat of the oldest (§4.4).

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

/// One bit for each object, about: a set's objects share its bits if there
/// are more of them than on average.
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
    /// Sequence of the oldest.
    oldest: u64,
    /// As [`Pool::settled`].
    settled: u64,
    /// How many there are when the flash is full, about.
    full: usize,
    /// How many of the oldest are watched.
    watched: usize,
}

impl Pool {
    pub(super) fn new(sets: u32, full: u32, hotness_window: f64) -> Self {
        Pool {
            sets,
            residents: VecDeque::new(),
            oldest: 0,
            settled: 0,
            full: full as usize,
            watched: (hotness_window * f64::from(full)).ceil() as usize,
        }
    }

    pub(super) fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Sequence of the one that will be pushed next.
    pub(super) fn next(&self) -> u64 {
        self.oldest + self.residents.len() as u64
    }

    /// Begins with `oldest` as the number of the first, before any is there.
    pub(super) fn start_at(&mut self, oldest: u64) {
        debug_assert!(self.residents.is_empty(), "nothing is there yet");
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
        self.watch();
    }

    /// Set-groups before this one do not come back, whatever happens. Those
    /// from here to the oldest went, but a crash could bring them back: flash
    /// does not say yet that they are gone. That their zone was emptied is not
    /// enough, for a first attempt to write them may lie elsewhere.
    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    /// Flash says durably what the oldest is.
    pub(super) fn settle(&mut self) {
        self.settled = self.oldest;
    }

    /// The number of the next one is not used; none is there.
    pub(super) fn skip(&mut self) {
        debug_assert!(self.residents.is_empty(), "none has the number yet");
        if self.settled == self.oldest {
            self.settled += 1;
        }
        self.oldest += 1;
    }

    /// The oldest goes.
    pub(super) fn pop(&mut self) -> Option<Resident> {
        let resident = self.residents.pop_front()?;
        self.oldest += 1;
        self.watch();
        Some(resident)
    }

    /// Begins to note hits in those whose end is near: there are so many
    /// set-groups to be written until then.
    fn watch(&mut self) {
        let to_come = self.full.saturating_sub(self.residents.len());
        let watched = self.watched.saturating_sub(to_come);
        for resident in self.residents.iter_mut().take(watched) {
            if resident.heat.is_none() {
                resident.heat = Some(Box::new(Heat::new(resident.objects, self.sets)));
            }
        }
    }

    /// An object was hit.
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

    /// Whether the oldest has a hot object in `set`.
    pub(super) fn oldest_has_hot(&self, set: u32) -> bool {
        self.oldest_heat().is_some_and(|heat| heat.any(set))
    }

    /// Whether that object of the oldest is hot.
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

    /// Those of set-groups before `end`.
    pub(super) fn objects_before(&self, end: u64) -> u64 {
        let count = end.saturating_sub(self.oldest) as usize;
        let residents = self.residents.iter().take(count);
        residents.map(|resident| resident.objects).sum()
    }

    /// One of the objects of set-groups before `end`, each as likely as the
    /// others: its set-group, and which of its objects it is.
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
