//! Set-groups that are being filled, in memory.

use super::hashes::Homes;
use crate::hash::KeyHash;
use crate::tiny::object::{Object, PAGE_ROOM_BYTES};

/// A set in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Set {
    /// Of the objects, in their order.
    marks: Vec<Mark>,
    objects: Vec<Object>,
    used_bytes: u16,
}

/// What looking for an object, and moving one, asks of it: a quarter of the
/// memory that the objects themselves take.
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

    pub(super) fn used_bytes(&self) -> usize {
        usize::from(self.used_bytes)
    }

    fn room(&self) -> usize {
        PAGE_ROOM_BYTES - self.used_bytes()
    }

    fn push(&mut self, object: Object, other: Option<u32>) {
        let mark = Mark {
            hash: object.hash,
            other: other.unwrap_or(NO_SET),
            stored_bytes: object.stored_bytes() as u16,
        };
        self.used_bytes += mark.stored_bytes;
        self.marks.push(mark);
        self.objects.push(object);
    }

    /// Keeps the order, which is that of arrival.
    fn remove(&mut self, at: usize) -> Object {
        self.used_bytes -= self.marks.remove(at).stored_bytes;
        self.objects.remove(at)
    }

    fn position(&self, hash: KeyHash) -> Option<usize> {
        self.marks.iter().position(|mark| mark.hash == hash)
    }
}

/// A set-group in memory.
#[derive(Clone, Debug)]
pub(super) struct SetGroup {
    sets: Vec<Set>,
    objects: u64,
    used_bytes: u64,
    /// Bytes of those that were written back into it.
    pub(super) written_back_bytes: u64,
    /// It is flushed before it is full.
    pub(super) is_cut_short: bool,
}

impl SetGroup {
    pub(super) fn new(sets: u32) -> Self {
        SetGroup {
            sets: vec![Set::default(); sets as usize],
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

    pub(super) fn find(&self, hash: KeyHash, homes: Homes) -> Option<&Object> {
        homes.iter().find_map(|home| {
            let set = &self.sets[home as usize];
            set.position(hash).map(|at| &set.objects[at])
        })
    }

    pub(super) fn remove(&mut self, hash: KeyHash, homes: Homes) -> Option<Object> {
        homes.iter().find_map(|home| {
            let at = self.sets[home as usize].position(hash)?;
            Some(self.take(home, at))
        })
    }

    fn take(&mut self, set: u32, at: usize) -> Object {
        let object = self.sets[set as usize].remove(at);
        self.objects -= 1;
        self.used_bytes -= object.stored_bytes() as u64;
        object
    }

    fn add(&mut self, set: u32, object: Object, other: Option<u32>) {
        self.objects += 1;
        self.used_bytes += object.stored_bytes() as u64;
        self.sets[set as usize].push(object, other);
    }

    /// Puts `object` into the emptier of its sets, if it fits one.
    pub(super) fn place(&mut self, object: Object, homes: Homes) -> Result<(), Object> {
        let emptiest = homes
            .iter()
            .max_by_key(|home| self.sets[*home as usize].room())
            .unwrap_or(homes.first);
        if self.sets[emptiest as usize].room() < object.stored_bytes() {
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
            let room = set.room();
            let movable = set.marks.iter().position(|resident| {
                let bytes = usize::from(resident.stored_bytes);
                room + bytes >= needed
                    && resident.other != NO_SET
                    && self.sets[resident.other as usize].room() >= bytes
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
        let mut room = set.room();
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
                self.sets[set as usize].room() >= promised + bytes
            };
            if mark.other != NO_SET && takes(mark.other) {
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
        self.sets[home as usize].room() >= bytes
    }

    /// Memory held, without the objects' bytes in the case of a model.
    pub(super) fn memory_bytes(&self) -> u64 {
        let sets = self.sets.len() * size_of::<Set>();
        let objects: usize = self
            .sets
            .iter()
            .flat_map(|set| &set.objects)
            .map(|object| size_of::<Mark>() + size_of::<Object>() + object.record.len())
            .sum();
        (sets + objects) as u64
    }
}
