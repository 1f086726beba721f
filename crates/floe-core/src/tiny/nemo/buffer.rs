//! Set-groups that are being filled, in memory.

use super::hashes::Homes;
use crate::hash::KeyHash;
use crate::tiny::object::{Object, PAGE_ROOM_BYTES};
use crate::tiny::statistics::{payload_bytes, room_bytes};

/// A set in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Set {
    /// Of the objects, in their order.
    marks: Vec<Mark>,
    objects: Vec<Object>,
}

/// The part of an object that looking for one, and moving one, needs: a quarter
/// of the memory that the objects themselves take.
#[derive(Clone, Copy, Debug)]
struct Mark {
    hash: KeyHash,
    /// Its other set, or [`NO_SET`].
    other: u32,
    /// Bytes that it takes.
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

/// What is asked of every set that a key or a move leads to, most of which
/// are then left alone. It lies apart from the sets: of these nothing is
/// loaded for it.
#[derive(Clone, Copy, Debug, Default)]
struct Front {
    /// A bit for each hash that is in the set; others may share it.
    seen: u64,
    used_bytes: u16,
}

/// Objects that a set takes memory for when it is full: sets hold about as many as
/// others, so that twice as much would stay half empty.
const MORE_OBJECTS: usize = 2;

/// The bit of [`Front::seen`].
fn bit_of(hash: KeyHash) -> u64 {
    1 << (hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

/// A set-group in memory.
#[derive(Clone, Debug)]
pub(super) struct SetGroup {
    sets: Vec<Set>,
    /// By set.
    fronts: Vec<Front>,
    /// Objects that a set takes memory for when the first comes.
    expected: usize,
    objects: u64,
    used_bytes: u64,
    /// Bytes of those that were written back into it.
    pub(super) written_back_bytes: u64,
    /// It is flushed before it is full.
    pub(super) is_cut_short: bool,
}

impl SetGroup {
    /// An empty one of so many sets, which are expected to hold as many
    /// objects as those of one that holds `objects`.
    pub(super) fn new(sets: u32, objects: u64) -> Self {
        let mean = objects.div_ceil(u64::from(sets)) as usize;
        SetGroup {
            sets: vec![Set::default(); sets as usize],
            fronts: vec![Front::default(); sets as usize],
            expected: mean.max(MORE_OBJECTS),
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

    /// The place of an object in a set.
    fn position(&self, home: u32, hash: KeyHash) -> Option<usize> {
        if self.fronts[home as usize].seen & bit_of(hash) == 0 {
            return None;
        }
        self.sets[home as usize].position(hash)
    }

    /// Room in a set; none in [`NO_SET`].
    fn room(&self, home: u32) -> usize {
        self.fronts
            .get(home as usize)
            .map_or(0, |front| PAGE_ROOM_BYTES - usize::from(front.used_bytes))
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

    /// Keeps the order of the others, which is that of arrival.
    fn take(&mut self, home: u32, at: usize) -> Object {
        let set = &mut self.sets[home as usize];
        let mark = set.marks.remove(at);
        self.objects -= 1;
        self.used_bytes -= u64::from(mark.stored_bytes);
        let front = &mut self.fronts[home as usize];
        front.used_bytes -= mark.stored_bytes;
        front.seen = set.hashes().fold(0, |seen, hash| seen | bit_of(hash));
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
        let front = &mut self.fronts[home as usize];
        front.used_bytes += mark.stored_bytes;
        front.seen |= bit_of(mark.hash);
        let set = &mut self.sets[home as usize];
        if set.marks.len() == set.marks.capacity() {
            let more = match set.marks.is_empty() {
                true => self.expected,
                false => MORE_OBJECTS,
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

    /// Makes room for `object` by moving one object of its sets to that one's
    /// other set, and puts it there.
    pub(super) fn place_by_moving(&mut self, object: Object, homes: Homes) -> Result<(), Object> {
        let needed = object.stored_bytes();
        for home in homes.iter() {
            let set = &self.sets[home as usize];
            let lacking = needed.saturating_sub(self.room(home));
            let movable = set.marks.iter().position(|resident| {
                // It makes enough room, and has some: at least what is lacking,
                // at most what its other set has. Put as one comparison, of
                // which a processor can guess that it fails.
                let fitting = (self.room(resident.other) + 1).saturating_sub(lacking);
                usize::from(resident.stored_bytes).wrapping_sub(lacking) < fitting
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

    /// The same by moving as many objects as it takes: what is long finds
    /// room where it lies in pieces. It looks at far more sets than moving one.
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

    /// Moves objects of `home` to their other sets until `needed` bytes fit it;
    /// says whether they do. Where they cannot, nothing is moved.
    fn make_room(&mut self, home: u32, needed: usize) -> bool {
        let set = &self.sets[home as usize];
        let mut room = self.room(home);
        // Places of those that move, and the sets that take them.
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
        // From behind, so that the places before stay what they are.
        for (at, other) in moves.into_iter().rev() {
            let moved = self.take(home, at);
            self.add(other, moved, Some(home));
        }
        true
    }

    /// Takes the oldest object out of the set `home`; tombstones stay. `None`
    /// if there is nothing else.
    pub(super) fn turn_out(&mut self, home: u32) -> Option<Object> {
        let objects = &self.sets[home as usize].objects;
        let oldest = objects.iter().position(|object| !object.tombstone)?;
        Some(self.take(home, oldest))
    }

    /// Puts an object, or what stands for it, back into the set it came from.
    pub(super) fn put_back(&mut self, home: u32, object: Object, homes: Homes) {
        self.add(home, object, homes.other_than(home));
    }

    /// Puts an object that was just removed back into one of its sets; there
    /// is room in the one that it came from.
    pub(super) fn restore(&mut self, object: Object, homes: Homes) {
        let placed = self.place(object, homes);
        debug_assert!(placed.is_ok(), "what was removed fits again");
    }

    pub(super) fn fits(&self, home: u32, bytes: usize) -> bool {
        self.room(home) >= bytes
    }

    /// Memory held, without keys and values.
    pub(super) fn memory_bytes(&self) -> u64 {
        let of_set = |set: &Set| {
            room_bytes::<Mark>(set.marks.capacity()) + room_bytes::<Object>(set.objects.capacity())
        };
        let objects: u64 = self.sets.iter().map(of_set).sum();
        room_bytes::<Set>(self.sets.len()) + room_bytes::<Front>(self.fronts.len()) + objects
    }

    /// Memory of keys and values.
    pub(super) fn payload_bytes(&self) -> u64 {
        payload_bytes(self.sets.iter().flat_map(|set| &set.objects))
    }
}
