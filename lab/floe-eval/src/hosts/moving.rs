//! Eviction of zones or of chunks (CLRU). On a zoned device, a thread of the
//! host moves the remaining chunks of a zone one by one: the last of the
//! driver's clients.

use std::time::Duration;

use super::config::EvictionPolicy;
use super::driver::{ABSENT, Driver};
use super::zones::Place;
use crate::error::EvalError;

impl Driver<'_> {
    /// Evicts if a check is due and few places are left, or because a client
    /// needs a place now. Returns whether a new place may be free.
    pub(super) fn evict(&mut self, is_needed: bool) -> Result<bool, EvalError> {
        let host = &self.config.host;
        if is_needed && !self.zones.is_short() {
            return Ok(false);
        }
        match host.evict_interval_ms {
            Some(interval_ms) if !is_needed => {
                if self.now < self.look_to_evict_at {
                    return Ok(false);
                }
                self.look_to_evict_at = self.now + Duration::from_millis(interval_ms);
            }
            None if is_needed && host.policy == EvictionPolicy::Zplru => return Ok(false),
            _ => {}
        }
        match host.policy {
            EvictionPolicy::Zplru => self.evict_zones(),
            EvictionPolicy::Clru => self.evict_chunks(is_needed),
        }
    }

    fn evict_zones(&mut self) -> Result<bool, EvalError> {
        if !self.zones.needs_eviction() {
            return Ok(false);
        }
        let mut evicts = false;
        while !self.zones.has_enough() {
            let Some((zone, can_be_emptied)) = self.zones.evict() else {
                break;
            };
            for slot in 0..self.plan.slots {
                let key = self.zones.keys(zone)[slot as usize];
                self.forget(key, Place { zone, slot });
            }
            if can_be_emptied {
                self.empty(zone)?;
                evicts = true;
            }
        }
        Ok(evicts)
    }

    fn evict_chunks(&mut self, is_needed: bool) -> Result<bool, EvalError> {
        let Some(chunks) = &self.chunks else {
            return Ok(false);
        };
        let host = &self.config.host;
        let mut left = chunks.left();
        let overwrites = !self.plan.is_zoned;
        let mut evicts = false;
        let target = match left <= host.evict_chunks_at as usize {
            true => host.evict_chunks_to as usize,
            false => 0,
        };
        while left < target || is_needed && !self.has_garbage() {
            let Some(place) = self.chunks.as_mut().and_then(super::chunks::Chunks::evict) else {
                break;
            };
            let key = self.zones.forget(place, overwrites);
            self.forget(key, place);
            left += 1;
            evicts = true;
        }
        if overwrites {
            return Ok(evicts);
        }
        self.mover.is_cleaning |= self.zones.needs_eviction() || is_needed;
        match self.mover.from {
            None => self.clean(),
            Some(_) => Ok(()),
        }?;
        // Zones are reset later.
        Ok(false)
    }

    /// True if a place is or will be free without evicting another chunk.
    fn has_garbage(&self) -> bool {
        let Some(chunks) = &self.chunks else {
            return false;
        };
        match self.plan.is_zoned {
            true => {
                self.mover.from.is_some()
                    || self.zones.is_emptying()
                    || self.zones.sparsest(|zone| chunks.live(zone)).is_some()
            }
            false => self.zones.has_freed(),
        }
    }

    fn forget(&mut self, key: u32, place: Place) {
        let here = at(place);
        if let Some(at) = self.index.get_mut(key as usize)
            && *at == here
        {
            *at = ABSENT;
        }
    }

    /// Resets zones with garbage until enough are left, or one has chunks to
    /// move first.
    fn clean(&mut self) -> Result<(), EvalError> {
        while self.mover.is_cleaning {
            let Some(chunks) = &self.chunks else { break };
            let victim = match self.zones.has_enough() {
                true => None,
                false => self.zones.sparsest(|zone| chunks.live(zone)),
            };
            let Some(zone) = victim else {
                self.mover.is_cleaning = false;
                break;
            };
            self.zones.begin_moving(zone);
            self.mover.from = Some(Place { zone, slot: 0 });
            if self.read_next()? {
                break;
            }
        }
        Ok(())
    }

    /// Reads the next remaining chunk of the zone; resets the zone if there is
    /// none. Returns whether a read was or will be started.
    fn read_next(&mut self) -> Result<bool, EvalError> {
        let mover = self.config.host.threads;
        while let Some(from) = self.mover.from {
            let key = self.zones.keys(from.zone).get(from.slot as usize).copied();
            match key {
                None => {
                    self.mover.from = None;
                    if self.zones.moved(from.zone) {
                        self.empty(from.zone)?;
                    }
                }
                Some(u32::MAX) => self.mover.from = Some(after(from)),
                Some(_) if !self.zones.has_spare() => {
                    self.mover.is_waiting = true;
                    return Ok(true);
                }
                Some(key) => {
                    let client = &mut self.clients[mover as usize];
                    (client.key, client.place) = (key, from);
                    self.read(mover)?;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Continues if a zone has become empty.
    pub(super) fn resume_moving(&mut self) -> Result<(), EvalError> {
        if !self.mover.is_waiting || !self.zones.has_spare() {
            return Ok(());
        }
        self.mover.is_waiting = false;
        match self.read_next()? {
            true => Ok(()),
            false => self.clean(),
        }
    }

    /// Writes a chunk that was read to the spare zone.
    pub(super) fn move_on(&mut self) -> Result<(), EvalError> {
        let mover = self.config.host.threads;
        let key = self.clients[mover as usize].key;
        let Some(place) = self.zones.take_spare(key) else {
            return Err(self.broken("garbage collection has no zone to write to"));
        };
        self.clients[mover as usize].place = place;
        self.write(mover)
    }

    /// Ends the move of a chunk. It counts as used now, as in ZNCache, unless
    /// it was evicted meanwhile.
    pub(super) fn moved(&mut self) -> Result<(), EvalError> {
        let client = &self.clients[self.config.host.threads as usize];
        let (key, to) = (client.key, client.place);
        self.mover.moved_chunks += 1;
        if let (Some(from), Some(chunks)) = (self.mover.from, &mut self.chunks) {
            match chunks.remove(from) {
                true => {
                    chunks.insert(to);
                    self.index[key as usize] = at(to);
                }
                false => {
                    self.zones.forget(to, false);
                }
            }
            self.mover.from = Some(after(from));
        }
        if !self.read_next()? {
            self.clean()?;
        }
        self.serve_zone_waiters()
    }
}

/// The index's encoding of a place.
fn at(place: Place) -> u64 {
    u64::from(place.zone) << 32 | u64::from(place.slot)
}

/// The next place in the zone.
fn after(place: Place) -> Place {
    Place {
        slot: place.slot + 1,
        ..place
    }
}
