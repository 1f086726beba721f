//! Garbage collection.
//!
//! One superblock at a time is the victim. Collection reads its valid units, in
//! a window, and writes them to a stream of their own. When the last unit is in
//! the buffer, the victim is erased.
//!
//! When free superblocks run out, the host may write only as much as collection
//! frees. If the share u of a victim is valid, each byte moved out of it grants
//! the host (1 − u) / u bytes.

use super::array::{Array, Cause, Stream};
use super::collector::{Current, Move, read};
use super::config::Victim;
use super::ftl::{Ftl, NONE, Use};
use super::statistics::{Collected, Collection};

impl Ftl {
    /// Starts all collection that can start now.
    pub(super) fn collect(&mut self, now: u64, flash: &mut Array, host_bytes: u64) {
        loop {
            if self.collector.victim.is_none() && !self.choose(now, host_bytes) {
                return;
            }
            let Some(mut victim) = self.collector.victim else {
                return;
            };
            self.read_on(now, flash, &mut victim);
            self.collector.victim = Some(victim);
            if victim.cursor < self.units_per_block || victim.moving > 0 {
                return;
            }
            self.collector.victim = None;
            self.record(now, victim.record);
            self.blocks[victim.superblock as usize].use_ = Use::Free;
            flash.erase(now, victim.superblock);
        }
    }

    /// Handles the end of a page read of a move.
    pub(super) fn move_read(&mut self, now: u64, flash: &mut Array, number: u32) {
        let Some(moved) = self.collector.moves.get_mut(number) else {
            return;
        };
        moved.reads_left -= 1;
        if moved.reads_left == 0 {
            let place = moved.place;
            self.collector.moves.remove(number);
            self.collector.landed.push_back(place);
            self.place_landed(now, flash);
        }
    }

    /// Writes the units that were read, while there is room.
    pub(super) fn place_landed(&mut self, now: u64, flash: &mut Array) {
        while let Some(&place) = self.collector.landed.front() {
            if !self.place_one(now, flash, place) {
                return;
            }
            self.collector.landed.pop_front();
            if let Some(victim) = &mut self.collector.victim {
                victim.moving -= 1;
                if self.free.len() <= self.collector.throttle_at {
                    self.collector.credits += victim.credit_per_unit;
                }
            }
        }
    }

    fn place_one(&mut self, now: u64, flash: &mut Array, place: u32) -> bool {
        let Some(unit) = self.valid_owner(place) else {
            // The host has overwritten it meanwhile.
            self.collector.under_way_bytes -= self.unit;
            return true;
        };
        let handle = self.blocks[(place / self.units_per_block) as usize].handle;
        let number = usize::from(handle) % self.collector.streams.len();
        let stream = self.collector.streams[number].take().or_else(|| {
            let block = self.free.pop_front()?;
            self.blocks[block as usize].use_ = Use::Open;
            self.blocks[block as usize].handle = handle;
            Some(Stream::new(block))
        });
        let Some(mut stream) = stream else {
            return false;
        };
        let slot = (stream.filled / self.unit) as u32;
        self.copy(unit, stream.superblock * self.units_per_block + slot);
        flash.place(now, &mut stream, Cause::Collected, self.unit);
        self.collector.collection.moved_bytes += self.unit;
        if stream.filled == flash.superblock_bytes {
            self.close(stream.superblock);
        } else {
            self.collector.streams[number] = Some(stream);
        }
        true
    }

    /// Reads units of the victim while the window has room.
    fn read_on(&mut self, now: u64, flash: &mut Array, victim: &mut Current) {
        while victim.cursor < self.units_per_block {
            let place = victim.superblock * self.units_per_block + victim.cursor;
            if self.valid_owner(place).is_none() {
                victim.cursor += 1;
                continue;
            }
            let window = self.collector.window;
            if self.collector.under_way_bytes + self.unit > window {
                return;
            }
            self.collector.under_way_bytes += self.unit;
            let offset = u64::from(victim.cursor) * self.unit;
            victim.cursor += 1;
            victim.moving += 1;
            let number = self.collector.moves.insert(Move {
                place,
                reads_left: 0,
            });
            let block = victim.superblock;
            let reads = read(now, flash, block, offset, self.unit, Some(number));
            if reads > 0 {
                if let Some(moved) = self.collector.moves.get_mut(number) {
                    moved.reads_left = reads;
                }
                continue;
            }
            // The unit is still in the write buffer.
            self.collector.moves.remove(number);
            self.collector.victim = Some(*victim);
            self.collector.landed.push_back(place);
            self.place_landed(now, flash);
            if let Some(updated) = self.collector.victim {
                *victim = updated;
            }
        }
    }

    /// Chooses a victim if free superblocks are short and one has garbage.
    fn choose(&mut self, now: u64, host_bytes: u64) -> bool {
        if self.free.len() >= self.collector.collect_below {
            return false;
        }
        let Some(superblock) = self.best_victim() else {
            self.collector.is_stuck = true;
            return false;
        };
        self.collector.is_stuck = false;
        let valid = u64::from(self.blocks[superblock as usize].valid);
        let garbage = u64::from(self.units_per_block) - valid;
        if valid == 0 {
            self.collector.credits += garbage * self.unit;
        }
        self.blocks[superblock as usize].use_ = Use::Victim;
        let collection = &mut self.collector.collection;
        collection.first_ns.get_or_insert(now);
        collection.first_at_host_bytes.get_or_insert(host_bytes);
        self.collector.victim = Some(Current {
            superblock,
            cursor: 0,
            moving: 0,
            credit_per_unit: (garbage * self.unit).checked_div(valid).unwrap_or(0),
            record: Collected {
                started_ns: now,
                ended_ns: now,
                valid_bytes: valid * self.unit,
                free_superblocks: self.free.len() as u32,
            },
        });
        true
    }

    fn best_victim(&self) -> Option<u32> {
        let units = self.units_per_block;
        let mut best = (0.0, NONE);
        for (number, block) in self.blocks.iter().enumerate() {
            let Use::Closed { at } = block.use_ else {
                continue;
            };
            if block.valid == units {
                continue;
            }
            let u = f64::from(block.valid) / f64::from(units);
            let score = match self.collector.choice {
                _ if block.valid == 0 => f64::INFINITY,
                Victim::Greedy => 1.0 - u,
                Victim::AgeAware => {
                    let age = (self.written_units - at + 1) as f64;
                    (1.0 - u) * age.sqrt() / (2.0 * u)
                }
            };
            if score > best.0 {
                best = (score, number as u32);
            }
        }
        (best.1 != NONE).then_some(best.1)
    }

    fn record(&mut self, now: u64, mut record: Collected) {
        record.ended_ns = now;
        let collection = &mut self.collector.collection;
        collection.victims += 1;
        if collection.timeline.len() == Collection::TIMELINE_MAX {
            collection.timeline.pop_front();
        }
        collection.timeline.push_back(record);
    }
}
