//! Set-groups in memory.

use super::hashes::Homes;
use crate::hash::KeyHash;
use crate::tiny::engine::Discarded;
use crate::tiny::object::{Object, PAGE_ROOM_BYTES};
use crate::tiny::statistics::{payload_bytes, room_bytes};

/// A set in memory.
#[derive(Debug, Default)]
pub(super) struct Set {
    /// One mark per object, in the same order as `objects`.
    marks: Vec<Mark>,
    objects: Vec<Object>,
}

/// The fields of an object that lookups and moves read: a quarter of an
/// object's size.
#[derive(Clone, Copy, Debug)]
struct Mark {
    hash: KeyHash,
    /// The other set of the object, or [`NO_SET`].
    other: u32,
    /// Bytes that the object takes in a page.
    stored_bytes: u16,
}

const NO_SET: u32 = u32::MAX;

impl Set {
    pub(super) fn objects(&self) -> &[Object] {
        &self.objects
    }

    pub(super) fn hashes(&self) -> impl Iterator<Item = KeyHash> {
        self.marks.iter().map(|mark| mark.hash)
    }

    pub(super) fn len(&self) -> usize {
        self.marks.len()
    }

    fn position(&self, hash: KeyHash) -> Option<usize> {
        self.marks.iter().position(|mark| mark.hash == hash)
    }

    /// Bytes of memory held, without keys and values.
    fn table_bytes(&self) -> u64 {
        room_bytes::<Mark>(self.marks.capacity()) + room_bytes::<Object>(self.objects.capacity())
    }
}

static EMPTY: Set = Set {
    marks: Vec::new(),
    objects: Vec::new(),
};

/// Summary of a set, read before the set itself. Most lookups and moves end
/// here, so it lies apart from the sets and spares loading them. Each is in one line of the
/// processor's cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct SetSummary {
    /// The bits of the set's hashes.
    hash_bits: HashBits,
    /// The generation of the set-group to which the set's objects belong.
    generation: u32,
    used_bytes: u16,
    /// Objects of as many bytes or more found no room by moving one of the set's objects, which
    /// have not changed since. Other sets fill up meanwhile, so they would hardly find any now: only
    /// if one has lost an object.
    stuck_bytes: u16,
}

/// No object is as long.
const NOT_STUCK: u16 = u16::MAX;

impl SetSummary {
    /// An empty set.
    fn empty(generation: u32) -> Self {
        SetSummary {
            hash_bits: HashBits::default(),
            generation,
            used_bytes: 0,
            stuck_bytes: NOT_STUCK,
        }
    }
}

/// Objects by which a full set's capacity grows. Sets hold similar numbers of
/// objects, so doubling would leave half of the memory unused.
const CAPACITY_STEP_OBJECTS: usize = 2;

/// A Bloom filter: one bit of each hash in each word. With 16 hashes it has one in a hundred others.
#[derive(Clone, Copy, Debug, Default)]
struct HashBits([u64; 3]);

impl HashBits {
    fn of(hash: KeyHash) -> Self {
        let mixed = hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        HashBits([58, 52, 46].map(|shift| 1 << (mixed >> shift & 63)))
    }

    fn add(&mut self, other: HashBits) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word |= other;
        }
    }

    fn contains(self, other: HashBits) -> bool {
        let missing = self.0.iter().zip(other.0);
        missing.fold(0, |all, (word, other)| all | (other & !word)) == 0
    }
}

/// A set-group in memory.
///
/// Its memory is used for one set-group after another. [`SetGroup::renew`] only begins another
/// *generation*: a set of an earlier one counts as empty. [`SetGroup::free`] frees its objects, or
/// the set itself when it takes in the next one. So no step takes longer with more sets.
#[derive(Debug)]
pub(super) struct SetGroup {
    sets: Vec<Set>,
    /// Indexed by set.
    summaries: Vec<SetSummary>,
    generation: u32,
    /// The sets before this one hold nothing of an earlier generation.
    freed: u32,
    /// Capacity in objects that a set allocates for its first one.
    first_capacity_objects: usize,
    objects: u64,
    used_bytes: u64,
    /// The number of sets with as many objects as the index says.
    counts: Vec<u32>,
    /// Memory of all sets, those of earlier generations included: of their tables, and of keys
    /// and values.
    table_bytes: u64,
    payload_bytes: u64,
    /// Stored bytes of objects that were written back into it.
    pub(super) written_back_bytes: u64,
    /// The set-group was sealed by a drain, not because it was full.
    pub(super) is_cut_short: bool,
}

impl SetGroup {
    /// An empty set-group of `sets` sets.
    pub(super) fn new(sets: u32) -> Self {
        SetGroup {
            sets: (0..sets).map(|_| Set::default()).collect(),
            summaries: vec![SetSummary::empty(0); sets as usize],
            generation: 0,
            freed: sets,
            first_capacity_objects: CAPACITY_STEP_OBJECTS,
            objects: 0,
            used_bytes: 0,
            counts: vec![sets],
            table_bytes: 0,
            payload_bytes: 0,
            written_back_bytes: 0,
            is_cut_short: false,
        }
    }

    /// Empties the set-group. What its sets hold is freed by [`SetGroup::free`], or as they are
    /// used again.
    pub(super) fn renew(&mut self) {
        let mean = self.objects.div_ceil(self.sets.len() as u64) as usize;
        self.first_capacity_objects = mean.max(CAPACITY_STEP_OBJECTS);
        self.generation = self.generation.wrapping_add(1);
        self.freed = 0;
        self.objects = 0;
        self.used_bytes = 0;
        self.counts.clear();
        self.counts.push(self.sets.len() as u32);
        self.written_back_bytes = 0;
        self.is_cut_short = false;
    }

    /// The summary of a set; `None` if the set has held nothing in this generation.
    fn summary(&self, home: u32) -> Option<&SetSummary> {
        let summary = &self.summaries[home as usize];
        (summary.generation == self.generation).then_some(summary)
    }

    /// The set number `home`.
    pub(super) fn set(&self, home: u32) -> &Set {
        match self.summary(home) {
            Some(_) => &self.sets[home as usize],
            None => &EMPTY,
        }
    }

    /// The number of sets with as many objects as the index says.
    pub(super) fn counts(&self) -> &[u32] {
        &self.counts
    }

    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Index of an object in a set.
    fn position(&self, home: u32, hash: KeyHash) -> Option<usize> {
        let summary = self.summary(home)?;
        match summary.hash_bits.contains(HashBits::of(hash)) {
            true => self.sets[home as usize].position(hash),
            false => None,
        }
    }

    /// Free bytes of a set; zero for [`NO_SET`].
    fn room(&self, home: u32) -> usize {
        if home == NO_SET {
            return 0;
        }
        let used = self.summary(home).map_or(0, |summary| summary.used_bytes);
        PAGE_ROOM_BYTES - usize::from(used)
    }

    pub(super) fn find(&self, hash: KeyHash, homes: Homes) -> Option<&Object> {
        homes.iter().find_map(|home| {
            let at = self.position(home, hash)?;
            Some(&self.sets[home as usize].objects[at])
        })
    }

    pub(super) fn remove(&mut self, hash: KeyHash, homes: Homes) -> Option<Object> {
        homes.iter().find_map(|home| {
            let at = self.position(home, hash)?;
            Some(self.take(home, at))
        })
    }

    /// Removes an object. The others stay in their order of arrival.
    fn take(&mut self, home: u32, at: usize) -> Object {
        let set = &mut self.sets[home as usize];
        let mark = set.marks.remove(at);
        self.objects -= 1;
        self.used_bytes -= u64::from(mark.stored_bytes);
        self.counts[set.marks.len() + 1] -= 1;
        self.counts[set.marks.len()] += 1;
        let summary = &mut self.summaries[home as usize];
        summary.used_bytes -= mark.stored_bytes;
        summary.stuck_bytes = NOT_STUCK;
        summary.hash_bits = HashBits::default();
        set.hashes()
            .for_each(|hash| summary.hash_bits.add(HashBits::of(hash)));
        let object = set.objects.remove(at);
        self.payload_bytes -= payload_bytes([&object]);
        object
    }

    /// Takes the content of the next `count` sets of an earlier generation, for the caller to drop.
    /// Returns `None` if no such set is left.
    pub(super) fn free(&mut self, count: u32) -> Option<Discarded> {
        let end = self.freed.saturating_add(count).min(self.sets.len() as u32);
        if self.freed == end {
            return None;
        }
        let sets = self.freed..end;
        self.freed = end;
        let old = sets.filter_map(|home| self.begin_set(home));
        Some(Discarded::new(old.collect::<Vec<Set>>()))
    }

    /// Empties a set of an earlier generation; returns what it held.
    fn begin_set(&mut self, home: u32) -> Option<Set> {
        let summary = &mut self.summaries[home as usize];
        if summary.generation == self.generation {
            return None;
        }
        *summary = SetSummary::empty(self.generation);
        let old = std::mem::take(&mut self.sets[home as usize]);
        self.table_bytes -= old.table_bytes();
        self.payload_bytes -= payload_bytes(&old.objects);
        Some(old)
    }

    fn add(&mut self, home: u32, object: Object, other: Option<u32>) {
        let mark = Mark {
            hash: object.hash,
            other: other.unwrap_or(NO_SET),
            stored_bytes: object.stored_bytes() as u16,
        };
        drop(self.begin_set(home));
        self.objects += 1;
        self.used_bytes += u64::from(mark.stored_bytes);
        self.payload_bytes += payload_bytes([&object]);
        let summary = &mut self.summaries[home as usize];
        summary.used_bytes += mark.stored_bytes;
        summary.stuck_bytes = NOT_STUCK;
        summary.hash_bits.add(HashBits::of(mark.hash));
        let set = &mut self.sets[home as usize];
        let count = set.marks.len();
        if count == set.marks.capacity() {
            let more = match set.marks.is_empty() {
                true => self.first_capacity_objects,
                false => CAPACITY_STEP_OBJECTS,
            };
            self.table_bytes -= set.table_bytes();
            set.marks.reserve_exact(more);
            set.objects.reserve_exact(more);
            self.table_bytes += set.table_bytes();
        }
        set.marks.push(mark);
        set.objects.push(object);
        if self.counts.len() <= count + 1 {
            self.counts.resize(count + 2, 0);
        }
        self.counts[count] -= 1;
        self.counts[count + 1] += 1;
    }

    /// Puts `object` into the emptier of its sets, if it fits one.
    pub(super) fn place(&mut self, object: Object, homes: Homes) -> Result<(), Object> {
        let emptiest = homes
            .iter()
            .max_by_key(|home| self.room(*home))
            .unwrap_or(NO_SET);
        if self.room(emptiest) < object.stored_bytes() {
            return Err(object);
        }
        self.add(emptiest, object, homes.other_than(emptiest));
        Ok(())
    }

    /// Makes room for `object` by moving one object of its sets to that
    /// object's other set, and places it. Does not look for one where none was found before.
    pub(super) fn place_by_moving(&mut self, object: Object, homes: Homes) -> Result<(), Object> {
        let needed = object.stored_bytes();
        for home in homes.iter() {
            if needed >= self.stuck_from(home) {
                continue;
            }
            let set = self.set(home);
            let lacking = needed.saturating_sub(self.room(home));
            let movable = set.marks.iter().position(|resident| {
                // The move frees enough bytes (at least `lacking`), and they
                // fit the other set. One comparison instead of two, because the
                // branch predictor can learn that it mostly fails.
                let limit = (self.room(resident.other) + 1).saturating_sub(lacking);
                usize::from(resident.stored_bytes).wrapping_sub(lacking) < limit
            });
            if let Some(at) = movable {
                let other = set.marks[at].other;
                let moved = self.take(home, at);
                self.add(other, moved, Some(home));
                self.add(home, object, homes.other_than(home));
                return Ok(());
            }
            drop(self.begin_set(home));
            self.summaries[home as usize].stuck_bytes = needed as u16;
        }
        Err(object)
    }

    /// Bytes of the shortest object that found no room in a set by a move.
    fn stuck_from(&self, home: u32) -> usize {
        let summary = self.summary(home);
        usize::from(summary.map_or(NOT_STUCK, |summary| summary.stuck_bytes))
    }

    /// As [`SetGroup::place_by_moving`], but moves as many objects as needed,
    /// which also places long objects. It reads far more sets.
    pub(super) fn place_by_moving_several(
        &mut self,
        object: Object,
        homes: Homes,
    ) -> Result<(), Object> {
        for home in homes.iter() {
            if self.make_room(home, object.stored_bytes()) {
                self.add(home, object, homes.other_than(home));
                return Ok(());
            }
        }
        Err(object)
    }

    /// Moves objects of `home` to their other sets until `needed` bytes are
    /// free. Returns whether they are; if not, nothing was moved.
    fn make_room(&mut self, home: u32, needed: usize) -> bool {
        let set = self.set(home);
        let mut room = self.room(home);
        // Index of each object to move, and the set that takes it.
        let mut moves: Vec<(usize, u32)> = Vec::new();
        for (at, mark) in set.marks.iter().enumerate() {
            if room >= needed {
                break;
            }
            let bytes = usize::from(mark.stored_bytes);
            let takes = |set: u32| {
                let promised = moves.iter().filter(|(_, other)| *other == set);
                let promised: usize = promised
                    .map(|(at, _)| usize::from(self.sets[home as usize].marks[*at].stored_bytes))
                    .sum();
                self.room(set) >= promised + bytes
            };
            if takes(mark.other) {
                room += bytes;
                moves.push((at, mark.other));
            }
        }
        if room < needed {
            return false;
        }
        // In descending order, so that the remaining indexes stay valid.
        for (at, other) in moves.into_iter().rev() {
            let moved = self.take(home, at);
            self.add(other, moved, Some(home));
        }
        true
    }

    /// Removes the oldest object of the set `home` that is no tombstone, if
    /// there is one.
    pub(super) fn evict(&mut self, home: u32) -> Option<Object> {
        let objects = &self.set(home).objects;
        let oldest = objects.iter().position(|object| !object.tombstone)?;
        Some(self.take(home, oldest))
    }

    /// Puts an evicted object, or its tombstone, back into the set that it came
    /// from.
    pub(super) fn put_back(&mut self, home: u32, object: Object, homes: Homes) {
        self.add(home, object, homes.other_than(home));
    }

    /// Puts an object that was just removed back. The set that it came from has
    /// room for it.
    pub(super) fn restore(&mut self, object: Object, homes: Homes) {
        let placed = self.place(object, homes);
        debug_assert!(placed.is_ok(), "a removed object fits again");
    }

    pub(super) fn fits(&self, home: u32, bytes: usize) -> bool {
        self.room(home) >= bytes
    }

    /// Bytes of memory held, without keys and values.
    pub(super) fn memory_bytes(&self) -> u64 {
        room_bytes::<Set>(self.sets.len())
            + room_bytes::<SetSummary>(self.summaries.len())
            + self.table_bytes
    }

    /// Bytes of memory that keys and values take.
    pub(super) fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }
}
