//! Set-groups in memory.

use super::hashes::Homes;
use crate::hash::KeyHash;
use crate::tiny::object::{Object, PAGE_ROOM_BYTES};
use crate::tiny::statistics::{payload_bytes, room_bytes};

/// A set in memory.
#[derive(Clone, Debug, Default)]
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
}

/// Summary of a set, read before the set itself. Most lookups and moves end
/// here, so it lies apart from the sets and spares loading them.
#[derive(Clone, Copy, Debug, Default)]
struct SetSummary {
    /// One bit per hash in the set, as [`hash_bit`] chooses it. Hashes may
    /// share a bit.
    hash_bits: u64,
    used_bytes: u16,
}

/// Objects by which a full set's capacity grows. Sets hold similar numbers of
/// objects, so doubling would leave half of the memory unused.
const CAPACITY_STEP_OBJECTS: usize = 2;

/// The bit of [`SetSummary::hash_bits`] for a hash.
fn hash_bit(hash: KeyHash) -> u64 {
    1 << (hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

/// A set-group in memory.
#[derive(Clone, Debug)]
pub(super) struct SetGroup {
    sets: Vec<Set>,
    /// Indexed by set.
    summaries: Vec<SetSummary>,
    /// Capacity in objects that a set allocates for its first one.
    first_capacity_objects: usize,
    objects: u64,
    used_bytes: u64,
    /// Stored bytes of objects that were written back into it.
    pub(super) written_back_bytes: u64,
    /// The set-group was sealed by a drain, not because it was full.
    pub(super) is_cut_short: bool,
}

impl SetGroup {
    /// An empty set-group of `sets` sets. `objects` is the object count of an
    /// earlier set-group, from which the sets' first capacity follows.
    pub(super) fn new(sets: u32, objects: u64) -> Self {
        let mean = objects.div_ceil(u64::from(sets)) as usize;
        SetGroup {
            sets: vec![Set::default(); sets as usize],
            summaries: vec![SetSummary::default(); sets as usize],
            first_capacity_objects: mean.max(CAPACITY_STEP_OBJECTS),
            objects: 0,
            used_bytes: 0,
            written_back_bytes: 0,
            is_cut_short: false,
        }
    }

    pub(super) fn sets(&self) -> &[Set] {
        &self.sets
    }

    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Index of an object in a set.
    fn position(&self, home: u32, hash: KeyHash) -> Option<usize> {
        if self.summaries[home as usize].hash_bits & hash_bit(hash) == 0 {
            return None;
        }
        self.sets[home as usize].position(hash)
    }

    /// Free bytes of a set; zero for [`NO_SET`].
    fn room(&self, home: u32) -> usize {
        self.summaries.get(home as usize).map_or(0, |summary| {
            PAGE_ROOM_BYTES - usize::from(summary.used_bytes)
        })
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
        let summary = &mut self.summaries[home as usize];
        summary.used_bytes -= mark.stored_bytes;
        summary.hash_bits = set.hashes().fold(0, |bits, hash| bits | hash_bit(hash));
        set.objects.remove(at)
    }

    fn add(&mut self, home: u32, object: Object, other: Option<u32>) {
        let mark = Mark {
            hash: object.hash,
            other: other.unwrap_or(NO_SET),
            stored_bytes: object.stored_bytes() as u16,
        };
        self.objects += 1;
        self.used_bytes += u64::from(mark.stored_bytes);
        let summary = &mut self.summaries[home as usize];
        summary.used_bytes += mark.stored_bytes;
        summary.hash_bits |= hash_bit(mark.hash);
        let set = &mut self.sets[home as usize];
        if set.marks.len() == set.marks.capacity() {
            let more = match set.marks.is_empty() {
                true => self.first_capacity_objects,
                false => CAPACITY_STEP_OBJECTS,
            };
            set.marks.reserve_exact(more);
            set.objects.reserve_exact(more);
        }
        set.marks.push(mark);
        set.objects.push(object);
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
    /// object's other set, and places it.
    pub(super) fn place_by_moving(&mut self, object: Object, homes: Homes) -> Result<(), Object> {
        let needed = object.stored_bytes();
        for home in homes.iter() {
            let set = &self.sets[home as usize];
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
        }
        Err(object)
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
        let set = &self.sets[home as usize];
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
        let objects = &self.sets[home as usize].objects;
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
        let of_set = |set: &Set| {
            room_bytes::<Mark>(set.marks.capacity()) + room_bytes::<Object>(set.objects.capacity())
        };
        let objects: u64 = self.sets.iter().map(of_set).sum();
        room_bytes::<Set>(self.sets.len())
            + room_bytes::<SetSummary>(self.summaries.len())
            + objects
    }

    /// Bytes of memory that keys and values take.
    pub(super) fn payload_bytes(&self) -> u64 {
        payload_bytes(self.sets.iter().flat_map(|set| &set.objects))
    }
}
