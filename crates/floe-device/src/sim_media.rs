//! Media of the memory device and the simulated SSD: data, zone states, and the
//! effect of a power loss on both.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use floe_core::{Geometry, ZoneId};
use parking_lot::{Mutex, MutexGuard};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::contract::ZoneState;
use crate::counters::Counters;
use crate::medium::{Extents, Keeping, Medium};
use crate::outage::{PowerState, keep_some_blocks};
use crate::zones::ZoneTable;

/// The state of completed writes until they are flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// They are on stable media.
    None,
    /// They survive a power loss, as do writes in flight.
    Protected,
    /// A power loss may lose them, up to a limit of the newest bytes.
    Volatile {
        /// Most bytes that are not on stable media.
        bytes_max: u64,
    },
}

/// Data, zone states and counters of a device in memory.
pub(crate) struct SimMedia {
    pub(crate) geometry: Geometry,
    pub(crate) counters: Counters,
    pub(crate) zones: Mutex<ZoneTable>,
    medium: Arc<Medium>,
    cache: WriteCache,
    unflushed: Mutex<Unflushed>,
    /// A reset writes zeros to the first block of a zone that takes writes in place, and leaves
    /// the rest.
    pub(crate) keeps_content: AtomicBool,
    pub(crate) power: PowerState,
    order: Mutex<()>,
}

/// Completed changes that are not on stable media, oldest first.
#[derive(Default)]
struct Unflushed {
    changes: VecDeque<Change>,
    /// The number of the first change.
    first: u64,
    bytes: u64,
}

/// A change, with the data to undo it.
enum Change {
    Write {
        zone: ZoneId,
        offset: u64,
        before: Before,
    },
    Reset {
        zone: ZoneId,
        before: Extents,
        state: ZoneState,
        write_pointer: u64,
    },
}

/// The former content of a written range.
enum Before {
    /// The range was above the write pointer, where everything reads as zeros.
    Zeros(u64),
    Bytes(Vec<u8>),
}

impl Before {
    fn len(&self) -> u64 {
        match self {
            Before::Zeros(len) => *len,
            Before::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

impl SimMedia {
    /// Empty media.
    pub(crate) fn new(geometry: Geometry, cache: WriteCache, keeping: Keeping) -> Self {
        let medium = Arc::new(Medium::new(&geometry, keeping));
        let zones = ZoneTable::new(&geometry, ZoneState::Empty);
        SimMedia::over(geometry, cache, medium, zones)
    }

    fn over(geometry: Geometry, cache: WriteCache, medium: Arc<Medium>, zones: ZoneTable) -> Self {
        SimMedia {
            geometry,
            counters: Counters::default(),
            zones: Mutex::new(zones),
            medium,
            cache,
            unflushed: Mutex::default(),
            keeps_content: AtomicBool::new(false),
            power: PowerState::default(),
            order: Mutex::default(),
        }
    }

    /// Byte offset on the device.
    pub(crate) fn position(&self, zone: ZoneId, offset: u64) -> u64 {
        u64::from(zone.0) * self.geometry.zone_size + offset
    }

    pub(crate) fn load(&self, zone: ZoneId, offset: u64, buf: &mut [u8]) {
        self.medium.read(zone, offset, buf);
    }

    /// Writes data, and keeps the former content if a power loss could undo the
    /// write.
    pub(crate) fn store(&self, zone: ZoneId, offset: u64, data: &[u8]) {
        match self.cache {
            WriteCache::None | WriteCache::Protected => self.medium.write(zone, offset, data),
            WriteCache::Volatile { bytes_max } => {
                let mut unflushed = self.unflushed.lock();
                self.store_into(&mut unflushed, zone, offset, data);
                while unflushed.bytes > bytes_max && unflushed.changes.len() > 1 {
                    unflushed.settle_oldest();
                }
            }
        }
    }

    /// Writes data that no power loss undoes. So none undoes an earlier change that it depends
    /// on: a reset that cleared the zone, a write to the same bytes, or one below the write pointer of a
    /// zone that has no other writes.
    pub(crate) fn store_durably(&self, zone: ZoneId, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let is_needed = |change: &Change| match change {
            Change::Write {
                offset: at, before, ..
            } => {
                let overlaps = *at < end && offset < at + before.len();
                !self.geometry.random_writes || overlaps
            }
            Change::Reset { .. } => true,
        };
        let mut unflushed = self.unflushed.lock();
        let blocks = |change: &Change| change.zone() == zone && is_needed(change);
        while unflushed.changes.iter().any(blocks) {
            unflushed.settle_oldest();
        }
        self.medium.write(zone, offset, data);
    }

    fn store_into(&self, unflushed: &mut Unflushed, zone: ZoneId, offset: u64, data: &[u8]) {
        let before = if self.geometry.random_writes {
            let mut bytes = vec![0; data.len()];
            self.medium.read(zone, offset, &mut bytes);
            Before::Bytes(bytes)
        } else {
            Before::Zeros(data.len() as u64)
        };
        self.medium.write(zone, offset, data);
        unflushed.push(Change::Write {
            zone,
            offset,
            before,
        });
    }

    /// Clears the data of a zone whose state is still that from before the
    /// reset.
    pub(crate) fn clear(&self, zone: ZoneId) {
        match self.cache {
            _ if self.keeps_content() => self.store(zone, 0, &self.first_block()),
            WriteCache::None | WriteCache::Protected => self.medium.clear(zone),
            WriteCache::Volatile { .. } => self.clear_into(&mut self.unflushed.lock(), zone),
        }
    }

    fn keeps_content(&self) -> bool {
        self.geometry.random_writes && self.keeps_content.load(Relaxed)
    }

    /// That of a zone that was reset.
    fn first_block(&self) -> Vec<u8> {
        vec![0; self.geometry.block_size as usize]
    }

    fn clear_into(&self, unflushed: &mut Unflushed, zone: ZoneId) {
        if self.keeps_content() {
            return self.store_into(unflushed, zone, 0, &self.first_block());
        }
        let (state, write_pointer) = self.zones.lock().state(zone);
        unflushed.push(Change::Reset {
            zone,
            before: self.medium.swap(zone, Extents::default()),
            state,
            write_pointer,
        });
    }

    /// A mark after all completed changes, for [`SimMedia::flush`].
    pub(crate) fn flush_mark(&self) -> u64 {
        let unflushed = self.unflushed.lock();
        unflushed.first + unflushed.changes.len() as u64
    }

    /// Makes all changes before `mark` durable.
    pub(crate) fn flush(&self, mark: u64) {
        let mut unflushed = self.unflushed.lock();
        while unflushed.first < mark && !unflushed.changes.is_empty() {
            unflushed.settle_oldest();
        }
    }

    /// Keeps appends in address order on devices where a power loss keeps a
    /// prefix of them.
    pub(crate) fn keep_order(&self) -> Option<MutexGuard<'_, ()>> {
        matches!(self.cache, WriteCache::Volatile { .. }).then(|| self.order.lock())
    }

    /// Applies the power loss. `interrupted` are the changes that were in
    /// flight, in order.
    pub(crate) fn lose_power(&self, seed: u64, interrupted: Vec<Interrupted>) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut unflushed = std::mem::take(&mut *self.unflushed.lock());
        if self.cache == WriteCache::Protected {
            // The drive's buffer has all of it.
            let changes = interrupted.into_iter();
            return changes.for_each(|change| self.interrupt(&mut unflushed, change));
        }
        for change in interrupted {
            if random.random() {
                self.interrupt(&mut unflushed, change);
            }
        }
        let mut by_zone: Vec<Vec<Change>> = Vec::new();
        by_zone.resize_with(self.geometry.zone_count as usize, Vec::new);
        for change in unflushed.changes {
            by_zone[change.zone().index()].push(change);
        }
        for (zone, changes) in self.geometry.zones().zip(by_zone) {
            if !changes.is_empty() {
                self.decide(zone, changes, &mut random);
            }
        }
    }

    /// Applies a change that was in flight as one that the power loss may undo.
    fn interrupt(&self, unflushed: &mut Unflushed, change: Interrupted) {
        match change {
            Interrupted::Append { zone, data } => {
                let landed = self.zones.lock().land(zone, data.len() as u64);
                if let Ok(offset) = landed {
                    self.store_into(unflushed, zone, offset, &data);
                }
            }
            Interrupted::Write { zone, offset, data } => {
                self.store_into(unflushed, zone, offset, &data);
            }
            Interrupted::Reset { zone } => {
                self.clear_into(unflushed, zone);
                self.zones.lock().restore(zone, ZoneState::Empty, 0);
            }
        }
    }

    /// Decides what survives of a zone's changes. A reset separates lives of
    /// the zone: it ends up in one of the unflushed lives, with part of that
    /// life's writes.
    fn decide(&self, zone: ZoneId, mut changes: Vec<Change>, random: &mut Xoshiro256PlusPlus) {
        let resets = changes.iter().filter(|change| change.is_reset()).count();
        let undone = if random.random() {
            0
        } else {
            random.random_range(0..=resets)
        };
        for _ in 0..undone {
            while let Some(change) = changes.pop() {
                let is_reset = change.is_reset();
                self.undo(change);
                if is_reset {
                    break;
                }
            }
        }
        // Changes before the last reset of this life are gone.
        let life = changes
            .iter()
            .rposition(Change::is_reset)
            .map_or(0, |i| i + 1);
        let writes = changes.split_off(life);
        if self.geometry.random_writes {
            let block = self.geometry.block_size as usize;
            let before = writes.into_iter().rev().filter_map(Change::replaced_bytes);
            keep_some_blocks(before, block, random, |at, before| {
                self.medium.write(zone, at, before);
            });
        } else {
            self.keep_a_prefix(zone, &writes, random);
        }
    }

    fn undo(&self, change: Change) {
        match change {
            Change::Write {
                zone,
                offset,
                before,
            } => match before {
                Before::Bytes(bytes) => self.medium.write(zone, offset, &bytes),
                // The zone's write pointer moves back with it.
                Before::Zeros(len) => self.medium.write(zone, offset, &vec![0; len as usize]),
            },
            Change::Reset {
                zone,
                before,
                state,
                write_pointer,
            } => {
                drop(self.medium.swap(zone, before));
                self.zones.lock().restore(zone, state, write_pointer);
            }
        }
    }

    /// Moves the write pointer back to a random position in the unflushed data.
    fn keep_a_prefix(&self, zone: ZoneId, writes: &[Change], random: &mut Xoshiro256PlusPlus) {
        let ranges = writes.iter().filter_map(|write| match write {
            Change::Write { offset, before, .. } => Some((*offset, offset + before.len())),
            Change::Reset { .. } => None,
        });
        let Some((start, end)) = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else {
            return;
        };
        let block = u64::from(self.geometry.block_size);
        let blocks = (end - start) / block;
        let left = match random.random_range(0..4) {
            0 => 0,
            1 => blocks,
            _ => random.random_range(0..=blocks),
        };
        let write_pointer = start + left * block;
        self.medium.write(
            zone,
            write_pointer,
            &vec![0; (end - write_pointer) as usize],
        );
        let mut zones = self.zones.lock();
        let finished_above = zones.state(zone).0 == ZoneState::Full && write_pointer == end;
        if !finished_above {
            let state = match write_pointer {
                0 => ZoneState::Empty,
                _ => ZoneState::Closed,
            };
            zones.restore(zone, state, write_pointer);
        }
    }

    /// The media after a restart. Only zoned devices keep their zones' states.
    pub(crate) fn restarted(&self) -> SimMedia {
        let geometry = self.geometry.clone();
        let mut zones = ZoneTable::new(&geometry, ZoneState::Unknown);
        if !geometry.random_writes {
            let before = self.zones.lock();
            for zone in geometry.zones() {
                let (state, write_pointer) = before.state(zone);
                let state = match state {
                    ZoneState::Open => ZoneState::Closed,
                    other => other,
                };
                zones.restore(zone, state, write_pointer);
            }
        }
        let next = SimMedia::over(geometry, self.cache, Arc::clone(&self.medium), zones);
        let keeps_content = self.keeps_content.load(Relaxed);
        next.keeps_content.store(keeps_content, Relaxed);
        next
    }
}

/// A change that was in flight when the power failed.
pub(crate) enum Interrupted {
    Append {
        zone: ZoneId,
        data: crate::buffer::IoData,
    },
    Write {
        zone: ZoneId,
        offset: u64,
        data: crate::buffer::IoData,
    },
    Reset {
        zone: ZoneId,
    },
}

impl Change {
    fn zone(&self) -> ZoneId {
        match self {
            Change::Write { zone, .. } | Change::Reset { zone, .. } => *zone,
        }
    }

    fn is_reset(&self) -> bool {
        matches!(self, Change::Reset { .. })
    }

    /// The former content of a write on a device with random writes, and its offset.
    fn replaced_bytes(self) -> Option<[(u64, Vec<u8>); 1]> {
        match self {
            Change::Write {
                offset,
                before: Before::Bytes(bytes),
                ..
            } => Some([(offset, bytes)]),
            _ => None,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Change::Write { before, .. } => before.len(),
            Change::Reset { write_pointer, .. } => *write_pointer,
        }
    }
}

impl Unflushed {
    fn push(&mut self, change: Change) {
        self.bytes += change.bytes();
        self.changes.push_back(change);
    }

    fn settle_oldest(&mut self) {
        if let Some(change) = self.changes.pop_front() {
            self.bytes -= change.bytes();
            self.first += 1;
        }
    }
}
