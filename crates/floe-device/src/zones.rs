//! Zone states and write pointers for devices whose medium has none, and the
//! checks that every request passes before any I/O.

use floe_core::{Geometry, ZoneId};

use crate::contract::{ZonePeaks, ZoneReport, ZoneState};
use crate::error::DeviceErrorKind;

/// The moment at which a finish or reset may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Start at once.
    Now,
    /// Start when the writes in flight, or an earlier finish or reset, have ended.
    Later,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    state: ZoneState,
    write_pointer: u64,
    /// Appends and writes that were started and have not ended.
    writers: u32,
    resetting: bool,
    /// Resets that wait to start.
    waiting_resets: u32,
    /// Finishes that were accepted and have not ended.
    finishing: u32,
    /// Those of them that wait to start. Earlier than any waiting reset.
    waiting_finishes: u32,
    /// An operation failed, so that the drive may be in another state.
    suspect: bool,
    inspecting: bool,
}

/// The state of every zone of a device.
#[derive(Debug)]
pub(crate) struct ZoneTable {
    zones: Vec<Zone>,
    /// Zones in state `Open`.
    open: u32,
    /// Zones in state `Open` or `Closed`.
    active: u32,
    peaks: ZonePeaks,
    capacity: u64,
    max_open: u32,
    max_active: u32,
}

impl ZoneTable {
    /// A table with every zone in `state`.
    pub(crate) fn new(geometry: &Geometry, state: ZoneState) -> Self {
        let zone = Zone {
            state,
            write_pointer: 0,
            writers: 0,
            resetting: false,
            waiting_resets: 0,
            finishing: 0,
            waiting_finishes: 0,
            suspect: false,
            inspecting: false,
        };
        ZoneTable {
            zones: vec![zone; geometry.zone_count as usize],
            open: 0,
            active: 0,
            peaks: ZonePeaks::default(),
            capacity: geometry.zone_capacity,
            max_open: geometry.max_open_zones.unwrap_or(u32::MAX),
            max_active: geometry.max_active_zones.unwrap_or(u32::MAX),
        }
    }

    /// Sets a zone's state, for devices that know it when they open.
    pub(crate) fn restore(&mut self, zone: ZoneId, state: ZoneState, write_pointer: u64) {
        let state = match state {
            ZoneState::Open | ZoneState::Closed if write_pointer == self.capacity => {
                ZoneState::Full
            }
            state => state,
        };
        self.set_state(zone, state);
        self.zones[zone.index()].write_pointer = write_pointer;
    }

    /// Advances the write pointer by `len` bytes; returns where they start. The
    /// zone counts one more writer until [`ZoneTable::writer_done`]. A zone that is
    /// reserved to its end counts as open until then.
    pub(crate) fn reserve(&mut self, zone: ZoneId, len: u64) -> Result<u64, DeviceErrorKind> {
        if self.is_being_reset(zone) {
            return Err(being_reset());
        }
        if self.zones[zone.index()].suspect {
            return Err(DeviceErrorKind::Invalid(
                "the zone's state is being read again after a failure".to_owned(),
            ));
        }
        let offset = self.advance(zone, len)?;
        self.count_writer(zone);
        Ok(offset)
    }

    /// Advances the write pointer by `len` bytes; returns where they start. For
    /// an append whose writer is counted already.
    pub(crate) fn land(&mut self, zone: ZoneId, len: u64) -> Result<u64, DeviceErrorKind> {
        let offset = self.advance(zone, len)?;
        if offset + len == self.capacity {
            self.set_state(zone, ZoneState::Full);
        }
        Ok(offset)
    }

    fn advance(&mut self, zone: ZoneId, len: u64) -> Result<u64, DeviceErrorKind> {
        let slot = self.zones[zone.index()];
        match slot.state {
            ZoneState::Empty | ZoneState::Open | ZoneState::Closed | ZoneState::Full => {}
            ZoneState::Unknown => {
                return Err(DeviceErrorKind::Invalid(
                    "the zone's write pointer is unknown after opening; reset the zone first"
                        .to_owned(),
                ));
            }
            ZoneState::ReadOnly | ZoneState::Offline => {
                return Err(DeviceErrorKind::ZoneUnwritable(slot.state));
            }
        }
        let left = match slot.state {
            ZoneState::Full => 0,
            _ if slot.finishing > 0 => 0,
            _ => self.capacity - slot.write_pointer,
        };
        if len > left {
            return Err(DeviceErrorKind::ZoneFull { wanted: len, left });
        }
        self.admit(slot.state)?;
        let slot = &mut self.zones[zone.index()];
        let offset = slot.write_pointer;
        slot.write_pointer += len;
        self.set_state(zone, ZoneState::Open);
        Ok(offset)
    }

    /// Checks that a zone in `state` may become open.
    fn admit(&self, state: ZoneState) -> Result<(), DeviceErrorKind> {
        if state != ZoneState::Open && self.open >= self.max_open {
            return Err(DeviceErrorKind::TooManyZones(self.max_open));
        }
        if state == ZoneState::Empty && self.active >= self.max_active {
            return Err(DeviceErrorKind::TooManyZones(self.max_active));
        }
        Ok(())
    }

    /// Counts one more writer in place.
    pub(crate) fn writer_started(&mut self, zone: ZoneId) -> Result<(), DeviceErrorKind> {
        if self.is_being_reset(zone) {
            return Err(being_reset());
        }
        self.count_writer(zone);
        Ok(())
    }

    fn count_writer(&mut self, zone: ZoneId) {
        let slot = &mut self.zones[zone.index()];
        slot.writers += 1;
        let most = &mut self.peaks.writes_in_flight;
        *most = slot.writers.max(*most);
    }

    /// Counts one writer less. Returns true if the zone's oldest waiting finish or reset
    /// may start now: it counts as running, and the caller must start it.
    pub(crate) fn writer_done(&mut self, zone: ZoneId) -> bool {
        let slot = &mut self.zones[zone.index()];
        debug_assert!(slot.writers > 0, "every writer that ends had started");
        slot.writers -= 1;
        if slot.writers == 0
            && slot.write_pointer == self.capacity
            && slot.state == ZoneState::Open
            && !slot.suspect
        {
            self.set_state(zone, ZoneState::Full);
        }
        self.zones[zone.index()].start_waiting()
    }

    /// Marks a zone whose drive failed an operation: it accepts no appends until it is
    /// inspected.
    pub(crate) fn suspect(&mut self, zone: ZoneId) {
        self.zones[zone.index()].suspect = true;
    }

    /// True if the zone's last writer is done and must read the zone's state from the
    /// drive. It stays a writer until [`ZoneTable::inspected`] and its end.
    pub(crate) fn starts_inspection(&mut self, zone: ZoneId) -> bool {
        let slot = &mut self.zones[zone.index()];
        let start = slot.suspect && !slot.inspecting && slot.writers == 1;
        slot.inspecting |= start;
        start
    }

    /// Ends an inspection, which found the zone's state and write pointer. Nothing was
    /// written meanwhile, because a suspect zone accepts no appends and holds finishes.
    pub(crate) fn inspected(&mut self, zone: ZoneId, found: Option<(ZoneState, u64)>) {
        let slot = &mut self.zones[zone.index()];
        debug_assert!(slot.writers == 1, "the inspection is the only writer");
        slot.inspecting = false;
        slot.suspect = false;
        let (state, write_pointer) = found.unwrap_or((ZoneState::Unknown, 0));
        self.restore(zone, state, write_pointer);
    }

    /// Requests a finish of a zone in the drive, which counts as a writer once it starts,
    /// after the writes that were accepted before it. `None` if the zone is full already.
    pub(crate) fn finish_start(&mut self, zone: ZoneId) -> Result<Option<Turn>, DeviceErrorKind> {
        self.check_finish(zone)?;
        let slot = &mut self.zones[zone.index()];
        if slot.state == ZoneState::Full {
            return Ok(None);
        }
        slot.finishing += 1;
        if slot.writers > 0 {
            slot.waiting_finishes += 1;
            return Ok(Some(Turn::Later));
        }
        slot.writers += 1;
        Ok(Some(Turn::Now))
    }

    /// Ends a finish that [`ZoneTable::finish_start`] started.
    pub(crate) fn finish_done(&mut self, zone: ZoneId, succeeded: bool) {
        let slot = &mut self.zones[zone.index()];
        slot.finishing -= 1;
        match succeeded {
            true => self.set_state(zone, ZoneState::Full),
            false => slot.suspect = true,
        }
    }

    /// Requests a reset of the zone.
    pub(crate) fn reset_start(&mut self, zone: ZoneId) -> Result<Turn, DeviceErrorKind> {
        let slot = &mut self.zones[zone.index()];
        if slot.state.is_unwritable() {
            return Err(DeviceErrorKind::ZoneUnwritable(slot.state));
        }
        if slot.writers > 0 || slot.resetting {
            slot.waiting_resets += 1;
            return Ok(Turn::Later);
        }
        slot.resetting = true;
        Ok(Turn::Now)
    }

    /// Ends the running reset. A failed one leaves the zone's state unknown,
    /// because part of it may have happened. Returns true if another reset may
    /// start now.
    pub(crate) fn reset_done(&mut self, zone: ZoneId, succeeded: bool) -> bool {
        let state = if succeeded {
            ZoneState::Empty
        } else {
            ZoneState::Unknown
        };
        self.set_state(zone, state);
        let slot = &mut self.zones[zone.index()];
        slot.write_pointer = 0;
        slot.resetting = false;
        slot.start_waiting()
    }

    /// True if a reset of the zone is running or waiting.
    pub(crate) fn is_being_reset(&self, zone: ZoneId) -> bool {
        let slot = &self.zones[zone.index()];
        slot.resetting || slot.waiting_resets > 0
    }

    /// Marks the zone full.
    pub(crate) fn finish(&mut self, zone: ZoneId) -> Result<(), DeviceErrorKind> {
        self.check_finish(zone)?;
        self.set_state(zone, ZoneState::Full);
        Ok(())
    }

    fn check_finish(&self, zone: ZoneId) -> Result<(), DeviceErrorKind> {
        match self.zones[zone.index()].state {
            state if state.is_unwritable() => Err(DeviceErrorKind::ZoneUnwritable(state)),
            _ if self.is_being_reset(zone) => Err(being_reset()),
            _ => Ok(()),
        }
    }

    /// A zone's state and write pointer.
    pub(crate) fn state(&self, zone: ZoneId) -> (ZoneState, u64) {
        let slot = &self.zones[zone.index()];
        (slot.state, slot.write_pointer)
    }

    /// The most that were in use at once.
    pub(crate) fn peaks(&self) -> ZonePeaks {
        self.peaks
    }

    /// Every zone, in order.
    pub(crate) fn report(&self) -> Vec<ZoneReport> {
        (0..)
            .map(ZoneId)
            .zip(&self.zones)
            .map(|(zone, slot)| ZoneReport {
                zone,
                state: slot.state,
                write_pointer: slot.write_pointer,
            })
            .collect()
    }

    fn set_state(&mut self, zone: ZoneId, state: ZoneState) {
        let old = std::mem::replace(&mut self.zones[zone.index()].state, state);
        for (state, step) in [(old, -1), (state, 1)] {
            let (open, active) = match state {
                ZoneState::Open => (step, step),
                ZoneState::Closed => (0, step),
                _ => (0, 0),
            };
            self.open = self.open.wrapping_add_signed(open);
            self.active = self.active.wrapping_add_signed(active);
        }
        self.peaks.open = self.open.max(self.peaks.open);
        self.peaks.active = self.active.max(self.peaks.active);
    }
}

impl Zone {
    fn start_waiting(&mut self) -> bool {
        if self.writers > 0 || self.resetting {
            return false;
        }
        if self.waiting_finishes > 0 {
            self.waiting_finishes -= 1;
            self.writers += 1;
            return true;
        }
        let resets = self.waiting_resets > 0;
        if resets {
            self.waiting_resets -= 1;
            self.resetting = true;
        }
        resets
    }
}

fn being_reset() -> DeviceErrorKind {
    DeviceErrorKind::Invalid("the zone is being reset".to_owned())
}

/// Checks that `zone` exists.
pub(crate) fn check_zone(geometry: &Geometry, zone: ZoneId) -> Result<(), DeviceErrorKind> {
    if zone.0 < geometry.zone_count {
        return Ok(());
    }
    Err(DeviceErrorKind::Invalid(format!(
        "zone {zone} does not exist; the device has {}",
        geometry.zone_count
    )))
}

/// Checks that `offset..offset + len` is a non-empty run of whole blocks
/// inside an existing zone.
pub(crate) fn check_range(
    geometry: &Geometry,
    zone: ZoneId,
    offset: u64,
    len: usize,
) -> Result<(), DeviceErrorKind> {
    check_zone(geometry, zone)?;
    let len = len as u64;
    if len == 0 || !geometry.is_aligned(offset, len) {
        return Err(DeviceErrorKind::Invalid(format!(
            "{len} bytes at {offset} are not whole blocks of {} bytes",
            geometry.block_size
        )));
    }
    match offset.checked_add(len) {
        Some(end) if end <= geometry.zone_capacity => Ok(()),
        _ => Err(DeviceErrorKind::Invalid(format!(
            "{len} bytes at {offset} exceed the zone's capacity of {} bytes",
            geometry.zone_capacity
        ))),
    }
}

/// Checks an append before its address is known.
pub(crate) fn check_append(
    geometry: &Geometry,
    zone: ZoneId,
    len: usize,
) -> Result<(), DeviceErrorKind> {
    check_zone(geometry, zone)?;
    let len = len as u64;
    if len == 0 || !geometry.is_aligned(0, len) {
        return Err(DeviceErrorKind::Invalid(format!(
            "{len} bytes are not whole blocks of {} bytes",
            geometry.block_size
        )));
    }
    if len > u64::from(geometry.max_append_bytes) {
        return Err(DeviceErrorKind::Invalid(format!(
            "an append of {len} bytes exceeds the maximum of {}",
            geometry.max_append_bytes
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
