//! The state of every zone, and which one takes the next bytes.
//!
//! ```text
//!  Empty ─► Opening ─► Open ─► Closing ─► Full ─► Evicting ─► Empty
//!              └─────────┴────────┴─────────┴────────┴──────► Retired
//! ```
//!
//! Space is promised before it is written: a placement adds to `used`, so that
//! concurrent writers of one zone never overrun it, and a large value that
//! streams in slowly neither holds the zone from others nor loses its room.

use std::collections::VecDeque;

use super::plan::{METADATA_ZONES, Plan};
use crate::ZoneId;
use crate::layout::{Generation, summary_bytes};
use crate::policy::zone::{Candidate, ZonePolicy};

/// The phase of a zone's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ZonePhase {
    /// Free.
    Empty,
    /// Its header is being written.
    Opening,
    /// Takes values.
    Open,
    /// Takes no more; waits for writes in flight, then for its summary.
    Closing,
    /// Read only.
    Full,
    /// Being emptied; nothing in it is served.
    Evicting,
    /// Failed; not used until the cache is opened again.
    Retired,
}

/// A zone at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneInfo {
    /// Its phase.
    pub phase: ZonePhase,
    /// The generation of its life.
    pub generation: Generation,
    /// Bytes promised or written from its start.
    pub used_bytes: u64,
    /// Records promised or written.
    pub records: u32,
    /// Placements that are not done.
    pub in_flight: u32,
}

#[derive(Clone, Debug)]
struct Zone {
    info: ZoneInfo,
    /// Position in the order of filling; larger is newer.
    filled: u64,
    /// Writes that failed since the cache was opened.
    failures: u32,
    /// Opened for what host GC moves.
    for_gc: bool,
    /// Was written and emptied, so that there is space below the device for it
    /// unless others have taken that.
    gave_back: bool,
}

/// Writes to a zone that may fail before it is retired.
const FAILURES_MOST: u32 = 3;

/// The place of the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Into this open zone.
    In(ZoneId, Generation),
    /// Into this zone, once the caller has written its header and called
    /// [`ZoneTable::opened`].
    AfterOpening(ZoneId, Generation),
    /// Nowhere now: ask again when a zone has been freed, opened or closed.
    Wait,
}

/// The claimant of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    User,
    HostGc,
}

/// The state of every zone of one cache.
#[derive(Debug)]
pub struct ZoneTable {
    zones: Vec<Zone>,
    free: VecDeque<ZoneId>,
    open: Vec<ZoneId>,
    rotation: usize,
    closing: usize,
    open_most: usize,
    active_most: usize,
    gc_reserve: usize,
    capacity: u64,
    block_size: u32,
    next_generation: u32,
    fills: u64,
    policy: ZonePolicy,
    /// Zones out of use.
    retired: usize,
    /// Retired only because there is no space below the device for them.
    withdrawn: Vec<ZoneId>,
    /// Zones to withdraw as soon as they are emptied.
    to_withdraw: usize,
}

impl ZoneTable {
    /// All data zones empty.
    pub fn new(
        plan: &Plan,
        first_generation: Generation,
        policy: ZonePolicy,
        gc_reserve: u32,
    ) -> Self {
        let geometry = &plan.geometry;
        let device_most = [geometry.max_open_zones, geometry.max_active_zones]
            .into_iter()
            .flatten()
            .min();
        // If the device sets no limit, zones may linger in `Closing` behind slow streams.
        let active_most = device_most.map_or(plan.open_zones as usize * 4 + 16, |n| {
            n.saturating_sub(METADATA_ZONES) as usize
        });
        let empty = Zone {
            info: ZoneInfo {
                phase: ZonePhase::Empty,
                generation: Generation(0),
                used_bytes: 0,
                records: 0,
                in_flight: 0,
            },
            filled: 0,
            failures: 0,
            for_gc: false,
            gave_back: false,
        };
        ZoneTable {
            zones: vec![empty; geometry.zone_count as usize],
            free: plan.data_zones().collect(),
            open: Vec::new(),
            rotation: 0,
            closing: 0,
            open_most: plan.open_zones as usize,
            active_most: active_most.max(plan.open_zones as usize),
            gc_reserve: gc_reserve as usize,
            capacity: geometry.zone_capacity,
            block_size: geometry.block_size,
            next_generation: first_generation.0.max(1),
            fills: 0,
            policy,
            retired: 0,
            withdrawn: Vec::new(),
            to_withdraw: 0,
        }
    }

    /// Finds room for `bytes` and `records` of a user's values. The placement
    /// must be ended with [`done`](Self::done).
    pub fn place(&mut self, bytes: u64, records: u32) -> Placed {
        self.place_for(Claim::User, bytes, records)
    }

    /// The same for values that host GC moves; may use the reserve.
    pub fn place_for_gc(&mut self, bytes: u64, records: u32) -> Placed {
        self.place_for(Claim::HostGc, bytes, records)
    }

    fn place_for(&mut self, claim: Claim, bytes: u64, records: u32) -> Placed {
        // As long as zones are short, users leave host GC what it has opened:
        // they would fill it at once, and GC could not free another.
        let is_short = claim == Claim::User && self.free.len() <= self.gc_reserve;
        for step in 0..self.open.len() {
            let index = (self.rotation + step) % self.open.len();
            let zone = self.open[index];
            if is_short && self.zones[zone.index()].for_gc {
                continue;
            }
            if self.zones[zone.index()].info.phase == ZonePhase::Open
                && self.fits(zone, bytes, records)
            {
                self.rotation = index + 1;
                return Placed::In(zone, self.promise(zone, bytes, records));
            }
        }
        let reserve = if claim == Claim::HostGc {
            0
        } else {
            self.gc_reserve
        };
        if self.free.len() <= reserve {
            // Without a zone to open, closing one makes the shortage worse, unless
            // that is the only way to a zone that can be evicted.
            if self.anything_coming() || self.close_fullest() || self.free.is_empty() {
                return Placed::Wait;
            }
            // All others failed: nothing is left to collect, so host GC does not need the reserve.
        }
        if self.open.len() >= self.open_most() && !self.close_fullest() {
            return Placed::Wait;
        }
        if self.open.len() + self.closing >= self.active_most {
            return Placed::Wait;
        }
        let Some(zone) = self.free.pop_front() else {
            return Placed::Wait;
        };
        let generation = Generation(self.next_generation);
        self.next_generation += 1;
        self.zones[zone.index()].info = ZoneInfo {
            phase: ZonePhase::Opening,
            generation,
            used_bytes: u64::from(self.block_size),
            records: 0,
            in_flight: 0,
        };
        self.zones[zone.index()].for_gc = claim == Claim::HostGc;
        self.open.push(zone);
        Placed::AfterOpening(zone, self.promise(zone, bytes, records))
    }

    /// Slots: the next zone to divide, which the caller initialises and then
    /// calls [`opened`](Self::opened). Zones of slots stay open.
    pub fn open_for_slots(&mut self) -> Option<(ZoneId, Generation)> {
        let zone = self.free.pop_front()?;
        let generation = Generation(self.next_generation);
        self.next_generation += 1;
        self.zones[zone.index()].info = ZoneInfo {
            phase: ZonePhase::Opening,
            generation,
            used_bytes: 0,
            records: 0,
            in_flight: 0,
        };
        Some((zone, generation))
    }

    /// Slots, after a restart: `zone` is open.
    pub fn recovered_slots(&mut self, zone: ZoneId, generation: Generation) {
        self.free.retain(|&z| z != zone);
        let info = &mut self.zones[zone.index()].info;
        info.phase = ZonePhase::Open;
        info.generation = generation;
    }

    /// The zone's header is written: it takes values.
    pub fn opened(&mut self, zone: ZoneId) {
        let info = &mut self.zones[zone.index()].info;
        if info.phase == ZonePhase::Opening {
            info.phase = ZonePhase::Open;
        }
    }

    /// A placement is over, well or badly. A zone may now be
    /// [closable](Self::take_closable).
    pub fn done(&mut self, zone: ZoneId) {
        let info = &mut self.zones[zone.index()].info;
        info.in_flight = info.in_flight.saturating_sub(1);
    }

    /// Zones that are closing with nothing in flight. The caller writes each
    /// one's summary and calls [`closed`](Self::closed); no other caller is
    /// given the same zone.
    pub fn take_closable(&mut self) -> Vec<ZoneId> {
        let mut ready = Vec::new();
        for (index, zone) in self.zones.iter_mut().enumerate() {
            if zone.info.phase == ZonePhase::Closing && zone.info.in_flight == 0 {
                // Holds the zone until `closed`, and hides it from the next caller.
                zone.info.in_flight = 1;
                ready.push(ZoneId(index as u32));
            }
        }
        ready
    }

    /// Takes every open zone out of use, so that it can be closed.
    pub fn close_all(&mut self) {
        while let Some(zone) = self
            .open
            .iter()
            .position(|z| self.zones[z.index()].info.phase == ZonePhase::Open)
        {
            self.start_closing(zone);
        }
    }

    /// The zone is full: its summary is written, or never will be.
    pub fn closed(&mut self, zone: ZoneId) {
        if self.zones[zone.index()].info.phase == ZonePhase::Closing {
            self.closing -= 1;
            self.fills += 1;
            let entry = &mut self.zones[zone.index()];
            entry.filled = self.fills;
            entry.info.phase = ZonePhase::Full;
            entry.info.in_flight = 0;
        }
    }

    /// A write to `zone` failed. It takes no more, and is closed, evicted and
    /// reset like any other; a zone that keeps failing is retired. Says whether
    /// it was.
    pub fn failed(&mut self, zone: ZoneId) -> bool {
        let entry = &mut self.zones[zone.index()];
        entry.failures += 1;
        if entry.failures >= FAILURES_MOST {
            self.retire(zone);
            return true;
        }
        match entry.info.phase {
            ZonePhase::Open => {
                if let Some(index) = self.open.iter().position(|&z| z == zone) {
                    self.start_closing(index);
                }
            }
            ZonePhase::Opening => {
                entry.info.phase = ZonePhase::Empty;
                entry.info.in_flight = 0;
                self.open.retain(|&z| z != zone);
                self.free.push_back(zone);
            }
            _ => {}
        }
        false
    }

    /// Takes a zone out of use for good. What it holds stays readable.
    pub fn retire(&mut self, zone: ZoneId) {
        self.open.retain(|&z| z != zone);
        self.free.retain(|&z| z != zone);
        let info = &mut self.zones[zone.index()].info;
        match info.phase {
            ZonePhase::Retired => return,
            ZonePhase::Closing => self.closing -= 1,
            _ => {}
        }
        info.phase = ZonePhase::Retired;
        self.retired += 1;
    }

    /// Free zones.
    pub fn free_zones(&self) -> u32 {
        self.free.len() as u32
    }

    /// Full zones.
    pub fn full_zones(&self) -> impl Iterator<Item = ZoneId> + '_ {
        self.in_phase(ZonePhase::Full)
    }

    /// Zones in `phase`.
    pub fn in_phase(&self, phase: ZonePhase) -> impl Iterator<Item = ZoneId> + '_ {
        self.zones
            .iter()
            .enumerate()
            .filter(move |(_, z)| z.info.phase == phase)
            .map(|(i, _)| ZoneId(i as u32))
    }

    /// Whether any zone waits to be closed.
    pub fn any_closing(&self) -> bool {
        self.closing > 0
    }

    /// Whether nothing is under way after which a zone could be free, or could
    /// be evicted.
    pub fn is_idle(&self) -> bool {
        use ZonePhase::{Closing, Evicting, Opening};
        self.zones.iter().all(|zone| {
            zone.info.in_flight == 0 && !matches!(zone.info.phase, Opening | Closing | Evicting)
        })
    }

    /// Whether no zone will ever take values again: all are retired.
    pub fn is_dead(&self) -> bool {
        self.usable_zones() == 0
    }

    /// A zone at a glance.
    pub fn info(&self, zone: ZoneId) -> ZoneInfo {
        self.zones[zone.index()].info
    }

    /// The least generation that no zone has had.
    pub fn next_generation(&self) -> Generation {
        Generation(self.next_generation)
    }

    /// Chooses the zone to evict: one without live records if there is any,
    /// else by policy. `last_access` and `live` tell what the flow counted.
    pub fn choose_victim(
        &mut self,
        last_access: impl Fn(ZoneId) -> u64,
        live: impl Fn(ZoneId) -> u32,
    ) -> Option<ZoneId> {
        let candidates: Vec<Candidate> = self
            .zones
            .iter()
            .enumerate()
            .filter(|(_, zone)| zone.info.phase == ZonePhase::Full)
            .map(|(index, zone)| {
                let id = ZoneId(index as u32);
                Candidate {
                    zone: id,
                    filled: zone.filled,
                    last_access: last_access(id),
                }
            })
            .collect();
        if let Some(dead) = candidates.iter().find(|c| live(c.zone) == 0) {
            return Some(dead.zone);
        }
        self.policy.choose(&candidates)
    }

    /// The zone is to be emptied.
    pub fn begin_evict(&mut self, zone: ZoneId) {
        let info = &mut self.zones[zone.index()].info;
        debug_assert_eq!(info.phase, ZonePhase::Full);
        info.phase = ZonePhase::Evicting;
    }

    /// The zone is empty and free.
    pub fn end_evict(&mut self, zone: ZoneId) {
        let entry = &mut self.zones[zone.index()];
        entry.gave_back = true;
        entry.info.phase = ZonePhase::Empty;
        entry.info.used_bytes = 0;
        entry.info.records = 0;
        if self.to_withdraw > 0 {
            self.to_withdraw -= 1;
            self.withdraw(zone);
        } else {
            self.free.push_back(zone);
        }
    }

    /// Restart: `zone` holds records of `generation` and takes no more.
    /// Call in the order in which zones should count as filled.
    pub fn recovered(
        &mut self,
        zone: ZoneId,
        generation: Generation,
        used_bytes: u64,
        records: u32,
    ) {
        self.free.retain(|&z| z != zone);
        self.fills += 1;
        self.zones[zone.index()] = Zone {
            info: ZoneInfo {
                phase: ZonePhase::Full,
                generation,
                used_bytes,
                records,
                in_flight: 0,
            },
            filled: self.fills,
            failures: 0,
            for_gc: false,
            gave_back: false,
        };
    }

    fn fits(&self, zone: ZoneId, bytes: u64, records: u32) -> bool {
        let info = &self.zones[zone.index()].info;
        let summary =
            summary_bytes(info.records as usize + records as usize, self.block_size) as u64;
        info.used_bytes + bytes + summary <= self.capacity
    }

    fn promise(&mut self, zone: ZoneId, bytes: u64, records: u32) -> Generation {
        let info = &mut self.zones[zone.index()].info;
        info.used_bytes += bytes;
        info.records += records;
        info.in_flight += 1;
        info.generation
    }

    /// Whether some zone will be free, or closed and then evicted, without further ado.
    fn anything_coming(&self) -> bool {
        use ZonePhase::{Closing, Evicting, Full, Opening};
        self.zones
            .iter()
            .any(|zone| matches!(zone.info.phase, Opening | Closing | Full | Evicting))
    }

    /// Starts to close the open zone with the least room; false if none is open.
    fn close_fullest(&mut self) -> bool {
        let fullest = (0..self.open.len())
            .filter(|&i| self.zones[self.open[i].index()].info.phase == ZonePhase::Open)
            .max_by_key(|&i| self.zones[self.open[i].index()].info.used_bytes);
        match fullest {
            Some(index) if self.open.len() + self.closing <= self.active_most => {
                self.start_closing(index);
                true
            }
            _ => false,
        }
    }

    fn start_closing(&mut self, index: usize) {
        let zone = self.open.swap_remove(index);
        self.zones[zone.index()].info.phase = ZonePhase::Closing;
        self.closing += 1;
    }
}

mod shortage;
#[cfg(test)]
mod tests;
