//! Set-groups that are being filled, in memory.

use super::hashes::Homes;
use crate::hash::KeyHash;
use crate::tiny::object::{Object, PAGE_ROOM_BYTES};

/// A set in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Set {
    /// Of the objects, in their order: what most searches end with.
    hashes: Vec<KeyHash>,
    objects: Vec<Object>,
    used_bytes: u16,
}

impl Set {
    pub(super) fn objects(&self) -> &[Object] {
        &self.objects
    }

    pub(super) fn hashes(&self) -> impl Iterator<Item = KeyHash> {
        self.hashes.iter().copied()
    }

    pub(super) fn used_bytes(&self) -> usize {
        usize::from(self.used_bytes)
    }

    fn room(&self) -> usize {
        PAGE_ROOM_BYTES - self.used_bytes()
    }

    fn push(&mut self, object: Object) {
        self.used_bytes += object.stored_bytes() as u16;
        self.hashes.push(object.hash);
        self.objects.push(object);
    }

    /// Keeps the order, which is that of arrival.
    fn remove(&mut self, at: usize) -> Object {
        self.hashes.remove(at);
        let object = self.objects.remove(at);
        self.used_bytes -= object.stored_bytes() as u16;
        object
    }

    fn position(&self, hash: KeyHash) -> Option<usize> {
        // Without an early end: eight at a time.
        let any = self.hashes.iter().fold(false, |any, other| any | (*other == hash));
        any.then(|| self.hashes.iter().position(|other| *other == hash))
            .flatten()
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
}

impl SetGroup {
    pub(super) fn new(sets: u32) -> Self {
        SetGroup {
            sets: vec![Set::default(); sets as usize],
            objects: 0,
            used_bytes: 0,
            written_back_bytes: 0,
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

    fn add(&mut self, set: u32, object: Object) {
        self.objects += 1;
        self.used_bytes += object.stored_bytes() as u64;
        self.sets[set as usize].push(object);
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
        self.add(emptiest, object);
        Ok(())
    }

    /// Makes room for `object` by moving one object of its sets to that one's
    /// other set, and puts it there.
    pub(super) fn place_by_moving(
        &mut self,
        object: Object,
        homes: Homes,
        homes_of: impl Fn(KeyHash) -> Homes,
    ) -> Result<(), Object> {
        let needed = object.stored_bytes();
        for home in homes.iter() {
            let set = &self.sets[home as usize];
            let room = set.room();
            let movable = set.objects.iter().enumerate().find_map(|(at, resident)| {
                let bytes = resident.stored_bytes();
                if room + bytes < needed {
                    return None;
                }
                let other = homes_of(resident.hash).other_than(home)?;
                (self.sets[other as usize].room() >= bytes).then_some((at, other))
            });
            if let Some((at, other)) = movable {
                let moved = self.take(home, at);
                self.add(other, moved);
                self.add(home, object);
                return Ok(());
            }
        }
        Err(object)
    }

    /// Takes the oldest object out of the set `home`; tombstones stay. `None`
    /// if there is nothing else.
    pub(super) fn turn_out(&mut self, home: u32) -> Option<Object> {
        let objects = &self.sets[home as usize].objects;
        let oldest = objects.iter().position(|object| !object.tombstone)?;
        Some(self.take(home, oldest))
    }

    /// Puts an object, or what stands for it, back into the set it came from.
    pub(super) fn put_back(&mut self, home: u32, object: Object) {
        self.add(home, object);
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
            .map(|object| size_of::<KeyHash>() + size_of::<Object>() + object.record.len())
            .sum();
        (sets + objects) as u64
    }
}
