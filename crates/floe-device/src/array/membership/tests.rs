//! A model of an array: drives with their newest labels and the newest metadata that they
//! took part in. Sessions find some drives, write labels that reach some of them, drop and
//! take in drives, acknowledge metadata, and end anywhere.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

/// A drive as it is found.
#[derive(Clone)]
struct Drive {
    label: Option<ArrayLabel>,
    /// The newest metadata that it has.
    version: u64,
}

struct World {
    drives: Vec<Drive>,
    random: StdRng,
    next_id: u64,
    /// The newest metadata that was acknowledged.
    acknowledged: u64,
    sequence: u64,
    opened: u64,
    degraded: u64,
    on_parents: u64,
    joined: u64,
}

impl World {
    fn new(count: usize, seed: u64) -> Self {
        let ids: Vec<Option<u64>> = (1..=count as u64).map(Some).collect();
        let label = |drive: u64| ArrayLabel {
            array: [0; 16],
            sequence: 0,
            id: 1,
            parent: 0,
            epoch: 0,
            block_size: 4096,
            zone_count: 9,
            zone_size: 1 << 20,
            zone_capacity: 1 << 20,
            drive,
            slots: ids.clone(),
        };
        let drive = |drive: u64| Drive {
            label: Some(label(drive)),
            version: 0,
        };
        World {
            drives: (1..=count as u64).map(drive).collect(),
            random: StdRng::seed_from_u64(seed),
            next_id: 100,
            acknowledged: 0,
            sequence: 0,
            opened: 0,
            degraded: 0,
            on_parents: 0,
            joined: 0,
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Writes a label to its drives in slot order; returns those that took it, and whether
    /// the session ended meanwhile.
    fn write(&mut self, base: &Base, new: &[Option<u64>]) -> (u64, Vec<u64>, bool) {
        let id = self.id();
        self.sequence += 1;
        let mut took = Vec::new();
        // Drives that are taken in come first.
        let mut order: Vec<_> = new.iter().flatten().copied().collect();
        order.sort_by_key(|drive| base.drives.contains(&Some(*drive)));
        for drive in order {
            if self.random.random_bool(0.12) {
                return (id, took, true);
            }
            // A write that fails may have landed.
            let fails = self.random.random_bool(0.12);
            if fails && self.random.random_bool(0.5) {
                return (id, took, false);
            }
            let label = ArrayLabel {
                array: [0; 16],
                sequence: self.sequence,
                id,
                parent: base.id,
                epoch: base.epoch + 1,
                block_size: 4096,
                zone_count: 9,
                zone_size: 1 << 20,
                zone_capacity: 1 << 20,
                drive,
                slots: new.to_vec(),
            };
            self.find(drive).label = Some(label);
            if fails {
                return (id, took, false);
            }
            took.push(drive);
        }
        (id, took, false)
    }

    /// The drive with this id; a blank one that is taken in has none yet, so its place is
    /// its slot.
    fn find(&mut self, id: u64) -> &mut Drive {
        let has = |drive: &&mut Drive| drive.label.as_ref().is_some_and(|own| own.drive == id);
        self.drives.iter_mut().find(has).expect("it was placed")
    }

    /// Makes `new` the label in force; `None` if the session ends or the array is lost.
    fn settle(&mut self, mut base: Base, mut new: Vec<Option<u64>>) -> Option<Base> {
        loop {
            if !base.is_disputed && new == base.drives {
                return Some(base);
            }
            if !base.may_become(&new) {
                return None;
            }
            let (id, took, ended) = self.write(&base, &new);
            if ended {
                return None;
            }
            if new.iter().flatten().all(|drive| took.contains(drive)) {
                return Some(Base {
                    id,
                    epoch: base.epoch + 1,
                    drives: new,
                    is_disputed: false,
                });
            }
            // The first that did not take it is dropped.
            base.is_disputed = true;
            let mut order: Vec<_> = new.iter().flatten().copied().collect();
            order.sort_by_key(|drive| base.drives.contains(&Some(*drive)));
            let failed = order.into_iter().find(|drive| !took.contains(drive));
            for slot in &mut new {
                *slot = slot.filter(|drive| Some(*drive) != failed);
            }
        }
    }

    fn session(&mut self) {
        let found: Vec<usize> = (0..self.drives.len())
            .filter(|_| self.random.random_bool(0.9))
            .collect();
        let labels = found.iter().filter_map(|at| self.drives[*at].label.clone());
        let labels: Vec<ArrayLabel> = labels.collect();
        let Ok(mut base) = choose(&labels.iter().collect::<Vec<_>>()) else {
            return;
        };
        self.opened += 1;
        self.on_parents += u64::from(base.is_disputed);
        self.degraded += u64::from(base.drives.contains(&None));
        // The engine reads any of them.
        for drive in base.drives.clone().into_iter().flatten() {
            let version = self.find(drive).version;
            assert!(
                version >= self.acknowledged,
                "{drive} has {version} of {}",
                self.acknowledged
            );
        }
        if base.is_disputed {
            let drives = base.drives.clone();
            match self.settle(base, drives) {
                Some(next) => base = next,
                None => return,
            }
        }
        for _ in 0..self.random.random_range(0..5) {
            let mut new = base.drives.clone();
            match self.random.random_range(0..4) {
                0 => {
                    // A drive fails.
                    let slot = self.random.random_range(0..new.len());
                    if new[slot].take().is_none() {
                        continue;
                    }
                }
                1 => {
                    // A blank drive, or an old one that was emptied, joins.
                    let named = |drive: &Drive| {
                        let own = drive.label.as_ref().map(|own| own.drive);
                        own.is_some() && new.contains(&own)
                    };
                    let free = found.iter().copied().find(|at| !named(&self.drives[*at]));
                    let vacant = new.iter().position(Option::is_none);
                    let (Some(at), Some(slot)) = (free, vacant) else {
                        continue;
                    };
                    let id = self.id();
                    new[slot] = Some(id);
                    let version = base.drives.iter().flatten().next().copied();
                    let version = version.map_or(0, |drive| self.find(drive).version);
                    // It has the metadata, but no label until one is written.
                    let blank = self.drives[at].clone();
                    let mut placed = blank.label.clone().unwrap_or_else(|| labels[0].clone());
                    placed.drive = id;
                    placed.id = 0;
                    placed.epoch = 0;
                    placed.slots = vec![None; new.len()];
                    self.drives[at] = Drive {
                        label: Some(placed),
                        version,
                    };
                    self.joined += 1;
                }
                _ => {}
            }
            if new != base.drives {
                let outcome = self.settle(base, new);
                // A drive that took no label is blank.
                for drive in &mut self.drives {
                    if drive.label.as_ref().is_some_and(|label| label.id == 0) {
                        drive.label = None;
                    }
                }
                match outcome {
                    Some(next) => base = next,
                    None => return,
                }
            }
            // Metadata reaches some drives; if it reaches all, it is acknowledged.
            let version = self.acknowledged + self.random.random_range(1..3);
            let live: Vec<u64> = base.drives.iter().flatten().copied().collect();
            let newest = live.iter().map(|drive| self.find(*drive).version).max();
            let version = version.max(newest.unwrap_or(0) + 1);
            for drive in &live {
                if self.random.random_bool(0.05) {
                    return;
                }
                self.find(*drive).version = version;
            }
            self.acknowledged = version;
        }
    }
}

#[test]
fn no_drives_that_open_an_array_miss_what_was_acknowledged() {
    let (mut opened, mut degraded, mut on_parents, mut joined) = (0, 0, 0, 0);
    for seed in 0..6_000 {
        let mut world = World::new(1 + seed as usize % 6, seed);
        for _ in 0..40 {
            world.session();
        }
        opened += world.opened;
        degraded += world.degraded;
        on_parents += world.on_parents;
        joined += world.joined;
    }
    println!("{opened} opened, {degraded} degraded, {on_parents} on parents, {joined} joined");
    assert!(opened > 20_000 && degraded > 2_000 && on_parents > 100 && joined > 1_000);
}
