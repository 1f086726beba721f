//! Zones with second copies of values while host GC moves them.
//!
//! **Until a collection's originals are gone from flash, a tombstone of a key
//! in one of its zones is written for all of its zones.**

use std::collections::BTreeMap;
use std::sync::Arc;

use floe_core::ZoneId;
use parking_lot::Mutex;

/// The zones of all running collections, with the number of collections per zone.
#[derive(Debug, Default)]
pub(super) struct RelocatingZones(Mutex<BTreeMap<ZoneId, u32>>);

impl RelocatingZones {
    pub(super) fn for_each_other(&self, than: ZoneId, each: impl FnMut(ZoneId)) {
        let zones = self.0.lock();
        zones
            .keys()
            .copied()
            .filter(|&zone| zone != than)
            .for_each(each);
    }

    fn add(&self, zone: ZoneId) {
        *self.0.lock().entry(zone).or_default() += 1;
    }

    fn remove(&self, zones: &[ZoneId]) {
        let mut collections = self.0.lock();
        for zone in zones {
            if let Some(count) = collections.get_mut(zone) {
                *count -= 1;
                if *count == 0 {
                    collections.remove(zone);
                }
            }
        }
    }
}

/// The zones that one collection copies from and to.
#[derive(Debug)]
pub(crate) struct Relocation {
    all: Arc<RelocatingZones>,
    zones: Mutex<Vec<ZoneId>>,
}

impl Relocation {
    pub(super) fn new(all: &Arc<RelocatingZones>, from: ZoneId) -> Arc<Self> {
        let relocation = Arc::new(Relocation {
            all: Arc::clone(all),
            zones: Mutex::default(),
        });
        relocation.add(from);
        relocation
    }

    /// Adds `zone`, which may have copies from now on.
    pub(crate) fn add(&self, zone: ZoneId) {
        let mut zones = self.zones.lock();
        if !zones.contains(&zone) {
            zones.push(zone);
            self.all.add(zone);
        }
    }

    /// Ends the collection, whose originals are gone. A failed collection never
    /// ends: its values may be on flash twice until the cache is reopened.
    pub(crate) fn end(&self) {
        self.all.remove(&self.zones.lock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn others(all: &RelocatingZones, than: u32) -> Vec<u32> {
        let mut zones = Vec::new();
        all.for_each_other(ZoneId(than), |zone| zones.push(zone.0));
        zones
    }

    #[test]
    fn a_zone_counts_until_the_last_of_its_collections_has_ended() {
        let all = Arc::<RelocatingZones>::default();
        let first = Relocation::new(&all, ZoneId(2));
        let second = Relocation::new(&all, ZoneId(3));
        first.add(ZoneId(5));
        first.add(ZoneId(5));
        second.add(ZoneId(5));
        assert_eq!(others(&all, 3), [2, 5]);
        first.end();
        assert_eq!(others(&all, 2), [3, 5]);
        second.end();
        assert!(others(&all, 2).is_empty());
    }

    #[test]
    fn a_failed_collection_keeps_its_zones() {
        let all = Arc::<RelocatingZones>::default();
        drop(Relocation::new(&all, ZoneId(2)));
        assert_eq!(others(&all, 7), [2]);
    }
}
