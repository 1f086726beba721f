//! The order of writes: each zone has one request in flight, and the next ones wait in
//! its lane, since the kernel may reorder requests of one zone.

use std::collections::VecDeque;

use floe_core::ZoneId;

/// The requests of each zone that wait for their turn.
#[derive(Debug)]
pub(super) struct Lanes<R>(Vec<Lane<R>>);

#[derive(Debug)]
struct Lane<R> {
    queue: VecDeque<R>,
    is_busy: bool,
}

impl<R> Lanes<R> {
    /// Lanes for so many zones.
    pub(super) fn new(zones: u32) -> Self {
        let lane = |_| Lane {
            queue: VecDeque::new(),
            is_busy: false,
        };
        Lanes((0..zones).map(lane).collect())
    }

    /// Adds a request; returns the one to start now.
    pub(super) fn add(&mut self, zone: ZoneId, request: R) -> Option<R> {
        self.0[zone.index()].queue.push_back(request);
        self.next(zone)
    }

    /// Takes all requests of a zone that wait.
    pub(super) fn drain(&mut self, zone: ZoneId) -> VecDeque<R> {
        std::mem::take(&mut self.0[zone.index()].queue)
    }

    /// Ends the zone's request in flight; returns the next one to start.
    pub(super) fn ended(&mut self, zone: ZoneId) -> Option<R> {
        self.0[zone.index()].is_busy = false;
        self.next(zone)
    }

    fn next(&mut self, zone: ZoneId) -> Option<R> {
        let lane = &mut self.0[zone.index()];
        if lane.is_busy {
            return None;
        }
        let next = lane.queue.pop_front();
        lane.is_busy = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_has_one_request_in_flight_and_zones_are_independent() {
        let mut lanes = Lanes::new(2);
        let [zone, other] = [0, 1].map(ZoneId);
        assert_eq!(lanes.add(zone, "a"), Some("a"));
        assert_eq!(lanes.add(zone, "b"), None);
        assert_eq!(lanes.add(other, "c"), Some("c"));
        assert_eq!(lanes.ended(zone), Some("b"));
        assert_eq!(lanes.add(zone, "d"), None);
        assert_eq!(lanes.drain(zone), ["d"]);
        assert_eq!(lanes.ended(zone), None);
        assert_eq!(lanes.add(zone, "e"), Some("e"));
    }
}
