//! Zones of a host: which is written next, which is evicted. ZPLRU: a full
//! zone is promoted when a chunk of it is read; the least recently promoted
//! one is evicted.

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
    /// With room, and free to be taken.
    open: VecDeque<u32>,
    /// Being emptied.
    emptying: u32,
    active: u32,
    promotions: u64,
    /// Empty zones that only host garbage collection may open.
    reserve: usize,
    /// Whether chunks are evicted, and not zones.
    evicts_chunks: bool,
    /// The zone that it fills.
    spare: Option<u32>,
    /// Places of evicted chunks, where they can be overwritten.
    freed: VecDeque<Place>,
    /// Placement handles that no active zone has.
    handles: Vec<u16>,
}

#[derive(Debug)]
struct Zone {
    /// Whether host garbage collection fills it, beside the active zones.
    is_spare: bool,
    handle: Option<u16>,
    state: State,
    slots_taken: u32,
    /// Chunks under way.
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
    /// Its chunks are being moved.
    Moving,
    /// Waits for its readers, then for its reset.
    Emptying,
}

/// The fate of a written chunk's zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It goes on.
    Open,
    /// That was the last chunk that fits.
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

    /// Keeps a zone, and the right to write one, for host garbage collection.
    pub(super) fn keep_spare(mut self) -> Self {
        self.reserve = 1;
        self.active_max -= 1;
        self
    }

    /// Zones that are left, and those that will be when they are emptied.
    fn left(&self) -> u32 {
        let open = match self.left {
            Left::Empty => 0,
            Left::WithRoom => self.open.len() as u32,
        };
        self.empty.len() as u32 + open
    }

    /// A place for a key's chunk, if there is one now.
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

    /// The place of an evicted chunk, to be overwritten. Counts as a zone of
    /// its own among the active ones.
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

    /// A place for a chunk that host garbage collection moves.
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

    /// Whether host garbage collection has a place to write to.
    pub(super) fn has_spare(&self) -> bool {
        self.spare.is_some() || !self.empty.is_empty()
    }

    /// The key at a place is evicted. Its place can be used at once where
    /// chunks can be overwritten.
    pub(super) fn forget(&mut self, place: Place, overwrites: bool) -> u32 {
        if overwrites {
            self.freed.push_back(place);
        }
        let keys = &mut self.zones[place.zone as usize].keys;
        std::mem::replace(&mut keys[place.slot as usize], u32::MAX)
    }

    /// Whether a client that got no place waits for an eviction, and not for
    /// another client.
    pub(super) fn is_short(&self) -> bool {
        match self.placement {
            Placement::TakenForWrite if !self.evicts_chunks => self.left() <= self.evict_at,
            _ => self.active < self.active_max,
        }
    }

    /// Whether a place of an evicted chunk waits to be overwritten.
    pub(super) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// The full zone that has least to move, if there is garbage in any.
    pub(super) fn sparsest(&self, live: impl Fn(u32) -> u32) -> Option<u32> {
        let full = (0..self.zones.len() as u32)
            .filter(|&zone| self.zones[zone as usize].state == State::Full);
        full.min_by_key(|&zone| live(zone))
            .filter(|&zone| live(zone) < self.slots)
    }

    /// Host garbage collection begins with a zone.
    pub(super) fn begin_moving(&mut self, number: u32) {
        self.zones[number as usize].state = State::Moving;
    }

    /// Nothing is left in a zone. Whether it can be emptied at once.
    pub(super) fn moved(&mut self, number: u32) -> bool {
        self.emptying += 1;
        let zone = &mut self.zones[number as usize];
        zone.state = State::Emptying;
        zone.readers == 0
    }

    /// Whether zones are being emptied.
    pub(super) fn is_emptying(&self) -> bool {
        self.emptying > 0
    }

    /// A chunk is written.
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

    /// The zone of the last chunk is finished.
    pub(super) fn filled(&mut self, number: u32) {
        self.promotions += 1;
        let zone = &mut self.zones[number as usize];
        self.active -= u32::from(!std::mem::take(&mut zone.is_spare));
        zone.state = State::Full;
        zone.promoted = self.promotions;
        self.handles.extend(zone.handle.take());
    }

    /// The placement handle of an active zone; with more zones than handles
    /// some share one.
    pub(super) fn handle(&self, number: u32) -> u16 {
        let own = self.zones[number as usize].handle;
        own.unwrap_or((number % (1 << 15)) as u16)
    }

    /// A reader enters a zone.
    pub(super) fn pin(&mut self, number: u32) {
        self.zones[number as usize].readers += 1;
    }

    /// A reader leaves a zone. Whether it can now be emptied.
    pub(super) fn unpin(&mut self, number: u32) -> bool {
        self.promotions += 1;
        let zone = &mut self.zones[number as usize];
        zone.readers -= 1;
        zone.promoted = self.promotions;
        zone.state == State::Emptying && zone.readers == 0
    }

    /// Whether zones should be evicted.
    pub(super) fn needs_eviction(&self) -> bool {
        self.left() + self.emptying <= self.evict_at
    }

    /// Whether enough are.
    pub(super) fn has_enough(&self) -> bool {
        self.left() + self.emptying >= self.evict_to
    }

    /// Chooses the zone to evict; its keys are handed out to be forgotten.
    /// Whether it can be emptied at once.
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

    /// A zone is empty.
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
