//! Zones of a host: allocation and eviction. ZPLRU promotes a full zone when
//! one of its chunks is read, and evicts the least recently promoted one.

use std::collections::VecDeque;

use super::config::{EvictionPolicy, HostBehaviour, Left, Placement};

/// A chunk's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) zone: u32,
    pub(super) slot: u32,
}

#[derive(Debug)]
pub(super) struct Zones {
    placement: Placement,
    left: Left,
    active_max: u32,
    evict_at: u32,
    evict_to: u32,
    slots: u32,
    zones: Vec<Zone>,
    empty: VecDeque<u32>,
    /// Zones with room that can be taken.
    open: VecDeque<u32>,
    /// Number of zones being reset.
    emptying: u32,
    active: u32,
    promotions: u64,
    /// Empty zones reserved for host garbage collection.
    reserve: usize,
    /// Chunks are evicted instead of zones.
    evicts_chunks: bool,
    /// The zone that host garbage collection fills.
    spare: Option<u32>,
    /// Places of evicted chunks, if they can be overwritten.
    freed: VecDeque<Place>,
    /// Placement handles that no active zone has.
    handles: Vec<u16>,
}

#[derive(Debug)]
struct Zone {
    /// Host garbage collection fills the zone, besides the active
    /// zones.
    is_spare: bool,
    handle: Option<u16>,
    state: State,
    slots_taken: u32,
    /// Chunks being written.
    writing: u32,
    readers: u32,
    promoted: u64,
    keys: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Empty,
    Active,
    Full,
    /// The zone's chunks are being moved.
    Moving,
    /// The zone waits for its readers, then for its reset.
    Emptying,
}

/// The state of a zone after a chunk was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// The zone has room.
    Open,
    /// The zone is full.
    Last,
}

impl Zones {
    pub(super) fn new(
        host: &HostBehaviour,
        zones: u32,
        slots: u32,
        active_max: u32,
        handles: u16,
    ) -> Self {
        let zone = |_| Zone {
            is_spare: false,
            handle: None,
            state: State::Empty,
            slots_taken: 0,
            writing: 0,
            readers: 0,
            promoted: 0,
            keys: vec![u32::MAX; slots as usize],
        };
        Zones {
            placement: host.placement,
            left: host.left,
            active_max,
            evict_at: host.evict_at,
            evict_to: host.evict_to,
            slots,
            zones: (0..zones).map(zone).collect(),
            empty: (0..zones).collect(),
            open: VecDeque::new(),
            emptying: 0,
            active: 0,
            promotions: 0,
            reserve: 0,
            evicts_chunks: host.policy == EvictionPolicy::Clru,
            spare: None,
            freed: VecDeque::new(),
            handles: (0..handles).rev().collect(),
        }
    }

    /// Reserves a zone, and the right to write it, for host garbage collection.
    pub(super) fn keep_spare(mut self) -> Self {
        self.reserve = 1;
        self.active_max -= 1;
        self
    }

    /// Zones that are left, including those being reset.
    fn left(&self) -> u32 {
        let open = match self.left {
            Left::Empty => 0,
            Left::WithRoom => self.open.len() as u32,
        };
        self.empty.len() as u32 + open
    }

    /// Takes a place for a key's chunk, if one is free.
    pub(super) fn take(&mut self, key: u32) -> Option<Place> {
        let number = match self.placement {
            Placement::HeldDuringFetch => match self.open.pop_front() {
                Some(zone) => zone,
                None => match self.open_another() {
                    Some(zone) => zone,
                    None => return self.take_freed(key),
                },
            },
            Placement::TakenForWrite => {
                if self.left() <= self.evict_at && !self.evicts_chunks {
                    return None;
                }
                match self.open_another().or_else(|| self.open.pop_front()) {
                    Some(zone) => zone,
                    None => return self.take_freed(key),
                }
            }
        };
        let zone = &mut self.zones[number as usize];
        let slot = zone.slots_taken;
        zone.slots_taken += 1;
        zone.writing += 1;
        zone.keys[slot as usize] = key;
        if self.placement == Placement::TakenForWrite && zone.slots_taken < self.slots {
            self.open.push_back(number);
        }
        Some(Place { zone: number, slot })
    }

    /// Takes the place of an evicted chunk, to overwrite it. Counts as an
    /// active zone of its own.
    fn take_freed(&mut self, key: u32) -> Option<Place> {
        if self.active >= self.active_max {
            return None;
        }
        let place = self.freed.pop_front()?;
        let zone = &mut self.zones[place.zone as usize];
        if zone.state != State::Full {
            self.freed.push_back(place);
            return None;
        }
        self.active += 1;
        zone.writing += 1;
        zone.keys[place.slot as usize] = key;
        Some(place)
    }

    /// Takes a place for a chunk that host garbage collection moves.
    pub(super) fn take_spare(&mut self, key: u32) -> Option<Place> {
        let number = match self.spare {
            Some(zone) => zone,
            None => self.empty.pop_front()?,
        };
        let zone = &mut self.zones[number as usize];
        zone.state = State::Active;
        zone.is_spare = true;
        let slot = zone.slots_taken;
        zone.slots_taken += 1;
        zone.writing += 1;
        zone.keys[slot as usize] = key;
        self.spare = (zone.slots_taken < self.slots).then_some(number);
        Some(Place { zone: number, slot })
    }

    /// True if host garbage collection has a place to write to.
    pub(super) fn has_spare(&self) -> bool {
        self.spare.is_some() || !self.empty.is_empty()
    }

    /// Removes the key at a place; returns it. With `overwrites`, the place can
    /// be reused at once.
    pub(super) fn forget(&mut self, place: Place, overwrites: bool) -> u32 {
        if overwrites {
            self.freed.push_back(place);
        }
        let keys = &mut self.zones[place.zone as usize].keys;
        std::mem::replace(&mut keys[place.slot as usize], u32::MAX)
    }

    /// True if a client without a place must wait for an eviction, not for
    /// another client.
    pub(super) fn is_short(&self) -> bool {
        match self.placement {
            Placement::TakenForWrite if !self.evicts_chunks => self.left() <= self.evict_at,
            _ => self.active < self.active_max,
        }
    }

    /// True if an evicted chunk's place can be overwritten.
    pub(super) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// The full zone with the fewest chunks to move, if any zone has garbage.
    pub(super) fn sparsest(&self, live: impl Fn(u32) -> u32) -> Option<u32> {
        let full = (0..self.zones.len() as u32)
            .filter(|&zone| self.zones[zone as usize].state == State::Full);
        full.min_by_key(|&zone| live(zone))
            .filter(|&zone| live(zone) < self.slots)
    }

    /// Marks a zone as being moved by host garbage collection.
    pub(super) fn begin_moving(&mut self, number: u32) {
        self.zones[number as usize].state = State::Moving;
    }

    /// Marks a zone without remaining chunks; returns whether it can be reset
    /// at once.
    pub(super) fn moved(&mut self, number: u32) -> bool {
        self.emptying += 1;
        let zone = &mut self.zones[number as usize];
        zone.state = State::Emptying;
        zone.readers == 0
    }

    /// True if zones are being reset.
    pub(super) fn is_emptying(&self) -> bool {
        self.emptying > 0
    }

    /// Records that a chunk was written.
    pub(super) fn written(&mut self, place: Place) -> Written {
        let zone = &mut self.zones[place.zone as usize];
        zone.writing -= 1;
        if zone.state == State::Full {
            self.active -= 1;
            return Written::Open;
        }
        let is_exhausted = zone.slots_taken == self.slots;
        if is_exhausted && zone.writing == 0 {
            return Written::Last;
        }
        if !is_exhausted && !zone.is_spare && self.placement == Placement::HeldDuringFetch {
            self.open.push_back(place.zone);
        }
        Written::Open
    }

    /// Records that a full zone was finished.
    pub(super) fn filled(&mut self, number: u32) {
        self.promotions += 1;
        let zone = &mut self.zones[number as usize];
        self.active -= u32::from(!std::mem::take(&mut zone.is_spare));
        zone.state = State::Full;
        zone.promoted = self.promotions;
        self.handles.extend(zone.handle.take());
    }

    /// The placement handle of an active zone. If there are more zones than
    /// handles, some share one.
    pub(super) fn handle(&self, number: u32) -> u16 {
        let own = self.zones[number as usize].handle;
        own.unwrap_or((number % (1 << 15)) as u16)
    }

    /// Pins a zone for a reader.
    pub(super) fn pin(&mut self, number: u32) {
        self.zones[number as usize].readers += 1;
    }

    /// Unpins a zone; returns whether it can be reset now.
    pub(super) fn unpin(&mut self, number: u32) -> bool {
        self.promotions += 1;
        let zone = &mut self.zones[number as usize];
        zone.readers -= 1;
        zone.promoted = self.promotions;
        zone.state == State::Emptying && zone.readers == 0
    }

    /// True if zones should be evicted.
    pub(super) fn needs_eviction(&self) -> bool {
        self.left() + self.emptying <= self.evict_at
    }

    /// True if enough zones are left.
    pub(super) fn has_enough(&self) -> bool {
        self.left() + self.emptying >= self.evict_to
    }

    /// Chooses the zone to evict; the caller drops its keys. Returns the zone
    /// and whether it can be reset at once.
    pub(super) fn evict(&mut self) -> Option<(u32, bool)> {
        let full = (0..self.zones.len()).filter(|&z| self.zones[z].state == State::Full);
        let number = full.min_by_key(|&zone| self.zones[zone].promoted)?;
        self.emptying += 1;
        let zone = &mut self.zones[number];
        zone.state = State::Emptying;
        Some((number as u32, zone.readers == 0))
    }

    /// The keys of a zone, by slot.
    pub(super) fn keys(&self, number: u32) -> &[u32] {
        &self.zones[number as usize].keys
    }

    /// Marks a zone as empty.
    pub(super) fn emptied(&mut self, number: u32) {
        self.emptying -= 1;
        let zone = &mut self.zones[number as usize];
        zone.state = State::Empty;
        zone.slots_taken = 0;
        self.empty.push_back(number);
    }

    /// Describes the state for the error of a deadlock.
    pub(super) fn describe(&self) -> String {
        format!(
            "{} zones empty, {} open, {} active of {}, {} being emptied",
            self.empty.len(),
            self.open.len(),
            self.active,
            self.active_max,
            self.emptying
        )
    }

    fn open_another(&mut self) -> Option<u32> {
        if self.active >= self.active_max || self.empty.len() <= self.reserve {
            return None;
        }
        let number = self.empty.pop_front()?;
        self.active += 1;
        let handle = self.handles.pop();
        let zone = &mut self.zones[number as usize];
        zone.state = State::Active;
        zone.handle = handle;
        Some(number)
    }
}
