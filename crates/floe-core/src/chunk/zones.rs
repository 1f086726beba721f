//! The state of every zone, and the choice of the zone that takes the next
//! bytes.
//!
//! ```text
//!  Empty ─► Opening ─► Open ─► Closing ─► Full ─► Evicting ─► Empty
//!              └─────────┴────────┴─────────┴────────┴──────► Retired
//! ```
//!
//! Space is reserved before it is written: a placement adds to `used`. So
//! concurrent writers never overrun a zone, and a slow large value neither
//! blocks its zone for others nor loses its room.

mod shortage;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::plan::{Eviction, METADATA_ZONES, Plan};
use crate::ZoneId;
use crate::layout::{Generation, summary_bytes};
use crate::placement::Stream;
use crate::policy::zone::{Candidate, ZonePolicy};

/// The phase of a zone's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ZonePhase {
    /// The zone is free.
    Empty,
    /// The zone's header is being written.
    Opening,
    /// The zone takes values.
    Open,
    /// The zone takes no more values. It waits for writes in flight, then for
    /// its summary.
    Closing,
    /// The zone is read only.
    Full,
    /// The zone is being reset; nothing in it is served.
    Evicting,
    /// The zone failed and is unused until the cache is opened again.
    Retired,
}

/// The state of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneInfo {
    /// Its phase.
    pub phase: ZonePhase,
    /// The generation of its current life.
    pub generation: Generation,
    /// Bytes reserved or written from its start.
    pub used_bytes: u64,
    /// Records reserved or written.
    pub records: u32,
    /// Placements that have not ended.
    pub in_flight: u32,
}

#[derive(Clone, Debug)]
struct Zone {
    info: ZoneInfo,
    /// Position in the order in which zones filled; larger is newer.
    filled: u64,
    /// Writes that failed since the cache was opened.
    failures: u32,
    /// The zone was opened for host GC.
    for_gc: bool,
    /// The number of the zone's stream among those of open zones.
    lane: u32,
    /// Its last reset freed space. Then the device has space for it
    /// unless another file has taken that.
    has_space: bool,
}

/// Failed writes after which a zone is retired.
const FAILURES_MAX: u32 = 3;

/// The result of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Write to this open zone.
    In(ZoneId, Generation),
    /// Write to this zone, after the caller has written its header and called
    /// [`ZoneTable::opened`].
    AfterOpening(ZoneId, Generation),
    /// No zone has room. Try again when a zone was freed, opened or closed.
    Wait,
}

/// The purpose of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    User,
    HostGc,
}

impl Zone {
    /// True if the zone was opened for values of this claim.
    fn is_for(&self, claim: Claim) -> bool {
        self.for_gc == (claim == Claim::HostGc)
    }
}

/// The state of every zone of one cache.
#[derive(Debug)]
pub struct ZoneTable {
    zones: Vec<Zone>,
    free: VecDeque<ZoneId>,
    open: Vec<ZoneId>,
    rotation: usize,
    closing: usize,
    open_max: usize,
    active_max: usize,
    gc_reserve: usize,
    /// Moved values have a zone of their own beside those of new ones, because the device
    /// keeps zones of different streams apart.
    splits_moved: bool,
    capacity: u64,
    block_size: u32,
    next_generation: u32,
    fills: u64,
    policy: ZonePolicy,
    /// Number of retired zones, including withdrawn ones.
    retired: usize,
    /// Zones that are retired only because the device has no space for them.
    withdrawn: Vec<ZoneId>,
    /// Number of zones to withdraw as soon as they are reset.
    to_withdraw: usize,
}

impl ZoneTable {
    /// A table in which all data zones are empty.
    pub fn new(
        plan: &Plan,
        first_generation: Generation,
        policy: ZonePolicy,
        gc_reserve: u32,
    ) -> Self {
        let geometry = &plan.geometry;
        let device_max = [geometry.max_open_zones, geometry.max_active_zones]
            .into_iter()
            .flatten()
            .min();
        // Without a limit of the device, zones may stay in `Closing` behind
        // slow streams.
        let active_max = device_max.map_or(plan.open_zones as usize * 4 + 16, |n| {
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
            lane: 0,
            has_space: false,
        };
        ZoneTable {
            zones: vec![empty; geometry.zone_count as usize],
            free: plan.data_zones().collect(),
            open: Vec::new(),
            rotation: 0,
            closing: 0,
            open_max: plan.open_zones as usize,
            active_max: active_max.max(plan.open_zones as usize),
            gc_reserve: gc_reserve as usize,
            // With two handles, moved values would share one with the metadata.
            splits_moved: geometry.placement_handles > 2
                && device_max.is_none()
                && plan.eviction == Eviction::Clru,
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

    /// Reserves room for `bytes` and `records` of users' values. The placement
    /// must be ended with [`done`](Self::done).
    pub fn place(&mut self, bytes: u64, records: u32) -> Placed {
        self.place_for(Claim::User, bytes, records)
    }

    /// As [`place`](Self::place), for values that host GC moves. May use the
    /// reserve.
    pub fn place_for_gc(&mut self, bytes: u64, records: u32) -> Placed {
        self.place_for(Claim::HostGc, bytes, records)
    }

    fn place_for(&mut self, claim: Claim, bytes: u64, records: u32) -> Placed {
        if let Some(index) = self.open_zone_for(claim, self.splits_moved, bytes, records) {
            return self.place_in(index, bytes, records);
        }
        // Rather in a zone of the other age than in a second one that is only being opened.
        if self.splits_moved
            && self
                .zones
                .iter()
                .any(|zone| zone.info.phase == ZonePhase::Opening && zone.is_for(claim))
            && let Some(index) = self.open_zone_for(claim, false, bytes, records)
        {
            return self.place_in(index, bytes, records);
        }
        let lane = self.make_room_to_open(claim).then(|| self.free_lane());
        let opened = lane.and_then(|lane| {
            let (zone, _) = self.open_free(u64::from(self.block_size))?;
            Some((zone, lane))
        });
        let Some((zone, lane)) = opened else {
            // Rather in a zone of the other age than not at all.
            return match self.open_zone_for(claim, false, bytes, records) {
                Some(index) => self.place_in(index, bytes, records),
                None => Placed::Wait,
            };
        };
        let entry = &mut self.zones[zone.index()];
        (entry.for_gc, entry.lane) = (claim == Claim::HostGc, lane);
        self.open.push(zone);
        Placed::AfterOpening(zone, self.reserve(zone, bytes, records))
    }

    /// Adds a placement to the open zone at `index`.
    fn place_in(&mut self, index: usize, bytes: u64, records: u32) -> Placed {
        self.rotation = index + 1;
        let zone = self.open[index];
        Placed::In(zone, self.reserve(zone, bytes, records))
    }

    /// The stream of a zone's values.
    pub fn stream(&self, zone: ZoneId) -> Stream {
        let entry = &self.zones[zone.index()];
        match entry.for_gc && self.splits_moved {
            true => Stream::Moved,
            false => Stream::New(entry.lane),
        }
    }

    /// The stream of new values with the fewest open zones, then with the fewest closing
    /// ones, which still take values of slow streams.
    fn free_lane(&self) -> u32 {
        use ZonePhase::{Closing, Open, Opening};
        let mut zones = vec![(0, 0); self.open_max];
        for (index, entry) in self.zones.iter().enumerate() {
            let Stream::New(lane) = self.stream(ZoneId(index as u32)) else {
                continue;
            };
            let (open, closing) = &mut zones[lane as usize];
            match entry.info.phase {
                Opening | Open => *open += 1,
                Closing => *closing += 1,
                _ => {}
            }
        }
        let fewest = (0..zones.len()).min_by_key(|&lane| zones[lane]);
        fewest.unwrap_or(0) as u32
    }

    /// Over slots: the next zone to divide. The caller initializes it, then
    /// calls [`opened`](Self::opened). Zones of slots stay open.
    pub fn open_for_slots(&mut self) -> Option<(ZoneId, Generation)> {
        self.open_free(0)
    }

    /// Over slots, after a restart: marks `zone` as open.
    pub fn recovered_slots(&mut self, zone: ZoneId, generation: Generation) {
        self.free.retain(|&z| z != zone);
        let info = &mut self.zones[zone.index()].info;
        info.phase = ZonePhase::Open;
        info.generation = generation;
    }

    /// The zone's header is written; the zone takes values.
    pub fn opened(&mut self, zone: ZoneId) {
        let info = &mut self.zones[zone.index()].info;
        if info.phase == ZonePhase::Opening {
            info.phase = ZonePhase::Open;
        }
    }

    /// Ends a placement, whether it succeeded or failed. The zone may now be
    /// [closable](Self::take_closable).
    pub fn done(&mut self, zone: ZoneId) {
        let info = &mut self.zones[zone.index()].info;
        info.in_flight = info.in_flight.saturating_sub(1);
    }

    /// Closing zones without writes in flight. The caller writes each one's
    /// summary and calls [`closed`](Self::closed). No other caller gets the
    /// same zone.
    pub fn take_closable(&mut self) -> Vec<ZoneId> {
        let mut ready = Vec::new();
        for (index, zone) in self.zones.iter_mut().enumerate() {
            if zone.info.phase == ZonePhase::Closing && zone.info.in_flight == 0 {
                // Keeps the zone from being returned again until `closed`.
                zone.info.in_flight = 1;
                ready.push(ZoneId(index as u32));
            }
        }
        ready
    }

    /// Makes every open zone closing.
    pub fn close_all(&mut self) {
        while let Some(zone) = self
            .open
            .iter()
            .position(|z| self.zones[z.index()].info.phase == ZonePhase::Open)
        {
            self.start_closing(zone);
        }
    }

    /// The zone is full: its summary is written, or cannot be.
    pub fn closed(&mut self, zone: ZoneId) {
        if self.zones[zone.index()].info.phase == ZonePhase::Retired {
            self.zones[zone.index()].info.in_flight = 0;
        }
        if self.zones[zone.index()].info.phase == ZonePhase::Closing {
            self.closing -= 1;
            self.fills += 1;
            let entry = &mut self.zones[zone.index()];
            entry.filled = self.fills;
            entry.info.phase = ZonePhase::Full;
            entry.info.in_flight = 0;
        }
    }

    /// A write to `zone` failed. The zone takes no more values, and is closed,
    /// evicted and reset. After repeated failures it is retired; returns
    /// whether it was.
    pub fn failed(&mut self, zone: ZoneId) -> bool {
        let entry = &mut self.zones[zone.index()];
        entry.failures += 1;
        if entry.failures >= FAILURES_MAX {
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

    /// Retires a zone; false if it was before. Its values stay readable.
    pub fn retire(&mut self, zone: ZoneId) -> bool {
        self.open.retain(|&z| z != zone);
        self.free.retain(|&z| z != zone);
        let info = &mut self.zones[zone.index()].info;
        match info.phase {
            ZonePhase::Retired => return false,
            ZonePhase::Closing => self.closing -= 1,
            _ => {}
        }
        info.phase = ZonePhase::Retired;
        self.retired += 1;
        true
    }

    /// Number of free zones.
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

    /// True if any zone is closing.
    pub fn any_closing(&self) -> bool {
        self.closing > 0
    }

    /// True if no operation is running that could free a zone or make one
    /// evictable.
    pub fn is_idle(&self) -> bool {
        use ZonePhase::{Closing, Evicting, Opening};
        self.zones.iter().all(|zone| {
            zone.info.in_flight == 0 && !matches!(zone.info.phase, Opening | Closing | Evicting)
        })
    }

    /// True if all zones are retired, so that none will take values.
    pub fn is_dead(&self) -> bool {
        self.usable_zones() == 0
    }

    /// The state of a zone.
    pub fn info(&self, zone: ZoneId) -> ZoneInfo {
        self.zones[zone.index()].info
    }

    /// The lowest generation that no zone has had.
    pub fn next_generation(&self) -> Generation {
        Generation(self.next_generation)
    }

    /// Chooses the zone to evict: one without live records if there is any,
    /// else by policy. `last_access` and `live` return what the driver counted.
    pub fn choose_victim(
        &mut self,
        last_access: impl Fn(ZoneId) -> u64,
        live: impl Fn(ZoneId) -> u32,
    ) -> Option<ZoneId> {
        let candidates = self.candidates(last_access);
        if let Some(dead) = candidates.iter().find(|c| live(c.zone) == 0) {
            return Some(dead.zone);
        }
        self.policy.choose(&candidates)
    }

    /// The next `count` zones that the policy would choose if none were used meanwhile.
    pub fn next_victims(&self, count: usize, last_access: impl Fn(ZoneId) -> u64) -> Vec<ZoneId> {
        let next = self.policy.next(self.candidates(last_access), count);
        next.into_iter().map(|c| c.zone).collect()
    }

    fn candidates(&self, last_access: impl Fn(ZoneId) -> u64) -> Vec<Candidate> {
        let zones = self.zones.iter().enumerate();
        let full = zones.filter(|(_, zone)| zone.info.phase == ZonePhase::Full);
        full.map(|(index, zone)| {
            let id = ZoneId(index as u32);
            Candidate {
                zone: id,
                filled: zone.filled,
                last_access: last_access(id),
            }
        })
        .collect()
    }

    /// The zone is being evicted. False if it is not full: it was retired meanwhile.
    pub fn begin_evict(&mut self, zone: ZoneId) -> bool {
        let info = &mut self.zones[zone.index()].info;
        let is_full = info.phase == ZonePhase::Full;
        if is_full {
            info.phase = ZonePhase::Evicting;
        }
        is_full
    }

    /// The zone was reset and is free, unless it was retired meanwhile.
    pub fn end_evict(&mut self, zone: ZoneId) {
        let entry = &mut self.zones[zone.index()];
        if entry.info.phase == ZonePhase::Retired {
            return;
        }
        entry.has_space = true;
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

    /// After a restart: `zone` holds records of `generation` and takes no more.
    /// Calls must follow the order in which zones filled.
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
            lane: 0,
            has_space: false,
        };
    }

    /// The next open zone in rotation that has room, as an index of `open`.
    /// With `of_its_age`, users and host GC have different ones.
    fn open_zone_for(
        &self,
        claim: Claim,
        of_its_age: bool,
        bytes: u64,
        records: u32,
    ) -> Option<usize> {
        // While zones are scarce, users leave those of host GC alone. They
        // would fill them at once, and GC could not free another zone.
        let spares_gc = claim == Claim::User && self.free.len() <= self.gc_reserve;
        let open = self.open.len();
        (0..open)
            .map(|step| (self.rotation + step) % open)
            .find(|&index| {
                let zone = self.open[index];
                let entry = &self.zones[zone.index()];
                !(spares_gc && entry.for_gc)
                    && (entry.is_for(claim) || !of_its_age)
                    && entry.info.phase == ZonePhase::Open
                    && self.fits(zone, bytes, records)
            })
    }

    /// True if a free zone may be opened now. If not, closes an open zone where
    /// that leads to a free one.
    fn make_room_to_open(&mut self, claim: Claim) -> bool {
        let reserve = match claim {
            Claim::User => self.gc_reserve,
            Claim::HostGc => 0,
        };
        // With no free zone, closing one makes the shortage worse, unless it is
        // the only way to a zone that can be evicted. If all other zones failed,
        // nothing is left to collect, and host GC does not need the reserve.
        if self.free.len() <= reserve
            && (self.expects_free_zone() || self.close_fullest() || self.free.is_empty())
        {
            return false;
        }
        let of_its_age =
            |zone: &&ZoneId| !self.splits_moved || self.zones[zone.index()].is_for(claim);
        let open = self.open.iter().filter(of_its_age).count();
        let most = match self.splits_moved && claim == Claim::HostGc {
            true => 1,
            false => self.open_max(),
        };
        (open < most || self.close_fullest_for(Some(claim)))
            && self.open.len() + self.closing < self.active_max
    }

    /// Begins the next generation of a free zone, with `used_bytes` for its header.
    fn open_free(&mut self, used_bytes: u64) -> Option<(ZoneId, Generation)> {
        let zone = self.free.pop_front()?;
        let generation = Generation(self.next_generation);
        self.next_generation += 1;
        self.zones[zone.index()].info = ZoneInfo {
            phase: ZonePhase::Opening,
            generation,
            used_bytes,
            records: 0,
            in_flight: 0,
        };
        Some((zone, generation))
    }

    fn fits(&self, zone: ZoneId, bytes: u64, records: u32) -> bool {
        let info = &self.zones[zone.index()].info;
        let summary =
            summary_bytes(info.records as usize + records as usize, self.block_size) as u64;
        info.used_bytes + bytes + summary <= self.capacity
    }

    /// Adds a placement to `zone`.
    fn reserve(&mut self, zone: ZoneId, bytes: u64, records: u32) -> Generation {
        let info = &mut self.zones[zone.index()].info;
        info.used_bytes += bytes;
        info.records += records;
        info.in_flight += 1;
        info.generation
    }

    /// True if some zone will become free or evictable without further action.
    fn expects_free_zone(&self) -> bool {
        use ZonePhase::{Closing, Evicting, Full, Opening};
        self.zones
            .iter()
            .any(|zone| matches!(zone.info.phase, Opening | Closing | Full | Evicting))
    }

    /// Makes the open zone with the least room closing; false if none is open.
    fn close_fullest(&mut self) -> bool {
        self.close_fullest_for(None)
    }

    /// As [`close_fullest`](Self::close_fullest), of the zones for `claim` where these are
    /// apart from others.
    fn close_fullest_for(&mut self, claim: Option<Claim>) -> bool {
        let claim = claim.filter(|_| self.splits_moved);
        let fullest = (0..self.open.len())
            .filter(|&i| {
                let zone = &self.zones[self.open[i].index()];
                zone.info.phase == ZonePhase::Open && claim.is_none_or(|claim| zone.is_for(claim))
            })
            .max_by_key(|&i| self.zones[self.open[i].index()].info.used_bytes);
        match fullest {
            Some(index) if self.open.len() + self.closing <= self.active_max => {
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
